# Locks are released at the right time, as seen by another server.
#
# Promises: 3.1, 3.2, 3.3, 3.5
# Tags: user, edges

use ZkLock::Test;

# The lease is a third of the session timeout.
my ($zk, $zkc) = shared_zk_and_client(timeout => 60);
my ($here, $there) = map {
	shared_node($_, session_timeout => '240s')
} qw(here there);
my $s = session($here);
my $t = session($there);

# Checks from the other server.
sub is_held
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($t->query("SELECT zk_try_xact_lock('x')"), 'f', $name);
}

sub is_free
{
	my ($name, $lock) = @_;
	$lock //= 'x';
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(
		$t->query("SELECT zk_try_xact_lock('$lock', interval '1 min')"),
		't', $name);
}


# The end of a transaction.
$s->query_ok("SELECT zk_xact_lock('x')");
is_free('a single statement is a transaction: its lock is free afterwards');
$s->query_ok("BEGIN; SELECT zk_xact_lock('x')");
is_held('a transaction holds its lock until its end');
$s->query_ok('COMMIT');
is_free('COMMIT releases it');
$s->query_ok("BEGIN; SELECT zk_xact_lock('x'), zk_xact_lock('x')");
$s->query_ok('ROLLBACK');
is_free('ROLLBACK releases it, however often it was acquired');
$s->query_ok("BEGIN; SELECT zk_xact_lock('x')");
$s->query('SELECT 1/0');
is($s->sqlstate, '22012', 'the transaction has failed');
$s->query('COMMIT');
is_free('the end of a failed transaction releases its lock');
$s->query("SELECT zk_xact_lock('x'), 1/0");
is_free('a failed statement outside of a block releases its lock');
nothing_left($zkc, 'transactions: no node is left');

# A lock is released after its commit is visible: here the commit waits for a
# standby that does not exist.
$here->safe_psql('postgres', 'CREATE TABLE t (n integer)');
require_standby($here);
$s->query_ok("BEGIN; SELECT zk_xact_lock('x'); INSERT INTO t VALUES (1)");
$s->query_async('COMMIT');
wait_for_standby($s);
is($here->safe_psql('postgres', 'SELECT count(*) FROM t'), '0',
	'the commit is not visible yet');
is_held('a commit that is not visible has not released its lock');
$t->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, '/zklock/locks/x', 2);
$here->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
$here->reload;
$t->wait_result;
is($here->safe_psql('postgres', 'SELECT count(*) FROM t'), '1',
	'the commit is visible when another server is granted the lock');
$s->wait_result;
$t->query_ok("SELECT zk_unlock('x')");
nothing_left($zkc, 'commit: no node is left');

# A backend that has sent its invalidations, and releases PostgreSQL's own locks next.
{
	my $library = shim_library($here, 'release_gate');
	$here->safe_psql('postgres', "CREATE FUNCTION stop_at_release() RETURNS void LANGUAGE c AS '$library'");
	my $stopped = $here->data_dir . '/stopped';
	my $beside = session($here);
	$s->query_async("SELECT zk_xact_lock('x'), stop_at_release()");
	wait_until('the end of the transaction', sub { -e $stopped });
	is($beside->query("SELECT zk_try_xact_lock('x')"), 'f',
		'a transaction whose end others see holds its lock until PostgreSQL releases locks');
	unlink $stopped;
	$s->wait_result;
	works($beside, "SELECT zk_try_xact_lock('x')", 't', 'the lock is free when PostgreSQL has released locks');
}

# The same as a race: an update is lost if the lock is free before the commit is
# visible.
for my $node ($here, $there)
{
	$node->safe_psql('postgres', 'CREATE EXTENSION dblink');
}
$here->safe_psql('postgres', <<'SQL');
TRUNCATE t;
INSERT INTO t VALUES (0);
CREATE PROCEDURE count_up(rounds integer) LANGUAGE plpgsql AS $$
DECLARE
	was integer;
BEGIN
	FOR i IN 1..rounds LOOP
		PERFORM zk_xact_lock('count');
		was := n FROM t;
		UPDATE t SET n = was + 1;
		COMMIT;
	END LOOP;
END $$;
SQL
my $connstr = $here->connstr('postgres') =~ s/'/''/gr;
$there->safe_psql('postgres', <<"SQL");
CREATE PROCEDURE count_up(rounds integer) LANGUAGE plpgsql AS \$\$
DECLARE
	was integer;
BEGIN
	PERFORM dblink_connect('$connstr');
	FOR i IN 1..rounds LOOP
		PERFORM zk_lock('count');
		SELECT n INTO was FROM dblink('SELECT n FROM t') AS t (n integer);
		PERFORM dblink_exec('UPDATE t SET n = ' || was + 1);
		PERFORM zk_unlock('count');
	END LOOP;
END \$\$;
SQL
$_->query_async('CALL count_up(150)') for $s, $t;
$_->wait_result(timeout => 600) for $s, $t;
is_deeply([ $s->error, $t->error ], [ '', '' ],
	'transactions and holders on another server alternate without an error');
is($here->safe_psql('postgres', 'SELECT n FROM t'), '300',
	'each holder sees the commits of all holders before it');
nothing_left($zkc, 'race with visibility: no node is left');


# Subtransactions.
$s->query_ok("BEGIN; SAVEPOINT a; SELECT zk_xact_lock('x')");
is_held('a lock acquired after a savepoint is held');
$s->query_ok('ROLLBACK TO a');
is_free('rolling back to the savepoint releases it');
$s->query_ok("SELECT zk_xact_lock('x'); RELEASE a");
is_held('releasing the savepoint keeps it');
$s->query_ok("SAVEPOINT b; SELECT zk_xact_lock('x'); ROLLBACK TO b");
is_held('rolling back an inner level does not release a lock of the outer level');
$s->query_ok('ROLLBACK');
is_free('the end of the transaction releases it');

$s->query_ok("BEGIN; SAVEPOINT a; SAVEPOINT b; SELECT zk_xact_lock('x')");
$s->query_ok('RELEASE b');
is_held('a lock inherited by the outer level is held');
$s->query_ok('ROLLBACK TO a');
is_free('an inherited lock is released with the level that inherited it');
$s->query_ok("SAVEPOINT c; SELECT zk_lock('x'); ROLLBACK TO c; ROLLBACK");
is_held('a session-level lock is independent of savepoints');
is($s->query("SELECT zk_unlock('x')"), 't', 'the session-level lock can be unlocked');
is_free('the unlocked lock is free');

$s->query_ok("BEGIN; SELECT zk_xact_lock_shared('x'); SAVEPOINT a");
$s->query_ok("SELECT zk_xact_lock('x'); ROLLBACK TO a");
is( $t->query("SELECT zk_try_xact_lock_shared('x', interval '1 min')"),
	't', 'rolling back an upgrade leaves the shared lock');
is_held('the shared lock is still held');
$s->query_ok('COMMIT');
is_free('COMMIT releases the shared lock');
nothing_left($zkc, 'savepoints: no node is left');

$s->query_ok(<<'SQL');
DO $$
BEGIN
	BEGIN
		PERFORM zk_xact_lock('x');
		PERFORM zk_lock('kept');
		RAISE 'no';
	EXCEPTION WHEN raise_exception THEN
		NULL;
	END;
	PERFORM zk_xact_lock('outer');
	PERFORM pg_advisory_lock(1);
END $$
SQL
is_free('a failed block releases the transaction-level lock acquired in it');
is($t->query("SELECT zk_try_lock('kept')"), 'f',
	'a failed block keeps its session-level lock');
is_free('the end of the transaction releases the lock acquired outside of the block', 'outer');
$s->query_ok("SELECT zk_unlock('kept')");
nothing_left($zkc, 'blocks: no node is left');

# COMMIT and ROLLBACK in a procedure. Native locks stop the procedure in between.
$here->safe_psql('postgres', <<'SQL');
CREATE PROCEDURE stages() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_xact_lock('x'), zk_lock('kept');
	COMMIT;
	PERFORM pg_advisory_xact_lock(2);
	PERFORM zk_xact_lock('x');
	ROLLBACK;
	PERFORM pg_advisory_xact_lock(3);
	PERFORM zk_xact_lock('x');
END $$;
SQL
my $gate = session($here);
$gate->query_ok('SELECT pg_advisory_lock(2), pg_advisory_lock(3)');
$s->query_async('CALL stages()');
wait_blocked_locally($s);
is_free('COMMIT in a procedure releases transaction-level locks');
is($t->query("SELECT zk_try_lock('kept')"), 'f',
	'COMMIT in a procedure keeps session-level locks');
$gate->query_ok('SELECT pg_advisory_unlock(2)');
wait_for_sql(
	$here,
	'SELECT objid FROM pg_locks WHERE NOT granted AND pid = ' . $s->pid,
	'3');
is_free('ROLLBACK in a procedure releases transaction-level locks');
$gate->query_ok('SELECT pg_advisory_unlock(3)');
$s->wait_result;
is($s->sqlstate, '00000', 'the procedure ends without an error');
is_free('the end of the procedure releases the last transaction-level lock');
$gate->quit;
$s->query_ok("SELECT zk_unlock('kept')");
nothing_left($zkc, 'procedures: no node is left');


# Session-level locks.
$s->query_ok("BEGIN; SELECT zk_lock('x'); ROLLBACK");
is_held('a session-level lock survives ROLLBACK');
$s->query('SELECT 1/0');
is_held('a session-level lock survives an error');
$s->query_ok("BEGIN; SELECT zk_unlock('x')");
is_free('an unlock takes effect at once');
$s->query_ok('ROLLBACK');
is_free('ROLLBACK does not undo an unlock');

$s->query_ok("SELECT zk_lock('x'), zk_lock('x'), zk_lock_shared('x')");
$s->query_ok("SELECT zk_unlock('x')");
is_held('a lock acquired twice is held after one unlock');
$s->query_ok("SELECT zk_unlock('x')");
is( $t->query("SELECT zk_try_xact_lock_shared('x', interval '1 min')"),
	't', 'the second unlock releases the exclusive mode only');
is_held('the shared mode is still held');
is($s->query("SELECT zk_unlock('x')"), 'f',
	'unlocking a mode that is not held returns false');
like($s->error, qr/WARNING:.*"x"/, 'unlocking a mode that is not held gives a warning');
is($s->query("SELECT zk_unlock_shared('x')"), 't', 'the shared mode can be unlocked');
is_free('the lock is free after the last unlock');

$s->query_ok("BEGIN; SELECT zk_xact_lock('x')");
is($s->query("SELECT zk_unlock('x')"), 'f',
	'a transaction-level lock cannot be unlocked');
is_held('the transaction-level lock is still held');
$s->query_ok("SELECT zk_lock('x'); COMMIT");
is_held('a lock acquired at both levels survives the transaction');
$s->query_ok("SELECT zk_unlock('x')");
is_free('an unlock after the transaction releases it');

$s->query_ok(
	"SELECT zk_lock('x'), zk_lock_shared('y'), zk_lock('1'), zk_lock('1,2')");
$s->query_ok("BEGIN; SELECT zk_xact_lock('z'); SELECT zk_unlock_all()");
is_free("zk_unlock_all() releases $_", $_) for 'x', 'y', '1', '1,2';
is($t->query("SELECT zk_try_lock('z')"), 'f',
	'zk_unlock_all() keeps transaction-level locks');
$s->query_ok('COMMIT');
is_free('the end of the transaction releases the transaction-level lock', 'z');
nothing_left($zkc, 'zk_unlock_all(): no node is left');

$s->query_ok("SELECT zk_lock('x'), zk_lock_shared('y')");
$s->query_ok('DISCARD PLANS');
is_held('DISCARD PLANS releases nothing');
is(($s->query('DISCARD ALL'))[1], '', 'DISCARD ALL gives no message');
is_free("DISCARD ALL releases $_", $_) for qw(x y);
is($s->query('SELECT count(*) FROM zk_held_locks'), '0', 'DISCARD ALL leaves no held lock');
nothing_left($zkc, 'DISCARD ALL: no node is left');

# A DISCARD ALL that fails has released PostgreSQL's own advisory locks, and zk locks.
{
	my $blocker = session($s->node);
	my $schema = $s->query_ok('CREATE TEMPORARY TABLE discarded (); SELECT pg_my_temp_schema()::regnamespace');
	$s->query_ok("SELECT zk_lock('x'), pg_advisory_lock(7)");
	$blocker->query_ok("BEGIN; LOCK TABLE $schema.discarded");
	$s->query_async('DISCARD ALL');
	wait_blocked_locally($s);
	$s->cancel;
	$s->wait_result;
	is($s->sqlstate, '57014', 'DISCARD ALL waits for a temporary table and is cancelled');
	is($s->query(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()}), '0',
		'the cancelled DISCARD ALL leaves no advisory lock');
	is($s->query('SELECT count(*) FROM zk_held_locks'), '0', 'the cancelled DISCARD ALL leaves no zk lock without its local lock');
	is_free('the zk lock is free after the cancelled DISCARD ALL');
	$blocker->quit;
	$s->query_ok('DISCARD ALL');
	nothing_left($zkc, 'a cancelled DISCARD ALL: no node is left');
}

$s->query_ok("SELECT zk_lock('x')");
$s->query("BEGIN; SELECT zk_xact_lock('y'); PREPARE TRANSACTION 'p'");
is($s->sqlstate, '0A000', 'PREPARE TRANSACTION is refused if the transaction holds a lock');
is_free('a refused PREPARE TRANSACTION releases the transaction-level lock', 'y');
is_held('a refused PREPARE TRANSACTION keeps session-level locks');
$s->query_ok("BEGIN; PREPARE TRANSACTION 'p'");
is_held('a session-level lock survives PREPARE TRANSACTION');
$s->query_ok("COMMIT PREPARED 'p'; SELECT zk_unlock('x')");
nothing_left($zkc, 'PREPARE TRANSACTION: no node is left');


# A release never waits for the ensemble. During an outage it is queued.
sub during_outage
{
	my ($ensemble, $break, $restore) = @_;

	$s->query_ok("SET zklock.commit_check = 'lease'");
	$s->query_ok("BEGIN; SELECT zk_xact_lock('x'); INSERT INTO t VALUES (1)");
	$break->();
	$s->query('COMMIT');
	is($s->sqlstate, '00000',
		"$ensemble: COMMIT succeeds while the lease is valid");
	$restore->();
	is_free("$ensemble: the lock is free after the outage");

	$s->query_ok("SET zklock.commit_check = 'off'");
	$s->query_ok("BEGIN; SELECT zk_xact_lock('x'); INSERT INTO t VALUES (1)");
	$s->query_ok("SAVEPOINT a; SELECT zk_xact_lock('y')");
	$s->query_ok("SELECT zk_lock('z'), zk_lock('w'), zk_lock_shared('w')");
	$break->();
	$s->query_ok('ROLLBACK TO a');
	$s->query_ok('COMMIT');
	is($s->query("SELECT zk_unlock('z')"), 't',
		"$ensemble: ROLLBACK TO, COMMIT and unlock do not wait");
	is($s->query("SELECT zk_unlock('w')"), 't', "$ensemble: a downgrade does not wait");
	is($s->query('SELECT name, mode FROM zk_held_locks'),
		'w|shared', "$ensemble: the session holds nothing but the downgraded lock");
	$restore->();
	is_free("$ensemble: $_ is free after the outage", $_) for qw(x y z);
	is( $t->query("SELECT zk_try_xact_lock_shared('w', interval '1 min')"),
		't', "$ensemble: the downgrade takes effect after the outage");
	$s->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, "$ensemble: no node is left");
	return;
}
during_outage('a silent ensemble', sub { $zk->pause }, sub { $zk->resume });
during_outage('a crashed ensemble', sub { $zk->kill9 }, sub { $zk->restart });
