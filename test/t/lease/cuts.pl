# How much earlier a holder that is cut off stops than another session is granted its lock:
# the silent cut of the client, of its follower from the leader, the same with connections
# that come and go, and of the leader with its client. Each holder is cut off at another
# moment between two of its proofs. Longer:
# ZKLOCK_TEST_CUTS=7 ZKLOCK_TEST_CUT_TIMEOUT=10000 scripts/test t/lease/cuts.pl
# Nightly: it waits for session timeouts, and starts an ensemble for each cut of a leader.
# Alone: it compares times.
#
# Promise: 5.11

use List::Util qw(min sum);
use Time::HiRes qw(time);
use ZkLock::Test;

use constant CUTS => $ENV{ZKLOCK_TEST_CUTS} || 1;
use constant TIMEOUT_MS => $ENV{ZKLOCK_TEST_CUT_TIMEOUT} || 4000;
use constant HOLDERS => 16;

# At least four ticks, and ZooKeeper's default for the default of 10 s.
use constant TICK_MS => TIMEOUT_MS % 10000 ? TIMEOUT_MS / 4 : TIMEOUT_MS / 5;

my $number = 0;

# Starts an ensemble, and lets the proxies lead to it.
sub ensemble
{
	my ($role, $here, $there) = @_;
	my $ensemble = ZkLock::ZkEnsemble->start(
		tick_time => TICK_MS,
		config => { syncLimit => $role eq 'leader' ? 5 : 60, initLimit => 5 },
		isolable => $role);
	my (undef, $other) = $ensemble->members;
	$here->retarget($ensemble->isolable->connect_string);
	$there->retarget($other->connect_string);
	return $ensemble;
}

# Returns the margins of one cut, in seconds. They are never too long: a grant counts from
# the moment at which it had not been there yet.
sub margins
{
	my ($here, $there, $cut, $meanwhile) = @_;
	my (%holder, %waiter, %stopped, %granted);
	for my $i (map { ++$number } 1 .. HOLDERS)
	{
		($holder{$i}, $waiter{$i}) = (session($here), session($there));
		$holder{$i}->query_ok("SELECT zk_lock('cut $i')");
		$holder{$i}->query_async('SELECT pg_sleep(300)');
		$waiter{$i}->query_async("SELECT zk_lock('cut $i')");
	}
	wait_blocked($_) for values %waiter;
	select(undef, undef, undef, rand TIMEOUT_MS / 3000);
	$cut->();
	my $before = time;
	wait_until(
		'the holders to stop and the waiters to go on',
		sub {
			my $began = time;
			for my $i (keys %holder)
			{
				$granted{$i} //= $before if $waiter{$i}->finished;
				$stopped{$i} //= time if $holder{$i}->finished;
			}
			$before = $began;
			$meanwhile->() if $meanwhile;
			return keys %stopped == HOLDERS && keys %granted == HOLDERS;
		},
		pause => 0.005,
		timeout => 240);
	$_->wait_result for values %holder, values %waiter;
	is((grep { $_->sqlstate ne '40001' } values %holder) + 0, 0, 'all holders report the loss');
	is((grep { !$_->ok } values %waiter) + 0, 0, 'all waiters are granted the lock');
	$_->quit for values %holder, values %waiter;
	return map { $granted{$_} - $stopped{$_} } keys %holder;
}

# Returns a function that cuts the connections through the proxy again and again.
sub flapping
{
	my ($proxy) = @_;
	my $next = 0;
	return sub {
		return if time < $next;
		$proxy->cut;
		$next = time + TIMEOUT_MS / 16000;
	};
}

sub report
{
	my ($kind, @margins) = @_;
	my $text = sprintf '%s, T = %.1f s: %d holders stopped %.2f s or more before the grant, %.2f s on average',
	  $kind, TIMEOUT_MS / 1000, scalar @margins, min(@margins), sum(@margins) / @margins;
	note($text);
	return ok(min(@margins) > 0, "$kind: every holder has stopped before the grant") || diag($text);
}

my @proxies = map { ZkLock::Proxy->start(target => '127.0.0.1:1') } 1 .. 2;
my $ensemble = ensemble('follower', @proxies);
my ($here, $there) = map {
	zklock_node("cut$_", proxy => $proxies[$_], session_timeout => TIMEOUT_MS . 'ms')
} 0 .. 1;

my @client;
for (1 .. CUTS)
{
	push @client, margins($here, $there, sub { $proxies[0]->freeze });
	$proxies[0]->cut;
	$proxies[0]->thaw;
}
report('client cut off', @client);

for my $kind ('follower cut off', 'follower cut off, connections come and go')
{
	my @follower;
	for (1 .. CUTS)
	{
		my $meanwhile = $kind =~ /come/ ? flapping($proxies[0]) : undef;
		push @follower, margins($here, $there, $ensemble->isolation, $meanwhile);
		$ensemble->heal;
		$ensemble->wait_ready;
	}
	report($kind, @follower);
}
$ensemble->stop;

my @leader;
for (1 .. CUTS)
{
	$ensemble = ensemble('leader', @proxies);
	push @leader, margins($here, $there, $ensemble->isolation);
	$ensemble->heal;
	$ensemble->stop;
}
report('leader cut off', @leader);
