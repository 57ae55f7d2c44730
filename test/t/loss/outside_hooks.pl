# Losses that no hook of zklock can report at once: while a statement is parsed, and while COMMIT
# waits. They end the wait with 57014; then 40001 follows, or a line in the server's log. And
# losses in code that is not allowed to hide them: the session gets 40001 exactly once.
# Promise: 5.3
# Tags: edges

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $node = shared_node('a', zk => $zk);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t (v int);
CREATE TABLE written (v text);
CREATE FUNCTION read_t() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN PERFORM FROM t; RETURN NULL; END $$;
CREATE TABLE deferred (v text);
CREATE CONSTRAINT TRIGGER d AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION read_t();
CREATE TABLE indexed (v int);
INSERT INTO indexed VALUES (1);
CREATE FUNCTION sleeps(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN PERFORM pg_catalog.pg_sleep(60); RETURN v; END $$;
CREATE FUNCTION catches(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN PERFORM pg_catalog.pg_sleep(60); RETURN v; EXCEPTION WHEN serialization_failure THEN RETURN v; END $$;
CREATE FUNCTION renames(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN PERFORM pg_catalog.pg_sleep(60); RETURN v; EXCEPTION WHEN serialization_failure THEN RAISE 'renamed'; END $$;
CREATE MATERIALIZED VIEW slow AS SELECT sleeps(1) AS v WITH NO DATA;
CREATE FUNCTION indexes() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'CREATE INDEX nested ON indexed ((sleeps(v)))';
EXCEPTION WHEN serialization_failure THEN
	PERFORM 1;
	RAISE NOTICE 'caught: %', SQLERRM;
	RETURN 'caught';
END $$;
SQL
my $s = session($node);
my $gate = session($node);

# Runs a statement that waits in parse analysis, or at the end of its transaction, and loses the lock.
sub lose_while_blocked
{
	my ($statement) = @_;
	my $id = zk_session_id($s);
	$gate->query_ok('BEGIN; LOCK TABLE t');
	$s->query_async($statement);
	wait_blocked_locally($s);
	lose_lock($zk, $zkc, 'lost', $id);
	return;
}

sub log_since
{
	my ($offset) = @_;
	return slurp_file($node->logfile, $offset);
}

my $in_log = qr/LOG:  lock "lost" was lost, and the transaction that held it was rolled back/;

# A session-level lock.
$s->query_ok("SELECT zk_lock('lost')");
lose_while_blocked('SELECT * FROM t');
failed_with($s, '57014', 'a loss ends a wait in parse analysis', like => qr/due to user request/, hint => 0);
$gate->query_ok('COMMIT');
fails_with($s, "INSERT INTO written VALUES ('x')", '40001', 'the next statement reports the loss', like => qr/"lost"/);
works($s, 'SELECT count(*) FROM written', '0', 'once, and its row is not written');

# A transaction-level lock.
my $offset = -s $node->logfile;
$s->query_ok("BEGIN; SELECT zk_xact_lock('lost')");
lose_while_blocked('SELECT * FROM t');
failed_with($s, '57014', 'a loss of a transaction-level lock ends a wait in parse analysis', hint => 0);
$gate->query_ok('COMMIT');
like(log_since($offset), $in_log, 'the log names the lock');
$s->query_ok('ROLLBACK');
works($s, 'SELECT count(*) FROM t', '0', 'the next transaction is not affected');

# One that ROLLBACK TO releases: COMMIT is refused, or the log names the lock.
for my $end ('COMMIT', 'ROLLBACK')
{
	$offset = -s $node->logfile;
	$s->query_ok("BEGIN; SAVEPOINT s; SELECT zk_xact_lock('lost')");
	lose_while_blocked('SELECT * FROM t');
	failed_with($s, '57014', "a loss ends a wait in parse analysis after a savepoint, before $end", hint => 0);
	$s->query_ok('ROLLBACK TO s');
	$gate->query_ok('COMMIT');
	works($s, "SELECT count(*) FROM t; INSERT INTO written VALUES ('x')", '0', 'after ROLLBACK TO statements run');
	if ($end eq 'COMMIT')
	{
		fails_with($s, 'COMMIT', '40001', 'and COMMIT is refused', like => qr/"lost"/);
		unlike(log_since($offset), $in_log, 'the log does not repeat what an error has named');
	}
	else
	{
		$s->query_ok('ROLLBACK');
		is(() = log_since($offset) =~ /$in_log/g, 1, 'after ROLLBACK the log names the lock once');
	}
	works($s, 'SELECT count(*) FROM written', '0', "no row is written before $end");
}

# PL/pgSQL catches the cancel of a wait in parse analysis.
$s->query_ok("SELECT zk_lock('lost')");
lose_while_blocked(q{DO $$ BEGIN
	BEGIN PERFORM * FROM t; EXCEPTION WHEN query_canceled THEN NULL; END;
	INSERT INTO written VALUES ('x');
END $$});
failed_with($s, '40001', 'after a caught cancel the next statement of the block reports the loss', like => qr/"lost"/);
$gate->query_ok('COMMIT');
works($s, 'SELECT count(*) FROM written', '0', 'once, and nothing is written');

# A deferred trigger waits in parse analysis, during COMMIT.
$offset = -s $node->logfile;
$s->query_ok("BEGIN; SELECT zk_xact_lock('lost'); INSERT INTO deferred VALUES ('x')");
lose_while_blocked('COMMIT');
failed_with($s, '57014', 'a loss ends a wait of a deferred trigger', hint => 0);
$gate->query_ok('COMMIT');
like(log_since($offset), $in_log, 'and the log names the lock');
works($s, 'SELECT count(*) FROM deferred', '0', 'the transaction is rolled back');

# The client rolls back before an error reports the loss.
$offset = -s $node->logfile;
$s->query_ok("BEGIN; SELECT zk_xact_lock('lost')");
lose_lock($zk, $zkc, 'lost', $node->safe_psql('postgres', "SELECT session_id FROM zk_locks WHERE name = 'lost'"));
works($s, 'ROLLBACK', '', 'ROLLBACK of an idle transaction that has lost its lock succeeds');
like(log_since($offset), $in_log, 'and the log names the lock of the rolled-back transaction');

# Restricted code gets the error and does not catch it, catches it, or catches it to raise another one:
# then the cancel, which goes on, ends it.
my @restricted = (
	(map { "CREATE INDEX i ON indexed (($_(v)))" } qw(sleeps catches renames)),
	'REFRESH MATERIALIZED VIEW slow',
	'BEGIN; CREATE INDEX i ON indexed ((sleeps(v)))',
	'BEGIN; REFRESH MATERIALIZED VIEW slow');
for my $command (@restricted)
{
	for my $level ('warning', 'fatal')
	{
		$s->query_ok("SET log_min_messages = $level; SELECT zk_lock('lost')");
		my $id = zk_session_id($s);
		$s->query_async($command);
		wait_asleep($s);
		lose_lock($zk, $zkc, 'lost', $id);
		failed_with($s, '40001', "a loss in $command, log_min_messages = $level", like => qr/"lost"/);
		$s->query_ok('ROLLBACK') if $command =~ /BEGIN/;
		works($s, "SELECT 1; SELECT zk_lock('lost') > 0; SELECT zk_unlock('lost')", "1\nt\nt", 'the loss is reported once');
	}
}
$s->query_ok('RESET log_min_messages');

# A function of the session catches it: its own handler has got the error, and gets it once.
$s->query_ok("SELECT zk_lock('lost')");
my $id = zk_session_id($s);
$s->query_async('SELECT indexes()');
wait_asleep($s);
lose_lock($zk, $zkc, 'lost', $id);
$s->wait_result;
like($s->error, qr/caught: lock "lost" was lost/, 'a handler of the session gets the error of restricted code');
is($s->sqlstate, '40001', 'and its transaction cannot commit');
works($s, 'SELECT 1', '1', 'the next statement succeeds');

# A procedure has committed, and runs no SQL.
$s->query_ok("SELECT zk_lock('lost')");
$id = zk_session_id($s);
$s->query_async(q{DO $$ BEGIN COMMIT; PERFORM set_config('application_name', 'loops', false);
	COMMIT; WHILE true LOOP END LOOP; END $$});
wait_for_sql($node, 'SELECT application_name FROM pg_stat_activity WHERE pid = ' . $s->pid, 'loops');
lose_lock($zk, $zkc, 'lost', $id);
failed_with($s, '40001', 'a loss ends a loop of a procedure after COMMIT', like => qr/"lost"/);

# A timed attempt in a command that no loss cancels.
$node->safe_psql('postgres', q{CREATE FUNCTION tries(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN PERFORM public.zk_try_xact_lock('taken', '1s'); RETURN v; END $$});
$gate->query_ok("SELECT zk_lock('taken')");
works($s, 'CREATE INDEX CONCURRENTLY tried ON indexed (tries(v))', '', 'a timed attempt ends in a command that commits several times');
$gate->query_ok("SELECT zk_unlock('taken')");

$_->quit for $s, $gate;
nothing_left($zkc, 'nothing is left');
