# Packets that vanish on the way, to the ensemble or to the name service: no
# statement, no backend and no shutdown waits for an answer.

use strict;
use warnings;

use ZkLock::PrivateNetwork;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::NoHang;
use ZkLock::Proxy;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(
	tick_time => 200,
	config => { maxSessionTimeout => 300000 });
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 300);
my $way = ZkLock::Proxy->start(target => $zk);
name_host('zk.example');
my $node = zklock_node('a',
	zk => 'zk.example:' . $way->port,
	session_timeout => SESSION_TIMEOUT);

my @swallowed = (sub { drop_packets($way->port) }, \&pass_packets);
no_hang('a network that swallows packets', $node, $zkc, @swallowed);
stale_commit('a network that swallows packets', $node, @swallowed);

# A connection that is lost meanwhile has the name looked up again.
my @nameless = (
	sub { forget_hosts(); $way->cut; },
	sub { name_host('zk.example') });
no_hang('a name service that does not answer', $node, $zkc, @nameless);
stale_commit('a name service that does not answer', $node, @nameless);

# So that it is known what the above was about.
my $s = session($node);
$s->query_ok("SET zklock.connect_timeout = '1s'");
forget_hosts();
fails_with($s, "SELECT zk_lock('x')", '08001',
	'without a name service there is no session');
name_host('zk.example');
works($s, "SELECT zk_lock('x'), zk_unlock('x')", qr/^\d+\|t$/,
	'with it there is one, without a wait for the queries before');

$node->stop;
$zkc->close;
$way->stop;
$zk->stop;
done_testing();
