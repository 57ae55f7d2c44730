# An answer can be lost at every step of a call. Wherever that happens the call
# ends, nothing is left behind, and the session can be used afterwards; who
# waits for a lock goes on waiting.

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use ZkLock::Check;
use ZkLock::Choke;
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $choke = ZkLock::Choke->start(target => $zk);
my $node = zklock_node('a', zk => $choke, session_timeout => '1s');
my $other = zklock_node('b', zk => $zk);
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

sub connected_session
{
	my ($timeout) = @_;
	my $s = session($node);
	$s->query_ok("SET zklock.session_timeout = '$timeout'") if $timeout;
	$s->query_ok("SELECT zk_try_lock('warm-up-' || pg_backend_pid())");
	$s->query_ok('SELECT zk_unlock_all()');
	return $s;
}

# The calls that need answers. Each gets none, then one, the handshake's, then one
# more each time, until there are enough for it to succeed; all later answers are
# withheld. The locks are new each time, so that the znodes above are created as well.
my $number = 0;
my %calls = (
	'a lock' => sub { "SELECT zk_lock('l$_[0]')" },
	'a try' => sub { "SELECT zk_try_lock('l$_[0]')" },
	'a shared lock' => sub { "SELECT zk_xact_lock_shared('l$_[0]')" },
	'a lock of three names' =>
	  sub { "SELECT zk_lock(ARRAY['l$_[0]', 'm$_[0]', 'n$_[0]'])" });
for my $what (sort keys %calls)
{
	my $succeeded;
	for my $answers (0 .. 30)
	{
		my $s = connected_session();
		$s->query_ok("SET zklock.connect_timeout = '300ms'");
		$number++;
		$choke->once($answers);
		$s->query($calls{$what}->($number));
		$succeeded = $answers if $s->ok;
		my $failed = !$s->ok;
		like($s->sqlstate, qr/^080/,
			"$what of which $answers answers arrive fails as an outage")
		  if $failed;
		$choke->open;
		$s->query_ok('RESET zklock.connect_timeout');
		works($s, 'SELECT count(*) FROM zk_held_locks', '0',
			"it holds nothing if it failed ($answers)")
		  if $failed;
		$s->query('SELECT zk_unlock_all()');
		nothing_left($zkc,
			"$what of which $answers answers arrive leaves nothing behind");
		works($s, "SELECT zk_try_lock('l$number'), zk_unlock('l$number')",
			't|t', "the session can lock afterwards ($answers)");
		$s->quit;
		last if $succeeded;
	}
	cmp_ok($succeeded // 0, '>=', 2, "$what succeeds when all its answers arrive");
}

# A release whose answer is lost.
for my $answers (0 .. 2)
{
	my $s = connected_session('4s');
	$s->query_ok("SELECT zk_lock(ARRAY['r1', 'r2'])");
	$choke->once($answers);
	works($s, "SELECT zk_unlock(ARRAY['r1', 'r2'])", 't',
		"a release needs no answer ($answers)");
	$choke->open;
	nothing_left($zkc, "a release of which $answers answers arrive is done");
	$s->quit;
}

# An upgrade and a downgrade.
for my $answers (0 .. 5)
{
	my $s = connected_session('4s');
	$s->query_ok("SELECT zk_lock_shared('up')");
	$s->query_ok("SET zklock.connect_timeout = '100ms'");
	$choke->once($answers);
	$s->query("SELECT zk_lock('up')");
	ok($s->ok || $s->sqlstate =~ /^080/,
		"an upgrade of which $answers answers arrive succeeds or fails");
	my $mode = $s->ok ? 'exclusive' : 'shared';
	$choke->open;
	$s->query_ok('RESET zklock.connect_timeout');
	my $held =
	  $mode eq 'shared' ? 'shared held' : 'exclusive held, shared held';
	my $seen;
	ok( eval {
			wait_until(
				$held,
				sub {
					$seen = $s->query(
						"SELECT string_agg(mode || ' ' || state, ', ' ORDER BY mode) FROM zk_held_locks"
					);
					return $seen eq $held;
				});
		},
		"the lock is held in the mode that was reported ($answers)"
	) || diag("$seen instead of $held");
	$s->query_ok("SELECT zk_lock('up')");
	my $rival = session($other);
	works($rival, "SELECT zk_try_lock_shared('up')", 'f',
		"the upgraded lock excludes sharers ($answers)");
	# The lease may be over by then: a commit that asks would wait for an answer.
	$s->query_ok('SET zklock.commit_check = off');
	$choke->once($answers);
	$s->query_ok("SELECT zk_unlock('up')") for 1 .. ($mode eq 'shared' ? 1 : 2);
	$choke->open;
	ok( wait_until('the downgrade',
			sub { $rival->query("SELECT zk_try_lock_shared('up')") eq 't' }),
		"the downgraded one admits them ($answers)");
	works($rival, "SELECT zk_try_lock('up')", 'f',
		"and still excludes writers ($answers)");
	$_->quit for $s, $rival;
	nothing_left($zkc, "a change of modes leaves nothing behind ($answers)");
}

# A waiter that comes back and loses the connection again before it was answered
# how it stands waits on, however long the outage is.
for my $answers (0 .. 4)
{
	my $holder = session($other);
	$holder->query_ok("SELECT zk_lock('queue')");
	my $s = connected_session('4s');
	my $clock = connected_session('4s');
	$s->query_ok("SET zklock.connect_timeout = '50ms'");
	$clock->query_ok("SET zklock.connect_timeout = '200ms'");
	$s->query_ok('SET log_lock_waits = on');
	$s->query_ok("SET deadlock_timeout = '10ms'");
	my $log = -s $node->logfile;
	$s->query_async("SELECT zk_lock('queue')");

	# It knows that it waits.
	wait_for_log($node, qr/still waiting for zk lock "queue"/, $log);
	$choke->once($answers);

	# When this has failed twice, the waiter is disconnected for long enough.
	for (1 .. 2)
	{
		$clock->query("SELECT zk_lock('clock')");
		$clock->query('SELECT zk_unlock_all()');
	}
	ok(!$s->finished,
		"a waiter that got $answers answers in an outage waits on");
	$choke->open;
	$holder->query_ok('SELECT zk_unlock_all()');
	like(scalar $s->wait_result, qr/^\d+$/, "and gets the lock ($answers)")
	  || diag($s->error);
	$_->quit for $s, $clock, $holder;
	nothing_left($zkc, "and leaves nothing behind ($answers)");
}

# A timed wait that outlives its session ends in its time, also while the next
# session cannot be opened.
{
	my $holder = session($other);
	$holder->query_ok("SELECT zk_lock('limited')");
	my $s = connected_session();
	$s->query_ok('SET log_lock_waits = on');
	$s->query_ok("SET deadlock_timeout = '10ms'");
	my $log = -s $node->logfile;
	$s->query_async("SELECT zk_try_lock('limited', '4s')");
	wait_for_log($node, qr/still waiting for zk lock "limited"/, $log);
	$choke->once(0);
	$choke->freeze;
	wait_zk_children($zkc, '/zklock/locks/limited', 1);
	$choke->thaw;
	$choke->once(1);
	is($s->wait_result, 'f',
		'a timed wait that lost its session and the ensemble ends in its time');
	is($s->error, '', '... as one that did not get the lock');
	$choke->open;
	$holder->query_ok('SELECT zk_unlock_all()');
	works($s, "SELECT zk_try_lock('limited', '10s'), zk_unlock('limited')",
		't|t', '... and can be tried again');
	$_->quit for $s, $holder;
	nothing_left($zkc, 'it leaves nothing behind');
}

# Every connection gets its handshake and nothing more.
{
	my $s = connected_session();
	$s->query_ok("SET zklock.connect_timeout = '300ms'");
	$choke->always(1);
	$s->query_async("SELECT zk_lock('mute')");
	wait_blocked($s);
	$s->cancel;
	failed_with($s, '57014',
		'a call to an ensemble that only shakes hands can be cancelled',
		hint => 0);
	$s->query_ok("SET statement_timeout = '30s'");
	fails_with($s, "SELECT zk_lock('mute')", '08006',
		'and ends by itself as an outage');
	$choke->open;
	$s->query_ok('RESET ALL');
	works($s, "SELECT zk_try_lock('mute'), zk_unlock('mute')",
		't|t', 'the session can lock afterwards');
	$s->quit;
	nothing_left($zkc, 'an ensemble that only shakes hands keeps nothing');
}

unlike(slurp_file($_->logfile), qr/PANIC|terminated by signal/,
	'no backend has crashed')
  for $node, $other;
$zkc->close;
$_->stop for $node, $other;
$choke->stop;
$zk->stop;
done_testing();
