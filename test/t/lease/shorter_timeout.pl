# The servers of an ensemble may grant different session timeouts, for example while their
# limit is being lowered. A session that is resumed by a server with a lower limit expires
# earlier, so its locks are lost earlier: a holder that is cut off then still stops before
# another session is granted its lock.
# Alone: it compares times.
#
# Promise: 5.11

use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);
use ZkLock::Test;

my $ensemble = ZkLock::ZkEnsemble->start(tick_time => 1000, config => { maxSessionTimeout => 24000 });
my ($before, $after) = $ensemble->followers;
append_to_file(dirname($after->log_file) . '/zoo.cfg', "maxSessionTimeout=8000\n");
$after->restart;
$ensemble->wait_ready;

my $proxy = ZkLock::Proxy->start(target => $before);
my $here = shared_node('a', zk => $proxy, session_timeout => '24s');
my $there = shared_node('b', zk => $ensemble->leader, session_timeout => '24s');
my $holder = session($here);
$holder->query_ok("SELECT zk_lock('x')");
my $id = zk_session_id($holder);
my $waiter = session($there);
$waiter->query_async("SELECT zk_lock('x')");
wait_blocked($waiter);

wait_proven($holder);
$proxy->retarget($after->connect_string);
$proxy->cut;
wait_until('the shorter session timeout',
	sub { $holder->query_ok('SELECT session_timeout FROM zk_session()') eq '00:00:08' });
is(zk_session_id($holder), $id, 'a session is resumed with a shorter session timeout');
works($holder, 'SELECT count(*) FROM zk_held_locks', '1', 'a session that is resumed keeps its lock');

$holder->query_async('SELECT pg_sleep(60)');
my $cut = time;
$proxy->freeze;
my ($stopped, $granted);
wait_until(
	'the holder to stop and the waiter to go on',
	sub {
		$stopped //= time if $holder->finished;
		$granted //= time if $waiter->finished;
		return $stopped && $granted;
	},
	pause => 0.005);
$_->wait_result for $holder, $waiter;
is($holder->sqlstate, '40001', 'the holder that is cut off then loses its lock');
ok($waiter->ok, 'another session is granted the lock of the holder that is cut off') || diag($waiter->error);
ok($stopped < $granted, 'the holder that is cut off stops before another session is granted its lock')
  || diag(sprintf 'stopped %.2f s after the cut, granted %.2f s after it', map { $_ - $cut } $stopped, $granted);
