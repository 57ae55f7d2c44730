# A backend waits for a lock and is stopped. Meanwhile the lock becomes free. The backend
# continues shortly before the leader ends its ZooKeeper session. The leader executes its writes,
# which do not extend the session, and may end the session before it gets the follower's report
# of heartbeats. If another session gets the lock, the backend's commit is refused.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time sleep);
use ZkLock::Check;
use ZkLock::Cluster;
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
my $inside = shared_node('inside', zk => $follower, session_timeout => TIMEOUT . 's');
my $outside = shared_node('outside', zk => $other, session_timeout => '30s');
$inside->safe_psql('postgres', 'CREATE TABLE t (i int)');

# Each backend is stopped for another time: from half of the session timeout to a tick more
# than all of it.
my @runs;
for my $i (1 .. BACKENDS)
{
	my $run = { i => $i, in => session($inside), out => session($outside) };
	$run->{out}->query_ok("SELECT zk_lock('lock$i')");
	$run->{in}->query_ok("BEGIN; INSERT INTO t VALUES ($i)");
	$run->{in}->query_async("SELECT zk_xact_lock('lock$i') > 0");
	wait_blocked($run->{in});
	push @runs, $run;
}
my $from = time();
for my $run (@runs)
{
	kill 'STOP', $run->{in}->pid;
	$run->{continues} = $from + TIMEOUT * (0.5 + 0.75 * $run->{i} / BACKENDS);
}
$_->{out}->query_ok('SELECT zk_unlock_all()') for @runs;

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

for my $run (@runs)
{
	commit_until($run->{continues});
	kill 'CONT', $run->{in}->pid;
	is($run->{in}->wait_result, 't', "backend $run->{i} is granted the lock after it was stopped");
	$run->{out}->query_async("SELECT zk_try_lock('lock$run->{i}', '300ms')");
	push @granted, $run;
}
commit_until();
for my $run (@runs) { $_->quit for @$run{qw(in out)} }
nothing_left($zkc, 'nothing is left');

done_testing();
