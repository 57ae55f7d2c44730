# Packets to the ensemble are dropped: no statement, no backend and no shutdown waits for an
# answer.
#
# Promise: 4.3

use ZkLock::NoHang;
use ZkLock::PrivateNetwork;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 200)->with_client(timeout => 300);
my $proxy = ZkLock::Proxy->start(target => $zk);
my $node = zklock_node('a', proxy => $proxy, session_timeout => SESSION_TIMEOUT);

my @dropped = (sub { drop_packets($proxy->port) }, \&pass_packets);
no_hang('a network that drops packets', $node, $zkc, @dropped);
stale_commit('a network that drops packets', $node, @dropped);
