# While an ensemble has no quorum, no session expires. A session that reports its locks as
# lost meanwhile is closed as soon as the ensemble is reachable again, so no waiter waits
# for another session timeout.
#
# Promise: 5.11

use ZkLock::Test;

my $ensemble = ZkLock::ZkEnsemble->start(tick_time => 500);
my $holders = shared_node('holders', zk => $ensemble, session_timeout => '6s');
my $others = shared_node('others', zk => $ensemble);

# Returns the sessions that the ensemble has expired.
sub expired
{
	return join "\n",
	  map { read_file($_->log_file) =~ /Expiring session (0x[0-9a-f]+)/g }
	  $ensemble->members;
}

my $holder = session($holders);
$holder->query_ok("SELECT zk_lock('left')");
my $id = zk_session_id($holder);
$holder->query_async('SELECT pg_sleep(120)');

my ($first, $second) = $ensemble->members;
$_->kill9 for $first, $second;
failed_with($holder, '40001', 'a holder reports its lock as lost without a quorum',
	like => qr/left/);

$ensemble->restart;
my $other = session($others);
works($other, "SELECT zk_lock('left') > 0",
	't', 'the lock is free when there is a quorum again');
unlike(expired(), qr/\Q$id\E/,
	'the lock is free because its session was closed, not because it expired');
$other->query_ok('SELECT zk_unlock_all()');

# The session that lost the lock can lock in a new ZooKeeper session.
works($holder, "SELECT zk_lock('left') > 0", 't', 'the former holder can lock again');
isnt(zk_session_id($holder), $id, 'the former holder locks in another ZooKeeper session');
