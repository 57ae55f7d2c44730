# A wait for a lock of another server ends when it is interrupted, with the SQLSTATE of
# a native lock, and leaves no node.
#
# Promises: 4.1, 4.2
# Tags: user, edges

use POSIX qw(SIGALRM SIGINT);
use PostgreSQL::Test::Utils;
use ZkLock::Test;
use ZkLock::Ways;

# The session timeout is so long that no session expires here.
my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client(timeout => 120);
my ($here, $there) =
  map { zklock_node($_, zk => $zk, session_timeout => '290s') } qw(here there);
my $lock = '/zklock/locks/x';
my $s = session($here);
my $holder = session($there, application_name => 'the_holder');
$holder->query_ok("SELECT zk_lock('x')");

# Checks the state after a wait of $s: only the holder's node is in the queue, nothing
# is held, no timeout is armed, and the session can lock.
sub all_is_clean
{
	my ($scenario) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_zk_children($zkc, $lock, 1), "$scenario: the node of the waiter is removed");
	is($s->query('SELECT count(*) FROM zk_held_locks'),
		'0', "$scenario: nothing is held");
	is( $s->query(
			"SELECT zk_try_lock('free'), zk_unlock('free'), "
			  . "zk_try_lock('x'), zk_try_lock_shared('x')"),
		't|t|f|f', "$scenario: the session can lock again");
	is($here->safe_psql('postgres',
			"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
		'0', "$scenario: no lock of this server is left");
	ok(wait_zk_children($zkc, $lock, 1), "$scenario: the refused attempts leave no node");
	return;
}

# The message is PostgreSQL's. Its context names the lock.
# From 19 on PostgreSQL names its own lock first.
sub names_the_lock
{
	my ($wait, $action) = (@_, 'lock "x"');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return like($s->error, qr/^(?:CONTEXT:  (?:waiting for .*\n)?)while trying to $action$/m, "$wait: the context names the lock");
}

# A wait of each kind of call.
my %waits = (
	'exclusive' => "SELECT zk_lock('x')",
	'shared' => "SELECT zk_lock_shared('x')",
	'for a transaction' => "SELECT zk_xact_lock('x')",
	'for several names' => "SELECT zk_lock_many(ARRAY['a', 'x', 'z'])",
	'with a timeout' => "SELECT zk_try_lock('x', interval '1 hour')");

# On a slow machine a timeout may end the call before it waits for lock x, and a cancel before it knows which of several
# locks it waits for.
for my $wait (sort keys %waits)
{
	for my $way (ways($here, 'lock_timeout', 'statement_timeout', 'a cancel'))
	{
		wait_ends($way, $s, $waits{$wait}, $wait, blocked => sub { wait_zk_children($zkc, $lock, 2) });
		names_the_lock("$wait, $way->{name}", $way->{event} && $wait ne 'for several names' ? 'lock "x"' : 'lock "[axz]"');
		is($s->query("SELECT 'slept' FROM pg_sleep(0.3)"), 'slept', "$wait: no timeout is left armed") if $way->{setting};
		all_is_clean("$wait, $way->{name}");
	}
}

# A wait for a session of the same server, for a permit, and for a connection.
my $local_holder = session($here);
$local_holder->query_ok("SELECT zk_lock('near'), zk_acquire_permit('permit', 1)");
$s->query_ok("SET lock_timeout = '100ms'");
$s->query("SELECT zk_lock_many(ARRAY['a', 'near', 'z'])");
is($s->sqlstate, '55P03', 'a wait on the same server: lock_timeout ends it');
names_the_lock('a wait on the same server', 'lock "near"');
$s->query("SELECT zk_acquire_permit('permit', 1)");
is($s->sqlstate, '55P03', 'a wait for a permit: lock_timeout ends it');
names_the_lock('a wait for a permit', 'acquire a permit of semaphore "permit"');
$local_holder->quit;

# lock_timeout counts for a call with several names as a whole: it ends before a call that has
# waited for the second name for longer, but began later.
{
	my ($one, $two, $later) = map { session($here) } 1 .. 3;
	$two->query_ok("SELECT zk_lock('b')");
	# If it ends before it waits for the second name, again with a longer timeout.
	for my $timeout (10, 20, 40)
	{
		$one->query_ok("SELECT zk_lock('a')");
		$_->query_ok("SET lock_timeout = '${timeout}s'") for $s, $later;
		$s->query_async("SELECT zk_lock_many('{a,b}')");
		wait_blocked_locally($s, or => sub { $s->finished });
		# So much later the second one may be reported.
		$one->query_ok('SELECT pg_sleep(' . $timeout / 2 . ')');
		$later->query_async("SELECT zk_lock('b')");
		wait_blocked_locally($later, or => sub { $later->finished });
		$one->query_ok('SELECT zk_unlock_all()');
		$later->wait_result;
		last if $s->so_far !~ /lock "a"/;
		$s->wait_result;
		is($s->sqlstate, '55P03', 'lock_timeout ends a wait for the first of several names');
	}
	is($later->sqlstate, '55P03', 'lock_timeout ends a wait that began later');
	ok($s->finished, 'lock_timeout ends a wait for several names that began before');
	$s->wait_result;
	is($s->sqlstate, '55P03', 'lock_timeout ends a wait for several names with the same error');
	names_the_lock('a wait for the second name', 'lock "b"');
	$_->quit for $one, $two, $later;
}
$s->reconnect('zklock.connect_string' => '127.0.0.1:' . free_port(), 'zklock.ensemble_timeout' => '300ms');
$s->query("SELECT zk_lock('x')");
is($s->sqlstate, '08001', 'a wait for a connection is not one for a lock: ensemble_timeout ends it');
$s->reconnect('zklock.connect_string' => '');
$s->query("SELECT zk_lock('x')");
is($s->sqlstate, 'F0000', 'no ensemble: the call fails');
names_the_lock('no ensemble');
$s->reconnect('zklock.connect_string' => undef, 'zklock.ensemble_timeout' => undef);
all_is_clean('errors that name the lock');

$s->query_ok("SET lock_timeout = '10min'");
$s->query("SET LOCAL statement_timeout = '100ms'\\; SELECT zk_lock('x')");
like($s->error, qr/due to statement timeout/,
	'of two timeouts the shorter one ends the wait');
$s->query_ok("SET lock_timeout = '100ms'; SET statement_timeout = '10min'");
$s->query("SELECT zk_lock('x')");
is($s->sqlstate, '55P03', 'the shorter timeout may be lock_timeout');
$s->query_ok("SET lock_timeout = '10min'");
is($s->query("SELECT zk_try_lock('x', interval '1 s')"),
	'f', 'a timed attempt shorter than lock_timeout returns false');
$s->query_ok("SET lock_timeout = '100ms'");
$s->query("SELECT zk_try_lock('x', interval '10 min')");
is($s->sqlstate, '55P03', 'lock_timeout ends a longer timed attempt with an error');
$s->query_ok('RESET lock_timeout; RESET statement_timeout');
all_is_clean('two timeouts');

# In a subtransaction that catches the error.
$s->query_ok(<<'SQL');
SET lock_timeout = '100ms';
DO $$
BEGIN
	BEGIN
		PERFORM zk_xact_lock('x');
		RAISE 'not reached';
	EXCEPTION WHEN lock_not_available THEN
		NULL;
	END;
	PERFORM pg_sleep(0.3);
	BEGIN
		PERFORM zk_lock_shared('x');
		RAISE 'not reached';
	EXCEPTION WHEN lock_not_available THEN
		NULL;
	END;
	PERFORM pg_sleep(0.3);
END $$;
SQL
is($s->sqlstate, '00000',
	'lock_timeout can be caught and is not left armed after that');
$s->query_ok('RESET lock_timeout');
all_is_clean('lock_timeout in a subtransaction');

# A lock that is acquired in time disarms lock_timeout, too.
$s->query_ok("SET lock_timeout = '30s'");
$s->query_async(
	"SELECT zk_xact_lock('x') > 0, current_setting('lock_timeout')");
wait_zk_children($zkc, $lock, 2);
$holder->query_ok("SELECT zk_unlock('x')");
is($s->wait_result, 't|30s', 'a wait within lock_timeout gets the lock');
$holder->query_ok("SELECT zk_lock('x')");
$s->query_ok("SET lock_timeout = '1500ms'");
is( $s->query(
		"SELECT zk_try_lock('free'), zk_unlock('free'), "
		  . "pg_sleep(1.8) IS NOT NULL"),
	't|t|t',
	'a free lock does not arm lock_timeout');
$s->query_ok('RESET lock_timeout');
all_is_clean('lock_timeout that was not needed');

# As in PostgreSQL, lock_timeout limits the wait for others, not the time of a round trip.
{
	my $slow = session($here);
	$slow->query_ok("SELECT zk_lock('warm-up')");
	$slow->query_ok("SET lock_timeout = '1ms'");
	$zk->pause;
	$slow->query_async("SELECT zk_lock('free') > 0, zk_try_lock('also free'), zk_try_lock('free, too', '1h')");
	wait_for_sql($here, "SELECT clock_timestamp() - query_start > interval '100 ms' "
		  . "AND wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = " . $slow->pid);
	$zk->resume;
	is($slow->wait_result, 't|t|t', 'a free lock is granted, however short lock_timeout is');
	fails_with($slow, "SELECT zk_lock('x')", '55P03', 'a lock that another server holds is not granted under a short lock_timeout', hint => 0);
	$slow->query_ok('SELECT zk_unlock_all()');
	$slow->quit;
	all_is_clean('lock_timeout of a free lock');
}

# Timed attempts.
is($s->query("SELECT zk_try_lock('x', interval '1 s')"),
	'f', 'a timed attempt returns false after its timeout');
all_is_clean('timed attempt');
is( $s->query(
		"SELECT zk_try_lock_many(ARRAY['a', 'x', 'z'], interval '1 s')"),
	'f', 'a timed attempt for several names returns false after its timeout');
is(wait_zk_empty($zkc, "/zklock/locks/$_"), 0, "a timed attempt for several names leaves no node of $_")
  for qw(a z);
all_is_clean('timed attempt for several names');


# Waits in pg_stat_activity and in the log.
my $offset = -s $here->logfile;
$s->query_ok("SET log_lock_waits = on; SET deadlock_timeout = '50ms'");
$s->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
wait_for_sql(
	$here,
	'SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = '
	  . $s->pid,
	$here->pg_version >= 17 ? 'Extension|ZkLock' : 'Extension|Extension');
pass('pg_stat_activity shows a wait for another server');
my $pid = $s->pid;
wait_for_log($here,
	qr/LOG:  process $pid still waiting for zk lock "x" after \d+ ms/,
	$offset);
pass('log_lock_waits logs the wait');
my $remote = join '.*', 'DETAIL:  Blocked by: zklock ', 'pid=' . $holder->pid . '\b',
  'server=', ':' . $there->port . '\b', 'postgres', 'the_holder';
wait_for_log($here, qr/$remote/, $offset);
pass('the log names the holder and its server');

# A backend that logs its memory contexts has woken up; when it does so again, it has
# looked at its wait in between.
for (1, 2)
{
	my $before = -s $here->logfile;
	$here->safe_psql('postgres', "SELECT pg_log_backend_memory_contexts($pid)");
	wait_for_log($here, qr/logging memory contexts of PID $pid/, $before);
}
is(scalar(() = slurp_file($here->logfile, $offset) =~ /process $pid still waiting/g), 1, 'the wait is logged once');
$s->cancel;
$s->wait_result;
unlike(slurp_file($here->logfile, $offset), qr/process $pid acquired zk lock/,
	'no acquisition is logged when the wait ends without the lock');
$offset = -s $here->logfile;
$s->query_async("SELECT zk_lock('x')");
wait_for_log($here, qr/still waiting for zk lock "x"/, $offset);
$holder->query_ok("SELECT zk_unlock('x')");
$s->wait_result;
wait_for_log($here, qr/LOG:  process $pid acquired zk lock "x" after \d+ ms/, $offset);
pass('the end of a logged wait is logged');
$s->query_ok("SELECT zk_unlock('x')");
$holder->query_ok("SELECT zk_lock('x')");
$s->query_ok('RESET log_lock_waits; RESET deadlock_timeout');
all_is_clean('log_lock_waits');


# The end of the waiting session.
$s->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
$s->terminate;
$s->wait_result;
like($s->error, qr/terminating connection due to administrator command/,
	'pg_terminate_backend ends the wait');
ok(wait_zk_children($zkc, $lock, 1), 'the node of the terminated waiter is removed');

# Does this process exist, and is it no zombie?
sub lives { return read_file("/proc/$_[0]/stat") =~ /\) [^ZX] / }

$s = session($here);
$s->query_ok("SET client_connection_check_interval = '50ms'");
$s->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
$s->drop;
ok(wait_until('the backend to end', sub { !lives($s->pid) }),
	'client_connection_check_interval ends the wait when the client disconnects');
ok(wait_zk_children($zkc, $lock, 1), 'the node of the disconnected waiter is removed');

# The postmaster's death.
my @orphans = map { session($here) } 1 .. 3;
$orphans[0]->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
$orphans[1]->query_async("SELECT zk_lock('x')");
wait_blocked($orphans[1]);
$orphans[2]->query_ok("SELECT zk_lock('y')");
my @processes =
  split /\n/, $here->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity');
my $postmaster = postmaster_pid($here->data_dir);
$here->kill9;
for my $i (0 .. 1)
{
	ok( wait_until('the backend to end', sub { !lives($orphans[$i]->pid) }),
		'a backend that waits for '
			  . ('another', 'the same')[$i]
			  . ' server ends with the postmaster');
}
ok(wait_zk_children($zkc, $lock, 1), 'the node of the orphaned waiters is removed');
ok(wait_until('the backend to end', sub { !lives($orphans[2]->pid) }),
	'an idle backend that holds a lock ends with the postmaster');
is(wait_zk_empty($zkc, '/zklock/locks/y'), 0, 'the lock of the orphaned backend is free');
wait_until('all processes of the server to end',
	sub { !kill(0, $postmaster) && !grep { lives($_) } @processes });
$here->start;

# The end of the holder.
$s = session($here);
$s->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
$holder->query_ok("SET idle_in_transaction_session_timeout = '100ms'; BEGIN");
like($s->wait_result, qr/^\d+$/,
	'idle_in_transaction_session_timeout of the holder ends the wait');
$s->query_ok("SELECT zk_unlock('x')");
nothing_left($zkc, 'no node is left');


# Is this signal pending for the process?
sub is_pending
{
	my ($pid, $signal) = @_;
	my ($pending) = read_file("/proc/$pid/status") =~ /^ShdPnd:\s*(\w+)/m;
	return hex($pending) >> ($signal - 1) & 1;
}

# Stops the session in an attempt whose timeout has not passed, and is the next that will. Returns the
# timeout, in seconds.
sub pause_before_timeout
{
	my ($waiter, %more) = @_;
	$waiter->query_ok("SET deadlock_timeout = '10min'");
	for my $timeout (3, 6, 12, 24, 48)
	{
		$waiter->query_ok("SET $_ = '" . ($timeout + $more{$_}) . "s'") for sort keys %more;
		my $began = time;
		$waiter->query_async("SELECT zk_try_lock('timed', '${timeout}s')");
		wait_blocked_locally($waiter, or => sub { $waiter->finished });
		$waiter->pause;
		return $timeout if time < $began + $timeout;
		$waiter->resume;
		$waiter->wait_result;
		$waiter->query_ok("RESET $_") for sort keys %more;
	}
	die 'the timeout has passed before the session was stopped';
}

# A cancel at the end of a timed attempt behind a session of the same server. The
# backend was stopped when both signals were sent, so it receives them together.
{
	my ($holder, $waiter) = (session($here), connected_session($here));
	$holder->query_ok("SELECT zk_lock('timed')");
	pause_before_timeout($waiter);
	wait_until('the timeout', sub { is_pending($waiter->pid, SIGALRM) });
	ok(!is_pending($waiter->pid, SIGINT), 'the timeout of an attempt is pending, and no cancel');
	$waiter->cancel;
	$waiter->resume;
	$waiter->wait_result;
	is($waiter->sqlstate, '57014', 'a cancel at the same time as the timeout of an attempt is not lost');
	is($waiter->query("SELECT zk_try_lock('timed', '10ms')"), 'f', 'a cancel at the same time as a timeout does not end the next statement');
	is($waiter->query('SELECT count(*) FROM zk_held_locks'), '0', 'a cancel at the same time as a timeout leaves nothing held');
	$_->quit for $holder, $waiter;
}

# The same with a lock_timeout that is a little longer than the attempt's: PostgreSQL would report it in place
# of a cancel or a statement_timeout that comes together with it.
for my $how ('statement_timeout', 'a cancel')
{
	my ($holder, $waiter) = (session($here), connected_session($here));
	$holder->query_ok("SELECT zk_lock('timed')");
	my $timeout = pause_before_timeout($waiter, lock_timeout => 1, $how eq 'statement_timeout' ? (statement_timeout => 2) : ());
	my $blocked = time;
	wait_until('the end of all timeouts', sub { time > $blocked + $timeout + 4 });
	$waiter->cancel if $how eq 'a cancel';
	$waiter->resume;
	$waiter->wait_result;
	is($waiter->sqlstate, '57014', "$how together with the timeouts of an attempt is not lost")
	  or diag($waiter->error);
	$waiter->query_ok('RESET statement_timeout');
	my $limit = $timeout + 1 . 's';
	is($waiter->query('SHOW lock_timeout'), $limit, 'lock_timeout is as it was');
	is($waiter->query("SELECT zk_try_lock('timed', '10ms')"), 'f', 'the next attempt ends by itself');
	is($waiter->query('SHOW lock_timeout'), $limit, 'and changes no lock_timeout, either');
	$_->quit for $holder, $waiter;
}

# A cancel at the moment of the grant: the call returns the lock, or holds nothing. The
# cancel may also end the statement after zk_lock() has returned. Then the lock is held,
# as a native lock would be. A sequence counts the calls that returned.
$holder = session($there);
$here->safe_psql('postgres', "CREATE SEQUENCE granted; SELECT nextval('granted')");
my %outcomes = (granted => 0, late => 0, canceled => 0, wrong => 0);
my $observer = session($here);
my $count = 'SELECT last_value FROM granted';
my $round = 0;

# Forty rounds, and more until both ends were seen.
while (++$round <= 40 || ($round <= 400 && !($outcomes{granted} && $outcomes{canceled})))
{
	$holder->query_ok("SELECT zk_lock('x')");
	my $before = $observer->query_ok($count);
	$s->query_async("SELECT zk_lock('x') > 0 AND nextval('granted') > 0");
	wait_zk_children($zkc, $lock, 2);
	# A varying delay, for cancels at each moment of the grant.
	my $delay = ($round % 10) * ($round <= 40 ? 0.001 : 0.01);
	$holder->query_async("SELECT zk_unlock('x')");
	$observer->query_async(
		"SELECT pg_cancel_backend(@{[ $s->pid ]}) FROM pg_sleep($delay)");
	$_->wait_result for $holder, $observer;
	my $answer = $s->wait_result;
	my $holds = "SELECT count(*) FROM zk_held_locks WHERE name = 'x'";
	my $held = $s->query($holds);

	# The cancel arrived after the grant, and ended the query.
	$held = $s->query($holds) if $s->sqlstate eq '57014';
	my $granted = $observer->query_ok($count) - $before;
	my $outcome =
	    $held ne $granted ? 'wrong'
	  : $answer eq 't' && $granted ? 'granted'
	  : $answer eq '' && $granted ? 'late'
	  : $answer eq '' ? 'canceled'
	  : 'wrong';
	$outcomes{$outcome}++;
	diag("answer '$answer', granted $granted, held $held")
	  if $outcome eq 'wrong';
	wait_zk_children($zkc, $lock, $granted);
	$s->query_ok('SELECT zk_unlock_all()');
	wait_zk_empty($zkc, $lock);
}
note(join ', ', map { "$_ $outcomes{$_}" } sort keys %outcomes);
is($outcomes{wrong}, 0,
	'after a cancel at the moment of the grant the session has the lock, or holds nothing');
cmp_ok($outcomes{$_}, '>', 0, "some of these sessions are $_") for qw(granted canceled);
nothing_left($zkc, 'no node is left');

# A cancel at any moment between request and answer.
for my $round (1 .. 40)
{
	$s->query_async(
		"SELECT zk_lock('x'), zk_unlock('x') FROM generate_series(1, 100)");
	$observer->query('SELECT pg_cancel_backend(' . $s->pid . ')');
	$s->wait_result;
	$s->query('SELECT zk_unlock_all()');
	$s->query('SELECT zk_unlock_all()') unless $s->ok;
}
nothing_left($zkc, 'a cancel between request and answer leaves no node');
is($holder->query("SELECT zk_try_lock('x')"), 't', 'the lock is free after the cancelled calls');
