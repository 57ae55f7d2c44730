# A loss between the check at commit and the end of the commit. If the loss is noticed
# before the commit record is written, the commit is aborted. A later loss is logged and
# counted, and does not end the wait for a synchronous standby.
#
# Promise: 5.9
# Tags: edges

use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $proxy = ZkLock::Proxy->start(target => $zk);
my $here = shared_node('here', proxy => $proxy, set => { synchronous_commit => 'local' });
my $there = shared_node('there', zk => $zk);
$here->safe_psql('postgres', 'CREATE TABLE t (v text)');
my $admin = session($here);

sub standby
{
	my ($name) = @_;
	return require_standby($here) if $name;
	$admin->query_ok("ALTER SYSTEM SET synchronous_standby_names = '$name'");
	$admin->query_ok('SELECT pg_reload_conf()');
	wait_for_sql($here, 'SHOW synchronous_standby_names', $name);
	return;
}

# Returns what was counted since the last call.
sub counted
{
	return $admin->query_ok('SELECT locks_lost, commits_refused, zk_stat_reset() FROM zk_stat')
	  =~ s/\|$//r;
}

standby('nobody');
counted();

# The loss happens while the commit waits for the queue of NOTIFY, which another commit
# locks until its standby confirms.
for my $how ('by expiry', 'by hand')
{
	my $first = session($here);
	my $s = session($here);
	$first->query_ok('SET synchronous_commit = on');
	$s->query_ok('SET zklock.commit_check = always');
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('notify')");
	my $id = zk_session_id($s);
	$s->query_ok("INSERT INTO t VALUES ('notify'); NOTIFY c");
	$first->query_async("BEGIN; INSERT INTO t VALUES ('first'); NOTIFY c; COMMIT");
	wait_for_standby($first);
	my $offset = -s $here->logfile;
	$s->query_async('COMMIT');
	wait_blocked_locally($s);
	if ($how eq 'by expiry')
	{
		$proxy->freeze;
		$zkc->end_session($id);
		my $next = session($there);
		works($next, "SELECT zk_lock('notify') > 0", 't', 'the next holder is granted the lock');
		$next->quit;
		$proxy->thaw;
	}
	else
	{
		lose_lock($zk, $zkc, 'notify', $id);
	}
	failed_with($s, '57014', "a loss $how ends the wait in the queue of NOTIFY", hint => 0);
	like(slurp_file($here->logfile, $offset),
		qr/LOG:  lock "notify" was lost, and the transaction that held it was rolled back/,
		"a loss $how: the log names the lock");
	ok(!$first->finished, "a loss $how: the commit ends before the other commit does");
	is(rows_with($here, 'notify'), 0, "a loss $how: the transaction is not committed");
	is(counted(), '1|1', "a loss $how: the loss is counted");
	works($s, 'SELECT count(*) FROM zk_held_locks', '0', "a loss $how: nothing is held or reported any more");
	standby('');
	$first->wait_result;
	standby('nobody');
	$_->quit for $s, $first;
}

# The loss happens when the commit record has been written.
for my $end ('COMMIT', "PREPARE TRANSACTION 'late'", "COMMIT PREPARED 'late'")
{
	my $level = $end eq 'COMMIT' ? 'transaction' : 'session';
	my $s = session($here);
	my $offset = -s $here->logfile;
	if ($end =~ /^COMMIT P/)
	{
		$s->query_ok("SELECT zk_lock('late')");
	}
	else
	{
		$s->query_ok('BEGIN');
		$s->query_ok($level eq 'session' ? "SELECT zk_lock('late')" : "SELECT zk_xact_lock('late')");
		$s->query_ok("INSERT INTO t VALUES ('late')");
	}
	my $id = zk_session_id($s);
	$s->query_ok('SET synchronous_commit = on');
	$s->query_async($end);
	wait_for_standby($s);
	lose_lock($zk, $zkc, 'late', $id);
	works($admin, 'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $s->pid,
		'SyncRep', "$end goes on waiting for its standby after a loss");
	standby('');
	$s->wait_result;
	ok($s->ok && $s->error eq '', "$end succeeds after its wait, without a warning") or diag($s->error);
	my $log = slurp_file($here->logfile, $offset);
	if ($level eq 'transaction')
	{
		like($log, qr/LOG:  lock "late" was lost while a transaction that held it was being committed/,
			"the loss during $end is logged");
		is(counted(), '1|0', "the loss during $end is counted");
		works($s, 'SELECT 1', '1', "the statement after $end succeeds");
	}
	else
	{
		like($log, qr/LOG:  lock "late" was lost while/, "the loss during $end is logged")
		  unless $end =~ /^COMMIT P/;
		fails_with($s, 'SELECT 1', '40001', "the statement after $end reports the loss",
			like => qr/"late"/);
		is(counted(), '1|0', "the loss during $end is counted");
		works($s, 'SELECT 1', '1', "the loss during $end is reported once");
	}
	standby('nobody');
	$s->quit;
}

# The client asks for log messages, and its encoding does not have the name of the lock.
{
	my $s = session($here);
	$s->query_ok(q(BEGIN; SELECT zk_xact_lock(U&'\20AC'); INSERT INTO t VALUES ('euro')));
	my $id = zk_session_id($s);
	$s->query_ok('SET synchronous_commit = on; SET client_min_messages = log; SET client_encoding = latin1');
	$s->query_async('COMMIT');
	wait_for_standby($s);
	lose_lock($zk, $zkc, '%E2%82%AC', $id);
	standby('');
	$s->wait_result;
	ok($s->ok, 'a late loss of a lock whose name the client cannot read does not end the commit')
	  or diag($s->error);
	is(rows_with($here, 'euro'), 1, 'the row of a commit with a late loss is there');
	$s->quit;
}

# The answer to the check arrives too late.
{
	my $proxy = ZkLock::FaultProxy->start(target => $zk);
	my $node = zklock_node('held', zk => $proxy->connect_string);
	$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

	# The proofs in the record.
	my $checks = sub {
		return grep { $_->{op} eq 'multi' && "@{ $_->{paths} }" eq '/zklock' } $proxy->record;
	};
	my ($s, $kept) = map { session_with($node, session_timeout => '8s') } 1, 2;
	my $next = session($there);
	for ([ $s => 'held' ], [ $kept => 'kept' ])
	{
		my ($session, $lock) = @$_;
		$session->query_ok('SET zklock.commit_check = always');
		$session->query_ok("SELECT zk_lock('warm-up'), zk_unlock('warm-up')");
		$session->query_ok('BEGIN');
		$session->query_ok("SELECT zk_xact_lock('$lock')");
		$session->query_ok("INSERT INTO t VALUES ('$lock')");
		# The read of the node, which sets its watch; the answer to the proof is behind it.
		$proxy->arm(fault => 'hold_answer', op => 'getData', path => "/$lock/");
	}
	$proxy->clear_record;
	my $began = time;
	$_->query_async('COMMIT') for $s, $kept;
	wait_until('the checks', sub { $proxy->hits == 2 });
	my $checked = time;
	$zkc->delete($_) for queue_of($zkc, 'held');
	works($next, "SELECT zk_lock('held') > 0", 't', 'another session is granted the lock');
	wait_until('the lease to end', sub { time > $checked + 3 });
	$proxy->release;
	wait_until('the end of the commits', sub { $s->finished && $kept->finished });

	# The commit waits for an answer as long as the session timeout.
	failed_with($s, '40001', 'an answer that arrives after the lease does not confirm a commit',
		like => time < $began + 8 ? qr/lock "held" was lost/ : qr/"held"/);
	is($node->safe_psql('postgres', "SELECT count(*) FROM t WHERE v = 'held'"), 0, 'a commit whose answer came too late leaves no row');
	$kept->wait_result;
	my $sent = grep { $_->{op} eq 'getData' && "@{ $_->{paths} }" =~ m{/kept/} } $proxy->record;
	if ($kept->ok) { cmp_ok($sent, '>', 1, 'a lock that is still held is checked again before its commit') }
	else { is($kept->sqlstate, '40001', 'a lock that is still held is not confirmed in time') }
	$_->quit for $s, $kept, $next;
	$proxy->disarm;

	# Which commits send a check.
	my $one_check = sub {
		my @checks = $checks->();
		ok(@checks && !(grep { $_->{sent} < $checks[0]{answered} } @checks[ 1 .. $#checks ]),
			'a commit comes after a check, and sends no other check meanwhile');
	};
	$s = session($node);
	$s->query_ok('SET zklock.commit_check = always');
	for my $kind ('reads', 'writes')
	{
		$s->query_ok("BEGIN; SELECT zk_lock('released')");
		$s->query_ok("INSERT INTO t VALUES ('released')") if $kind eq 'writes';
		$s->query_ok("SELECT zk_unlock('released')");
		$proxy->clear_record;
		works($s, 'COMMIT', '', "a transaction that $kind and has released its lock commits");
		$one_check->();
	}
	$s->query_ok("SELECT zk_lock('released')");
	$proxy->clear_record;
	works($s, "SELECT zk_unlock('released')", 't', 'a statement that only releases its lock commits');
	$one_check->();

	$s->query_ok("SELECT zk_lock('prepared')");
	$s->query_ok("BEGIN; INSERT INTO t VALUES ('prepared')");
	$zkc->delete($_) for queue_of($zkc, 'prepared');
	fails_with($s, "PREPARE TRANSACTION 'p'", '40001', 'PREPARE is refused like COMMIT',
		like => qr/"prepared"/);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'), 0,
		'PREPARE that is refused leaves no prepared transaction');
	$s->quit;
	$node->stop;
}

$admin->quit;
nothing_left($zkc, 'nothing is left');

$here->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
