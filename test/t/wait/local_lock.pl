# Local locks: sessions of one server wait for each other in PostgreSQL's lock manager
# before they send requests to the ensemble. Exclusion does not depend on local locks. The
# isolation tests have what needs one server alone: views, ends of waits, deadlocks, and
# pg_advisory_unlock_all().
#
# Promise: 2.1
# Tags: user, edges

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my ($here, $there) = map {
	shared_node($_, set => { deadlock_timeout => '100ms', log_lock_waits => 'on' })
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


# Waits in the views and the log of the server.
my ($holder, $waiter, $reader) = @here;
$holder->query_ok("SELECT zk_lock('x')");
$waiter->query_async("SELECT zk_lock('x')");
wait_blocked_locally($waiter);
$reader->query_async("SELECT zk_lock_shared('x')");
wait_blocked_locally($reader);
is( $here->safe_psql('postgres',
		'SELECT DISTINCT database, objsubid FROM pg_locks '
		  . "WHERE locktype = 'advisory'"),
	'0|23115',
	'local locks are advisory locks of no database, distinct from those of applications');
my ($holder_pid, $waiter_pid) = ($holder->pid, $waiter->pid);
is( $here->safe_psql(
		'postgres', 'SELECT pg_blocking_pids(' . $reader->pid . ')'),
	"{$holder_pid,$waiter_pid}",
	'pg_blocking_pids() names the waiting writer before a reader');
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
works($waiter, "SELECT zk_try_lock('$name')", 't', 'two names with the same hash are two locks on one server');
$waiter->query_ok("SET lock_timeout = '1ms'");
works($waiter, "SELECT zk_fence('$name') IS NOT NULL", 't', 'two names with the same hash are two fences');
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
is($here->safe_psql('postgres', "SELECT mode, granted, count(*) FROM pg_locks WHERE locktype = 'advisory' GROUP BY 1, 2"),
	'ShareLock|t|3', 'each sharer has a shared local lock on its server');
$_->query_ok("SELECT zk_unlock_shared('x')") for @here, @there;
all_is_clean('sharers');


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
works($holder, "SELECT current_setting('lock_timeout')", '1ms', 'a short lock_timeout still applies after the attempt');
$holder->query("SELECT zk_lock('x')");
is($holder->sqlstate, '55P03', 'a short lock_timeout still applies to a wait');
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

# A lock whose local lock others wait for is acquired again without it, also in an array after a
# wait for another name, whatever lock_timeout is.
$holder->query_ok("SELECT zk_lock_shared('x'), pg_advisory_unlock_all()");
$waiter->query_async("SELECT zk_lock('x')");
wait_blocked($waiter);
$reader->query_ok("SELECT zk_lock('a')");
$holder->query_ok("SET lock_timeout = '10min'");
$holder->query_async("SELECT cardinality(zk_lock_many('{a,x}'))");
wait_blocked_locally($holder);
$reader->query_ok("SELECT zk_unlock('a')");
is($holder->wait_result, '2', 'an array with a lock that is held without its local lock') or diag($holder->error);
$holder->query_ok('RESET lock_timeout');
$holder->query_ok('SELECT zk_unlock_all()');
$waiter->wait_result;
$waiter->query_ok('SELECT zk_unlock_all()');
all_is_clean('array with a lock that is held without its local lock');

# Locks of the same name below different roots, or in different ensembles, are different
# locks. Sessions of one server that hold them do not wait for each other locally.
$zkc->create('/elsewhere');
$holder->query_ok("SELECT zk_lock('x')");
works($waiter, "SELECT zk_try_lock('x')", 'f', 'the held lock is refused to another session');
$waiter->reconnect('zklock.root' => '/other');
works($waiter, "SELECT zk_try_lock('x')", 't', 'the lock of the same name below another root is free');
$reader->reconnect('zklock.connect_string' => $zk->connect_string . '/elsewhere');
works($reader, "SELECT zk_try_lock('x')", 't', 'the lock of the same name in another ensemble is free');
