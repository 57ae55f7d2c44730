# A lock is lost while its session is idle, and the next statement is BEGIN. Then BEGIN
# succeeds and the first statement after it fails, so nothing that a script sends up to
# its COMMIT takes effect.
#
# Promise: 5.7
# Tags: edges

use File::Temp ();
use PostgreSQL::Test::Utils;
use ZkLock::Pipeline;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $node = shared_node('a', zk => $zk);
my $tmp = File::Temp->newdir('workerXXXXXX', TMPDIR => 1);
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

sub rows { return $node->safe_psql('postgres', 'SELECT count(*) FROM t') }

# Removes the node of the lock, which this ZooKeeper session created.
sub lose
{
	my ($id) = @_;
	return lose_lock($zk, $zkc, 'idle', $id);
}

sub session_with_lost_lock
{
	my $s = session($node);
	$s->query_ok('SET zklock.commit_check = always');
	$s->query_ok("SELECT zk_lock('idle')");
	lose(zk_session_id($s));
	return $s;
}

sub driver_with_lost_lock
{
	my $p = ZkLock::Pipeline->new($node);
	$p->query('SET zklock.commit_check = always');
	$p->query("SELECT zk_lock('idle')");
	lose($node->safe_psql('postgres',
			"SELECT session_id FROM zk_locks WHERE name = 'idle'"));
	return $p;
}

# Runs a transaction's first statements until one of them reports the loss, and returns
# their SQLSTATEs. A transaction before that is rolled back.
sub first_after_loss
{
	my ($run, $roll_back) = @_;
	my @states;
	wait_until('the report of the loss',
		sub {
			@states = $run->();
			return 1 if grep { $_ ne '00000' } @states;
			$roll_back->();
			return 0;
		});
	return \@states;
}

sub begin_after_loss
{
	my ($s, @statements) = @_;
	return first_after_loss(
		sub {
			return map { $s->query($_); $s->sqlstate } @statements;
		},
		sub { $s->query('ROLLBACK'); $s->query(q{ROLLBACK PREPARED 'p'}) });
}

# Builds test/shim/worker.c and returns the path of the library.
sub build_worker
{
	my $library = $tmp->dirname . '/worker.so';
	system($ENV{CC} // 'cc', '-Wall', '-fPIC', '-shared', '-I',
		$node->config_data('--includedir-server'), '-o', $library, 'test/shim/worker.c') == 0
	  or die 'test/shim/worker.c does not compile';
	return $library;
}

my $insert = "INSERT INTO t VALUES ('x')";

for my $begin ('BEGIN', 'START TRANSACTION', 'BEGIN ISOLATION LEVEL SERIALIZABLE')
{
	my $s = session_with_lost_lock();
	is_deeply(begin_after_loss($s, $begin, $insert), [ '00000', '40001' ],
		"$begin succeeds although a lock was lost, and the first statement fails");
	like($s->error, qr/"idle"/, 'the error names the lock');
	fails_with($s, $insert, '25P02', 'the next statement fails, too', hint => 0);
	works($s, 'COMMIT', '', 'COMMIT ends the transaction');
	is(rows(), 0, 'the transaction leaves no row');
	works($s, $insert, '', 'the loss is reported once');
	$node->safe_psql('postgres', 'TRUNCATE t');
	$s->quit;
}

for my $first ('SAVEPOINT s', 'SET TRANSACTION READ ONLY', 'SET LOCAL work_mem = 8192',
	'SHOW work_mem', 'DECLARE c CURSOR FOR SELECT 1', 'SELECT zk_unlock(\'other\')')
{
	my $s = session_with_lost_lock();
	is_deeply(begin_after_loss($s, 'BEGIN', $first), [ '00000', '40001' ],
		"the first statement fails: $first");
	fails_with($s, $insert, '25P02', 'the block is aborted', hint => 0);
	$s->query_ok('ROLLBACK');
	$s->quit;
}

for my $end ('COMMIT', 'COMMIT AND CHAIN', "PREPARE TRANSACTION 'p'")
{
	my $s = session_with_lost_lock();
	is_deeply(begin_after_loss($s, 'BEGIN', $end), [ '00000', '40001' ],
		"a transaction without statements reports the loss at its end: $end");
	works($s, $insert, '', 'the transaction has ended');
	is(rows(), 1, 'the next statement is a transaction of its own');
	$node->safe_psql('postgres', 'TRUNCATE t');
	$s->quit;
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'),
	0, 'nothing was prepared');

{
	my $s = session_with_lost_lock();
	works($s, "BEGIN\n;\nROLLBACK", '', 'a transaction that is rolled back reports nothing');
	fails_with($s, $insert, '40001', 'a single statement outside of a block fails',
		like => qr/"idle"/);
	is(rows(), 0, 'the failed statement leaves no row');
	$s->quit;
}

# A statement may wait for a table lock in parse analysis, where no hook is called.
my %undo = ('' => '', 'BEGIN' => 'ROLLBACK', 'BEGIN; SAVEPOINT s' => 'ROLLBACK TO s');
for my $begin (sort keys %undo)
{
	my $gate = session($node);
	my $s = session($node);
	$gate->query_ok('BEGIN; LOCK TABLE t');
	$s->query_ok('SET track_activities = off');
	$s->query_ok("SELECT zk_lock('idle')");
	$s->query_ok($begin) if $begin;
	lose(zk_session_id($s));
	$s->query_async('SELECT count(*) FROM t');
	failed_with($s, '57014', "a loss while the session was idle ends a wait in parse analysis ($begin)", hint => 0);
	$s->query_ok($undo{$begin}) if $undo{$begin};
	$s->query_async('SELECT count(*) FROM t');
	failed_with($s, '57014', "the same wait is ended again ($begin)", hint => 0);
	$s->query($undo{$begin}) if $undo{$begin};
	$gate->query_ok('ROLLBACK');
	fails_with($s, 'SELECT count(*) FROM t', '40001', "the next statement that gets past parsing reports the loss ($begin)",
		like => qr/"idle"/);
	$s->query('ROLLBACK') if $begin;
	works($s, 'SELECT count(*) FROM t', '0', "the loss is reported once ($begin)");
	$_->quit for $gate, $s;
}

# A background worker exits after the error, before its transaction is aborted.
{
	my $gate = session($node);
	my $library = build_worker();
	my $offset = -s $node->logfile;
	$gate->query_ok("CREATE FUNCTION run_in_worker(text, text) RETURNS int LANGUAGE c AS '$library'");
	$gate->query_ok('BEGIN; LOCK TABLE t');
	my $pid = $gate->query_ok(
		"SELECT run_in_worker('$library', \$\$SELECT zk_lock('idle'); SELECT count(*) FROM t\$\$)");
	wait_for_sql($node, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid", 'Lock');
	$zkc->delete($_) for queue_of($zkc, 'idle');
	wait_for_log($node, qr/background worker "worker" .*(exited|terminated)/, $offset);
	like(slurp_file($node->logfile, $offset), qr/ERROR:  canceling statement due to user request.*exited with exit code 1/s,
		'a loss ends a background worker that waits in parse analysis, with an error');
	$gate->quit;
}

# PostgreSQL discards a cancel when the statement fails for another reason.
{
	my $p = ZkLock::Pipeline->new($node);
	my $gate = session($node);
	my $offset = -s $node->logfile;
	$node->safe_psql('postgres', 'CREATE TABLE numbers (n int)');
	$p->query("SELECT zk_lock('idle')");
	my $id = $node->safe_psql('postgres', "SELECT session_id FROM zk_locks WHERE name = 'idle'");
	$p->start_query('COPY numbers FROM STDIN');
	wait_for_sql($node, q{SELECT count(*) FROM pg_locks WHERE relation = 'numbers'::regclass}, 1);
	lose($id);
	is_deeply([ $p->copy("no number\n")->until_ready ],
		['22P02'], 'a statement fails while the cancel for a loss is pending');
	$gate->query_ok('BEGIN; LOCK TABLE t');
	$p->start_query('SELECT count(*) FROM t');
	wait_for_log($node, qr/ERROR:  canceling statement due to user request/, $offset);
	is_deeply([ $p->until_ready ], ['57014'], 'the loss ends the next wait for a table lock');
	$gate->query_ok('ROLLBACK');
	is_deeply([ $p->query('SELECT count(*) FROM t') ], ['40001'], 'the next statement reports the loss');
	$gate->quit;
}

# A loss while the session was idle is no error of a message that only prepares a statement.
{
	my $p = ZkLock::Pipeline->new($node);
	$p->query("SELECT zk_lock('idle')");
	lose($node->safe_psql('postgres', "SELECT session_id FROM zk_locks WHERE name = 'idle'"));
	is(join(' ', $p->prepare('one', 'SELECT 1')), '', 'a statement is prepared after the loss');
	is_deeply([ $p->query('EXECUTE one') ], ['40001'], 'the execution of the statement reports the loss');
	is_deeply([ $p->query('EXECUTE one') ], ['00000'], 'the loss is reported once, and the statement is prepared');
}

# PL/pgSQL can catch the cancel when no SQL statement runs inside the block.
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('idle')");
	my $id = zk_session_id($s);
	$s->query_async('DO $$ BEGIN BEGIN LOOP END LOOP; EXCEPTION WHEN query_canceled THEN END; '
		  . 'LOOP END LOOP; END $$');
	lose($id);
	failed_with($s, '40001', 'a loss ends a statement that catches the cancel', like => qr/"idle"/);
	works($s, 'SELECT 1', '1', 'a loss does not end the statement after the one that catches the cancel');
	$s->quit;
}

# psql sends BEGIN, and a savepoint, on its own.
{
	my $s = session_with_lost_lock();
	$s->query("\\set AUTOCOMMIT off\n\\set ON_ERROR_ROLLBACK on");
	$s->query($insert) for 1 .. 3;
	$s->query('COMMIT');
	is(rows(), 0, 'with AUTOCOMMIT off and ON_ERROR_ROLLBACK on the transaction leaves no row');
	$s->quit;
}

# Drivers send BEGIN alone, or together with the first statement.
my %drivers = (
	'one query' => sub { my ($p) = @_; return $p->query("BEGIN; $insert") },
	'one query each' => sub { my ($p) = @_; return ($p->query('BEGIN'), $p->query($insert)) },
	'one pipeline' => sub { my ($p) = @_; return $p->run('BEGIN', $insert) },
	'a pipeline each' => sub { my ($p) = @_; return ($p->run('BEGIN'), $p->run($insert)) },
);
for my $driver (sort keys %drivers)
{
	my $p = driver_with_lost_lock();
	is_deeply(
		first_after_loss(sub { $drivers{$driver}->($p) }, sub { $p->query('ROLLBACK') }),
		[ '00000', '40001' ],
		"a driver's BEGIN succeeds and its statement fails: $driver");
	is($p->status, 'E', 'the block is aborted');
	is_deeply([ $p->query($insert) ], ['25P02'], 'the next statement fails');
	is_deeply([ $p->query('COMMIT') ], ['00000'], 'COMMIT ends the block');
	is($p->status, 'I', 'no transaction is open');
	is(rows(), 0, 'the transaction leaves no row');
}

# Several statements in one message are one transaction, too.
for my $several ([ query => "$insert; $insert" ], [ run => $insert, $insert ])
{
	my ($how, @statements) = @$several;
	my $p = driver_with_lost_lock();
	is(($p->$how(@statements))[-1], '40001', "several statements fail together: $how");
	is($p->status, 'I', 'their transaction has ended');
	is(rows(), 0, 'they leave no row');
}

# A statement that began before the loss, whose rows are fetched in parts.
{
	my $p = ZkLock::Pipeline->new($node);
	$p->query('SET zklock.commit_check = always');
	$p->query("BEGIN; SELECT zk_lock('idle')");
	$p->open_portal('SELECT * FROM generate_series(1, 1000000)');
	is_deeply([ $p->fetch_row ], ['00000'], 'a row is fetched before the loss');
	lose($node->safe_psql('postgres',
			"SELECT session_id FROM zk_locks WHERE name = 'idle'"));
	is_deeply(
		first_after_loss(sub { return ('00000', $p->fetch_row) }, sub { return }),
		[ '00000', '40001' ],
		'the first fetch that reports the loss fails');
	is($p->status, 'E', 'the block is aborted');
	is_deeply([ $p->query('COMMIT') ], ['00000'], 'COMMIT ends the block');
	is($p->status, 'I', 'no transaction is open');
}

# A statement in a pipeline after a command that cannot be undone is checked at commit.
{
	my $p = ZkLock::Pipeline->new($node);
	my $gate = session($node);
	$gate->query_ok('SELECT pg_advisory_lock(1)');
	$p->query('SET zklock.commit_check = always');
	$p->query("SELECT zk_lock('idle')");
	$p->start('VACUUM t', "INSERT INTO t SELECT 'x' FROM pg_advisory_xact_lock(1)");
	wait_for_sql($node, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
		. 'AND objid = 1 AND NOT granted', 1);
	$zk->pause;
	$gate->query_ok('SELECT pg_advisory_unlock(1)');
	is_deeply([ $p->until_ready ], [ '00000', '00000', '40001' ],
		'the commit after VACUUM in a pipeline is refused');
	is(rows(), 0, 'the statement after VACUUM leaves no row');
	$zk->resume;
	$zkc->close;				# its session may have expired as well
	$zkc = ZkLock::ZkClient->new($zk->connect_string);
	$gate->quit;
	$p->query('SELECT zk_unlock_all()');
}

nothing_left($zkc, 'lost locks leave no node');
