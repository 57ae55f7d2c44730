# zk_stat counts events of the whole server.
#
# Tags: edges

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $proxy = ZkLock::Proxy->start(target => $zk);
my $server = shared_node('preloaded', proxy => $proxy);
my $plain = shared_node('plain', zk => $zk);
$server->safe_psql('postgres', 'CREATE TABLE t (n int)');

my $counters = 'acquisitions, waits, timeouts, cancels, deadlocks, sessions_opened, '
  . 'sessions_lost, locks_lost, commits_refused, revocations';
my %none = map { $_ => 0 } split /, /, $counters;
my $reader = session($server);
$reader->query_ok('SELECT zk_stat_reset()');

sub counts
{
	my ($s) = @_;
	my %counts;
	@counts{ split /, /, $counters } =
	  split /\|/, $s->query("SELECT $counters FROM zk_stat");
	return \%counts;
}

# One assertion: since the last call these counters, and no others, went up.
my %last = %none;

sub counted
{
	my ($name, %expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $now = counts($reader);
	my %difference = map { $_ => $now->{$_} - $last{$_} } keys %$now;
	%last = %$now;
	return is_deeply(\%difference, { %none, %expected }, $name);
}

# Requests a lock that another server holds, and returns when the backend waits.
sub start_waiting
{
	my ($s, $lock) = @_;
	my $log = -s $server->logfile;
	$s->query_ok("SET log_lock_waits = on; SET deadlock_timeout = '10ms'");
	$s->query_async("SELECT zk_lock('$lock')");
	wait_for_log($server, qr/still waiting for zk lock "$lock"/, $log);
	return;
}

is($reader->query('SELECT stats_reset <= clock_timestamp() FROM zk_stat'), 't', 'the counters have a time of their reset');

my $a = session($server);
my $b = session($server);
my $far = session($plain);
$a->query_ok("SELECT zk_lock('x')");
counted('a lock counts an acquisition and an opened session', acquisitions => 1, sessions_opened => 1);
$a->query_ok("SELECT zk_lock('x'), zk_lock_many_shared(ARRAY['y', 'z'])");
counted('locks already held and each name of an array count as acquisitions', acquisitions => 3);
$b->query_ok("SELECT zk_try_lock('x')");
counted('a non-blocking attempt counts no wait', sessions_opened => 1);
$b->query_ok("SELECT zk_try_lock('x', '100 ms')");
counted('a timed attempt counts a wait and a timeout', waits => 1, timeouts => 1);
$b->query_ok("SET lock_timeout = 1");
$b->query("SELECT zk_lock('x')");
counted('lock_timeout on one server counts a wait and a timeout', waits => 1, timeouts => 1);
$b->query_ok("SET lock_timeout = 0");

$far->query_ok("SELECT zk_lock('far')");
my $log = -s $server->logfile;
$b->query_ok("SET lock_timeout = 500; SET log_lock_waits = on; SET deadlock_timeout = '10ms'");
$b->query("SELECT zk_lock('far')");
is($b->sqlstate, '55P03', 'lock_timeout ends a wait for another server');

# On a slow machine the timeout may end the request before it waits.
my $waited = slurp_file($server->logfile, $log) =~ /still waiting for zk lock "far"/
  || counts($reader)->{waits} > $last{waits};
counted('lock_timeout across servers counts a wait and a timeout', waits => $waited ? 1 : 0, timeouts => 1);
$b->query_ok("SET lock_timeout = 0");
start_waiting($b, 'far');
$b->cancel;
$b->wait_result;
counted('a cancelled wait counts a wait and a cancel', waits => 1, cancels => 1);
$b->query_ok('RESET ALL');
my $before = $reader->query('SELECT wait_time FROM zk_stat');
start_waiting($b, 'far');
$far->query_ok("SELECT pg_sleep(0.01), zk_unlock('far')");
like($b->wait_result, qr/^\d+$/, 'a waiter is granted the lock');
$b->query_ok('RESET ALL');
counted('a granted wait counts a wait and an acquisition', waits => 1, acquisitions => 1);
is($reader->query("SELECT wait_time > '$before' FROM zk_stat"),
	't', 'a granted wait adds to wait_time');

$a->query_ok("SELECT zk_lock('one')");
$b->query_ok("SELECT zk_lock('two')");
$a->query_async("SELECT zk_lock('two')");
wait_blocked_locally($a);
$b->query_async("SELECT zk_lock('one')");
wait_until('one to fail', sub { $a->finished || $b->finished });
my ($loser, $winner) = $b->finished ? ($b, $a) : ($a, $b);
$loser->wait_result;
$loser->query_ok('SELECT zk_unlock_all()');
$winner->wait_result;
counted('a deadlock counts once', acquisitions => 3, waits => 2, deadlocks => 1);
$_->query_ok('SELECT zk_unlock_all()') for $a, $b;

# Lost locks.
$a->query_ok("BEGIN; SELECT zk_xact_lock('x'), zk_lock('y'); INSERT INTO t VALUES (1)");
counted('two locks count two acquisitions', acquisitions => 2);
$zkc->delete("/zklock/locks/x/$_") for $zkc->children('/zklock/locks/x');
$a->query_async('SELECT pg_sleep(600)');
$a->wait_result;
is($a->sqlstate, '40001', 'a lock is lost');
counted('a lost lock counts once', locks_lost => 1);
$a->query_ok('ROLLBACK');
counted('a rollback does not count as a refused commit');
$a->query_ok("BEGIN; SET LOCAL zklock.commit_check = always");
$a->query_ok("SELECT zk_xact_lock('x'); INSERT INTO t VALUES (1)");
my $id = zk_session_id($a);
$proxy->freeze;
$a->query_async('COMMIT');
wait_blocked($a);
$a->cancel;
$a->wait_result;
isnt($a->sqlstate, '00000', 'a commit fails when the lock is not confirmed until it is cancelled');
counted('an unconfirmed commit counts as refused', acquisitions => 1, commits_refused => 1);
$zkc->end_session($id);
$proxy->thaw;
$a->query('SELECT pg_sleep(600)');
is($a->sqlstate, '40001', 'a session is lost with its lock');
counted('a lost session counts with its lock', locks_lost => 1, sessions_lost => 1);

# Reset and privileges.
$reader->query_ok('SELECT zk_stat_reset()');
%last = %none;
counted('a reset sets all counters to 0');
is($reader->query('SELECT wait_time FROM zk_stat'), '0', 'a reset sets the wait time to 0');
$server->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
my $ordinary = session($server, user => 'ordinary');
is($ordinary->query('SELECT count(*) FROM zk_stat'), '1', 'every role may read zk_stat');
$ordinary->query('SELECT zk_stat_reset()');
is($ordinary->sqlstate, '42501', 'an ordinary role may not reset zk_stat');
$server->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION zk_stat_reset() TO ordinary');
$ordinary->query_ok('SELECT zk_stat_reset()');

# All backends of the server count in one place.
my $one = session($server);
my $two = session($server);
my $opened = $two->query('SELECT acquisitions, sessions_opened FROM zk_stat');
works($two, 'SELECT acquisitions, sessions_opened FROM zk_stat', $opened, 'reading zk_stat opens no ZooKeeper session');
$one->query_ok("SELECT zk_lock('mine')");
my ($acquisitions, $sessions) = split /\|/, $opened;
works($two, 'SELECT acquisitions, sessions_opened FROM zk_stat', join('|', $acquisitions + 1, $sessions + 1),
	'a session sees what another one counts');

# A restart sets the counters to 0.
$server->restart;
$reader = session($server);
is($reader->query('SELECT acquisitions FROM zk_stat'), '0', 'a restart resets the counters');

$_->quit for $reader, $far;
nothing_left($zkc, 'no node is left');
