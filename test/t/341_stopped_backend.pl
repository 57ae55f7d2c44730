# A backend that waits for a lock, or that connects, is stopped. Meanwhile the lock becomes free.
# The backend continues shortly before the leader ends its ZooKeeper session. The leader
# executes its writes, which do not extend the session, and may end the session before it gets
# the follower's report of heartbeats. If another session gets the lock, the backend's commit is
# refused.
#
# Promises: 1.1, 5.2

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time sleep);
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::Shared;
use ZkLock::ZkClient;
use ZkLock::ZkEnsemble;

# The session timeout is four ticks; the follower reports every half tick.
use constant TICK => 1;
use constant TIMEOUT => 4 * TICK;
use constant BACKENDS => 20;

my $ensemble = ZkLock::ZkEnsemble->start(tick_time => TICK * 1000);
my ($follower, $other) = grep { $_ != $ensemble->leader } $ensemble->members;
my $zkc = ZkLock::ZkClient->new($other->connect_string, timeout => 60);
my $proxy = ZkLock::Proxy->start(target => $follower);
my $inside = shared_node('inside', zk => $proxy, session_timeout => TIMEOUT . 's');
my $outside = shared_node('outside', zk => $other, session_timeout => '30s');
$inside->safe_psql('postgres', 'CREATE TABLE t (i int)');

# Returns sessions inside and outside, and begins the transactions.
sub begin_runs
{
	my @runs = map { { i => $_, in => session($inside), out => session($outside) } } 1 .. BACKENDS;
	$_->{in}->query_ok("BEGIN; INSERT INTO t VALUES ($_->{i})") for @runs;
	return @runs;
}

# Each commits as soon as another session has the lock, or has waited for it.
my @granted;

sub commit_until
{
	my ($until) = @_;
	while (@granted && (!defined $until || time() < $until))
	{
		my $run = shift @granted;
		if (!$run->{out}->finished) { push @granted, $run; sleep(0.005); next }
		my $other_has_it = $run->{out}->wait_result eq 't';
		$run->{in}->query('COMMIT');
		ok(!($other_has_it && $run->{in}->ok),
			"backend $run->{i} does not commit if another session has the lock");
	}
	my $left = ($until // 0) - time();
	sleep($left) if $left > 0;
	return;
}

# Each backend continues after another time, the last one "until" session timeouts after "from".
sub continue_at
{
	my ($what, $from, $until, @runs) = @_;
	for my $run (@runs)
	{
		commit_until($from + TIMEOUT * ($until - 0.5 + 0.5 * $run->{i} / BACKENDS));
		kill 'CONT', $run->{in}->pid;
		is($run->{in}->wait_result, 't', "backend $run->{i} is granted the lock after it was stopped $what");
		$run->{out}->query_async("SELECT zk_try_lock('lock$run->{i}', '300ms')");
		push @granted, $run;
	}
	commit_until();
	for my $run (@runs) { $_->quit for @$run{qw(in out)} }
	return;
}

{
	my @runs = begin_runs();
	for my $run (@runs)
	{
		$run->{out}->query_ok("SELECT zk_lock('lock$run->{i}')");
		$run->{in}->query_async("SELECT zk_xact_lock('lock$run->{i}') > 0");
		wait_blocked($run->{in});
	}
	my $from = time();
	kill 'STOP', $_->{in}->pid for @runs;
	$_->{out}->query_ok('SELECT zk_unlock_all()') for @runs;
	continue_at('in a wait', $from, 1.1, @runs);
}

# The server creates the session while the backend, which has requested it, is stopped.
{
	my @runs = begin_runs();
	$_->{out}->query_ok("SELECT zk_lock('warm'), zk_unlock('warm')") for @runs;
	$proxy->freeze;
	$_->{in}->query_async("SELECT zk_xact_lock('lock$_->{i}') > 0") for @runs;
	sleep(0.4);
	kill 'STOP', $_->{in}->pid for @runs;
	$proxy->thaw;
	continue_at('while it connected', time(), 1.4, @runs);
}
nothing_left($zkc, 'nothing is left');

done_testing();
