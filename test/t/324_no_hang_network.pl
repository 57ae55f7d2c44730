# Packets to the ensemble or to the name service are dropped: no statement, no backend
# and no shutdown waits for an answer.

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
my $proxy = ZkLock::Proxy->start(target => $zk);
name_host('zk.example');
my $node = zklock_node('a',
	zk => 'zk.example:' . $proxy->port,
	session_timeout => SESSION_TIMEOUT);

my @dropped = (sub { drop_packets($proxy->port) }, \&pass_packets);
no_hang('a network that drops packets', $node, $zkc, @dropped);
stale_commit('a network that drops packets', $node, @dropped);

# Only a new session needs the name service (t/329_names.pl).
no_hang('a name service that does not answer', $node, $zkc,
	sub { forget_hosts(); $proxy->cut; },
	sub { name_host('zk.example') },
	'locking', 'locking several', 'upgrading', 'commit check');

# Proves that the name service is used.
my $s = session($node);
$s->query_ok("SET zklock.connect_timeout = '1s'");
forget_hosts();
fails_with($s, "SELECT zk_lock('x')", '08001',
	'no session can be opened without a name service');
name_host('zk.example');
$s->query_ok('RESET zklock.connect_timeout');
works($s, "SELECT zk_lock('x'), zk_unlock('x')", qr/^\d+\|t$/,
	'a session can be opened with a name service, and earlier queries do not delay it');

done_testing();
