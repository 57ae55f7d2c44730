# A command that PostgreSQL refuses inside a transaction block cannot be undone. Its
# locks are checked before it starts, and it is never refused at its end. If a lock is
# lost while the command runs, the next statement reports the loss.
#
# Promise: 5.6
# Tags: edges

use File::Temp ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ZkLock::Pipeline;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 200)->with_client;
my $node = zklock_node('a', zk => $zk, init => [ allows_streaming => 1 ]);
my $publisher = PostgreSQL::Test::Cluster->new('publisher');
$publisher->init(allows_streaming => 'logical');
$publisher->start;
$publisher->safe_psql('postgres', 'CREATE PUBLICATION p; CREATE PUBLICATION q');
my $connection = $publisher->connstr . ' dbname=postgres';
my $space = File::Temp->newdir('spaceXXXXXX', TMPDIR => 1);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t (v int);
CREATE TABLE part (v int) PARTITION BY RANGE (v);
CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (10);
CREATE INDEX part_v ON part (v);
CREATE TABLE keyed (v int PRIMARY KEY);
SQL

sub remove_by_hand
{
	my ($lock) = @_;
	my @nodes = queue_of($zkc, $lock);
	$zkc->delete($_) for @nodes;
	return scalar @nodes;
}

# Returns the files that a command could leave if it failed too late.
sub files
{
	my $data = $node->data_dir;
	return join ' ', sort map { glob "$data/$_/*" } qw(base pg_tblspc), ;
}

sub prepare
{
	my ($name) = @_;
	$node->safe_psql('postgres',
		"BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION '$name'");
	return;
}

prepare('prepared');

# In an order in which each command can succeed.
my @commands = (
	"COMMIT PREPARED 'prepared'",
	'CREATE DATABASE d',
	"CREATE TABLESPACE s LOCATION '$space'",
	'ALTER DATABASE d SET TABLESPACE s',
	'DROP DATABASE d',
	'DROP TABLESPACE s',
	'ALTER SYSTEM SET work_mem = 8192',
	'ALTER SYSTEM RESET work_mem',
	'VACUUM t',
	'VACUUM',
	'CLUSTER',
	'CREATE INDEX CONCURRENTLY i ON t (v)',
	'REINDEX INDEX CONCURRENTLY i',
	'REINDEX TABLE CONCURRENTLY t',
	'REINDEX TABLE part',
	'REINDEX INDEX part_v',
	'REINDEX SCHEMA public',
	'REINDEX DATABASE postgres',
	'REINDEX SYSTEM postgres',
	'DROP INDEX CONCURRENTLY i',
	'ALTER TABLE part DETACH PARTITION part1 CONCURRENTLY',
	"CREATE SUBSCRIPTION u CONNECTION '$connection' PUBLICATION p",
	'ALTER SUBSCRIPTION u REFRESH PUBLICATION',
	'ALTER SUBSCRIPTION u ADD PUBLICATION q',
	'ALTER SUBSCRIPTION u SET PUBLICATION p',
	'DROP SUBSCRIPTION u',
);
push @commands, 'REPACK', 'REPACK (CONCURRENTLY) keyed', 'REPACK part', 'REPACK (ANALYZE) t' if $node->pg_version->major >= 19;

{
	my $s = session($node);
	$s->query_ok('SET zklock.commit_check = always');
	$s->query_ok('SET client_min_messages = warning');
	for my $command (@commands)
	{
		fails_with($s, "BEGIN\\;$command\\;", '25001',
			"PostgreSQL refuses the command in a block: $command", hint => 0);
		$s->query_ok('ROLLBACK');
		$s->query_ok("SELECT zk_lock('irreversible')");
		is(remove_by_hand('irreversible'), 1, 'the node of the lock is removed by hand');
		my $before = files();
		fails_with($s, $command, '40001', "the command fails after the loss: $command",
			like => qr/"irreversible"/);
		is(files(), $before, 'the failed command leaves the files unchanged');
		works($s, $command, '', "the command succeeds the second time: $command");
	}
	$s->quit;
}

# ROLLBACK PREPARED and DISCARD ALL need no check: they always succeed.
for my $command ("ROLLBACK PREPARED 'unwanted'", 'DISCARD ALL')
{
	prepare('unwanted') if $command =~ /ROLLBACK/;
	my $s = session($node);
	$s->query_ok('SET zklock.commit_check = always');
	fails_with($s, "BEGIN\\;$command\\;", '25001',
		"PostgreSQL refuses the command in a block: $command", hint => 0);
	$s->query_ok('ROLLBACK');
	$s->query_ok("SELECT zk_lock('irreversible')");
	lose_lock($zk, $zkc, 'irreversible', zk_session_id($s));
	my $logged = -s $node->logfile;
	wait_for_sql($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, '0');
	works($s, $command, '', "the command succeeds with a lost lock: $command");
	unlike(slurp_file($node->logfile, $logged), qr/was lost, and the transaction/, "the log blames no transaction for the loss: $command");
	$s->quit;
}

# A silent ensemble.
{
	prepare('silent');
	my $s = session_with($node, session_timeout => '9s');
	$s->query_ok('SET zklock.commit_check = always');
	for my $command ("COMMIT PREPARED 'silent'", 'CREATE DATABASE silent')
	{
		$s->query_ok("SELECT zk_lock('silent')");
		my $before = files();
		$zk->pause;
		fails_with($s, $command, '40001', "the command fails with a silent ensemble: $command");
		is(files(), $before, 'the failed command leaves the files unchanged');
		$zk->resume;

		# The silence may have been as long as the session timeout, so the session may have
		# expired.
		$s->query('SELECT zk_unlock_all()');
		ok($s->ok || $s->error =~ /^\S*\s*ERROR:  lock "silent" was lost$/m, 'the lock is released, or lost');
		works($s, 'SELECT count(*) FROM zk_held_locks', '0', 'nothing is held after that');
		works($s, $command, '', "the command succeeds the second time: $command");
	}
	prepare('silent');
	$s->query_ok("SELECT zk_lock('silent')");
	$zk->pause;
	works($s, "ROLLBACK PREPARED 'silent'", '',
		'ROLLBACK PREPARED succeeds with a silent ensemble');
	$zk->resume;
	$s->quit;
}

# The lock is lost while the command runs, and waits for the transaction of this statement.
sub lose_behind
{
	my ($statement, $command, $wait_event) = @_;
	my ($gate, $s) = map { session($node) } 1, 2;
	$gate->query_ok("BEGIN; $statement");
	$s->query_ok("SELECT zk_lock('meanwhile')");
	my $id = zk_session_id($s);
	$s->query_async($command);
	my $waits = "SELECT wait_event = '$wait_event' FROM pg_stat_activity WHERE pid = " . $s->pid;
	wait_for_sql($node, $waits, 't');
	lose_lock($zk, $zkc, 'meanwhile', $id);
	is($node->safe_psql('postgres', $waits), 't', "a loss does not cancel: $command");
	$gate->query_ok('COMMIT');
	$s->wait_result;
	ok($s->ok, "the command succeeds: $command") or diag($s->error);
	wait_until('the report of the loss', sub { $s->query('SELECT 1'); !$s->ok });
	is($s->sqlstate, '40001', 'a later statement reports the loss');
	like($s->error, qr/"meanwhile"/, 'the error names the lock');
	works($s, 'SELECT 1', '1', 'the loss is reported once');
	$_->quit for $s, $gate;
	return;
}

lose_behind('INSERT INTO t VALUES (2)', 'CREATE INDEX CONCURRENTLY late ON t (v)', 'virtualxid');
is($node->safe_psql('postgres',
		"SELECT indisvalid FROM pg_index WHERE indexrelid = 'late'::regclass"),
	't', 'the index is valid');
lose_behind('INSERT INTO t VALUES (2)', 'REINDEX INDEX CONCURRENTLY late', 'virtualxid');
lose_behind('LOCK TABLE t', 'VACUUM t', 'relation');

# The command executes other statements after the loss: of an event trigger, of a deferred trigger, and of
# a function in an index expression.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE executed (v text);
CREATE FUNCTION wait_and_read(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
DECLARE
	x text := pg_advisory_xact_lock_shared(1);
BEGIN
	PERFORM FROM public.executed;
	RETURN v;
END $$;
CREATE FUNCTION record() RETURNS event_trigger LANGUAGE plpgsql
	AS 'BEGIN INSERT INTO public.executed VALUES (tg_tag); END';
CREATE FUNCTION read() RETURNS trigger LANGUAGE plpgsql
	AS 'BEGIN PERFORM FROM public.executed; RETURN NULL; END';
CREATE CONSTRAINT TRIGGER read AFTER INSERT ON executed DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION read();
CREATE EVENT TRIGGER record ON ddl_command_end EXECUTE FUNCTION record();
SQL
lose_behind('INSERT INTO t VALUES (2)', 'CREATE INDEX CONCURRENTLY recorded ON t (v)', 'virtualxid');
lose_behind('INSERT INTO t VALUES (2)', 'DROP INDEX CONCURRENTLY recorded', 'virtualxid');
lose_behind('SELECT pg_advisory_xact_lock(1)',
	'CREATE INDEX CONCURRENTLY expression ON t (wait_and_read(v))', 'advisory');
$node->safe_psql('postgres', 'DROP EVENT TRIGGER record');
is($node->safe_psql('postgres', q{SELECT string_agg(v, ', '), (SELECT count(*) FROM pg_index
		WHERE NOT indisvalid) FROM executed}),
	'CREATE INDEX, DROP INDEX, CREATE INDEX|0', 'their event trigger is executed; no index is invalid');

$node->safe_psql('postgres', 'CREATE DATABASE source');
lose_behind(q{COMMENT ON DATABASE source IS 'locked'}, 'CREATE DATABASE copy TEMPLATE source',
	'object');
lose_behind(q{COMMENT ON DATABASE copy IS 'locked'}, 'DROP DATABASE copy', 'object');

# A lock that the command itself acquires, in an index expression, and that ends with one of its transactions: no
# statement can report its loss.
{
	my ($gate, $s) = (session($node), connected_session($node));
	my $id = zk_session_id($s);
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE single AS SELECT 1 AS v;
CREATE FUNCTION lock_and_wait(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	PERFORM public.zk_xact_lock('inside'), pg_advisory_xact_lock_shared(1);
	RETURN v;
END $$;
SQL
	$gate->query_ok('BEGIN; SELECT pg_advisory_xact_lock(1)');
	$s->query_async('CREATE INDEX CONCURRENTLY inside ON single (lock_and_wait(v))');
	wait_blocked_locally($s);
	lose_lock($zk, $zkc, 'inside', $id);
	$gate->query_ok('COMMIT');
	$s->wait_result;
	ok($s->ok, 'a command that has lost a lock of its own succeeds') or diag($s->error);
	like(
		server_log($node),
		qr/LOG:  lock "inside" was lost, and the transaction that held it was committed/,
		'the loss of a lock that ends with a transaction of the command is logged');
	works($s, 'SELECT 1', '1', 'no later statement reports the loss of a lock that the command has released');
	$_->quit for $s, $gate;
}

# An event trigger of the command uses locks when another one has been lost: an attempt ends as it would, and a release
# of the lost lock neither fails nor hides the loss.
{
	my $holder = session($node);
	$holder->query_ok("SELECT zk_lock('taken')");
	for my $body ("x := zk_try_lock('taken', '3s')", "PERFORM zk_try_lock('taken', '3s')", "PERFORM zk_unlock('meanwhile')",
		"BEGIN PERFORM zk_unlock('meanwhile'); EXCEPTION WHEN OTHERS THEN END")
	{
		$node->safe_psql('postgres', <<"SQL");
CREATE FUNCTION use_locks() RETURNS event_trigger LANGUAGE plpgsql AS \$\$
DECLARE
	x boolean;
BEGIN
	$body;
END \$\$;
CREATE EVENT TRIGGER use_locks ON ddl_command_end WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION use_locks();
SQL
		my ($gate, $s) = map { session($node) } 1, 2;
		my $logged = -s $node->logfile;
		$gate->query_ok('BEGIN; INSERT INTO t VALUES (2)');
		$s->query_ok("SELECT zk_lock('meanwhile')");
		my $id = zk_session_id($s);
		$s->query_async('CREATE INDEX CONCURRENTLY used ON t (v)');
		wait_for_sql($node, "SELECT wait_event = 'virtualxid' FROM pg_stat_activity WHERE pid = " . $s->pid, 't');
		if ($body =~ /unlock/)
		{
			lose_lock($zk, $zkc, 'meanwhile', $id);
			$gate->query_ok('COMMIT');
		}
		else
		{
			$gate->query_ok('COMMIT');
			wait_blocked($s);
			lose_lock($zk, $zkc, 'meanwhile', $id);
		}
		$s->wait_result;
		ok($s->ok, "a command succeeds whose event trigger executes: $body") or diag($s->error);
		is($node->safe_psql('postgres', "SELECT indisvalid FROM pg_index WHERE indexrelid = 'used'::regclass"),
			't', "the index is valid behind: $body");
		if ($body =~ /unlock/)
		{
			like(slurp_file($node->logfile, $logged), qr/LOG:  lock "meanwhile" was lost, and the transaction that held it was committed/,
				"the log names a lost lock that was released: $body");
		}
		else
		{
			wait_until('the report of the loss', sub { $s->query('SELECT 1'); !$s->ok });
			is($s->sqlstate, '40001', "a later statement reports the loss behind: $body");
		}
		$_->quit for $s, $gate;
		$node->safe_psql('postgres', 'DROP EVENT TRIGGER use_locks; DROP FUNCTION use_locks; DROP INDEX used');
	}
	$holder->quit;
}

# In a pipeline the last transaction of the command ends at Sync. A message before it prepares a statement.
{
	my $p = ZkLock::Pipeline->new($node);
	$p->query("SELECT zk_lock('meanwhile')");
	my $id = $node->safe_psql('postgres', "SELECT session_id FROM zk_locks WHERE name = 'meanwhile'");
	$p->start_without_sync('CREATE INDEX CONCURRENTLY pipelined ON t (v)');
	wait_for_sql($node, q{SELECT wait_event = 'ClientRead' FROM pg_stat_activity WHERE query ~ 'CONCURRENTLY pipelined ON'
		AND pid <> pg_backend_pid()}, 't');
	lose_lock($zk, $zkc, 'meanwhile', $id);
	is(join(' ', $p->prepare('', 'SELECT 1')), '00000', 'a statement that is prepared behind the command does not refuse its commit');
	is($node->safe_psql('postgres', "SELECT indisvalid FROM pg_index WHERE indexrelid = 'pipelined'::regclass"), 't',
		'the index of the pipeline is valid');
	is(join(' ', $p->query('SELECT 1')), '40001', 'a statement after the pipeline reports the loss');
}

# A command that can be undone is cancelled.
{
	my $gate = session($node);
	my $s = session($node);
	$gate->query_ok('BEGIN; LOCK TABLE t');
	$s->query_ok("SELECT zk_lock('meanwhile')");
	my $id = zk_session_id($s);
	$s->query_async('CREATE INDEX undone ON t (v)');
	wait_blocked_locally($s);
	lose_lock($zk, $zkc, 'meanwhile', $id);
	failed_with($s, '40001', 'a command that can be undone is cancelled by a loss',
		like => qr/"meanwhile"/);
	$gate->query_ok('COMMIT');
	$_->quit for $gate, $s;
}
is($node->safe_psql('postgres', "SELECT to_regclass('undone') IS NULL"), 't', 'the cancelled command has no effect');

nothing_left($zkc, 'the commands leave no node');
unlike(server_log($node), qr/PANIC|terminated by signal/, 'no backend has crashed');
