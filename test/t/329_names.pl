# Names cost no lock: a session connects to the servers whose names are resolved, however
# the lookups of the others fail, and reconnects to the addresses that it knows already
# while the name service fails. Changed addresses are used.

use strict;
use warnings;

use ZkLock::PrivateNetwork;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::ZkServer;

# Each session tries the servers in an order of its own.
use constant SESSIONS => 4;

my $zk = ZkLock::ZkServer->start(tick_time => 200, config => { maxSessionTimeout => 60000 });
my $proxy = ZkLock::Proxy->start(target => $zk);
my $port = $proxy->port;
my $node = zklock_node('a', zk => $zk, session_timeout => '6s');
my $locks = 0;

# Returns sessions that hold a lock, reached by these servers.
sub holders
{
	my ($servers, $what) = @_;
	my @holders = map { session($node) } 1 .. SESSIONS;
	$_->reconnect('zklock.connect_string' => $servers) for @holders;
	works($_, "SELECT zk_lock('lock " . ++$locks . "') > 0", 't', $what) for @holders;
	return @holders;
}

# A session that was lost would fail with its next statement.
sub survive
{
	my ($what, $break, @holders) = @_;
	my @ids = map { zk_session_id($_) } @holders;
	$break->();
	works($_, "SELECT zk_lock('lock " . ++$locks . "') > 0", 't', $what) for @holders;
	is_deeply([ map { zk_session_id($_) } @holders ], \@ids, '... and no session is lost');
	return;
}

my %lookups = (
	'fails' => \&fail_lookups,
	'gets no answer' => \&silence_lookups);
my $three = join ',', map { "zk$_.example:$port" } 1 .. 3;
for my $how (sort keys %lookups)
{
	$lookups{$how}->();
	name_host('zk1.example', 'zk2.example');
	my @holders = holders($three, "the lookup of one of three names $how: a session connects");
	survive("the lookup of one of three names $how: a session reconnects", sub { $proxy->cut }, @holders);
	survive("the lookup of each name $how: a session reconnects", sub { forget_hosts(); $proxy->cut },
		@holders);
	$_->quit for @holders;
}
wait_for_log($node, qr/ZooKeeper client: the name of server "zk3\.example" could not be resolved: /);

# A session connects when its names are resolved at last.
{
	fail_lookups();
	my $s = session($node);
	$s->reconnect('zklock.connect_string' => "late.example:$port");
	$s->query_async("SELECT zk_lock('late') > 0");
	wait_for_sql($node,
		"SELECT wait_event_type FROM pg_stat_activity WHERE pid = " . $s->pid, 'Extension');
	name_host('late.example');
	is($s->wait_result, 't', 'a session connects when its names are resolved at last');
	$s->quit;
}

# The servers get other addresses.
{
	name_host('moved.example');
	my @holders = holders("moved.example:$port", 'a session connects to a name');
	my $other = ZkLock::Proxy->start(target => $zk, address => '127.0.0.2', port => $port);
	name_host_at('127.0.0.2', 'moved.example');
	survive('a session reconnects to the new address of a name', sub { $proxy->cut(refuse => 1) }, @holders);
	is($_->query('SELECT server FROM zk_session()'), "127.0.0.2:$port", '... which is shown') for @holders;
	$_->quit for @holders;
	$other->stop;
}

$node->stop;
$proxy->stop;
$zk->stop;
done_testing();
