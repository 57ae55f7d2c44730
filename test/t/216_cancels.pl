# A cancel by another session is never lost because zklock cancels the statement at the
# same time. A cancel by zklock also ends child programs.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Shared;
use ZkLock::Uninterruptible;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;

my $zk = shared_zk();
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $node = shared_node('a', zk => $zk);
my $block = ZkLock::Uninterruptible->new($node);
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

# Each event is done when the holder has noticed it.
my %events = (
	revocation => sub { revoke_lock($zk, $zkc, @_) },
	loss => sub { lose_lock($zk, $zkc, @_) });

my %cancels = (
	'pg_cancel_backend()' => [
		'0', qr/due to user request/, sub { $_[0]->cancel }
	],
	statement_timeout => [
		'3s', qr/due to statement timeout/,
		sub {
			my (undef, $blocked) = @_;
			wait_until('the timeout', sub { time > $blocked + 3 });
		}
	]);

# Both cancels are pending when the statement releases the lock, or handles its loss.
for my $event (sort keys %events)
{
	for my $kind (sort keys %cancels)
	{
		my ($timeout, $message, $cancel) = @{ $cancels{$kind} };
		my $s = session($node);
		$s->query_ok("SET zklock.on_revoke = 'cancel'");
		$s->query_ok("SELECT zk_lock('both')");
		my $id = zk_session_id($s);
		$s->query_ok("SET statement_timeout = '$timeout'");
		$s->query_async(<<"SQL");
DO \$\$
DECLARE
	released boolean;
BEGIN
	BEGIN
		released := @{[ $block->sql ]} = 1 AND zk_unlock('both');
	EXCEPTION WHEN serialization_failure THEN
		released := false;
	END;
	PERFORM pg_sleep(10);
END \$\$
SQL
		$block->wait_until_blocked($s);

		# The timer of the timeout was started before.
		my $blocked = time;
		$events{$event}->('both', $id);
		$cancel->($s, $blocked);
		$block->end;
		failed_with($s, '57014', "$kind is not lost at the same time as a $event",
			like => $message, hint => 0);
		$s->query_ok('RESET statement_timeout');
		works($s, 'SELECT pg_sleep(0)', '', '... and ends one statement only');
		$s->quit;
	}
}

# A cancel at the moment of the end of a timed attempt.
{
	my $holder = session($node);
	my $s = session($node);
	$holder->query_ok("SELECT zk_lock('timed')");
	$s->query_ok("SELECT zk_try_lock('warm-up'), zk_unlock('warm-up')");
	my $started = time;
	$s->query_async("SELECT zk_try_lock('timed', '1500ms')");
	wait_blocked_locally($s);
	$s->pause;
	$s->cancel;
	wait_until('the timeout', sub { time > $started + 2 });
	$s->resume;
	failed_with($s, '57014', 'a cancel is not lost at the end of a timed attempt',
		like => qr/due to user request/, hint => 0);
	works($s, "SELECT zk_try_lock('timed', '10ms')", 'f', '... and the next timed attempt returns false');
	works($s, 'SELECT pg_sleep(0)', '', '... and the next statement is not cancelled');
	$_->quit for $s, $holder;
}

# A program started by the backend.
for my $event (sort keys %events)
{
	my $s = session($node);
	$s->query_ok("SET zklock.on_revoke = 'cancel'");
	$s->query_ok("SELECT zk_lock('program')");
	my $id = zk_session_id($s);
	$s->query_async("COPY t FROM PROGRAM 'exec sleep 100'");
	wait_for_sql($node, "SELECT state = 'active' AND query ~ '^COPY' "
		  . 'FROM pg_stat_activity WHERE pid = ' . $s->pid, 't');
	my $child = "pgrep -P " . $s->pid . " -x sleep >/dev/null";
	wait_until('the program', sub { system($child) == 0 });
	my $started = time;
	$events{$event}->('program', $id);
	failed_with($s, $event eq 'loss' ? '40001' : '57014',
		"a $event ends a statement that reads from a program", like => qr/"program"/);
	cmp_ok(time - $started, '<', 50, '... and the program');
	works($s, 'SELECT pg_sleep(0)', '', '... and no other statement');
	$s->quit;
}

nothing_left($zkc, 'nothing is left');

done_testing();
