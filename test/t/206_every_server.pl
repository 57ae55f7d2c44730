# A session finds the only reachable server of its connect string, however many others
# the connect string has, and finds it again after a lost connection.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::Util qw(free_port);
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 200, config => { maxSessionTimeout => 60000 });
my $proxy = ZkLock::Proxy->start(target => $zk);
my $node = zklock_node('a', zk => $zk, session_timeout => '20s');

# Each session tries the servers in an order of its own.
for my $closed (1, 2, 3, 5, 64)
{
	my @servers = ((map { '127.0.0.1:' . free_port() } 1 .. $closed), $proxy->connect_string);
	my @sessions = map { session($node) } 1 .. 4;
	for my $s (@sessions)
	{
		$s->query_ok("SET zklock.connect_string = '" . join(',', @servers) . q('));
		$s->query_ok("SELECT zk_lock('every ' || pg_backend_pid())");
	}
	my @ids = map { zk_session_id($_) } @sessions;
	$proxy->cut;
	wait_state($_, 'connected') for @sessions;
	is_deeply([ map { zk_session_id($_) } @sessions ], \@ids,
		"the only reachable server beside $closed others is found, and found again");
	$_->quit for @sessions;
}

# An IPv6 address has brackets in the connect string.
{
	my $on_ipv6 = ZkLock::Proxy->start(target => $zk, address => '[::1]');
	my $s = session($node);
	$s->query_ok("SET zklock.connect_string = '" . $on_ipv6->connect_string . q('));
	works($s, "SELECT zk_lock('by address') > 0", 't', 'a session connects to an IPv6 address');
	$s->quit;
	$on_ipv6->stop;
}

$node->stop;
$proxy->stop;
$zk->stop;
done_testing();
