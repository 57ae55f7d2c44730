# A lost lock is reported once. A transaction that relied on it never commits.
#
# Promises: 5.2, 5.3, 5.5
# Tags: user, edges

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $proxy = ZkLock::Proxy->start(target => $zk);
my $cut_off = shared_node('cut_off', proxy => $proxy, session_timeout => '20s');
my $other = shared_node('other', zk => $zk);
$cut_off->safe_psql('postgres', 'CREATE TABLE t (v text)');

# Locks are lost: the network is silent until sessions of another server have been granted them,
# after the sessions of the holders have expired. Returns these other sessions.
sub lose
{
	my (@locks) = @_;
	my @next = map { session($other) } @locks;
	$next[$_]->query_async("SELECT zk_lock('$locks[$_]')") for 0 .. $#locks;
	wait_zk_children($zkc, "/zklock/locks/$_", 2) for @locks;
	$proxy->freeze;
	like($next[$_]->wait_result, qr/^\d+$/, "\"$locks[$_]\" is granted when the session of its holder has expired")
	  for 0 .. $#locks;
	$proxy->thaw;
	return @next;
}

# Losses by one outage: lock, what its holder does before, what it and the next holder do afterwards.
my @losses;
sub loses
{
	my ($lock, $before, $after) = @_;
	push @losses, [ $lock, $before, $after ];
	return;
}

# Silences the network, and ends the ZooKeeper session of the last in the queue.
sub expire_last
{
	my ($lock) = @_;
	$proxy->freeze;
	$zkc->end_session($zkc->get((queue_of($zkc, $lock))[-1])->{ephemeralOwner});
	return;
}

# A holder in a transaction.
loses('commit',
	sub {
		my $s = connected_session($cut_off);
		$s->query_ok('BEGIN');
		my $token = $s->query_ok("SELECT zk_xact_lock('commit')");
		$s->query_ok("INSERT INTO t VALUES ('commit')");
		return ($s, $token);
	},
	sub {
		my ($next, $s, $token) = @_;
		works($next, "SELECT zk_lock_token('commit') > $token",
			't', 'the next holder has a greater token');
		commit_refused($s,
			'a transaction with a lost lock cannot commit',
			like => qr/"commit"/);
		is(rows_with($cut_off, 'commit'), 0, 'the refused commit leaves no row');
		works($s, 'SELECT count(*) FROM zk_held_locks',
			'0', 'a lost lock is not in zk_held_locks');
		works($s, 'BEGIN; INSERT INTO t VALUES (\'later\'); COMMIT',
			'', 'a loss is reported once: the next transaction commits');
		works($s, "SELECT zk_try_xact_lock('commit')",
			'f', 'the next holder keeps its lock');
		$next->query_ok('SELECT zk_unlock_all()');
		works($s, "SELECT zk_lock('commit') > $token",
			't', 'the session can lock again, with a greater token');
		works($s, "SELECT zk_unlock('commit')", 't', 'the session can release the new lock');
		$next->quit;
	});

# The error about the loss is caught inside the transaction.
loses('caught',
	sub {
		my $s = connected_session($cut_off);
		$s->query_ok('BEGIN');
		$s->query_ok("SELECT zk_xact_lock('caught')");
		$s->query_ok("INSERT INTO t VALUES ('caught')");
		$s->query_ok('SAVEPOINT after');
		return $s;
	},
	sub {
		my ($next, $s) = @_;
		fails_with($s, "SELECT zk_xact_lock('another')", '40001',
			'the next statement fails', like => qr/"caught"/);
		works($s, 'ROLLBACK TO after', '', 'the error about a loss can be caught');
		works($s, "SELECT zk_xact_lock('another')",
			qr/^\d+$/, 'other locks can be acquired after that');
		$s->query_ok("INSERT INTO t VALUES ('caught')");
		fails_with($s, 'COMMIT', '40001',
			'a transaction that caught the error about its loss cannot commit',
			like => qr/^DETAIL:  Affected: "caught"\.$/m);
		is(rows_with($cut_off, 'caught'), 0, 'the transaction leaves no row');
		works($s, "INSERT INTO t VALUES ('after')",
			'', 'the next transaction commits');
		$next->quit;
	});

# The loss happens while a statement runs that uses no zk lock.
loses('busy',
	sub {
		my $s = connected_session($cut_off);
		my $gate = session($cut_off);
		$gate->query_ok('SELECT pg_advisory_lock(1)');
		$s->query_ok("SELECT zk_lock('busy')");
		$s->query_async("INSERT INTO t SELECT 'busy' FROM pg_advisory_lock(1)");
		wait_blocked($s);
		return ($s, $gate);
	},
	sub {
		my ($next, $s, $gate) = @_;
		$gate->quit;
		failed_with($s, '40001', 'the running statement fails',
			like => qr/"busy"/);
		is(rows_with($cut_off, 'busy'), 0, 'the running statement leaves no row');
		works($s, "INSERT INTO t VALUES ('unbusy')", '', 'the next statement commits');
		$next->quit;
	});

# An idle session with locks at session level.
loses('idle',
	sub {
		my $s = connected_session($cut_off);
		$s->query_ok("SELECT zk_lock_many(ARRAY['idle', 'idle2']), zk_lock('idle')");
		return $s;
	},
	sub {
		my ($next, $s) = @_;
		fails_with($s, "INSERT INTO t VALUES ('idle')", '40001',
			'an idle session gets the error of its loss at its next statement',
			like => qr/locks "idle2?" and 1 other were lost.*^DETAIL:  The ZooKeeper ensemble did not confirm the session in time: .* the locks since\.$/ms);
		is(rows_with($cut_off, 'idle'), 0, 'the failed statement leaves no row');
		works($s, "INSERT INTO t VALUES ('idle')", '', 'the loss is reported once');
		works($s, 'SELECT count(*) FROM zk_held_locks',
			'0', 'the session holds none of the lost locks');
		works($s, "SELECT zk_lock_token('idle') IS NULL",
			't', 'a lost lock has no token');
		my ($answer, $error) = $s->query("SELECT zk_unlock('idle')");
		is($answer, 'f', 'unlocking a lost lock returns false');
		like($error, qr/^\S*\s*WARNING:.*"idle"/m, 'unlocking a lost lock gives a warning');
		is(scalar(queue_of($zkc, 'idle')), 1,
			'unlocking a lost lock keeps the node of the next holder');
		$next->quit;
	});

# Rollback of a transaction whose lock was lost.
loses('rollback',
	sub {
		my $s = connected_session($cut_off);
		$s->query_ok('BEGIN');
		$s->query_ok("SELECT zk_xact_lock('rollback')");
		return $s;
	},
	sub {
		my ($next, $s) = @_;
		works($s, 'ROLLBACK', '', 'a transaction with a lost lock can be rolled back');
		works($s, "INSERT INTO t VALUES ('rollback')",
			'', 'the loss is not reported after the rollback');
		works($s, "SELECT zk_try_lock('elsewhere'), zk_unlock('elsewhere')",
			't|t', 'the session can lock again');
		$next->quit;
	});

# A savepoint, with a lock before it and a lock after it.
loses('inner',
	sub {
		my $s = connected_session($cut_off);
		$s->query_ok('BEGIN');
		$s->query_ok("SELECT zk_xact_lock('outer')");
		$s->query_ok('SAVEPOINT s');
		$s->query_ok("SELECT zk_xact_lock('inner')");
		return $s;
	},
	sub {
		my ($next, $s) = @_;
		fails_with($s, "SELECT zk_xact_lock('third')", '40001',
			'the next lock after a savepoint reports the loss',
			like => qr/locks "(?:inner|outer)" and 1 other were lost/);
		$s->query_ok('ROLLBACK TO s');
		$s->query_ok("INSERT INTO t VALUES ('savepoint')");
		fails_with($s, 'COMMIT', '40001',
			'ROLLBACK TO does not undo the loss: the commit is refused');
		is(rows_with($cut_off, 'savepoint'), 0, 'the refused commit leaves no row');
		$next->quit;
	});

# All of them lose their locks, one after the other uses its session.
{
	my @held = map { [ $_->[1]->() ] } @losses;
	my @next = lose(map { $_->[0] } @losses);
	for my $i (0 .. $#losses)
	{
		$losses[$i][2]->($next[$i], @{ $held[$i] });
		$held[$i][0]->quit;
		wait_zk_children($zkc, "/zklock/locks/$losses[$i][0]", 0);
	}
	nothing_left($zkc, 'losses leave no node');
}

# Waiters.
{
	my $holder = session($other);
	$holder->query_ok("SELECT zk_lock('wait')");
	my $without_lock = connected_session($cut_off, session_timeout => '60s');
	my $with_lock = connected_session($cut_off, session_timeout => '60s');
	$with_lock->query_ok("SELECT zk_lock('bound')");
	$without_lock->query_async("SELECT zk_lock('wait')");
	wait_zk_children($zkc, '/zklock/locks/wait', 2);

	# A second waiter for the same lock would wait locally, so this one needs another lock.
	$holder->query_ok("SELECT zk_lock('wait2')");
	$with_lock->query_async("SELECT zk_lock('wait2')");
	wait_zk_children($zkc, '/zklock/locks/wait2', 2);
	expire_last($_) for 'wait', 'wait2';
	$proxy->thaw;
	failed_with($with_lock, '40001',
		'a waiter that loses another lock while waiting gets the error',
		like => qr/"bound"/);
	works($with_lock, 'SELECT count(*) FROM zk_held_locks',
		'0', 'the waiter holds nothing after the error');
	wait_zk_children($zkc, '/zklock/locks/wait', 2);
	ok(!$without_lock->finished, 'a waiter that held nothing is queued again');
	$holder->query_ok('SELECT zk_unlock_all()');
	like($without_lock->wait_result, qr/^\d+$/, 'the waiter queued again is granted the lock');
	is($without_lock->error, '', 'the waiter queued again gets no message');
	works($without_lock, 'BEGIN; SELECT 1; COMMIT', '1', 'a transaction of the waiter queued again commits');
	works($with_lock, "SELECT zk_try_lock('wait2')",
		't', 'the session that got the error can lock again');
	$_->query_ok('SELECT zk_unlock_all()') for $without_lock, $with_lock;
	nothing_left($zkc, 'expired waiters leave no node');
}

# A timed attempt keeps its timeout over an expiry.
{
	my $holder = session($other);
	$holder->query_ok("SELECT zk_lock('timed')");
	# If it has ended before its session, again with a longer timeout.
	for my $timeout (5, 10, 20, 40)
	{
		my $s = connected_session($cut_off, session_timeout => '60s');
		my $id = zk_session_id($s);
		$s->query_async("SELECT zk_try_lock('timed', interval '$timeout s')");
		wait_until('the attempt in the queue, or its end', sub { $s->finished || 2 == $zkc->children('/zklock/locks/timed') });
		$proxy->freeze;
		$zkc->end_session($id);
		my $is_in_time = !$s->finished;
		$proxy->thaw;
		is($s->wait_result, 'f',
			'a timed attempt that was queued again returns false after its timeout');
		last if $is_in_time;
	}
	ok(wait_zk_children($zkc, '/zklock/locks/timed', 1), 'the timed attempt leaves no node');
	$holder->quit;
	nothing_left($zkc, 'a timed attempt over an expiry leaves no node');
}

# The ensemble is restarted with its data. A session may survive the restart, or expire. If its
# transaction commits, it still held the lock. In the second round the session is lost by its own
# clock; in the others it is so long that it can survive.
my %ended;
for my $round (1 .. 3)
{
	my $s = connected_session($cut_off, $round == 2 ? () : (session_timeout => '2min'));
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('restart')");
	$s->query_ok("INSERT INTO t VALUES ('restart $round')");
	$zk->stop;
	my $lost = $round == 2
	  && wait_until(
		'the loss by the clock',
		sub { $s->query('SELECT 1'); $s->sqlstate eq '40001' });
	$zk->restart;
	my $next = session($other);
	wait_until('kazoo', sub { $zkc->state eq 'CONNECTED' });
	my $granted;
	$granted = $next->query("SELECT zk_try_lock('restart')") if $round != 3;
	$s->query('COMMIT');
	my $committed = $lost ? '40001' : $s->sqlstate;
	ok( $committed eq '40001' || ($committed eq '00000' && !$lost),
		"a restart of the ensemble ends in a commit or 40001 (round $round)");
	is(rows_with($cut_off, "restart $round"), $committed eq '00000' ? 1 : 0,
		"the row is there exactly if the commit succeeded (round $round)");
	ok( !($committed eq '00000' && ($granted // 'f') eq 't'),
		"the lock was not granted to another session before a commit (round $round)");
	works($s, "INSERT INTO t VALUES ('restarted')",
		'', "the session can commit afterwards (round $round)");
	works($next, "SELECT zk_lock('restart')",
		qr/^\d+$/, "the lock can be acquired after that (round $round)");
	$next->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc,
		"a restart of the ensemble leaves no node (round $round)");
	$ended{$committed}++;
	$s->quit;
}
cmp_ok($ended{$_} // 0, '>', 0, "a restart of the ensemble has ended in $_") for '00000', '40001';

# A transaction relies on a lock released before its commit, too: the lock may have been
# lost before the release.
{
	my $s = connected_session($cut_off, session_timeout => '18s');
	for my $lost (2, 1, 0)
	{
		$s->query_ok('BEGIN');
		$s->query_ok("SELECT zk_lock('released')");
		$s->query_ok("INSERT INTO t VALUES ('released $lost')");
		wait_proven($s);
		$proxy->freeze if $lost;
		wait_until('the lease to end',
			sub { $s->query_ok('SELECT lease_remaining FROM zk_session()') eq '00:00:00' })
		  if $lost;
		works($s, "SELECT zk_unlock('released')", 't',
			'a release does not wait for the ensemble') if $lost;
		$s->query_ok("SELECT zk_unlock('released')") if !$lost;
		expire_last('released') if $lost;
		$proxy->thaw if $lost == 1;
		if ($lost)
		{
			# The session notices its expiry before the check, or during the check.
			$s->query_async('COMMIT');
			if ($lost == 2)
			{
				wait_for_sql($cut_off, 'SELECT wait_event_type FROM pg_stat_activity '
						. 'WHERE pid = ' . $s->pid, 'Extension', or => sub { $s->finished });
				$proxy->thaw;
			}
			failed_with($s, '40001',
				'a commit is refused if its lock was lost before the release',
				like => qr/"released"/);
			works($s, "SELECT zk_try_lock('after'), zk_unlock('after')", 't|t',
				'the session can lock again after the refused commit');
		}
		else
		{
			works($s, 'COMMIT', '', 'a commit succeeds if its lock was held until the release');
		}
		is(rows_with($cut_off, "released $lost"), $lost ? 0 : 1, 'the row is there exactly if the commit succeeded');
	}
	$s->quit;
	nothing_left($zkc, 'a release without a lease leaves no node');
}
