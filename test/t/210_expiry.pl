# A lock that was lost is reported once, and never lets a transaction that
# relied on it commit.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $way = ZkLock::Proxy->start(target => $zk);
my $cut_off = zklock_node('cut_off', proxy => $way, session_timeout => '1s');
my $other = zklock_node('other', zk => $zk, session_timeout => '4s');
$cut_off->safe_psql('postgres', 'CREATE TABLE t (v text)');

# A session of the server that will be cut off, with a ZooKeeper session.
sub victim
{
	my $s = session($cut_off);
	$s->query_ok("SELECT zk_try_lock('warm-up-' || pg_backend_pid())");
	$s->query_ok('SELECT zk_unlock_all()');
	return $s;
}

# Silence until another server has got the lock, then an end of the silence.
# The other server gets it only after the ensemble expired the holder.
sub loses
{
	my ($lock, $name) = @_;
	my $next = session($other);
	$next->query_async("SELECT zk_lock('$lock')");
	wait_zk_children($zkc, "/zklock/locks/$lock", 2);
	$way->freeze;
	like($next->wait_result, qr/^\d+$/, $name);
	$way->thaw;
	return $next;
}

sub rows
{
	my ($value) = @_;
	return $cut_off->safe_psql('postgres',
		"SELECT count(*) FROM t WHERE v = '$value'");
}

# A holder in a transaction.
{
	my $s = victim();
	$s->query_ok('BEGIN');
	my $token = $s->query_ok("SELECT zk_xact_lock('commit')");
	$s->query_ok("INSERT INTO t VALUES ('commit')");
	my $next = loses('commit',
		'a lock is free when the session of its holder has expired');
	works($next, "SELECT zk_lock_token('commit') > $token",
		't', 'the next holder has a greater token');
	commit_refused($s,
		'a transaction whose lock was lost cannot commit',
		like => qr/"commit"/);
	is(rows('commit'), 0, 'and leaves no row');
	works($s, 'SELECT count(*) FROM zk_held_locks',
		'0', 'a lost lock is not held any more');
	works($s, 'BEGIN; INSERT INTO t VALUES (\'later\'); COMMIT',
		'', 'a loss is reported once: the next transaction commits');
	works($s, "SELECT zk_try_xact_lock('commit')",
		'f', 'the next holder keeps its lock');
	$next->query_ok('SELECT zk_unlock_all()');
	works($s, "SELECT zk_lock('commit') > $token",
		't', 'the session can lock again in a new ZooKeeper session');
	works($s, "SELECT zk_unlock('commit')", 't', 'and release');
	nothing_left($zkc, 'a lost transaction leaves nothing behind');
}

# The loss is noticed inside the transaction, and caught.
{
	my $s = victim();
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('caught')");
	$s->query_ok("INSERT INTO t VALUES ('caught')");
	$s->query_ok('SAVEPOINT after');
	my $next = loses('caught', 'a lock is lost in a transaction');
	fails_with($s, "SELECT zk_xact_lock('another')", '40001',
		'the next statement fails', like => qr/"caught"/);
	works($s, 'ROLLBACK TO after', '', 'the error about a loss can be caught');
	works($s, "SELECT zk_xact_lock('another')",
		qr/^\d+$/, 'other locks can be acquired after that');
	$s->query_ok("INSERT INTO t VALUES ('caught')");
	fails_with($s, 'COMMIT', '40001',
		'a transaction that caught the error about its loss cannot commit',
		like => qr/^DETAIL:  Affected: "caught"\.$/m);
	is(rows('caught'), 0, 'and leaves no row');
	works($s, "INSERT INTO t VALUES ('after')",
		'', 'the transaction after it commits');
	$next->quit;
	nothing_left($zkc, 'a caught loss leaves nothing behind');
}

# A statement that does not touch locks is on its way when the loss happens.
{
	my $s = victim();
	my $gate = session($cut_off);
	$gate->query_ok('SELECT pg_advisory_lock(1)');
	$s->query_ok("SELECT zk_lock('busy')");
	$s->query_async("INSERT INTO t SELECT 'busy' FROM pg_advisory_lock(1)");
	wait_blocked($s);
	my $next = loses('busy', 'a lock is lost under a running statement');
	$gate->quit;
	failed_with($s, '40001', 'that statement does not commit',
		like => qr/"busy"/);
	is(rows('busy'), 0, 'and leaves no row');
	works($s, "INSERT INTO t VALUES ('unbusy')", '', 'the next one does');
	$next->quit;
	nothing_left($zkc, 'a loss under a running statement leaves nothing');
}

# An idle session with locks at session level.
{
	my $s = victim();
	$s->query_ok("SELECT zk_lock(ARRAY['idle', 'idle2']), zk_lock('idle')");
	my $next = loses('idle', 'an idle session loses its locks');
	fails_with($s, "INSERT INTO t VALUES ('idle')", '40001',
		'an idle session gets the error of its loss at its next statement',
		like => qr/(?:"idle".*"idle2"|"idle2".*"idle").*^DETAIL:  The ZooKeeper session expired: .* the locks since\.$/ms);
	is(rows('idle'), 0, 'which does not commit');
	works($s, "INSERT INTO t VALUES ('idle')", '', 'it is reported once');
	works($s, 'SELECT count(*) FROM zk_held_locks',
		'0', 'and holds none of the locks any more');
	works($s, "SELECT zk_lock_token('idle') IS NULL",
		't', 'a lost lock has no token');
	my ($answer, $error) = $s->query("SELECT zk_unlock('idle')");
	is($answer, 'f', 'a lost lock can not be released');
	like($error, qr/^\S*\s*WARNING:.*"idle"/m, 'which is a warning');
	is(scalar(queue_of($zkc, 'idle')), 1,
		'and does not disturb the next holder');
	$next->quit;
	nothing_left($zkc, 'an idle loss leaves nothing behind');
}

# Rollback of a transaction whose lock was lost.
{
	my $s = victim();
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('rollback')");
	my $next = loses('rollback', 'a transaction loses its lock');
	works($s, 'ROLLBACK', '', 'a transaction whose lock was lost rolls back');
	works($s, "INSERT INTO t VALUES ('rollback')",
		'', 'and nothing is left to be told');
	works($s, "SELECT zk_try_lock('elsewhere'), zk_unlock('elsewhere')",
		't|t', 'the session can lock again');
	$next->quit;
	nothing_left($zkc, 'a rolled back loss leaves nothing behind');
}

# Both levels, a savepoint, and a lock from before it.
{
	my $s = victim();
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('outer')");
	$s->query_ok('SAVEPOINT s');
	$s->query_ok("SELECT zk_xact_lock('inner')");
	my $next = loses('inner', 'a lock is lost behind a savepoint');
	fails_with($s, "SELECT zk_xact_lock('third')", '40001',
		'the next lock after a savepoint reports the loss',
		like => qr/"outer"/);
	$s->query_ok('ROLLBACK TO s');
	$s->query_ok("INSERT INTO t VALUES ('savepoint')");
	fails_with($s, 'COMMIT', '40001',
		'rolling back to a savepoint does not make up for a loss');
	is(rows('savepoint'), 0, 'and leaves no row');
	$next->quit;
	nothing_left($zkc, 'a loss behind a savepoint leaves nothing');
}

# Waiters.
{
	my $holder = session($other);
	$holder->query_ok("SELECT zk_lock('wait')");
	my $free = victim();
	my $bound = victim();
	$bound->query_ok("SELECT zk_lock('bound')");
	$free->query_async("SELECT zk_lock('wait')");
	wait_zk_children($zkc, '/zklock/locks/wait', 2);

	# The second waiter of one server waits in PostgreSQL; so another lock.
	$holder->query_ok("SELECT zk_lock('wait2')");
	$bound->query_async("SELECT zk_lock('wait2')");
	wait_zk_children($zkc, '/zklock/locks/wait2', 2);
	$way->freeze;
	wait_zk_children($zkc, "/zklock/locks/$_", 1) for 'wait', 'wait2';
	$way->thaw;
	failed_with($bound, '40001',
		'a waiter that loses another lock while waiting gets the error',
		like => qr/"bound"/);
	works($bound, 'SELECT count(*) FROM zk_held_locks',
		'0', 'and holds nothing any more');
	wait_zk_children($zkc, '/zklock/locks/wait', 2);
	ok(!$free->finished, 'a waiter that held nothing is queued again');
	$holder->query_ok('SELECT zk_unlock_all()');
	like($free->wait_result, qr/^\d+$/, 'and gets the lock later');
	is($free->error, '', 'without having been told anything');
	works($free, 'BEGIN; SELECT 1; COMMIT', '1', 'its transactions commit');
	works($bound, "SELECT zk_try_lock('wait2')",
		't', 'the session that got the error can lock again');
	$_->query_ok('SELECT zk_unlock_all()') for $free, $bound;
	nothing_left($zkc, 'expired waiters leave nothing behind');
}

# A timed wait keeps its limit over an expiry.
{
	my $holder = session($other);
	$holder->query_ok("SELECT zk_lock('limit')");
	my $s = victim();
	$s->query_async("SELECT zk_try_lock('limit', interval '5 s')");
	wait_zk_children($zkc, '/zklock/locks/limit', 2);
	$way->freeze;
	wait_zk_children($zkc, '/zklock/locks/limit', 1);
	$way->thaw;
	is($s->wait_result, 'f',
		'a try that was queued again ends without the lock');
	ok(wait_zk_children($zkc, '/zklock/locks/limit', 1), 'and leaves no node');
	$holder->quit;
	nothing_left($zkc, 'a limited wait over an expiry leaves nothing');
}

# A holder that is away for ever declares the loss by its own clock.
{
	my $s = victim();
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('clock')");
	$s->query_ok("INSERT INTO t VALUES ('clock')");
	$way->freeze;
	wait_until('the clock to say lost', sub { $s->query('SELECT 1'); !$s->ok });
	is($s->sqlstate, '40001',
		'a holder that hears nothing stops trusting its lock by its own clock');
	like($s->error, qr/"clock"/, 'and the error names it');
	$s->query('COMMIT');
	is(rows('clock'), 0, 'and leaves no row');
	works($s, "INSERT INTO t VALUES ('clock')",
		'', 'work without locks goes on during the outage');
	$s->query_ok("SET zklock.connect_timeout = '300ms'");
	fails_with($s, "SELECT zk_lock('clock')", '08001',
		'a lock cannot be acquired during the outage');
	$way->thaw;
	$s->query_ok('RESET zklock.connect_timeout');
	works($s, "SELECT zk_lock('clock'), zk_unlock('clock')",
		qr/^\d+\|t$/, 'but after it');
	nothing_left($zkc, 'a loss by the clock leaves nothing behind');
}

# The ensemble stops and comes back with its data. Sessions may survive that or
# not; a session that commits still had its lock.
for my $round (1 .. 3)
{
	my $s = victim();
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('restart')");
	my ($mine) = queue_of($zkc, 'restart');
	$s->query_ok("INSERT INTO t VALUES ('restart $round')");
	$zk->stop;
	my $lost = $round == 2
	  && wait_until(
		'the clock to say lost',
		sub { $s->query('SELECT 1'); $s->sqlstate eq '40001' });
	$zk->restart;
	my $next = session($other);
	wait_until('kazoo', sub { $zkc->state eq 'CONNECTED' });
	my $got;
	$got = $next->query("SELECT zk_try_lock('restart')") if $round != 3;
	$s->query('COMMIT');
	my $committed = $lost ? '40001' : $s->sqlstate;
	ok( $committed eq '40001' || ($committed eq '00000' && !$lost),
		"a restart of the ensemble ends in a commit or 40001 (round $round)");
	is(rows("restart $round"), $committed eq '00000' ? 1 : 0,
		"the row is there exactly if the commit succeeded (round $round)");
	ok( !($committed eq '00000' && ($got // 'f') eq 't'),
		"the lock was not given away before a commit (round $round)");
	works($s, "INSERT INTO t VALUES ('restarted')",
		'', "and the session goes on (round $round)");
	works($next, "SELECT zk_lock('restart')",
		qr/^\d+$/, "the lock can be acquired after that (round $round)");
	$next->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc,
		"a restart of the ensemble leaves nothing behind (round $round)");
}

# A lock that was released before the commit was relied on, too: it may have been
# lost before that.
{
	my $s = victim();
	for my $lost (2, 1, 0)
	{
		$s->query_ok('BEGIN');
		$s->query_ok("SELECT zk_lock('released')");
		$s->query_ok("INSERT INTO t VALUES ('released $lost')");
		my $next;
		if ($lost)
		{
			$next = session($other);
			$next->query_async("SELECT zk_lock('released')");
			wait_zk_children($zkc, '/zklock/locks/released', 2);
			$way->freeze;
		}
		wait_until('the lease to end',
			sub { $s->query_ok('SELECT lease_remaining FROM zk_session()') eq '00:00:00' });
		works($s, "SELECT zk_unlock('released')", 't',
			'a release does not wait for the ensemble') if $lost;
		$s->query_ok("SELECT zk_unlock('released')") if !$lost;
		$next->wait_result if $lost;
		$way->thaw if $lost == 1;
		if ($lost)
		{
			# The session learns of its end before it asks, or while it waits.
			$s->query_async('COMMIT');
			if ($lost == 2)
			{
				wait_for_sql($cut_off, 'SELECT wait_event_type FROM pg_stat_activity '
						. 'WHERE pid = ' . $s->pid, 'Extension');
				$way->thaw;
			}
			failed_with($s, '40001',
				'a commit is refused when the lock was lost before it was released',
				like => qr/"released"/);
			works($s, "SELECT zk_try_lock('after'), zk_unlock('after')", 't|t',
				'and the session can lock again');
			$next->quit;
		}
		else
		{
			works($s, 'COMMIT', '', 'it succeeds when it was not');
		}
		is(rows("released $lost"), $lost ? 0 : 1, 'and has no effect, or all of it');
	}
	$s->quit;
	nothing_left($zkc, 'a release without a lease leaves nothing behind');
}

# A referee in the ensemble: rounds of holders that are silenced in the middle
# of their transactions. The row of a transaction that lost its lock never
# appears, so committed tokens never lie between others' holds.
{
	my $refused = 0;
	my $later = 1;
	for my $round (1 .. 3)
	{
		my $s = victim();
		$s->query_ok('BEGIN');
		my $mine = $s->query_ok("SELECT zk_xact_lock('referee')");
		$s->query_ok("INSERT INTO t VALUES ('referee')");
		my $next = session($other);
		$next->query_async("SELECT zk_xact_lock('referee')");
		wait_zk_children($zkc, '/zklock/locks/referee', 2);
		$way->freeze;
		my $next_token = $next->wait_result;
		$later &&= $next_token > $mine;
		$s->query_async('COMMIT');
		$way->thaw;
		$s->wait_result;
		$refused++ if $s->sqlstate eq '40001';
	}
	is($refused, 3,
		'the commit of a holder that another one has succeeded is refused');
	ok($later, 'whose token is always the greater one');
	is(rows('referee'), 0, 'no row of a refused commit is there');
	nothing_left($zkc, 'the referee finds nothing left behind');
}

$zkc->close;
$_->stop for $cut_off, $other;
$zk->stop;
done_testing();
