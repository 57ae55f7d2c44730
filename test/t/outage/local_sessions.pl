# ZooKeeper servers with local sessions (localSessionsEnabled). A local session cannot have
# ephemeral nodes, so it cannot hold locks: every kind of call, for one name or several, on a
# follower or on the leader, fails with an error that names the servers' setting, and does not
# wait for zklock.ensemble_timeout (08006).
#
# Promise: 4.1

use ZkLock::Test;

my @calls = (
	q(SELECT zk_lock('a')),
	q(SELECT zk_try_lock('a')),
	q(SELECT zk_lock_shared('a')),
	q(SELECT zk_lock_many(ARRAY['a', 'b'])),
	q(SELECT zk_try_lock_many(ARRAY['a', 'b'])),
	q(SELECT zk_try_xact_lock_many_shared(ARRAY['a', 'b'], '40s')),
	q(SELECT zk_acquire_permit('s', 2)),
	q(SELECT zk_try_acquire_permit('s', 2)));

my $ensemble = ZkLock::ZkEnsemble->start(
	tick_time => 500,
	config => { localSessionsEnabled => 'true', localSessionsUpgradingEnabled => 'false' });
my %server = (leader => $ensemble->leader, follower => ($ensemble->followers)[0]);
my $node = zklock_node('n', zk => $ensemble);

for my $where (sort keys %server)
{
	my $s = session_with($node, connect_string => $server{$where}->connect_string);

	fails_with($s, $_, 'F0000', "$where: refused: $_", like => qr/^HINT: .*localSessionsUpgradingEnabled/m)
	  for @calls;
	works($s, 'SELECT count(*) FROM zk_held_locks', '0', "$where: the session holds nothing");
	$s->quit;
}
