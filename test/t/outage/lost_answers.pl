# An answer can be lost at every step of a call. The call ends, no node is left, and the
# session can lock afterwards. A waiter goes on waiting.
#
# Promise: 4.2

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = shared_node('a', zk => $proxy, session_timeout => '15s');
my $other = shared_node('b', zk => $zk);
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

# The calls that need answers. A call gets no answer, then one, that of the handshake,
# then one more each time, until it succeeds. All later answers are withheld. The locks
# are new each time, so their parents are created as well.
my $number = 0;
my %calls = (
	'a lock' => sub { "SELECT zk_lock('l$_[0]')" },
	'a non-blocking attempt' => sub { "SELECT zk_try_lock('l$_[0]')" },
	'a shared lock' => sub { "SELECT zk_xact_lock_shared('l$_[0]')" },
	'a lock of three names' =>
	  sub { "SELECT zk_lock_many(ARRAY['l$_[0]', 'm$_[0]', 'n$_[0]'])" });
for my $what (sort keys %calls)
{
	my $succeeded;
	for my $answers (0 .. 30)
	{
		my $s = connected_session($node);
		$s->query_ok("SET zklock.ensemble_timeout = '600ms'");
		# A commit after the lease would wait for the answer to its check.
		$s->query_ok('SET zklock.commit_check = off');
		$number++;
		$proxy->limit_answers($answers);
		$s->query($calls{$what}->($number));
		$succeeded = $answers if $s->ok;
		my $failed = !$s->ok;
		like($s->sqlstate, qr/^080/,
			"$what with only $answers answers fails as an outage")
		  if $failed;
		$proxy->disarm->cut;
		works($s, 'SELECT count(*) FROM zk_held_locks', '0',
			"the session holds nothing after the failure ($answers)")
		  if $failed;
		$s->query('SELECT zk_unlock_all()');
		$s->query_ok('RESET zklock.ensemble_timeout');
		nothing_left($zkc,
			"$what with only $answers answers leaves no node");
		works($s, "SELECT zk_try_lock('l$number'), zk_unlock('l$number')",
			't|t', "the session can lock afterwards ($answers)");
		$s->quit;
		last if $succeeded;
	}
	cmp_ok($succeeded // 0, '>=', 2, "$what succeeds when all its answers arrive");
}

# A release, whose answer is lost.
for my $answers (0 .. 2)
{
	my $s = connected_session($node, session_timeout => '60s');
	$s->query_ok("SELECT zk_lock_many(ARRAY['r1', 'r2'])");
	$proxy->limit_answers($answers);
	works($s, "SELECT zk_unlock_many(ARRAY['r1', 'r2'])", '{t,t}',
		"a release needs no answer ($answers)");
	$proxy->disarm->cut;
	nothing_left($zkc, "a release with only $answers answers takes effect");
	$s->quit;
}

# An upgrade and a downgrade.
for my $answers (0 .. 5)
{
	my $s = connected_session($node, session_timeout => '12s');
	$s->query_ok("SELECT zk_lock_shared('up')");
	wait_proven($s);
	$s->query_ok("SET zklock.ensemble_timeout = '300ms'");
	$s->query_ok('SET zklock.commit_check = off');
	$proxy->limit_answers($answers);
	$s->query("SELECT zk_lock('up')");
	ok($s->ok || $s->sqlstate =~ /^080/,
		"an upgrade with only $answers answers succeeds, or fails as an outage");
	my $mode = $s->ok ? 'exclusive' : 'shared';
	$proxy->disarm->cut;
	$s->query_ok('RESET zklock.ensemble_timeout');
	my $held =
	  $mode eq 'shared' ? 'shared held' : 'exclusive held, shared held';
	my $shown;
	ok( eval {
			wait_until(
				$held,
				sub {
					$shown = $s->query(
						"SELECT string_agg(mode || ' ' || state, ', ' ORDER BY mode) FROM zk_held_locks"
					);
					return $shown eq $held;
				});
		},
		"the lock is held in the mode that was reported ($answers)"
	) || diag("$shown instead of $held");
	$s->query_ok("SELECT zk_lock('up')");
	my $rival = session($other);
	works($rival, "SELECT zk_try_lock_shared('up')", 'f',
		"the upgraded lock excludes sharers ($answers)");
	$proxy->limit_answers($answers);
	$s->query_ok("SELECT zk_unlock('up')") for 1 .. ($mode eq 'shared' ? 1 : 2);
	$proxy->disarm->cut;
	ok( wait_until('the downgrade',
			sub { $rival->query("SELECT zk_try_lock_shared('up')") eq 't' }),
		"the downgraded lock admits sharers ($answers)");
	works($rival, "SELECT zk_try_lock('up')", 'f',
		"the downgraded lock excludes writers ($answers)");
	$_->quit for $s, $rival;
	nothing_left($zkc, "upgrade and downgrade leave no node ($answers)");
}

# A waiter reconnects, and the server falls silent before the waiter has read the queue, for
# less than ensemble_timeout. The waiter goes on waiting.
for my $answers (0 .. 6)
{
	my $holder = session($other);
	$holder->query_ok("SELECT zk_lock('queue')");
	my $s = connected_session($node, session_timeout => '4s');
	my $caller = connected_session($node, session_timeout => '4s');
	$s->query_ok("SET zklock.ensemble_timeout = '20s'");
	$caller->query_ok("SET zklock.ensemble_timeout = '200ms'");
	$s->query_ok('SET log_lock_waits = on');
	$s->query_ok("SET deadlock_timeout = '10ms'");
	my $log = -s $node->logfile;
	$s->query_async("SELECT zk_lock('queue')");

	# The waiter has read the queue.
	wait_for_log($node, qr/still waiting for zk lock "queue"/, $log);
	$proxy->limit_answers($answers);

	# Two calls fail meanwhile.
	for (1 .. 2)
	{
		$caller->query("SELECT zk_lock('caller')");
		$caller->query('SELECT zk_unlock_all()');
	}
	ok(!$s->finished,
		"a waiter that got $answers answers during an outage goes on waiting");
	$proxy->disarm->cut;
	$holder->query_ok('SELECT zk_unlock_all()');
	like(scalar $s->wait_result, qr/^\d+$/, "the waiter is granted the lock ($answers)")
	  || diag($s->error);
	$_->quit for $s, $caller, $holder;
	nothing_left($zkc, "the waiter leaves no node ($answers)");
}

# A timed attempt whose session expires ends after its timeout, also if the next session
# cannot be opened.
{
	my $holder = session($other);
	$holder->query_ok("SELECT zk_lock('timed')");
	my $s = connected_session($node);
	my $id = zk_session_id($s);
	$s->query_ok('SET log_lock_waits = on');
	$s->query_ok("SET deadlock_timeout = '10ms'");
	my $log = -s $node->logfile;
	$s->query_async("SELECT zk_try_lock('timed', '6s')");
	wait_for_log($node, qr/still waiting for zk lock "timed"/, $log);
	$proxy->limit_answers(0);
	$proxy->pause;
	$zkc->end_session($id);
	wait_zk_children($zkc, '/zklock/locks/timed', 1);
	$proxy->resume;
	$proxy->limit_answers(1);
	is($s->wait_result, 'f',
		'a timed attempt without a session and without an ensemble ends after its timeout');
	is($s->error, '', 'the attempt returns false without an error');
	$proxy->disarm->cut;
	$holder->query_ok('SELECT zk_unlock_all()');
	works($s, "SELECT zk_try_lock('timed', '10s'), zk_unlock('timed')",
		't|t', 'the session can lock again after the attempt');
	$_->quit for $s, $holder;
	nothing_left($zkc, 'the timed attempt leaves no node');
}

# An ensemble that answers the handshake of every connection, and nothing more.
{
	my $s = connected_session($node, ensemble_timeout => '10min');
	$proxy->cut(fault => 'swallow_answer', every => 1,
		op => [qw(auth create2 delete getChildren getData multi ping setWatches setWatches2 sync)]);
	$s->query_async("SELECT zk_lock('handshake')");
	wait_blocked($s);
	$s->cancel;
	failed_with($s, '57014',
		'a call to an ensemble that answers only handshakes can be cancelled',
		hint => 0);
	$s->query_ok("SET zklock.ensemble_timeout = '300ms'; SET statement_timeout = '30s'");
	fails_with($s, "SELECT zk_lock('handshake')", '08006',
		'a call to an ensemble that answers only handshakes fails as an outage');
	$proxy->disarm->cut;
	$s->query_ok('RESET ALL');
	works($s, "SELECT zk_try_lock('handshake'), zk_unlock('handshake')",
		't|t', 'the session can lock afterwards');
	$s->quit;
	nothing_left($zkc, 'a call to an ensemble that answers only handshakes leaves no node');
}
