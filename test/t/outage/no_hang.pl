# While an ensemble is silent, whatever the reason and whatever a backend is doing, its
# statement can be cancelled, the backend can be terminated, and the server can be shut
# down, within seconds.
#
# Promise: 4.3
# Tags: user

use ZkLock::NoHang;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 200)->with_client(timeout => 300);
my $proxy = ZkLock::Proxy->start(target => $zk);
my $node = zklock_node('a', proxy => $proxy, session_timeout => SESSION_TIMEOUT);
my %silence = (
	'a silent server' => [ sub { $zk->pause }, sub { $zk->resume } ],
	'a silent network' => [ sub { $proxy->freeze }, sub { $proxy->thaw } ]);
for my $what (sort keys %silence)
{
	no_hang($what, $node, $zkc, @{ $silence{$what} });
	stale_commit($what, $node, @{ $silence{$what} });
}
$node->stop;
$zkc->close;
$proxy->stop;
$zk->stop;

# An ensemble with one member left.
my $ensemble = ZkLock::ZkEnsemble->start(tick_time => 200);
$zkc = ZkLock::ZkClient->new($ensemble->connect_string, timeout => 300);
$node = zklock_node('b',
	zk => $ensemble, session_timeout => SESSION_TIMEOUT);
my @no_quorum = (
	sub { $_->kill9 for $ensemble->leader, ($ensemble->followers)[0] },
	sub { $ensemble->restart });
no_hang('no quorum', $node, $zkc, @no_quorum);
stale_commit('no quorum', $node, @no_quorum);
