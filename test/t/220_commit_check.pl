# The check at commit: a transaction commits only if its locks are still held.
#
# Promise: 5.2

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::FaultProxy;
use ZkLock::Shared;
use ZkLock::Util;

# The long session timeout allows for a long lease.
my ($zk, $zkc) = shared_zk_and_client(timeout => 60);
my $node = shared_node('a', zk => $zk, session_timeout => '240s');
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

# Waits, with a silent ensemble, until a commit of the session would send a check to it.
sub wait_lease_over
{
	my ($s) = @_;
	return wait_until('the lease to end',
		sub {
			$s->query_ok('SELECT lease_remaining = interval \'0\' FROM zk_session()')
			  eq 't';
		});
}

# A session-level lock is checked, too. A session without locks sends no check.
{
	my $s = connected_session($node, session_timeout => '3s');
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_lock('session')");
	$s->query_ok('SELECT pg_sleep(2)');
	$s->query_ok("INSERT INTO t VALUES ('session')");
	works($s, 'COMMIT\; SELECT lease_remaining > interval \'0\' FROM zk_session()', 't',
		'a transaction of a session with a session-level lock commits, and the check renews the lease');
	$s->query_ok('SELECT zk_unlock_all()');
	$zk->pause;
	works($s, "INSERT INTO t VALUES ('none')", '',
		'a session without locks commits with a silent ensemble');
	$zk->resume;
	nothing_left($zkc, 'locks at session level leave no node');
}

# A silent ensemble.
{
	my $s = connected_session($node, session_timeout => '6s');
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('silent')");
	$s->query_ok("INSERT INTO t VALUES ('unleased')");
	wait_proven($s);
	$zk->pause;
	wait_lease_over($s);
	fails_with($s, 'COMMIT', '40001',
		'without a lease a commit fails when the ensemble does not answer');
	is(rows_with($node, 'unleased'), 0, 'the refused commit leaves no row');
	$zk->resume;
	works($s, "SELECT zk_lock('silent'), zk_unlock('silent')",
		qr/^\d+\|t$/, 'the session can lock again afterwards');
	nothing_left($zkc, 'a commit refused because of silence leaves no node');
}
# A lock that was released after the end of its lease is checked, too.
for my $kind ([ lock => "SELECT zk_lock('gone')", "SELECT zk_unlock('gone')" ],
	[ permit => "SELECT zk_acquire_permit('gone', 1)", "SELECT zk_release_permit('gone')" ],
	[ 'lock that zk_unlock_all() released' => "SELECT zk_lock('gone')", 'SELECT zk_unlock_all()' ],
	[ 'lock of a savepoint' => "SAVEPOINT s; SELECT zk_xact_lock('gone')", 'ROLLBACK TO s' ],
	[ 'permit of a savepoint' => "SAVEPOINT s; SELECT zk_xact_acquire_permit('gone', 1)", 'ROLLBACK TO s' ])
{
	my ($what, $acquire, $release) = @$kind;
	my $s = connected_session($node, session_timeout => '6s');
	$s->query_ok('BEGIN');
	$s->query_ok("INSERT INTO t VALUES ('gone $what')");
	$s->query_ok($acquire);
	wait_proven($s);
	$zk->pause;
	wait_lease_over($s);
	$s->query_ok($release);
	fails_with($s, 'COMMIT', '40001',
		"a commit fails if a silent ensemble does not confirm that a $what was held until its release",
		like => qr/"gone"/);
	is(rows_with($node, "gone $what"), 0, 'the refused commit leaves no row');
	$zk->resume;
	works($s, "SELECT zk_lock('silent'), zk_unlock('silent')",
		qr/^\d+\|t$/, 'the session can lock again afterwards');
	nothing_left($zkc, "a $what released without a lease leaves no node");
}
# A transaction can have effects without a transaction ID.
for my $kind ([ 'BEGIN; NOTIFY c', "SELECT zk_unlock('gone')", 'COMMIT' ],
	["NOTIFY c\\; SELECT zk_unlock('gone')"],
	["SELECT pg_notify('c', ''), zk_unlock('gone')"])
{
	my @statements = @$kind;
	my $commit = pop @statements;
	my $s = connected_session($node, session_timeout => '2s', commit_check => 'always');
	$s->query_ok("SELECT zk_lock('gone')");
	$zk->pause;
	$s->query_ok($_) for @statements;
	fails_with($s, $commit, '40001', "a commit after NOTIFY and a release needs the proof: $commit",
		like => qr/"gone"/);
	works($s, 'SELECT zk_unlock_all()', '', 'nothing is held');
	$zk->resume;
	nothing_left($zkc, 'the commit without proof leaves no node');
}
{
	my $s = connected_session($node, session_timeout => '2s', commit_check => 'always');
	$s->query_ok("SELECT zk_lock('gone')");
	$zk->pause;
	fails_with($s, "SELECT zk_unlock('gone')", '40001', 'a statement that only releases its lock needs the proof, too',
		like => qr/"gone"/);
	works($s, "SELECT zk_unlock('gone')", 'f', 'the lock of a statement that only releases is released');
	$zk->resume;
	nothing_left($zkc, 'a release during a silence leaves no node');
}
# EXECUTE, CALL and DO release as SELECT does: before the commit that needs the proof.
$node->safe_psql('postgres',
	"CREATE PROCEDURE release() LANGUAGE sql AS \$\$ SELECT zk_unlock('gone') \$\$");
for my $release ('EXECUTE release', 'CALL release()', 'DO \'BEGIN CALL release(); END\'')
{
	my $s = connected_session($node, commit_check => 'always');
	$s->query_ok("PREPARE release AS SELECT zk_unlock('gone')");
	$s->query_ok("SELECT zk_lock('gone')");
	$s->query_ok("SET statement_timeout = '300ms'");
	$zk->pause;
	fails_with($s, $release, '57014', "a release needs the proof: $release", hint => 0);
	$s->query_ok('SET zklock.commit_check = off');
	works($s, 'SELECT count(*) FROM zk_held_locks', 0, "a release without the proof has released the lock: $release");
	$zk->resume;
	nothing_left($zkc, "a release without the proof leaves no node: $release");
	$s->quit;
}
{
	my $s = connected_session($node, session_timeout => '2s', commit_check => 'always');
	$s->query_ok("BEGIN; SELECT zk_lock('first'), zk_lock('second')");
	$s->query_ok("SELECT zk_unlock('first'); INSERT INTO t VALUES ('both')");
	$s->query_ok("SELECT zk_lock('third')");
	$s->query_ok("SELECT zk_unlock('second'); SELECT zk_unlock('third')");
	$zk->pause;
	fails_with($s, 'COMMIT', '40001', 'the error names the first of several locks released one after the other',
		like => qr/held "first" until/);
	$zk->resume;
	nothing_left($zkc, 'a refused commit with several locks leaves no node');
}
{
	my $s = connected_session($node, session_timeout => '2s', commit_check => 'always');
	$s->query_ok("BEGIN; INSERT INTO t VALUES ('both'); SELECT zk_lock('first'), zk_lock('second')");
	$s->query_ok("SELECT zk_unlock('first')");
	$zk->pause;
	fails_with($s, 'COMMIT', '40001', 'a lock that is held is lost before the check of a released one ends',
		like => qr/lock "second" was lost/);
	$zk->resume;
	$s->quit;    # a silence of a session timeout may have ended the ZooKeeper session
	nothing_left($zkc, 'a refused commit with released and held locks leaves no node');
}
{
	my $s = connected_session($node, session_timeout => '2s', commit_check => 'always');
	$s->query_ok("BEGIN; INSERT INTO t VALUES ('again'); SELECT zk_lock('first'), zk_unlock('first')");
	$s->query_ok("SELECT zk_lock('second'), zk_lock('first')");
	$zk->pause;
	fails_with($s, 'COMMIT', '40001', 'the error counts a lock once that was released and acquired again',
		like => qr/locks "(?:first|second)" and 1 other were lost/);
	$zk->resume;
	$s->quit;    # a silence of a session timeout may have ended the ZooKeeper session
	nothing_left($zkc, 'a refused commit with a lock that was acquired again leaves no node');
}
{
	my $s = connected_session($node, session_timeout => '2s', commit_check => 'always');
	$s->query_ok("BEGIN; INSERT INTO t VALUES ('two sessions'); SELECT zk_lock('first')");
	$s->query_ok("SELECT zk_unlock('first')");
	$zkc->end_session(zk_session_id($s));
	$s->query_ok("SELECT zk_lock('second'); SELECT zk_unlock('second')");
	commit_refused($s, 'a ZooKeeper session does not confirm a lock of an earlier ZooKeeper session', like => qr/"first"/);
	is(rows_with($node, 'two sessions'), 0, 'the refused commit leaves no row');
	nothing_left($zkc, 'the refused commit leaves no node');
}
{
	my $s = connected_session($node, commit_check => 'always');
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('silent')");
	$s->query_ok("INSERT INTO t VALUES ('cancelled')");
	$zk->pause;
	$s->query_async('COMMIT');
	wait_blocked($s);
	$s->cancel;
	failed_with($s, '57014', 'a commit that waits for an answer can be cancelled',
		hint => 0);
	is(rows_with($node, 'cancelled'), 0, 'the cancelled commit leaves no row');

	$s->query_ok('BEGIN');
	$s->query_ok("INSERT INTO t VALUES ('cancelled')");
	works($s, 'COMMIT', '',
		'the cancelled transaction has released its lock: the next one sends no check');
	$zk->resume;
	nothing_left($zkc, 'a cancelled commit leaves no node');
}

# A cancelled commit leaves its check without an answer. The next commit sends a check of its
# own, because the lock can be lost in between.
{
	my $proxy = ZkLock::FaultProxy->start(target => $zk);
	my $s = session_with($node, connect_string => $proxy->connect_string);
	$s->query_ok('SET zklock.commit_check = always');
	$s->query_ok("SELECT zk_lock('between')");
	$proxy->clear_record;
	my $checks = sub { return scalar grep { $_->{op} eq 'multi' } $proxy->record };
	$proxy->arm(fault => 'hold_answer', op => 'multi');
	$s->query_async("INSERT INTO t VALUES ('between')");
	wait_until('the check', $checks);
	$s->cancel;
	failed_with($s, '57014', 'a commit that waits for its check is cancelled', hint => 0);
	$zkc->delete($_) for queue_of($zkc, 'between');
	$s->query_async("INSERT INTO t VALUES ('between')");
	wait_until('the check of the next commit', sub { $checks->() > 1 });
	$proxy->release;
	failed_with($s, '40001', 'the check of a cancelled commit does not confirm the next commit',
		like => qr/"between"/);
	is(rows_with($node, 'between'), 0, 'no row of the cancelled commit is left');
	$s->quit;
	$proxy->stop;
}

# COMMIT in a procedure. The second transaction has only statements that PL/pgSQL runs
# without the executor. The end of the session ends the wait, as in any statement.
{
	my $gate = session($node);
	my $s = connected_session($node, session_timeout => '2s', commit_check => 'always');
	$gate->query_ok('SELECT pg_advisory_lock(1)');
	$s->query_async(<<'SQL');
DO $$
DECLARE
	result text;
BEGIN
	COMMIT;
	result := zk_xact_lock('silent');
	result := pg_advisory_xact_lock(1);
	COMMIT;
	INSERT INTO t VALUES ('after');
END $$
SQL
	wait_blocked_locally($s);
	$zk->pause;
	$gate->query_ok('SELECT pg_advisory_unlock(1)');
	failed_with($s, '40001', 'a silent ensemble does not confirm a COMMIT in a procedure',
		like => qr/"silent"/);
	is(rows_with($node, 'after'), 0, 'the procedure whose COMMIT is not confirmed does not go on');
	$zk->resume;
	works($s, 'SELECT count(*) FROM zk_held_locks', 0, 'the lock of the procedure is released');
	nothing_left($zkc, 'a COMMIT in a procedure with a silent ensemble: no node is left');
	$_->quit for $s, $gate;
}

# The first statement of a session.
{
	local $ENV{PGOPTIONS} = '-c zklock.commit_check=always -c zklock.session_timeout=2s';
	my $gate = session($node);
	my $s = session($node);
	$gate->query_ok('SELECT pg_advisory_lock(1)');
	$s->query_async("SELECT zk_xact_lock('silent'), pg_advisory_xact_lock(1), pg_notify('c', '')");
	wait_blocked_locally($s);
	$zk->pause;
	$gate->query_ok('SELECT pg_advisory_unlock(1)');
	failed_with($s, '40001', 'a silent ensemble does not confirm the first statement of a session',
		like => qr/"silent"/);
	$zk->resume;
	$_->quit for $s, $gate;
	nothing_left($zkc, 'the first statement with a silent ensemble: no node is left');
}

# PostgreSQL disables statement_timeout before it commits, so zklock must apply it.
my $timed = "INSERT INTO t VALUES ('timed')";
for my $begin ('', 'BEGIN')
{
	my $s = connected_session($node, commit_check => 'always');
	$s->query_ok("SELECT zk_lock('silent')");
	$s->query_ok("SET statement_timeout = '300ms'");
	$s->query_ok("$begin; $timed") if $begin;
	$zk->pause;
	fails_with($s, $begin ? 'COMMIT' : $timed, '57014',
		'statement_timeout ends the check of ' . ($begin ? 'COMMIT' : 'an implicit commit'),
		like => qr/due to statement timeout/, hint => 0);
	is(rows_with($node, 'timed'), 0, 'an implicit commit whose check times out leaves no row');
	$zk->resume;
	$s->query_ok('RESET statement_timeout');
	works($s, "INSERT INTO t VALUES ('after timeout')", '', 'the statement after the implicit commit succeeds');
	$s->quit;
}
nothing_left($zkc, 'commits that timed out leave no node');

# As in PostgreSQL, a statement's own change of statement_timeout does not apply to it: not
# where no timeout was running, and not in place of the one that was.
for my $running ('', '1h')
{
	my $s = connected_session($node, commit_check => 'always');
	$s->query_ok("SELECT zk_lock('changed')");
	$s->query_ok("SET statement_timeout = '$running'") if $running;
	works($s, "WITH changed AS (SELECT set_config('statement_timeout', '10ms', true), pg_sleep(0.02)) "
		  . "INSERT INTO t SELECT 'changed' FROM changed", '',
		'a change of statement_timeout does not end the check of its own statement, '
		  . ($running ? 'which has another one' : 'which has none'));
	$s->quit;
}
is(rows_with($node, 'changed'), 2, 'both commits with a changed statement_timeout have succeeded');

# The timer of the check ends with the check: the next statement of the same message has a
# timer of its own.
{
	my $s = connected_session($node, commit_check => 'always');
	$s->query_ok("BEGIN; SELECT zk_xact_lock('timer'); INSERT INTO t VALUES ('timer')");
	$s->query_ok("SELECT set_config('statement_timeout', '100ms', false), set_config('statement_timeout', '1h', true)");
	fails_with($s, 'COMMIT\\; SELECT pg_sleep(20)', '57014',
		'after a commit with a check statement_timeout ends the next statement',
		like => qr/due to statement timeout/, hint => 0);
	$s->quit;
	is(rows_with($node, 'timer'), 1, 'the commit before the statement that timed out has succeeded');
}
# The node of a lock is removed by hand.
for my $level (qw(transaction session))
{
	my $s = connected_session($node, commit_check => 'always');
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('by-hand')") if $level eq 'transaction';
	$s->query_ok("SELECT zk_lock('by-hand')") if $level eq 'session';
	$s->query_ok("SELECT zk_lock('untouched')");
	$s->query_ok("INSERT INTO t VALUES ('by-hand')");
	my ($mine) = queue_of($zkc, 'by-hand');
	$zkc->delete($mine);
	commit_refused($s,
		"with commit_check = always a $level lock without its node refuses the commit",
		like => qr/"by-hand"/, unlike => qr/"untouched"/);
	is(rows_with($node, 'by-hand'), 0, 'the refused commit leaves no row');
	works($s, 'SELECT name FROM zk_held_locks', 'untouched',
		'the other lock at session level is still held');
	works($s, "INSERT INTO t VALUES ('after')", '', 'the loss is reported once');
	works($s, "SELECT zk_lock('by-hand')",
		qr/^\d+$/, 'the lock can be acquired again');
	$s->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, "a $level lock without its node leaves no node");
}
{
	my $s = connected_session($node, commit_check => 'always');
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock_shared('upgraded')");
	$s->query_ok("SELECT zk_xact_lock('upgraded')");
	my @nodes = queue_of($zkc, 'upgraded');
	is(scalar(@nodes), 2, 'an upgraded lock has two nodes');
	$zkc->delete($nodes[1]);
	commit_refused($s,
		'an upgraded lock is lost when its second node is removed',
		like => qr/"upgraded"/);
	nothing_left($zkc, 'the refused commit leaves no node');
}

done_testing();
