# CALL zk_lock_wait() waits without a snapshot or transaction: it delays neither CREATE
# INDEX CONCURRENTLY nor vacuum.
#
# Promise: 4.1
# Tags: user, edges

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $here = shared_node('here', zk => $zk);
my $there = shared_node('there', zk => $zk);
$here->safe_psql('postgres', 'CREATE TABLE t (n int); INSERT INTO t VALUES (1)');

my $holder = session($here);
my $far = session($there);
my $waiter = session($here, application_name => 'waiter');
my $admin = session($here);
my $held = 'SELECT name, level FROM zk_held_locks';

works($waiter, "CALL zk_lock_wait('free')", '', 'a free lock is acquired');
works($waiter, $held, 'free|session', 'the lock is held at session level');
works($waiter, "CALL zk_lock_wait('free', '0')", '',
	'the lock is acquired again');
works($waiter, "SELECT hold_count, token = zk_lock_token('free') FROM zk_held_locks", '2|t',
	'the two acquisitions are counted');
$waiter->query_ok('SELECT zk_unlock_all()');

# All forms of the arguments.
$waiter->query_ok("CALL $_") for "zk_lock_wait('7')", "zk_lock_wait('7,8')",
  "zk_lock_wait('8', interval '1s')", "zk_lock_wait('7,9', timeout => '1s')", "zk_lock_wait('9', NULL)";
works($waiter, 'SELECT string_agg(name, \' \' ORDER BY name COLLATE "C") FROM zk_held_locks', '7 7,8 7,9 8 9',
	'zk_lock_wait() accepts a timeout in all forms');
$waiter->query_ok('SELECT zk_unlock_all()');

# Returns the waiter's xmin and transaction id.
sub horizon
{
	return $admin->query('SELECT backend_xmin, backend_xid FROM pg_stat_activity WHERE pid = '
		  . $waiter->pid);
}

for my $case ([ 'of this server', $holder ], [ 'of another server', $far ])
{
	my ($whose, $owner) = @$case;
	$owner->query_ok("SELECT zk_lock('migration')");

	# For comparison: a wait with a snapshot.
	$waiter->query_async("SELECT zk_lock('migration')");
	wait_blocked($waiter);
	isnt(horizon(), '|', "a holder $whose: SELECT zk_lock() waits with a snapshot");
	$admin->query_ok("SET lock_timeout = '200ms'");
	$admin->query('CREATE INDEX CONCURRENTLY blocked ON t (n)');
	is($admin->sqlstate, '55P03', 'CREATE INDEX CONCURRENTLY waits for the waiter');
	$admin->query_ok('RESET lock_timeout');
	$admin->query_ok('DROP INDEX blocked');
	$waiter->cancel;
	$waiter->wait_result;

	$waiter->query_async("CALL zk_lock_wait('migration')");
	wait_blocked($waiter);
	is(horizon(), '|', "a holder $whose: CALL zk_lock_wait() waits without one");
	works($admin, 'CREATE INDEX CONCURRENTLY i ON t (n)', '',
		"a holder $whose: CREATE INDEX CONCURRENTLY does not wait for CALL zk_lock_wait()");
	$admin->query_ok('DROP INDEX i; UPDATE t SET n = n + 1');
	my (undef, $report) = $admin->query('VACUUM (VERBOSE) t');
	like($report, qr/1 removed, 1 remain, 0 are dead/, "a holder $whose: vacuum removes dead rows during CALL zk_lock_wait()");
	ok(!$waiter->finished, "a holder $whose: CALL zk_lock_wait() still waits then");
	$owner->query_ok("SELECT zk_unlock('migration')");
	$waiter->wait_result;
	ok($waiter->ok, 'the waiter acquires the lock after the release');
	works($waiter, $held, 'migration|session', 'the waiter acquires the lock at session level');
	works($owner, "SELECT zk_try_lock('migration')", 'f', 'the waiter acquires the lock exclusively');
	$waiter->query_ok("SELECT zk_unlock('migration')");
}

# Other ends of a wait.
$far->query_ok("SELECT zk_lock('x')");
fails_with($waiter, "CALL zk_lock_wait('x', '1 s')", '55P03',
	'the timeout passes', like => qr/"x"/);
fails_with($waiter, "CALL zk_lock_wait('x', '0')", '55P03', 'a timeout of 0 fails at once');
$waiter->query_ok("SET lock_timeout = '100ms'");
fails_with($waiter, "CALL zk_lock_wait('x')", '55P03', 'lock_timeout ends the wait', hint => 0);
$waiter->query_ok('RESET lock_timeout');
$waiter->query_ok("SET statement_timeout = '100ms'");
fails_with($waiter, "CALL zk_lock_wait('x')", '57014', 'statement_timeout ends the wait', hint => 0);
$waiter = session($here, application_name => 'waiter');
$waiter->query_async("CALL zk_lock_wait('x')");
wait_zk_children($zkc, '/zklock/locks/x', 2);
$waiter->cancel;
failed_with($waiter, '57014', 'a cancel ends the wait', hint => 0);
wait_zk_children($zkc, '/zklock/locks/x', 1);
pass('a cancelled wait leaves no node');
fails_with($waiter, "CALL zk_lock_wait(NULL)", '22004', 'NULL is not a name');
fails_with($waiter, "CALL zk_lock_wait('')", '22023', 'the empty string is not a name');
fails_with($waiter, "CALL zk_lock_wait('x', '-1 s')", '22023', 'a negative timeout is an error');
fails_with($waiter, "CALL zk_lock_wait('x', 'soon')", '22007', 'a timeout that is no interval is an error', hint => 0);
$far->query_ok("SELECT zk_lock('7')");
fails_with($waiter, "CALL zk_lock_wait('7', interval '0')", '55P03', 'an attempt for a held lock fails', like => qr/"7"/);
works($waiter, $held, '', 'the failed calls leave no lock');

# Contexts in which it must not commit.
$waiter->query_ok('BEGIN');
fails_with($waiter, "CALL zk_lock_wait('y')", '25001', 'the call fails in a transaction block',
	like => qr/transaction block/);
$waiter->query_ok('ROLLBACK');
fails_with($waiter, "DO \$\$ BEGIN BEGIN CALL zk_lock_wait('y'); EXCEPTION WHEN division_by_zero THEN NULL; END; END \$\$",
	'25001', 'the call fails in a block with an EXCEPTION clause');
$admin->query_ok("CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN CALL zk_lock_wait('y'); END \$\$");
fails_with($waiter, 'SELECT f()', '25001', 'the call fails in a function');
for my $work ('INSERT INTO t VALUES (7)', "PERFORM zk_xact_lock('z')")
{
	fails_with($waiter, "DO \$\$ BEGIN $work; CALL zk_lock_wait('y'); END \$\$",
		'25001', "the call fails after $work", like => qr/^HINT:.*COMMIT/m);
}
works($admin, 'SELECT count(*) FROM t WHERE n = 7', '0', 'the failed call does not commit the INSERT');
$waiter->query_ok("DO \$\$ BEGIN INSERT INTO t VALUES (7); COMMIT; CALL zk_lock_wait('y'); INSERT INTO t VALUES (8); END \$\$");
works($waiter, $held, 'y|session', 'the call works in a block that has committed');
works($admin, 'SELECT count(*) FROM t WHERE n IN (7, 8)', '2', 'the block continues after the call');
works($waiter, 'SELECT zk_unlock_all()', '', 'the lock is released');

# Another lock is lost during the wait.
$waiter->query_ok("SELECT zk_lock('other')");
$waiter->query_async("CALL zk_lock_wait('x')");
wait_zk_children($zkc, '/zklock/locks/x', 2);
$zkc->delete("/zklock/locks/other/$_") for $zkc->children('/zklock/locks/other');
failed_with($waiter, '40001', 'a lock that is lost during the wait is reported', like => qr/"other"/);

# In a database of another encoding the name is converted, for which PostgreSQL reads its catalogs, with a
# snapshot, the first time in each session.
{
	$here->safe_psql('postgres', q{CREATE DATABASE latin1 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0});
	$here->safe_psql('latin1', 'CREATE EXTENSION zklock');
	my $s = session($here, dbname => 'latin1');
	$s->query_ok("SET client_encoding = 'LATIN1'");
	works($s, 'CALL zk_lock_wait(chr(233))', '', 'a lock is acquired whose name has to be converted');
	$s->quit;
}

$_->quit for $holder, $far, $waiter, $admin;
nothing_left($zkc, 'no node is left');
