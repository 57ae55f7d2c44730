# CALL zk_lock_wait() commits nothing. It fails after whatever a transaction holds for its
# duration: a lock, a snapshot that is still needed, a transaction id. What a transaction may have
# done besides, such as NOTIFY and SET LOCAL, stays in force.

use ZkLock::Pipeline;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $here = shared_node('here', zk => $zk);
my $there = shared_node('there', zk => $zk);
$here->safe_psql('postgres', q{
	CREATE TABLE t (n int);
	INSERT INTO t VALUES (1);
	CREATE SEQUENCE q;
	SELECT lo_create(77);
	CREATE PROCEDURE first_work(work text) LANGUAGE plpgsql AS
		'BEGIN EXECUTE work; CALL zk_lock_wait(''y''); END';
});

my $caller = session($here);
my $admin = session($here);
my $listener = ZkLock::Pipeline->new($here);
my $far = session($there);
$listener->query('LISTEN early');
my $locks = 'SELECT count(*) FROM pg_locks WHERE pid = ' . $caller->pid . " AND locktype <> 'virtualxid'";

sub do_block
{
	my ($body) = @_;
	return "DO \$do\$ DECLARE i record; c refcursor; BEGIN $body; END \$do\$";
}

# What the call does not follow. EXECUTE in a procedure runs the first part.
my %refused = (
	'a row that is written' => 'INSERT INTO t VALUES (7)',
	'a row lock' => 'PERFORM * FROM t FOR UPDATE',
	'a temporary table' => 'CREATE TEMP TABLE tt (n int) ON COMMIT DROP',
	'a sequence' => q{PERFORM nextval('q')},
	'a block that wrote' => 'BEGIN INSERT INTO t VALUES (7); EXCEPTION WHEN division_by_zero THEN NULL; END',
	'LOCK TABLE' => 'LOCK TABLE t IN SHARE MODE',
	'LOCK TABLE in a block' =>
	  'BEGIN LOCK TABLE t IN SHARE MODE; EXCEPTION WHEN division_by_zero THEN NULL; END',
	'a table that is read' => 'PERFORM * FROM t',
	'an advisory lock' => 'PERFORM pg_advisory_xact_lock(7)',
	'a shared advisory lock' => 'PERFORM pg_advisory_xact_lock_shared(7, 8)',
	'an advisory lock in an expression' => 'IF pg_try_advisory_xact_lock(7) THEN NULL; END IF',
	'an advisory lock in a block' =>
	  'BEGIN PERFORM pg_advisory_xact_lock(7); EXCEPTION WHEN division_by_zero THEN NULL; END',
	'an advisory lock in a loop' =>
	  'FOR i IN SELECT pg_try_advisory_xact_lock(g) FROM generate_series(1, 2) g LOOP NULL; END LOOP',
	'a zk lock' => q{PERFORM zk_xact_lock('z')},
	'an exported snapshot' => 'PERFORM pg_export_snapshot()',
	'a transaction id' => 'PERFORM pg_current_xact_id()',
	'a large object' => 'PERFORM lo_open(77, 262144)',
);
my $again = q{CALL zk_lock_wait('y'); PERFORM zk_unlock('y')};
for my $what (sort keys %refused)
{
	my $work = $refused{$what};
	fails_with($caller, do_block("$work; CALL zk_lock_wait('y')"), '25001',
		"$what: the call fails in DO", like => qr/^HINT:.*COMMIT/m, unlike => qr/WARNING/);
	fails_with($caller, 'CALL first_work($w$' . do_block($work) . '$w$)', '25001',
		"$what: the call fails in a procedure", like => qr/^HINT:.*COMMIT/m, unlike => qr/WARNING/);
	works($admin, $locks, '0', "$what: no lock is left");
	works($caller, do_block("$work; COMMIT; $again"), '', "$what: the call works after COMMIT");
	works($caller, do_block("$work; ROLLBACK; $again"), '', "$what: the call works after ROLLBACK");
}
works($admin, 'SELECT count(*) FROM t WHERE n = 7', '2', 'only COMMIT has committed rows');

# Drivers can send several statements before one Sync.
my $pipeline = ZkLock::Pipeline->new($here);
is(join(' ', $pipeline->run($_, q{CALL zk_lock_wait('y')})), '00000 25001', "pipeline: the call fails after $_")
  for 'SELECT pg_advisory_xact_lock(7)', 'SELECT * FROM t', 'INSERT INTO t VALUES (7)';
is(join(' ', $pipeline->run(q{CALL zk_lock_wait('y')}, q{SELECT zk_unlock('y')})), '00000 00000',
	'pipeline: the call works as the first statement');
is(join(' ', $pipeline->run_in_portals($_, q{CALL zk_lock_wait('y')})), '00000 25001', "open portal: the call fails after $_")
  for do_block('PERFORM pg_advisory_xact_lock(7)'), 'SELECT pg_advisory_xact_lock_shared(7)', do_block('LOCK TABLE t IN SHARE MODE');
is(join(' ', $pipeline->run_in_portals('SET application_name = pipeline', q{CALL zk_lock_wait('y')}, q{SELECT zk_unlock('y')})),
	'00000 00000 00000', 'open portal: the call works after SET');

# Cursors.
for my $open ('FOR i IN SELECT * FROM generate_series(1, 2) LOOP %s; END LOOP', 'OPEN c FOR SELECT 1; %s; CLOSE c')
{
	fails_with($caller, do_block(sprintf $open, $again), '25001', 'the call fails with an open cursor',
		like => qr/^HINT:.*COMMIT/m);
}
works($caller, do_block("FOR i IN SELECT * FROM t LOOP COMMIT; $again; END LOOP"), '',
	'the call works in a loop that has committed');
$caller->query_ok('BEGIN; DECLARE kept CURSOR WITH HOLD FOR SELECT n FROM t ORDER BY n; COMMIT');
works($caller, q{CALL zk_lock_wait('y')}, '', 'the call works beside a holdable cursor');
works($caller, 'FETCH kept', '1', 'the holdable cursor stays open');
$caller->query_ok(q{CLOSE kept; SELECT zk_unlock('y')});

# The snapshot of these transactions is needed to their end.
for my $level ('repeatable read', 'serializable')
{
	$caller->query_ok("SET default_transaction_isolation = '$level'");
	fails_with($caller, q{CALL zk_lock_wait('y')}, '25001', "$level: the call fails",
		like => qr/^HINT:.*READ COMMITTED/m);
	works($caller, do_block("COMMIT; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; $again"), '',
		"$level: the call works in a transaction of READ COMMITTED");
	$caller->query_ok('RESET default_transaction_isolation');
}

# What stays in force, and is neither committed nor refused.
fails_with($caller, do_block(q{SET LOCAL work_mem = '1234kB'; NOTIFY early, 'lost'; LISTEN late; CALL zk_lock_wait('y');
	ASSERT current_setting('work_mem') = '1234kB', 'work_mem'; PERFORM 1 / 0}),
	'22012', 'SET LOCAL stays in force after the call', hint => 0);
works($caller, 'SELECT pg_listening_channels()', '', 'LISTEN ends with the transaction that rolls back');
$listener->query('SELECT 1');
is(join(' ', $listener->notifications), '', 'NOTIFY ends with the transaction that rolls back');
works($caller, q{SELECT zk_unlock('y')}, 't', 'the lock stays when the transaction rolls back');
$caller->query_ok(do_block("NOTIFY early, 'sent'; $again"));
$listener->query('SELECT 1');
is(join(' ', $listener->notifications), 'sent', 'NOTIFY before the call is sent by the commit behind it');

# Locks at session level are no obstacle.
$caller->query_ok(q{SELECT pg_advisory_lock(1), pg_advisory_lock(1), pg_advisory_lock_shared(2, 3), zk_lock('other')});
works($caller, do_block($again), '', 'the call works beside locks at session level');
unlike($caller->error, qr/WARNING/, 'the call beside locks at session level gives no warning');
works($caller, q{SELECT pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock_shared(2, 3), zk_unlock('other')},
	't|t|t|t', 'the call does not change locks at session level');
$caller->query_ok('SELECT pg_advisory_lock(1)');
fails_with($caller, do_block("PERFORM pg_advisory_xact_lock(1); $again"), '25001',
	'the call fails with an advisory lock at both levels');
works($caller, 'SELECT pg_advisory_unlock(1)', 't', 'the advisory lock at session level stays after the call has failed');
works($admin, $locks, '0', 'the advisory lock at session level is the only one that stays');

# While the call waits, its transaction has nothing of it either.
$far->query_ok(q{SELECT zk_lock('x')});
$caller->query_async(do_block(q{COMMIT; CALL zk_lock_wait('x'); PERFORM * FROM t; COMMIT; CALL zk_lock_wait('x')}));
wait_zk_children($zkc, '/zklock/locks/x', 2);
works($admin, 'SELECT backend_xid, backend_xmin FROM pg_stat_activity WHERE pid = ' . $caller->pid, '|',
	'a call that waits has neither transaction id nor snapshot');
$far->query_ok(q{SELECT zk_unlock('x')});
$caller->wait_result;
ok($caller->ok, 'the block goes on with a new snapshot') or diag($caller->error);
$caller->query_ok('SELECT zk_unlock_all()');
nothing_left($zkc, 'no node is left');
