# What doc/operations.md says of numbers, limits and counters is so: what servers
# grant and refuse, and what a backend needs.

use strict;
use warnings;

use IPC::Run ();
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Document;
use ZkLock::Util qw(wait_until write_file);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

use constant CONNECTIONS => 6;
use constant DOCUMENT => 'doc/operations.md';

sub mntr
{
	my ($zk) = @_;
	return { ($zk->four_letter('mntr') // '') =~ /^zk_(\w+)\t(.*)$/mg };
}

# The settings that the document shows for zoo.cfg.
{
	my %shown = map { /^([^#\s=]+)=(.*)$/ ? ($1 => $2) : () } split /\n/, block_of(DOCUMENT, 'zoo.cfg');
	cmp_ok(scalar keys %shown, '>', 3, 'the document has settings for zoo.cfg');
	my $server = ZkLock::ZkServer->start(config => \%shown);
	like($server->four_letter($_), qr/\bzk_version|^Mode: standalone/m, "a server starts with them, and answers $_")
	  for qw(srvr mntr);
	unlike($server->four_letter('conf') // '', qr/^clientPort=/m, 'and answers no other command');
	$server->stop;
}

# Defaults: two to twenty ticks, and a limit to the connections of one address.
my $zk = ZkLock::ZkServer->start(
	tick_time => 2000,
	config => { maxClientCnxns => CONNECTIONS });
my $node = zklock_node('a', zk => $zk, session_timeout => '10s', preload => 1);

for ([ '1s', '00:00:04' ], [ '10s', '00:00:10' ], [ '2min', '00:00:40' ])
{
	my ($asked, $granted) = @$_;
	my $s = session($node);
	$s->query_ok("SET zklock.session_timeout = '$asked'; SELECT zk_lock('asked')");
	works($s, 'SELECT session_timeout FROM zk_session()', $granted,
		"who asks for $asked is granted $granted with a tick of 2 s");
	$s->quit;
}

# Every look at the server is a connection, too.
{
	my @in = map { session($node) } 1 .. CONNECTIONS;
	my $rejected = mntr($zk)->{connection_rejected};
	$_->query_ok("SELECT zk_lock('own-' || pg_backend_pid())") for @in;
	my $out = session($node);
	$out->query_ok("SET zklock.connect_timeout = '300ms'");
	fails_with($out, "SELECT zk_lock('one more')", '08001',
		'one connection more than maxClientCnxns gets an error that says so');
	works($in[0], "SELECT count(*) FROM zk_locks WHERE name LIKE 'own-%'", CONNECTIONS,
		'while the others go on');
	$in[-1]->quit;
	ok(wait_until('a place', sub { $out->query("SELECT zk_try_lock('one more')") eq 't' }),
		'it gets in when another one leaves');
	$in[-2]->quit;
	ok(wait_until('the counter', sub { (mntr($zk)->{connection_rejected} // 0) > $rejected }),
		'the server counts whom it turned away');
	$_->quit for @in, $out;
}

# What a backend needs, and the size of a lock.
{
	my $s = session($node);
	my $tasks = sub { return scalar(() = glob '/proc/' . $s->pid . '/task/*') };
	my $entries = 'SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() '
	  . "AND locktype IN ('advisory', 'userlock')";
	is($tasks->(), 1, 'a backend without locks has one thread');
	$s->query_ok('SELECT zk_lock(1)');
	is($tasks->(), 1 + 1, 'with a session one more');
	works($s, $entries, 2, 'and one entry in the lock table, and one for the lock');
	$s->query_ok("SELECT zk_acquire('permits', 2)");
	works($s, $entries, 3, 'a permit has one, too');
	$s->query_ok("SELECT zk_release('permits')");
	works($s, $entries, 2, 'until it is released');
	my $before = mntr($zk)->{approximate_data_size};
	$s->query_ok('SELECT count(zk_lock(n)) FROM generate_series(2, 101) AS n');
	works($s, $entries, 102, 'each lock has one');
	cmp_ok(mntr($zk)->{approximate_data_size} - $before,
		'<', 100 * 1000, 'a lock is less than 1 kB in the ensemble');
	$s->quit;
}

# Watches: of a held lock, which is watched after a second, and of a long wait.
{
	my $zkc = ZkLock::ZkClient->new($zk->connect_string);
	my $s = session($node);
	my $holder = foreign_node($zkc, '/zklock/locks/theirs', 'WRIT');
	$s->query_ok("SELECT zk_lock('mine')");
	ok(wait_until('a watch', sub { mntr($zk)->{watch_count} > 0 }), 'a held lock is watched');
	$s->query_async("SELECT zk_lock('theirs')");
	wait_until('the tale of a long wait', sub { scalar $zkc->children('/zklock/waits') });
	my %told = %{ mntr($zk) };
	cmp_ok($told{watch_count}, '<=', 2 * $told{ephemerals_count},
		'there are no more than two watches for each ephemeral znode');
	$zkc->delete($holder);
	$s->wait_result;
	$s->quit;
	$zkc->close;
}

# Enters what the document shows in zkCli.sh.
sub zk_cli
{
	my ($root, $word) = @_;
	my $commands = block_of(DOCUMENT, $word) =~ s{/zklock\b}{$root}gr;
	my $out = '';
	my $class_path = $ENV{ZOOKEEPER_CLASSPATH} // join ':', map { "/usr/share/java/$_.jar" } qw(zookeeper commons-cli slf4j-simple);
	IPC::Run::run([ 'java', '-cp', $class_path, 'org.apache.zookeeper.ZooKeeperMain', '-server', $zk->connect_string ],
		\$commands, '>&', \$out) or diag($out);
	return;
}

# Other credentials need another root, or changed ACLs.
{
	my $dir = PostgreSQL::Test::Utils::tempdir();
	for my $password (qw(old new))
	{
		write_file("$dir/$password", "digest locks:$password-password\n");
		chmod 0600, "$dir/$password" or die "$dir/$password: $!";
	}
	my ($old, $new) = map { session($node) } 1, 2;
	$_->query_ok("SET zklock.acl = creator; SET zklock.root = '/first'") for $old, $new;
	$old->query_ok("SET zklock.auth_file = '$dir/old'");
	$new->query_ok("SET zklock.auth_file = '$dir/new'");
	works($old, "SELECT zk_try_lock('a'), zk_unlock('a')", 't|t', 'credentials make their root');
	fails_with($new, "SELECT zk_lock('b')", '42501', 'others are refused there');
	$new->query_ok("SET zklock.root = '/second'");
	works($new, "SELECT zk_try_lock('b'), zk_unlock('b')", 't|t', 'but can have one of their own');
	$new->query_ok("SET zklock.root = '/first'");
	zk_cli('/first', 'both');
	works($old, "SELECT zk_try_lock('c'), zk_unlock('c')", 't|t', 'with ACLs for both, the old credentials lock');
	works($new, "SELECT zk_try_lock('d'), zk_unlock('d')", 't|t', 'and the new ones');
	zk_cli('/first', 'new');
	works($new, "SELECT zk_try_lock('d'), zk_unlock('d')", 't|t', 'later the new ones alone');
	fails_with($old, "SELECT zk_lock('b')", '42501', 'and the old ones no longer');
	$_->quit for $old, $new;
}

my $zkc = ZkLock::ZkClient->new($zk->connect_string);
nothing_left($zkc, 'nothing is left', root => $_) for qw(/zklock /first /second);
$zkc->close;
$node->stop;
$zk->stop;
done_testing();
