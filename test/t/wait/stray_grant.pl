# A wait for the local lock ends with an error at the moment when the lock is granted:
# no lock is left, in the ensemble and in PostgreSQL's lock manager.
#
# Promise: 4.2

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $node = shared_node('a', zk => $zk);

# The waiter is stopped while the lock is granted and the cancel is sent, so it receives
# both when it continues.
my %wait = (
	'a wait without a timeout' => "SELECT zk_lock('x')",
	'a timed attempt' => "SELECT zk_try_lock('x', interval '50 s')",
	'a shared wait' => "SELECT zk_lock_shared('x')",
	'a wait for several names' => "SELECT zk_xact_lock_many(ARRAY['w', 'x'])");
for my $what (sort keys %wait)
{
	my ($holder, $waiter, $next) = (session($node), connected_session($node), session($node));
	$holder->query_ok("SELECT zk_lock('x')");
	$waiter->query_async($wait{$what});
	wait_blocked($waiter);
	$waiter->pause;
	$holder->query_ok("SELECT zk_unlock('x')");
	$waiter->cancel;
	$waiter->resume;
	failed_with($waiter, '57014', "$what is cancelled when the lock is granted",
		hint => 0);
	works($waiter,
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
		'0', "$what: no local lock is left");
	works($next, "SELECT zk_try_lock('x', interval '10 s')",
		't', "$what: the next session can acquire the lock");
	$_->quit for $holder, $waiter, $next;
	nothing_left($zkc, "$what: nothing is left");
}

# The error of a parallel worker comes when the lock is granted. The workers send 1800 rows: enough for
# the leader to get the first ones, which make it wait, and not so many that a worker waits for the leader.
{
	my ($holder, $waiter, $next) = (session($node), connected_session($node), session($node));
	my $workers = q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'parallel worker'};
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE numbers AS SELECT i FROM generate_series(1, 10000) AS i;
ALTER TABLE numbers SET (parallel_workers = 2);
CREATE FUNCTION fail_on_request(i int) RETURNS bool LANGUAGE plpgsql PARALLEL SAFE AS $$
BEGIN
	WHILE pg_stat_file('fail_now', true) IS NULL LOOP PERFORM pg_sleep(0.01); END LOOP;
	RAISE division_by_zero;
END $$;
SQL
	$holder->query_ok("SELECT zk_lock('x')");
	$waiter->query_ok('SET parallel_leader_participation = off; SET parallel_setup_cost = 0; '
		  . 'SET parallel_tuple_cost = 0; SET max_parallel_workers_per_gather = 2');
	$waiter->query_async("SELECT zk_lock('x') FROM numbers WHERE CASE WHEN i > 1800 THEN fail_on_request(i) ELSE true END");
	wait_blocked($waiter);
	wait_for_sql($node, $workers, 't');
	$waiter->pause;
	$holder->query_ok("SELECT zk_unlock('x')");
	append_to_file($node->data_dir . '/fail_now', '');
	wait_for_sql($node, $workers, 'f');
	$waiter->resume;
	failed_with($waiter, '22012', 'a parallel worker fails when the lock is granted', hint => 0);
	works($waiter, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
		'0', 'the error of a parallel worker leaves no local lock');
	works($next, "SELECT zk_try_lock('x', interval '10 s')",
		't', 'after the error of a parallel worker the next session can acquire the lock');
	unlink $node->data_dir . '/fail_now';
	$_->quit for $holder, $waiter, $next;
	nothing_left($zkc, 'the error of a parallel worker leaves nothing');
}
