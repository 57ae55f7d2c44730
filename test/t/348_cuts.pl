# How much earlier a holder that is cut off stops than another session is granted its lock:
# the silent cut of the client, of its follower from the leader, of the leader with its
# client, each at a random moment of each holder's proofs. Longer:
# ZKLOCK_TEST_CUTS=5 ZKLOCK_TEST_CUT_TIMEOUT=10000 scripts/test t/348_cuts.pl
# Alone: it compares times.

use strict;
use warnings;

use List::Util qw(min sum);
use Test::More;
use Time::HiRes qw(time);
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkEnsemble;

use constant CUTS => $ENV{ZKLOCK_TEST_CUTS} || 1;
use constant TIMEOUT_MS => $ENV{ZKLOCK_TEST_CUT_TIMEOUT} || 4000;
use constant HOLDERS => 8;

# At least four ticks, and ZooKeeper's default for the default of 10 s.
use constant TICK_MS => TIMEOUT_MS % 10000 ? TIMEOUT_MS / 4 : TIMEOUT_MS / 5;

my $number = 0;

# Starts an ensemble, and lets the proxies lead to it.
sub ensemble
{
	my ($role, $here, $there) = @_;
	my $ensemble = ZkLock::ZkEnsemble->start(
		tick_time => TICK_MS,
		config => { syncLimit => $role eq 'leader' ? 5 : 60 },
		isolable => $role);
	my (undef, $other) = $ensemble->members;
	$here->retarget($ensemble->isolable->connect_string);
	$there->retarget($other->connect_string);
	return $ensemble;
}

# Returns the margins of one cut, in seconds.
sub margins
{
	my ($here, $there, $cut) = @_;
	my (%holder, %waiter, %stopped, %granted);
	for my $i (map { ++$number } 1 .. HOLDERS)
	{
		($holder{$i}, $waiter{$i}) = (session($here), session($there));
		$holder{$i}->query_ok("SELECT zk_lock('cut $i')");
		$holder{$i}->query_async('SELECT pg_sleep(120)');
		$waiter{$i}->query_async("SELECT zk_lock('cut $i')");
	}
	wait_blocked($_) for values %waiter;
	select(undef, undef, undef, rand TIMEOUT_MS / 3000);
	$cut->();
	wait_until(
		'the holders to stop and the waiters to go on',
		sub {
			for my $i (keys %holder)
			{
				$stopped{$i} //= time if $holder{$i}->finished;
				$granted{$i} //= time if $waiter{$i}->finished;
			}
			return keys %stopped == HOLDERS && keys %granted == HOLDERS;
		},
		pause => 0.005,
		timeout => 120);
	$_->wait_result for values %holder, values %waiter;
	$_->quit for values %holder, values %waiter;
	return map { $granted{$_} - $stopped{$_} } keys %holder;
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

my @follower;
for (1 .. CUTS)
{
	push @follower, margins($here, $there, $ensemble->isolation);
	$ensemble->heal;
	$ensemble->wait_ready;
}
report('follower cut off', @follower);
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

$_->stop for $here, $there, @proxies;
done_testing();
