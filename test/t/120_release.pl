# When locks are released, as another server sees it.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check qw(nothing_left);
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

# The lease is a third of the session timeout.
my $zk = ZkLock::ZkServer->start(
	tick_time => 500,
	config => { maxSessionTimeout => 300000 });
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 60);
my ($here, $there) = map {
	zklock_node(
		$_,
		zk => $zk,
		session_timeout => '240s',
		init => [ allows_streaming => 1 ])
} qw(here there);
my $s = session($here);
my $t = session($there);

# What the other server learns.
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
is_held('a transaction keeps its lock');
$s->query_ok('COMMIT');
is_free('COMMIT releases it');
$s->query_ok("BEGIN; SELECT zk_xact_lock('x'), zk_xact_lock('x')");
$s->query_ok('ROLLBACK');
is_free('ROLLBACK releases it, however often it was taken');
$s->query_ok("BEGIN; SELECT zk_xact_lock('x')");
$s->query('SELECT 1/0');
is($s->sqlstate, '22012', 'a transaction that failed');
$s->query('COMMIT');
is_free('releases it, too');
$s->query("SELECT zk_xact_lock('x'), 1/0");
is_free('so does a statement that failed');
nothing_left($zkc, 'transactions: no node is left');

# Not before the commit can be seen: here it waits for a standby that is none.
$here->safe_psql('postgres', 'CREATE TABLE t (n integer)');
$here->safe_psql('postgres',
	"ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
$here->reload;
wait_for_sql($here, 'SHOW synchronous_standby_names', 'nobody');
$s->query_ok("BEGIN; SELECT zk_xact_lock('x'); INSERT INTO t VALUES (1)");
$s->query_async('COMMIT');
wait_for_sql($here,
	'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $s->pid,
	'SyncRep');
is($here->safe_psql('postgres', 'SELECT count(*) FROM t'), '0',
	'a commit that is not visible yet');
is_held('has not released its lock');
$t->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, '/zklock/locks/x', 2);
$here->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
$here->reload;
$t->wait_result;
is($here->safe_psql('postgres', 'SELECT count(*) FROM t'), '1',
	'when another server gets the lock the commit is visible');
$s->wait_result;
$t->query_ok("SELECT zk_unlock('x')");
nothing_left($zkc, 'commit: no node is left');

# The same as a race: an update of another server is lost if a commit becomes
# visible after the lock is free.
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
$_->wait_result for $s, $t;
is_deeply([ $s->error, $t->error ], [ '', '' ],
	'transactions here and holders elsewhere take turns');
is($here->safe_psql('postgres', 'SELECT n FROM t'), '300',
	'and what one has committed the next can see, always');
nothing_left($zkc, 'race with visibility: no node is left');


# Subtransactions.
$s->query_ok("BEGIN; SAVEPOINT a; SELECT zk_xact_lock('x')");
is_held('a lock taken after a savepoint is held');
$s->query_ok('ROLLBACK TO a');
is_free('rolling back to the savepoint releases it');
$s->query_ok("SELECT zk_xact_lock('x'); RELEASE a");
is_held('releasing the savepoint keeps it');
$s->query_ok("SAVEPOINT b; SELECT zk_xact_lock('x'); ROLLBACK TO b");
is_held('what the outer level holds an inner one does not release');
$s->query_ok('ROLLBACK');
is_free('until the transaction ends');

$s->query_ok("BEGIN; SAVEPOINT a; SAVEPOINT b; SELECT zk_xact_lock('x')");
$s->query_ok('RELEASE b');
is_held('an inherited lock is held');
$s->query_ok('ROLLBACK TO a');
is_free('and released with the level that inherited it');
$s->query_ok("SAVEPOINT c; SELECT zk_lock('x'); ROLLBACK TO c; ROLLBACK");
is_held('a session-level lock has nothing to do with savepoints');
is($s->query("SELECT zk_unlock('x')"), 't', 'it is unlocked');
is_free('and free');

$s->query_ok("BEGIN; SELECT zk_xact_lock_shared('x'); SAVEPOINT a");
$s->query_ok("SELECT zk_xact_lock('x'); ROLLBACK TO a");
is( $t->query("SELECT zk_try_xact_lock_shared('x', interval '1 min')"),
	't', 'an upgrade is rolled back to what was held before it');
is_held('which is still held');
$s->query_ok('COMMIT');
is_free('until the end');
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
is_free('a block that fails releases what it took');
is($t->query("SELECT zk_try_lock('kept')"), 'f',
	'not what it took at session level');
is_free('the transaction around it releases its own', 'outer');
$s->query_ok("SELECT zk_unlock('kept')");
nothing_left($zkc, 'blocks: no node is left');

# COMMIT and ROLLBACK in a procedure. A native lock stops it in between.
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
my $stop = session($here);
$stop->query_ok('SELECT pg_advisory_lock(2), pg_advisory_lock(3)');
$s->query_async('CALL stages()');
wait_blocked($s);
is_free('COMMIT in a procedure releases');
is($t->query("SELECT zk_try_lock('kept')"), 'f',
	'but keeps what is held at session level');
$stop->query_ok('SELECT pg_advisory_unlock(2)');
wait_for_sql(
	$here,
	'SELECT objid FROM pg_locks WHERE NOT granted AND pid = ' . $s->pid,
	'3');
is_free('so does ROLLBACK in a procedure');
$stop->query_ok('SELECT pg_advisory_unlock(3)');
$s->wait_result;
is($s->sqlstate, '00000', 'the procedure ends');
is_free('and its end releases the rest');
$stop->quit;
$s->query_ok("SELECT zk_unlock('kept')");
nothing_left($zkc, 'procedures: no node is left');


# The session level.
$s->query_ok("BEGIN; SELECT zk_lock('x'); ROLLBACK");
is_held('a session-level lock survives ROLLBACK');
$s->query('SELECT 1/0');
is_held('and errors');
$s->query_ok("BEGIN; SELECT zk_unlock('x')");
is_free('an unlock takes effect at once');
$s->query_ok('ROLLBACK');
is_free('and is not taken back by ROLLBACK');

$s->query_ok("SELECT zk_lock('x'), zk_lock('x'), zk_lock_shared('x')");
$s->query_ok("SELECT zk_unlock('x')");
is_held('what was taken twice is released twice');
$s->query_ok("SELECT zk_unlock('x')");
is( $t->query("SELECT zk_try_xact_lock_shared('x', interval '1 min')"),
	't', 'each mode for itself');
is_held('the shared hold stays');
is($s->query("SELECT zk_unlock('x')"), 'f',
	'what is not held cannot be released');
like($s->error, qr/WARNING:.*"x"/, 'which is reported');
is($s->query("SELECT zk_unlock_shared('x')"), 't', 'the last one');
is_free('makes it free');

$s->query_ok("BEGIN; SELECT zk_xact_lock('x')");
is($s->query("SELECT zk_unlock('x')"), 'f',
	'a transaction does not release its lock before its end');
is_held('so it stays');
$s->query_ok("SELECT zk_lock('x'); COMMIT");
is_held('taken at both levels it survives the transaction');
$s->query_ok("SELECT zk_unlock('x')");
is_free('until it is unlocked');

$s->query_ok(
	"SELECT zk_lock('x'), zk_lock_shared('y'), zk_lock(1), zk_lock(1, 2)");
$s->query_ok("BEGIN; SELECT zk_xact_lock('z'); SELECT zk_unlock_all()");
is_free("zk_unlock_all() releases $_", $_) for 'x', 'y', '#1';
is($t->query("SELECT zk_try_lock('z')"), 'f',
	'but nothing at transaction level');
$s->query_ok('COMMIT');
is_free('which goes with the transaction', 'z');
nothing_left($zkc, 'zk_unlock_all(): no node is left');

$s->query_ok("SELECT zk_lock('x'), zk_lock_shared('y')");
$s->query_ok('DISCARD PLANS');
is_held('DISCARD PLANS releases nothing');
is(($s->query('DISCARD ALL'))[1], '', 'DISCARD ALL is silent');
is_free("DISCARD ALL releases $_", $_) for qw(x y);
is($s->query('SELECT count(*) FROM zk_held_locks'), '0', 'and leaves nothing');
nothing_left($zkc, 'DISCARD ALL: no node is left');

$s->query_ok("SELECT zk_lock('x')");
$s->query("BEGIN; SELECT zk_xact_lock('y'); PREPARE TRANSACTION 'p'");
is($s->sqlstate, '0A000', 'a transaction that holds a lock is not prepared');
is_free('it is over then, with its lock', 'y');
is_held('session-level locks stay');
$s->query_ok("BEGIN; PREPARE TRANSACTION 'p'");
is_held('they do not hinder PREPARE TRANSACTION, and survive it');
$s->query_ok("COMMIT PREPARED 'p'; SELECT zk_unlock('x')");
nothing_left($zkc, 'PREPARE TRANSACTION: no node is left');


# A release never waits for the ensemble, and is never forgotten.
sub while_away
{
	my ($ensemble, $away, $back) = @_;

	$s->query_ok("SET zklock.commit_check = 'lease'");
	$s->query_ok("BEGIN; SELECT zk_xact_lock('x'); INSERT INTO t VALUES (1)");
	$away->();
	$s->query('COMMIT');
	is($s->sqlstate, '00000',
		"$ensemble: COMMIT succeeds while the lease is valid");
	$back->();
	is_free("$ensemble: the lock is free when it is back");

	$s->query_ok("SET zklock.commit_check = 'off'");
	$s->query_ok("BEGIN; SELECT zk_xact_lock('x'); INSERT INTO t VALUES (1)");
	$s->query_ok("SAVEPOINT a; SELECT zk_xact_lock('y')");
	$s->query_ok("SELECT zk_lock('z'), zk_lock('w'), zk_lock_shared('w')");
	$away->();
	$s->query_ok('ROLLBACK TO a');
	$s->query_ok('COMMIT');
	is($s->query("SELECT zk_unlock('z')"), 't',
		"$ensemble: ROLLBACK TO, COMMIT and unlock do not wait");
	is($s->query("SELECT zk_unlock('w')"), 't', "$ensemble: nor a downgrade");
	is($s->query('SELECT name, mode FROM zk_held_locks'),
		'w|shared', "$ensemble: the session is through with all of them");
	$back->();
	is_free("$ensemble: $_ is free when it is back", $_) for qw(x y z);
	is( $t->query("SELECT zk_try_xact_lock_shared('w', interval '1 min')"),
		't', "$ensemble: the downgrade is carried out");
	$s->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, "$ensemble: no node is left");
	return;
}
while_away('a silent ensemble', sub { $zk->pause }, sub { $zk->resume });
while_away('a crashed ensemble', sub { $zk->kill9 }, sub { $zk->restart });

$_->quit for $s, $t;
$_->stop for $here, $there;
done_testing();
