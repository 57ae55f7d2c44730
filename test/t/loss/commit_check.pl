# The check at commit: a transaction commits only if its locks are still held.
#
# Promise: 5.2
# Tags: user, edges

use ZkLock::Test;

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
	my $s = connected_session($node, commit_check => 'always');
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_lock('session')");
	$s->query_ok("INSERT INTO t VALUES ('session')");
	my $id = zk_session_id($s);
	my $before = requests_of($zk, $id);
	works($s, 'COMMIT', '', 'a transaction of a session with a session-level lock commits');
	cmp_ok(requests_of($zk, $id), '>', $before, 'the commit of a session with a session-level lock sends a check');
	$s->query_ok('SELECT zk_unlock_all()');
	$zk->pause;
	works($s, "INSERT INTO t VALUES ('none')", '',
		'a session without locks commits with a silent ensemble');
	$zk->resume;
	nothing_left($zkc, 'locks at session level leave no node');
}

# Locks without a lease when their transactions commit, all during one silence of the ensemble: one
# that is held, and others that were released after the end of the lease.
{
	my @kinds = (
		[ 'lock that is held' => 'SELECT zk_xact_lock(L)' ],
		[ lock => 'SELECT zk_lock(L)', 'SELECT zk_unlock(L)' ],
		[ permit => 'SELECT zk_acquire_permit(L, 1)', 'SELECT zk_release_permit(L)' ],
		[ 'lock that zk_unlock_all() released' => 'SELECT zk_lock(L)', 'SELECT zk_unlock_all()' ],
		[ 'lock of a savepoint' => 'SAVEPOINT s; SELECT zk_xact_lock(L)', 'ROLLBACK TO s' ],
		[ 'permit of a savepoint' => 'SAVEPOINT s; SELECT zk_xact_acquire_permit(L, 1)', 'ROLLBACK TO s' ]);
	my @cases;
	for my $kind (@kinds)
	{
		my $lock = 'unleased' . @cases;
		my ($what, $acquire, $release) = map { s/\bL\b/'$lock'/r } @$kind;
		my $s = connected_session($node, session_timeout => '18s');
		$s->query_ok('BEGIN');
		$s->query_ok("INSERT INTO t VALUES ('$lock')");
		$s->query_ok($acquire);
		push @cases, { what => $what, lock => $lock, release => $release, s => $s };
	}
	wait_proven($_->{s}) for @cases;
	$zk->pause;
	wait_lease_over($_->{s}) for @cases;
	$_->{s}->query_ok($_->{release}) for grep { $_->{release} } @cases;
	$_->{s}->query_async('COMMIT') for @cases;
	for my $case (@cases)
	{
		my ($s, $what) = @$case{qw(s what)};
		failed_with($s, '40001',
			$case->{release}
			? "a commit fails if a silent ensemble does not confirm that a $what was held until its release"
			: 'without a lease a commit fails when the ensemble does not answer',
			like => qr/"$case->{lock}"/);
		is(rows_with($node, $case->{lock}), 0, 'the refused commit leaves no row');
	}
	$zk->resume;
	for my $case (@cases)
	{
		works($case->{s}, "SELECT zk_lock('silent'), zk_unlock('silent')",
			qr/^\d+\|t$/, 'the session can lock again afterwards');
		$case->{s}->quit;
	}
	nothing_left($zkc, 'commits refused because of silence leave no node');
}

# Commits that ask, all during one silence of the ensemble. A transaction can have effects without a
# transaction ID.
{
	my @cases = (
		{ what => 'a commit after NOTIFY and a release needs the proof',
			during => [ 'BEGIN; NOTIFY c', 'SELECT zk_unlock(L)', 'COMMIT' ] },
		{ what => 'NOTIFY and a release in one message need the proof', during => ['NOTIFY c\\; SELECT zk_unlock(L)'] },
		{ what => 'a statement that notifies and releases needs the proof',
			during => ["SELECT pg_notify('c', ''), zk_unlock(L)"] },
		{ what => 'a statement that only releases its lock needs the proof, too', during => ['SELECT zk_unlock(L)'] },
		{ what => 'the error names the first of several locks released one after the other',
			before => [ 'BEGIN; SELECT zk_lock(L), zk_lock(L2)', "SELECT zk_unlock(L); INSERT INTO t VALUES ('silent')",
				'SELECT zk_lock(L3)', 'SELECT zk_unlock(L2); SELECT zk_unlock(L3)' ],
			during => ['COMMIT'],
			like => 'held "L" until' },
		{ what => 'a lock that is held is lost before the check of a released one ends',
			before => [ "BEGIN; INSERT INTO t VALUES ('silent'); SELECT zk_lock(L), zk_lock(L2)", 'SELECT zk_unlock(L)' ],
			during => ['COMMIT'],
			like => 'lock "L2" was lost' },
		{ what => 'the error counts a lock once that was released and acquired again',
			before => [ "BEGIN; INSERT INTO t VALUES ('silent'); SELECT zk_lock(L), zk_unlock(L)", 'SELECT zk_lock(L2), zk_lock(L)' ],
			during => ['COMMIT'],
			like => 'locks "(?:L|L2)" and 1 other were lost' });
	for my $i (0 .. $#cases)
	{
		my $case = $cases[$i];
		s/\bL(\d?)\b/'asks$i$1'/g for @{ $case->{before} //= ['SELECT zk_lock(L)'] }, @{ $case->{during} };
		($case->{like} //= '"L"') =~ s/\bL(\d?)\b/asks$i$1/g;
		$case->{s} = connected_session($node, session_timeout => '15s', commit_check => 'always');
		$case->{s}->query_ok($_) for @{ $case->{before} };
	}

	# COMMIT in a procedure. The second transaction has only statements that PL/pgSQL runs without the
	# executor. The other one is the first statement of its session.
	my $gate = session($node);
	$gate->query_ok('SELECT pg_advisory_lock(1)');
	my $procedure = connected_session($node, session_timeout => '15s', commit_check => 'always');
	local $ENV{PGOPTIONS} = '-c zklock.commit_check=always -c zklock.session_timeout=15s';
	my $first = session($node);
	$procedure->query_async(<<'SQL');
DO $$
DECLARE
	result text;
BEGIN
	COMMIT;
	result := zk_xact_lock('procedure');
	result := pg_advisory_xact_lock_shared(1);
	COMMIT;
	INSERT INTO t VALUES ('silent');
END $$
SQL
	$first->query_async("SELECT zk_xact_lock('statement'), pg_advisory_xact_lock_shared(1), pg_notify('c', '')");
	wait_blocked_locally($_) for $procedure, $first;

	$zk->pause;
	for my $case (@cases)
	{
		my @statements = @{ $case->{during} };
		my $last = pop @statements;
		$case->{s}->query_ok($_) for @statements;
		$case->{s}->query_async($last);
	}
	$gate->query_ok('SELECT pg_advisory_unlock(1)');
	failed_with($_->{s}, '40001', $_->{what}, like => qr/$_->{like}/) for @cases;
	failed_with($procedure, '40001', 'a silent ensemble does not confirm a COMMIT in a procedure', like => qr/"procedure"/);
	failed_with($first, '40001', 'a silent ensemble does not confirm the first statement of a session', like => qr/"statement"/);
	is(rows_with($node, 'silent'), 0, 'the refused commits leave no row, and the procedure does not go on');
	works($cases[3]{s}, $cases[3]{during}[0], 'f', 'the lock of a statement that only releases is released');
	works($cases[$_]{s}, 'SELECT zk_unlock_all()', '', 'nothing is held') for 0 .. 2;
	$zk->resume;
	works($procedure, 'SELECT count(*) FROM zk_held_locks', 0, 'the lock of the procedure is released');
	$_->quit for $gate, $procedure, $first, map { $_->{s} } @cases;    # the silence may have ended the ZooKeeper sessions
	nothing_left($zkc, 'refused commits that have asked leave no node');
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
	$s->query_ok('RESET statement_timeout; SET zklock.commit_check = off');
	works($s, 'SELECT count(*) FROM zk_held_locks', 0, "a release without the proof has released the lock: $release");
	$zk->resume;
	nothing_left($zkc, "a release without the proof leaves no node: $release");
	$s->quit;
}
{
	my $s = connected_session($node, session_timeout => '10s', commit_check => 'always');
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

# PostgreSQL disables statement_timeout before it commits, so zklock must apply it.
my $timed = "INSERT INTO t VALUES ('timed')";
for my $begin ('', 'BEGIN')
{
	my $s = connected_session($node, commit_check => 'always');
	$s->query_ok("SELECT zk_lock('silent')");
	$s->query_ok("$begin; $timed") if $begin;
	$s->query_ok("SET statement_timeout = '300ms'");
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

# As in PostgreSQL, a timeout that a handler has caught does not end the commit.
{
	my $s = connected_session($node, commit_check => 'always');
	$s->query_ok("SELECT zk_lock('caught'); SET statement_timeout = '5s'");
	works($s, <<'SQL', '', 'a statement_timeout that a handler has caught does not end the check of the commit');
DO $$
BEGIN
	INSERT INTO t VALUES ('caught');
	BEGIN
		PERFORM pg_sleep(600);
	EXCEPTION WHEN query_canceled THEN
	END;
END $$
SQL
	is(rows_with($node, 'caught'), 1, 'the commit behind a timeout that was caught has succeeded');
	$s->quit;
}

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
