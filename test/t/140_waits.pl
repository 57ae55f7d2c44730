# Every wait for a lock of another server ends when it is interrupted, with the
# SQLSTATE of a native lock, and leaves nothing behind.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use POSIX qw(SIGALRM SIGINT);
use Test::More;
use ZkLock::Check qw(nothing_left);
use ZkLock::Cluster;
use ZkLock::Util qw(free_port read_file);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

# Nothing ends here because a session times out.
my $zk = ZkLock::ZkServer->start(
	tick_time => 500,
	config => { maxSessionTimeout => 300000 });
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 120);
my ($here, $there) =
  map { zklock_node($_, zk => $zk, session_timeout => '290s') } qw(here there);
my $lock = '/zklock/locks/x';
my $s = session($here);
my $holder = session($there, application_name => 'the_holder');
$holder->query_ok("SELECT zk_lock('x')");

# After a wait of $s: only the holder's node is there, nothing is held or left
# armed, and the session is of use.
sub all_is_clean
{
	my ($scenario) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_zk_children($zkc, $lock, 1), "$scenario: its node is gone");
	is($s->query('SELECT count(*) FROM zk_held_locks'),
		'0', "$scenario: nothing is held");
	is( $s->query(
			"SELECT zk_try_lock('free'), zk_unlock('free'), "
			  . "zk_try_lock('x'), zk_try_lock_shared('x')"),
		't|t|f|f', "$scenario: the session goes on");
	is($here->safe_psql('postgres',
			"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
		'0', "$scenario: no lock of this server is left");
	ok(wait_zk_children($zkc, $lock, 1), "$scenario: nor a node");
	return;
}

# The words are PostgreSQL's; which lock it was is in the context.
sub names_the_lock
{
	my ($wait, $action) = (@_, 'lock "x"');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return like($s->error, qr/^CONTEXT:  while trying to \Q$action\E$/m, "$wait: and which lock it was");
}

# What waits, in every way to ask.
my %waits = (
	'exclusive' => "SELECT zk_lock('x')",
	'shared' => "SELECT zk_lock_shared('x')",
	'for a transaction' => "SELECT zk_xact_lock('x')",
	'for several names' => "SELECT zk_lock(ARRAY['a', 'x', 'z'])",
	'with a limit' => "SELECT zk_try_lock('x', interval '1 hour')");

# Timeouts; the statement after them takes longer than they do.
for my $wait (sort keys %waits)
{
	$s->query_ok("SET lock_timeout = '100ms'");
	$s->query($waits{$wait});
	is($s->sqlstate, '55P03', "$wait: lock_timeout ends the wait");
	like($s->error, qr/canceling statement due to lock timeout/,
		"$wait: in the words of a native lock");
	names_the_lock($wait);
	is($s->query("SELECT 'slept' FROM pg_sleep(0.3)"),
		'slept', "$wait: lock_timeout is not left armed");
	$s->query_ok('RESET lock_timeout');
	all_is_clean("$wait, lock_timeout");

	$s->query_ok("SET statement_timeout = '100ms'");
	$s->query($waits{$wait});
	is($s->sqlstate, '57014', "$wait: statement_timeout ends the wait");
	like($s->error, qr/canceling statement due to statement timeout/,
		"$wait: and says so");
	names_the_lock($wait);
	$s->query_ok('RESET statement_timeout');
	all_is_clean("$wait, statement_timeout");

	$s->query_async($waits{$wait});
	wait_zk_children($zkc, $lock, 2);
	wait_blocked($s);
	$s->cancel;
	$s->wait_result;
	is($s->sqlstate, '57014', "$wait: a cancel ends the wait");
	like($s->error, qr/canceling statement due to user request/,
		"$wait: and is reported as one");
	names_the_lock($wait);
	all_is_clean("$wait, cancel");
}

# A wait for a session of the same server, for a permit, and for a connection.
my $neighbour = session($here);
$neighbour->query_ok("SELECT zk_lock('near'), zk_acquire('permit', 1)");
$s->query_ok("SET lock_timeout = '100ms'");
$s->query("SELECT zk_lock(ARRAY['a', 'near', 'z'])");
is($s->sqlstate, '55P03', 'a wait on the same server: lock_timeout ends it');
names_the_lock('a wait on the same server', 'lock "near"');
$s->query("SELECT zk_acquire('permit', 1)");
is($s->sqlstate, '55P03', 'a wait for a permit: lock_timeout ends it');
names_the_lock('a wait for a permit', 'acquire a permit of semaphore "permit"');
$neighbour->quit;
$s->query_ok("SET zklock.connect_string = '127.0.0.1:" . free_port() . "'");
$s->query("SELECT zk_lock('x')");
is($s->sqlstate, '55P03', 'a wait for a connection: lock_timeout ends it');
names_the_lock('a wait for a connection');
$s->query_ok("SET zklock.connect_string = ''");
$s->query("SELECT zk_lock('x')");
is($s->sqlstate, 'F0000', 'no ensemble: the call fails');
names_the_lock('no ensemble');
$s->query_ok('RESET zklock.connect_string; RESET lock_timeout');
all_is_clean('errors that name the lock');

$s->query_ok("SET lock_timeout = '10min'; SET statement_timeout = '100ms'");
$s->query("SELECT zk_lock('x')");
like($s->error, qr/due to statement timeout/,
	'of two timeouts the shorter one ends the wait');
$s->query_ok("SET lock_timeout = '100ms'; SET statement_timeout = '10min'");
$s->query("SELECT zk_lock('x')");
is($s->sqlstate, '55P03', 'whichever it is');
$s->query_ok("SET lock_timeout = '10min'");
is($s->query("SELECT zk_try_lock('x', interval '50 ms')"),
	'f', 'a limit that is shorter than lock_timeout is no error');
$s->query_ok("SET lock_timeout = '100ms'");
$s->query("SELECT zk_try_lock('x', interval '10 min')");
is($s->sqlstate, '55P03', 'lock_timeout ends a longer limit');
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

# A lock that is acquired in time disarms it as well.
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
	'and a lock that is free does not arm it');
$s->query_ok('RESET lock_timeout');
all_is_clean('lock_timeout that was not needed');

# A try that waits.
is($s->query("SELECT zk_try_lock('x', interval '100 ms')"),
	'f', 'a try that waits in vain returns false');
all_is_clean('try');
is( $s->query(
		"SELECT zk_try_lock(ARRAY['a', 'x', 'z'], interval '100 ms')"),
	'f', 'also for several names');
is(wait_zk_empty($zkc, "/zklock/locks/$_"), 0, "and leaves nothing at $_")
  for qw(a z);
all_is_clean('try for several names');
$s->query("SELECT zk_try_lock('x', interval '-1 s')");
is($s->sqlstate, '22023', 'a negative limit is an error');


# How it shows.
my $offset = -s $here->logfile;
$s->query_ok("SET log_lock_waits = on; SET deadlock_timeout = '50ms'");
$s->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
wait_for_sql(
	$here,
	'SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = '
	  . $s->pid,
	$here->pg_version >= 17 ? 'Extension|ZkLock' : 'Extension|Extension');
pass('a wait for another server shows in pg_stat_activity');
my $pid = $s->pid;
wait_for_log($here,
	qr/LOG:  process $pid still waiting for zk lock "x" after \d+ ms/,
	$offset);
pass('and in the log under log_lock_waits');
my $remote = join '.*', 'DETAIL:  Blocked by: ', 'zklock', 'server',
  ':' . $there->port . '\b', '"pid":' . $holder->pid . '\b', 'postgres',
  'the_holder';
wait_for_log($here, qr/$remote/, $offset);
pass('with who holds it, and where');
$s->cancel;
$s->wait_result;
unlike(slurp_file($here->logfile, $offset), qr/process $pid acquired zk lock/,
	'a wait that ends without the lock is not logged as one that got it');
$s->query_async("SELECT zk_lock('x')");
wait_for_log($here, qr/still waiting for zk lock "x"/, -s $here->logfile);
$holder->query_ok("SELECT zk_unlock('x')");
$s->wait_result;
wait_for_log($here, qr/LOG:  process $pid acquired zk lock "x" after \d+ ms/, $offset);
pass('the end of a wait that was logged is logged');
$s->query_ok("SELECT zk_unlock('x')");
$holder->query_ok("SELECT zk_lock('x')");
$s->query_ok('RESET log_lock_waits; RESET deadlock_timeout');
all_is_clean('log_lock_waits');


# The end of the session that waits.
$s->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
$s->terminate;
$s->wait_result;
like($s->error, qr/terminating connection due to administrator command/,
	'pg_terminate_backend ends the wait');
ok(wait_zk_children($zkc, $lock, 1), 'and its node is gone');

# Is this process there, and no zombie?
sub lives { return read_file("/proc/$_[0]/stat") =~ /\) [^ZX] / }

$s = session($here);
$s->query_ok("SET client_connection_check_interval = '50ms'");
$s->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
$s->drop;
ok(wait_until('the backend to end', sub { !lives($s->pid) }),
	'under client_connection_check_interval the wait ends with the client');
ok(wait_zk_children($zkc, $lock, 1), 'and its node is gone');

# The postmaster's death.
my @orphans = map { session($here) } 1 .. 3;
$orphans[0]->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
$orphans[1]->query_async("SELECT zk_lock('x')");
wait_blocked($orphans[1]);
$orphans[2]->query_ok("SELECT zk_lock('y')");
my @processes =
  split /\n/, $here->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity');
my ($postmaster) =
  slurp_file($here->data_dir . '/postmaster.pid') =~ /^(\d+)/;
$here->kill9;
for my $i (0 .. 1)
{
	ok( wait_until('the backend to end', sub { !lives($orphans[$i]->pid) }),
		'a backend that waits for '
		  . ('another', 'its own')[$i]
		  . ' server ends with the postmaster');
}
ok(wait_zk_children($zkc, $lock, 1), 'their node is gone');
ok(wait_until('the backend to end', sub { !lives($orphans[2]->pid) }),
	'an idle backend that holds a lock ends with the postmaster');
is(wait_zk_empty($zkc, '/zklock/locks/y'), 0, 'and its lock is free');
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


# Has the process been sent a signal that it has not handled?
sub is_pending
{
	my ($pid, $signal) = @_;
	my ($pending) = read_file("/proc/$pid/status") =~ /^ShdPnd:\s*(\w+)/m;
	return hex($pending) >> ($signal - 1) & 1;
}

# A cancel that meets the end of a limit behind a session of the same server: the
# backend receives both at once, because it was stopped when they came.
{
	my ($holder, $waiter) = map { session($here) } 1 .. 2;
	$holder->query_ok("SELECT zk_lock('limited')");
	$waiter->query_async("SELECT zk_try_lock('limited', '1s')");
	wait_blocked($waiter);
	$waiter->pause;
	wait_until('the limit to end', sub { is_pending($waiter->pid, SIGALRM) });
	ok(!is_pending($waiter->pid, SIGINT), 'the limit of a wait ends unheard');
	$waiter->cancel;
	$waiter->resume;
	$waiter->wait_result;
	is($waiter->sqlstate, '57014', '... and a cancel, which is not lost');
	is($waiter->query("SELECT zk_try_lock('limited', '10ms')"), 'f', '... nor left over');
	is($waiter->query('SELECT count(*) FROM zk_held_locks'), '0', '... and nothing is held');
	$_->quit for $holder, $waiter;
}

# A cancel that meets the grant: either the lock or nothing. It may also strike
# when zk_lock() has returned and the statement goes on; then the lock is held, as
# a native one would be. A sequence tells, whatever becomes of the statement.
$holder = session($there);
$here->safe_psql('postgres', "CREATE SEQUENCE granted; SELECT nextval('granted')");
my %outcomes = (granted => 0, late => 0, canceled => 0, wrong => 0);
my $canceler = session($here);
my $count = 'SELECT last_value FROM granted';
for my $round (1 .. 40)
{
	$holder->query_ok("SELECT zk_lock('x')");
	my $before = $canceler->query_ok($count);
	$s->query_async("SELECT zk_lock('x') > 0 AND nextval('granted') > 0");
	wait_zk_children($zkc, $lock, 2);
	# Sooner and later, to meet the grant in all places.
	my $delay = ($round % 10) * 0.001;
	$holder->query_async("SELECT zk_unlock('x')");
	$canceler->query_async(
		"SELECT pg_cancel_backend(@{[ $s->pid ]}) FROM pg_sleep($delay)");
	$_->wait_result for $holder, $canceler;
	my $answer = $s->wait_result;
	my $question = "SELECT count(*) FROM zk_held_locks WHERE name = 'x'";
	my $held = $s->query($question);

	# The cancel came after the grant, and met the question.
	$held = $s->query($question) if $s->sqlstate eq '57014';
	my $granted = $canceler->query_ok($count) - $before;
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
	'a cancel that meets the grant leaves the lock or nothing');
nothing_left($zkc, 'no node is left');

# A cancel between request and answer, wherever it strikes.
for my $round (1 .. 40)
{
	$s->query_async(
		"SELECT zk_lock('x'), zk_unlock('x') FROM generate_series(1, 100)");
	$canceler->query('SELECT pg_cancel_backend(' . $s->pid . ')');
	$s->wait_result;
	$s->query('SELECT zk_unlock_all()');
	$s->query('SELECT zk_unlock_all()') unless $s->ok;
}
nothing_left($zkc, 'a cancel between request and answer leaves no node');
is($holder->query("SELECT zk_try_lock('x')"), 't', 'and the lock is free');

$_->quit for $s, $holder, $canceler;
$_->stop for $here, $there;
done_testing();
