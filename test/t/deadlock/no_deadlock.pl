# No false positives. A situation that resembles a deadlock, or is not a
# deadlock any more, makes no statement fail. Every wait here lasts longer than
# deadlock_timeout, so it is reported and checked for cycles.
#
# Promise: 7.2

use ZkLock::Deadlock qw(lock_row wait_reports wait_until_reported);
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500)->with_client;
my $d = ZkLock::Deadlock->start([qw(a b c)], zk => $zk, extra_conf => "deadlock_timeout = '100ms'\n");

# A chain of seven sessions on three servers; all waits are reported. The end of the
# chain releases first.
{
	my @s = map { $d->open((qw(a b c))[ $_ % 3 ]) } 0 .. 6;
	$d->hold($s[$_], "SELECT zk_xact_lock('x$_')") for 0 .. 6;
	$d->wait_for($s[$_], "SELECT zk_xact_lock('x" . ($_ + 1) . "')")
	  for 0 .. 5;
	wait_until_reported($zkc, 6);
	$d->release($s[6]);
	$d->all_succeed('a chain of waiters succeeds one after the other, from its end', $zkc);
}
wait_zk_empty($zkc, '/zklock/waiting');

# One of two sharers has released and now waits for the waiting writer. The writer waits
# only for the other sharer.
{
	my ($s, $released, $holder) = map { $d->open($_) } qw(a b c);
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->hold($released, "SELECT zk_lock_shared('y')");
	$d->hold($holder, "SELECT zk_lock_shared('y')");
	$d->hold($released, "SELECT zk_lock('another')");
	$d->wait_for($s, "SELECT zk_xact_lock('y')");
	wait_until_reported($zkc, 1);
	$released->query_ok("SELECT zk_unlock_shared('y')");
	$d->wait_for($released, "SELECT zk_xact_lock('x')");
	wait_until_reported($zkc, 2);
	$d->release($holder);
	$d->all_succeed('a sharer that has released the lock blocks nobody', $zkc);
}

# lock_timeout ends a wait for a row, three times. A session of another server that waits
# for this session does not fail.
{
	my ($s, $t, $u) = map { $d->open($_) } qw(a b a);
	$d->hold($u, lock_row(1));
	$d->hold($s, "SELECT zk_lock('x')");
	$s->query_ok("SET lock_timeout = '250ms'");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	my @ended;
	for (1 .. 3)
	{
		$s->query_ok('SAVEPOINT p');
		$s->query(lock_row(1));
		push @ended, $s->sqlstate;
		$s->query_ok('ROLLBACK TO p');
	}
	is_deeply(\@ended, [ ('55P03') x 3 ],
		'the wait for a row ends at lock_timeout, without a deadlock');
	$s->query_ok("SET lock_timeout = 0");
	$d->release($s);
	$d->all_succeed('the session of the other server succeeds after the release', $zkc);
}

# A session waits locally for another one, whose own wait ends and begins again: in the
# report it is another wait, so an answer from before proves nothing.
{
	my ($r, $p, $l, $t) = map { $d->open($_) } qw(a a a b);
	my $identity = sub {
		my @reports = map { $zkc->get("/zklock/waiting/$_")->{data} } wait_reports($zkc);
		my ($line) = map { /^w (.*)/m } @reports;
		return defined $line ? (split / /, $line)[1] : undef;
	};
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->hold($r, lock_row(1));
	$d->hold($p, lock_row(2));
	$d->hold($l, "SELECT zk_xact_lock('x')");
	$d->wait_for($r, "SELECT zk_xact_lock('y')");
	$p->query_ok('SAVEPOINT p');
	$p->query_async(lock_row(1));
	wait_blocked_locally($p);
	$d->wait_for($l, lock_row(2));
	wait_until('the local waiter in the report', sub { defined $identity->() });
	my $before = $identity->();
	$p->cancel;
	$p->wait_result;
	$p->query_ok('ROLLBACK TO p');
	$d->wait_for($p, lock_row(1));
	ok(wait_until('another identity', sub { ($identity->() // $before) ne $before }),
		'a wait on the way of a local waiter that begins again changes its identity');
	$d->release($t);
	$d->all_succeed('all succeed after the release', $zkc);
}

# A session waits for a table lock, and conflicts with only one of its two holders. The other one
# waits for a third session, which waits for the first one. The attempt that fails moves the lock of
# the row's table to PostgreSQL's shared lock table. The holder of the row holds no zk lock, so its
# wait is not reported.
{
	my ($waiter, $holder, $other, $t) = map { $d->open($_) } qw(a a a b);
	$d->hold($waiter, "SELECT zk_xact_lock('x')");
	$d->hold($other, lock_row(1));
	$d->hold($holder, 'SAVEPOINT p');
	fails_with($holder, 'LOCK TABLE t IN SHARE MODE NOWAIT', '55P03', 'the table is locked in a mode that conflicts with SHARE', hint => 0);
	$d->hold($holder, 'ROLLBACK TO p');
	$d->hold($holder, 'LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE');
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($waiter, 'LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE');
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	$d->wait_for($other, "SELECT zk_xact_lock('y')");
	wait_until_reported($zkc, 1);
	$d->nobody_fails('a holder whose mode does not conflict with that of a waiter does not block it');
	$d->release($holder);
	$d->all_succeed('the waiters succeed when the holder that conflicts has released the lock', $zkc);
}

# lock_timeout breaks a cycle before the cycle check.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$_->query_ok("SET deadlock_timeout = '1min'") for $s, $t;
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$s->query_ok("SET lock_timeout = '500ms'");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($s, "SELECT zk_xact_lock('y')");
	$t->query_ok("SELECT zk_xact_lock('x')");
	is($t->sqlstate, '00000', 'lock_timeout breaks the cycle first: the other session succeeds');
	failed_with($s, '55P03', 'the timeout is reported, not a deadlock', hint => 0);
	$d->{waiting} = [];
	$d->close;
}

# A holder of another program: zklock cannot see what it waits for.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	my $foreign = foreign_node($zkc, '/zklock/locks/f', 'WRIT');
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($s, "SELECT zk_xact_lock('f')");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	wait_until_reported($zkc, 2);
	$zkc->delete($foreign);
	$d->all_succeed('sessions that wait for another program\'s holder do not fail', $zkc);
}

# A waiter is terminated: its session ends, and its wait report with the session.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($s, "SELECT zk_xact_lock('y')");
	wait_until_reported($zkc, 1);
	$s->terminate;
	wait_until_reported($zkc, 0);
	$t->query_ok("SELECT zk_xact_lock('x')");
	ok($t->ok, 'a terminated session blocks nobody and leaves no wait report');
	$d->{waiting} = [];
	$d->close;
}

# deadlock_detection = off: no wait is reported, and lock_timeout ends the wait.
{
	$_->append_conf('postgresql.conf', 'zklock.deadlock_detection = off'),
	  $_->reload
	  for $d->nodes;
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$t->query_ok("SET lock_timeout = '3s'");
	my $before = $zkc->exists('/zklock/waiting')->{cversion};
	$d->wait_for($s, "SELECT zk_xact_lock('y')");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	failed_with($t, '55P03', 'detection off: lock_timeout ends a deadlock', hint => 0);
	is($zkc->exists('/zklock/waiting')->{cversion}, $before, 'detection off: no wait is reported');
	$d->{waiting} = [$s];
	$d->all_succeed('detection off: the other session succeeds');
}

$_->append_conf('postgresql.conf', 'zklock.deadlock_detection = on'), $_->reload
  for $d->nodes;

# A holder has lost its session, and queues again behind a waiter. That waiter still
# waits for the node of the lost session. This is no cycle.
{
	# The outage lasts until the loss is reported and the server has restarted.
	my ($s, $t) = map { $d->open('a', set => { session_timeout => '4s', ensemble_timeout => '5min' }) } 1 .. 2;
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->wait_for($t, "SELECT zk_xact_lock_many(ARRAY['x', 'y'])");
	$zk->kill9;
	fails_with($s, 'SELECT pg_sleep(60)', '40001', 'a lock is lost in an outage');
	$s->query_ok('ROLLBACK');

	# A restart gives every session its whole timeout again.
	$zk->restart;
	wait_until('a wait report, or the end of the wait', sub { $t->finished || wait_reports($zkc) });
	$d->wait_for($s, "SELECT zk_xact_lock('x')");
	$d->all_succeed('a session waits behind the node of its own lost session, without a deadlock', $zkc);
}

wait_zk_empty($zkc, '/zklock/waiting');
nothing_left($zkc, 'no node is left');
