# Another program fills the queues of a world-writable root with nodes whose data are as long as
# zklock reads them. A query of zk_locks shows all of them, with a bounded amount of memory; of one
# lock with more data than that, it shows the others without their data.
#
# Promise: 4.3, 10.3

use PostgreSQL::Test::Utils;
use ZkLock::Test;

# What doc/reference.md promises, and what the backend uses for everything else, in kB.
use constant { BOUND => 64 * 1024, ELSE => 24 * 1024 };

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 2000, java => ['-Xmx2g'])->with_client(timeout => 60);
my $node = shared_node('a', zk => $zk);
my $holder = session($node);
$holder->query_ok("SELECT zk_lock('held')");

# Asserts that the peak of a backend's memory grows by less than the bound in this query. The
# first query of a backend, which reads catalogs, does not count.
sub growth
{
	my ($sql, $expected, $name, %settings) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $s = session_with($node, %settings);
	$s->query_ok("SELECT count(*) FROM zk_locks_of('held')");
	my $before = peak($s);
	works($s, $sql, $expected, "$name: shown");
	my $grown = peak($s) - $before;
	$s->quit;
	cmp_ok($grown, '<', BOUND + ELSE, "$name: the backend's memory stays below the bound");
	note "$name: $grown kB";
	return;
}

# VmHWM has the shared buffers, which do not grow here; RssAnon has no peak.
sub peak
{
	my ($s) = @_;
	my ($peak) = slurp_file('/proc/' . $s->pid . '/status') =~ /^VmHWM:\s+(\d+) kB/m;
	return $peak;
}

# Six locks of 4,000 nodes: 96 MB of data.
$zkc->create_contenders("/zklock/locks/forged$_", 4000, 4096) for 1 .. 6;
growth('SELECT count(*), count(application_name), count(*) FILTER (WHERE server IS NOT NULL AND pid > 0) FROM zk_locks',
	'24001|24001|1', 'many nodes of several locks, with long data');

# One lock has more data than the bound.
$zkc->create_contenders('/zklock/locks/forged1', 8000, 4096, 4000);
growth(q(SELECT count(*), count(application_name) BETWEEN 1000 AND 11999, count(requested_at) FROM zk_locks_of('forged1')),
	'12000|t|12000', 'many nodes of one lock');
growth(q(SELECT count(*) FILTER (WHERE server IS NOT NULL), count(DISTINCT name) FROM zk_locks), '1|7',
	'many nodes of one lock among others');

# Nodes without data, whose paths are long, below a root of their own: each part reads no nodes
# but those that it is about.
my %root = (root => '/long');
my %long = map { $_ => $_ x 430 } qw(% & *);
my %path = map { $_ => "$root{root}/locks/" . sprintf('%%%02X', ord $_) x 430 } keys %long;
$zkc->create_contenders($_, 7000, 0) for values %path;
growth(q(SELECT count(*) FROM zk_locks WHERE octet_length(name) = 430), '21000', 'nodes with long paths of several locks', %root);
$zkc->create_contenders($path{'%'}, 12_000, 0, 7000);
my $s = session_with($node, %root);
fails_with($s, "SELECT count(*) FROM zk_locks_of('$long{'%'}')", '54000', 'more nodes of one lock than the bound allows are an error');
works($s, "SELECT count(*) FROM zk_locks_of('$long{'&'}')", '7000', 'the other locks can be seen');
works($holder, "SELECT zk_unlock('held')", 't', 'the session and its lock live on');
