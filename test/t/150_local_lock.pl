# Local locks: sessions of one server wait for each other in PostgreSQL's lock manager
# before they send requests to the ensemble. PostgreSQL shows these waits and detects
# their deadlocks. Exclusion does not depend on local locks.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check qw(nothing_left works);
use ZkLock::Cluster;
use ZkLock::Shared;
use ZkLock::ZkClient;

my $zk = shared_zk();
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my ($here, $there) = map {
	shared_node($_, session_timeout => '60s', set => { deadlock_timeout => '100ms', log_lock_waits => 'on' })
} qw(here there);
$here->safe_psql('postgres', 'CREATE DATABASE other');
$here->safe_psql('other', 'CREATE EXTENSION zklock');
my $lock = '/zklock/locks/x';
my @here = (session($here), session($here), session($here, dbname => 'other'));
my @there = map { session($there) } 1 .. 3;

# Checks that a scenario leaves nothing in the ensemble and on the servers.
sub all_is_clean
{
	my ($scenario) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	nothing_left($zkc, "$scenario: no node is left");
	is( $_->safe_psql('postgres',
			"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
		'0',
		"$scenario: no lock is left on server " . $_->name)
	  for $here, $there;
	return;
}

# Returns the holders of advisory locks on a server, and the waiters.
sub advisory
{
	my ($node) = @_;
	return $node->safe_psql('postgres',
		'SELECT pid, mode, granted FROM pg_locks '
		  . "WHERE locktype = 'advisory' "
		  . 'ORDER BY granted DESC, waitstart, pid');
}


# Waits in the views and the log of the server.
my ($holder, $waiter, $reader) = @here;
$holder->query_ok("SELECT zk_lock('x')");
$waiter->query_async("SELECT zk_lock('x')");
wait_blocked_locally($waiter);
$reader->query_async("SELECT zk_lock_shared('x')");
wait_blocked_locally($reader);
is( advisory($here),
	join("\n",
		$holder->pid . '|ExclusiveLock|t',
		$waiter->pid . '|ExclusiveLock|f',
		$reader->pid . '|ShareLock|f'),
	'pg_locks shows holder and waiters of a server in their order');
is( $here->safe_psql('postgres',
		'SELECT DISTINCT database, objsubid FROM pg_locks '
		  . "WHERE locktype = 'advisory'"),
	'0|23115',
	'local locks are advisory locks of no database, distinct from those of applications');
my ($holder_pid, $waiter_pid) = ($holder->pid, $waiter->pid);
is( $here->safe_psql(
		'postgres', "SELECT pg_blocking_pids($waiter_pid)"),
	"{$holder_pid}",
	'pg_blocking_pids() names the holder');
is( $here->safe_psql(
		'postgres', 'SELECT pg_blocking_pids(' . $reader->pid . ')'),
	"{$holder_pid,$waiter_pid}",
	'pg_blocking_pids() names the waiting writer before a reader');
is( $here->safe_psql(
		'postgres',
		"SELECT wait_event_type, wait_event FROM pg_stat_activity "
		  . "WHERE pid = $waiter_pid"),
	'Lock|advisory',
	'the wait event is that of an advisory lock');
wait_for_log($here,
	qr/process $waiter_pid still waiting for ExclusiveLock on advisory lock/);
pass('log_lock_waits logs the wait');
is(scalar(wait_zk_children($zkc, $lock, 1)),
	1, 'only the holder has a node in the ensemble');
$holder->query_ok("SELECT zk_unlock('x')");
like($waiter->wait_result, qr/^\d+$/, 'the first waiter is granted the lock');
ok(!$reader->finished, 'the reader waits behind the writer');
$waiter->query_ok("SELECT zk_unlock('x')");
like($reader->wait_result, qr/^\d+$/, 'the reader is granted the lock after the writer');
$reader->query_ok("SELECT zk_unlock_shared('x')");
all_is_clean('one server');


# Names of lock and fence stand in PostgreSQL's lock table as 64 bits. A role cannot compute
# another name with the same bits, and so block a lock or a fence that it does not hold.
my ($name, $computed) = qw(invoices.of.the.customer otherlX0eA_MBQj__.YZEbZi);
is($here->safe_psql('postgres', "SELECT hashtextextended('$name', 0) = hashtextextended('$computed', 0)"),
	't', 'two names with the same hash of PostgreSQL');
$holder->query_ok("BEGIN; SELECT zk_lock('$computed'), zk_fence('$computed')");
works($waiter, "SELECT zk_try_lock('$name')", 't', '... are two locks on one server');
$waiter->query_ok("SET lock_timeout = '1ms'");
works($waiter, "SELECT zk_fence('$name') IS NOT NULL", 't', '... and two fences');
$waiter->query_ok("RESET lock_timeout; SELECT zk_unlock('$name')");
$holder->query_ok("ROLLBACK; SELECT zk_unlock('$computed')");


# Two servers, with three waiters each: one waiter of each server waits in the ensemble.
my $node = foreign_node($zkc, $lock, 'WRIT');
my @waiting;
for my $i (0 .. 2)
{
	for my $s ($here[$i], $there[$i])
	{
		$s->query_async("SELECT zk_lock('x')");
		wait_blocked($s);
		push @waiting, $s;
	}
}
is(scalar(wait_zk_children($zkc, $lock, 3)),
	3, 'the queue in the ensemble has a holder and one waiter a server');
$zkc->delete($node);
my $served = 0;
while (@waiting)
{
	wait_until('the next grant', sub { grep { $_->finished } @waiting });
	my @granted = grep { $_->finished } @waiting;
	is(scalar(@granted), 1, 'one waiter at a time is granted the lock');
	cmp_ok(scalar($zkc->children($lock)), '<=', 3,
		'the queue has no more than three nodes');
	@waiting = grep { $_ != $granted[0] } @waiting;
	$granted[0]->wait_result;
	$granted[0]->query_ok("SELECT zk_unlock('x')");
	$served++;
}
is($served, 6, 'all six waiters are granted the lock');
all_is_clean('two servers');

# Sharers do not wait for each other locally.
$_->query_ok("SELECT zk_lock_shared('x')") for @here, @there;
is(scalar($zkc->children($lock)), 6, 'each sharer has a node of its own');
is(advisory($here),
	join("\n",
		map { "$_|ShareLock|t" } sort { $a <=> $b } map { $_->pid } @here),
	'each sharer has a shared local lock on its server');
$_->query_ok("SELECT zk_unlock_shared('x')") for @here, @there;
all_is_clean('sharers');


# The end of a wait for a session of the same server.
$holder->query_ok("SELECT zk_lock('x')");
$waiter->query_ok("SET lock_timeout = '100ms'");
$waiter->query("SELECT zk_lock('x')");
is($waiter->sqlstate, '55P03', 'lock_timeout ends a wait for the same server');
$waiter->query_ok("SET lock_timeout = '10min'");
is($waiter->query("SELECT zk_try_lock('x', interval '10 ms')"),
	'f', 'a timed attempt shorter than lock_timeout returns false');
$waiter->query_ok("SET lock_timeout = '100ms'");
$waiter->query("SELECT zk_try_lock('x', interval '1 h')");
is($waiter->sqlstate, '55P03', 'lock_timeout ends a longer timed attempt with an error');
is($waiter->query('SHOW lock_timeout'), '100ms', 'the attempts do not change lock_timeout');
$waiter->query_ok('RESET lock_timeout');
$waiter->query("SET LOCAL statement_timeout = '100ms'\\; SELECT zk_try_lock('x', interval '1 h')");
is($waiter->sqlstate, '57014', 'statement_timeout ends a timed attempt with an error');
$waiter->query_async("SELECT zk_try_lock('x', interval '1 h')");
wait_blocked($waiter);
$waiter->cancel;
$waiter->wait_result;
is($waiter->sqlstate, '57014', 'a cancel ends a timed attempt with an error');
is($waiter->query('SHOW lock_timeout'), '0', 'the errors do not change lock_timeout');
$waiter->query_ok('BEGIN; CREATE TEMP TABLE seen (n integer)');
$waiter->query_ok('INSERT INTO seen VALUES (1)');
is($waiter->query("SELECT zk_try_xact_lock('x', interval '10 ms')"),
	'f', 'a timed attempt in a transaction returns false');
is($waiter->query('SELECT n FROM seen'), '1', 'the transaction continues after that');
$waiter->query_ok('COMMIT');
$waiter->query_async("SELECT zk_try_lock('x', interval '1 h')");
wait_blocked($waiter);
$holder->query_ok("SELECT zk_unlock('x')");
is($waiter->wait_result, 't', 'a timed attempt is granted a lock that is released in time');
$waiter->query_ok("SELECT zk_unlock('x')");
all_is_clean('ends of a wait');


# A parallel worker fails while the leader of its query waits, and the lock is released
# before the leader receives the error.
$here->safe_psql('postgres', <<'SQL');
CREATE TABLE p AS SELECT i FROM generate_series(1, 1500) AS i;
CREATE FUNCTION fail_at_end(i integer) RETURNS boolean PARALLEL SAFE LANGUAGE plpgsql AS $$
BEGIN
	WHILE i = 1500 AND EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
	IF i = 1500 THEN
		RAISE 'last row';
	END IF;
	RETURN true;
END $$;
SQL
$holder->query_ok("SELECT zk_lock('x'), pg_advisory_lock(1)");
$waiter->query_ok("SET $_ = 0")
  for qw(parallel_setup_cost parallel_tuple_cost min_parallel_table_scan_size
  parallel_leader_participation);
$waiter->query_async("SELECT zk_xact_lock('x') FROM p WHERE fail_at_end(i)");
wait_blocked_locally($waiter);
$waiter->pause;
$holder->query_ok('SELECT pg_advisory_unlock(1)');
wait_for_sql($here,
	"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'", '0');
$holder->query_ok("SELECT zk_unlock('x')");
$waiter->resume;
$waiter->wait_result;
like($waiter->error, qr/ERROR:  last row/, "a parallel worker's error ends the wait of its leader");
$waiter->query_ok('RESET ALL');
all_is_clean("a parallel worker's error");


# Deadlocks on one server. Runs both statements, in this order, and returns their
# SQLSTATEs, the victim's first, and the victim's error.
sub run_deadlock
{
	my ($first, $first_sql, $second, $second_sql) = @_;
	$first->query_async($first_sql);
	wait_blocked($first);
	$second->query_async($second_sql);
	wait_until('a victim', sub { $first->finished || $second->finished });
	my ($victim, $survivor) =
	  $first->finished ? ($first, $second) : ($second, $first);
	$victim->wait_result;

	# The error of the victim unblocks the other session, whose end may be seen first.
	if ($victim->ok)
	{
		($victim, $survivor) = ($survivor, $victim);
		$victim->wait_result;
	}
	my $state = $victim->sqlstate;
	my $detail = $victim->error;
	$victim->query('ROLLBACK');
	$victim->query('SELECT zk_unlock_all(), pg_advisory_unlock_all()');
	$survivor->wait_result if $survivor->is_busy;
	my @states = ($state, $survivor->sqlstate);
	$survivor->query('ROLLBACK');
	$survivor->query('SELECT zk_unlock_all(), pg_advisory_unlock_all()');
	return (join(' ', @states), $detail);
}

$here->safe_psql('postgres', 'CREATE TABLE t AS SELECT 1 AS n');
$holder->query_ok("BEGIN; UPDATE t SET n = n + 1");
$waiter->query_ok("BEGIN; SELECT zk_xact_lock('x')");
my ($states, $detail) = run_deadlock($holder, "SELECT zk_xact_lock('x')", $waiter,
	'UPDATE t SET n = n + 1');
is($states, '40P01 00000',
	'a deadlock of a row lock and a zk lock has one victim');
like($detail, qr/DETAIL:.*waits for \w+Lock on advisory lock/s,
	'the error contains the cycle');
all_is_clean('deadlock with a row lock');

$holder->query_ok("BEGIN; SELECT zk_xact_lock('x')");
$waiter->query_ok("SELECT zk_lock('y')");
($states) = run_deadlock($holder, "SELECT zk_xact_lock('y')", $waiter,
	"SELECT zk_lock_shared('x')");
is($states, '40P01 00000', 'a deadlock of two zk locks has one victim');
all_is_clean('deadlock of two zk locks');

$holder->query_ok("SELECT zk_lock_shared('x')");
$waiter->query_ok("SELECT zk_lock_shared('x')");
($states) =
  run_deadlock($holder, "SELECT zk_lock('x')", $waiter, "SELECT zk_lock('x')");
is($states, '40P01 00000', 'a deadlock of two upgrades has one victim');
all_is_clean('deadlock of two upgrades');

$holder->query_ok("SELECT pg_advisory_lock(1)");
$waiter->query_ok("SELECT zk_lock('x')");
($states) = run_deadlock($holder, "SELECT zk_try_lock('x', interval '1 h')",
	$waiter, 'SELECT pg_try_advisory_lock(2), pg_advisory_lock(1)');
is($states, '40P01 00000', 'a deadlock with a timed attempt has one victim');
all_is_clean('deadlock with a native lock');

# The waiter has a snapshot that CREATE INDEX CONCURRENTLY waits for.
$holder->query_ok("SELECT zk_lock('x')");
$waiter->query_async("SELECT zk_lock('x')");
wait_blocked($waiter);
$holder->query('CREATE INDEX CONCURRENTLY i ON t (n)');
my $builder = $holder->sqlstate;
$holder->query_ok('SELECT zk_unlock_all()');
$waiter->wait_result;
is(join(' ', sort $builder, $waiter->sqlstate),
	'00000 40P01',
	'a deadlock with CREATE INDEX CONCURRENTLY is found');
$waiter->query_ok('SELECT zk_unlock_all()');
all_is_clean('CREATE INDEX CONCURRENTLY');


# Without its local lock a holder still excludes others through the ensemble.
$holder->query_ok("SELECT zk_lock('x'), zk_lock_shared('y')");
my (undef, $message) = $holder->query('SELECT pg_advisory_unlock_all()');
is($message, '', 'pg_advisory_unlock_all() gives no message');
is(advisory($here), '', 'pg_advisory_unlock_all() removes the local locks');
is($waiter->query("SELECT zk_try_lock('x')"),
	'f', 'an exclusive attempt on the same server is refused');
is($waiter->query("SELECT zk_try_lock_shared('x')"),
	'f', 'a shared attempt on the same server is refused');
is($waiter->query("SELECT zk_try_lock_shared('y')"),
	't', 'a shared lock can be shared');
is($there[0]->query("SELECT zk_try_lock('x')"),
	'f', 'an exclusive attempt on another server is refused');
is($there[0]->query("SELECT zk_try_lock('y')"),
	'f', 'an exclusive attempt at the shared lock is refused');
is($holder->query("SELECT zk_try_lock('x')"),
	't', 'the holder can acquire its lock again');
$waiter->query_async("SELECT zk_lock('x')");
wait_blocked($waiter);
(undef, $message) = $holder->query("SELECT zk_unlock('x'), zk_unlock('x')");
is($message, '', 'the holder can unlock it without a message');
like($waiter->wait_result, qr/^\d+$/, 'the waiter is granted the released lock');
(undef, $message) = $holder->query("SELECT zk_unlock_shared('y')");
is($message, '', 'the holder can unlock the shared lock without a message');
$waiter->query_ok('SELECT zk_unlock_all()');
all_is_clean('pg_advisory_unlock_all()');

# Behind a holder without its local lock the first waiter queues in the ensemble, and
# the second waiter behind the first one on the server.
$holder->query_ok("SELECT zk_lock('x'), pg_advisory_unlock_all()");
$waiter->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
$reader->query_async("SELECT zk_lock_shared('x')");
wait_blocked($reader);
is(scalar(wait_zk_children($zkc, $lock, 2)), 2, 'one waiter queues in the ensemble');
$holder->query_ok("SELECT zk_unlock('x')");
like($waiter->wait_result, qr/^\d+$/, 'the writer, which came first, is granted the lock');
$waiter->query_ok("SELECT zk_unlock('x')");
like($reader->wait_result, qr/^\d+$/, 'the reader is granted the lock after the writer');
$reader->query_ok("SELECT zk_unlock_shared('x')");
all_is_clean('queue behind pg_advisory_unlock_all()');

# An attempt of a session that shares the lock is not a wait, so lock_timeout does not end it.
$_->query_ok("SELECT zk_lock_shared('x')") for $holder, $reader;
$holder->query_ok("SET lock_timeout = '1ms'");
works($holder, "SELECT zk_try_lock('x')", 'f', 'an attempt to upgrade returns false under a short lock_timeout');
works($holder, "SELECT current_setting('lock_timeout')", '1ms', '... which still applies');
$holder->query("SELECT zk_lock('x')");
is($holder->sqlstate, '55P03', '... to a wait');
$holder->query_ok('RESET lock_timeout');
$_->query_ok("SELECT zk_unlock_shared('x')") for $holder, $reader;
all_is_clean('an attempt to upgrade');

# Native advisory locks are independent.
$holder->query_ok("SELECT zk_lock('7'), zk_lock('7,8')");
is( $waiter->query(
		'SELECT pg_try_advisory_lock(7), pg_try_advisory_lock(7, 8)'),
	't|t', 'native advisory locks of the same keys are other locks');
$waiter->query_ok('SELECT pg_advisory_unlock_all()');
$holder->query_ok('SELECT zk_unlock_all()');
all_is_clean('native locks');

# Locks of the same name below different roots, or in different ensembles, are different
# locks. Sessions of one server that hold them do not wait for each other locally.
$zkc->create('/elsewhere');
$holder->query_ok("SELECT zk_lock('x')");
works($waiter, "SELECT zk_try_lock('x')", 'f', 'the held lock is refused to another session');
$waiter->reconnect('zklock.root' => '/other');
works($waiter, "SELECT zk_try_lock('x')", 't', 'the lock of the same name below another root is free');
$reader->reconnect('zklock.connect_string' => $zk->connect_string . '/elsewhere');
works($reader, "SELECT zk_try_lock('x')", 't', '... and in another ensemble');

done_testing();
