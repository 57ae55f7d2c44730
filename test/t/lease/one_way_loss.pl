# The network between a follower and the leader loses what the leader sends, for about three quarters of the
# session timeout; what the follower sends arrives. No process is stopped, no server fails, no connection ends.
# The follower gets no ping, so the leader gets no report of heartbeats; but it gets, and executes, a create
# that the follower forwards, and then ends the session of this create. When the network is well again, the
# backend gets the answer to its create, is granted the lock, and commits within its lease: beside another
# session that has the lock.
#
# Nightly: each round waits for the end of sessions.
#
# Promises: 5.2, 5.11

use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time);
use ZkLock::Test;

use constant TICK => 1;
use constant TIMEOUT => 4 * TICK;
use constant BACKENDS => 12;
use constant ROUNDS => 3;

# When the first backend asks, and how long after it the next one does: the leader ends the sessions between two
# thirds of the timeout and a tick after it, whenever the rest of a tick and of a report ends.
use constant { FIRST => TIMEOUT * 0.56, PAUSE => 0.2 };

# A TCP proxy that forwards nothing of what the server sends, between two signals.
my %proxy;

sub start_proxy
{
	my ($target) = @_;
	my $listener = IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1', ReuseAddr => 1) or die "$!";
	my $parent = $$;
	my $pid = fork // die;
	return ($pid, $listener->sockport) if $pid;
	my ($muted, %to, %is_server) = (0);
	local $SIG{USR1} = sub { $muted = 1 };
	local $SIG{USR2} = sub { $muted = 0 };
	my $all = IO::Select->new($listener);
	while (getppid() == $parent)
	{
		my @wanted = grep { !($muted && $is_server{$_}) } $all->handles;
		for my $ready (IO::Select->new(@wanted)->can_read(0.01))
		{
			if ($ready == $listener)
			{
				my $client = $listener->accept or next;
				my $server = IO::Socket::INET->new("127.0.0.1:$target") or next;
				$_->sockopt(IO::Socket::INET::SO_KEEPALIVE(), 0) for $client, $server;
				setsockopt($_, 6, 1, 1) for $client, $server;
				($to{$client}, $to{$server}, $is_server{$server}) = ($server, $client, 1);
				$all->add($client, $server);
				next;
			}
			next if $muted && $is_server{$ready};
			my $n = sysread $ready, my $bytes, 65536;
			my $other = $to{$ready};
			if (!$n) { $all->remove($ready, $other); close $_ for $ready, $other; next }
			while (length $bytes) { my $m = syswrite($other, $bytes) // last; substr $bytes, 0, $m, '' }
		}
	}
	require POSIX;
	POSIX::_exit(0);
}

my $ensemble = ZkLock::ZkEnsemble->start(tick_time => TICK * 1000, config => { syncLimit => 10, initLimit => 20 },
	leader_port => sub {
		my ($id, $other, $port) = @_;
		my ($pid, $own) = start_proxy($port);
		$proxy{$id}{$other} = $pid;
		return $own;
	});
END { kill 'KILL', map { values %$_ } values %proxy if %proxy }

my @members = $ensemble->members;
my $leader = $ensemble->leader;
my ($leads) = grep { $members[ $_ - 1 ] == $leader } 1 .. 3;
my ($follows, $healthy) = grep { $_ != $leads } 1 .. 3;
my $link = $proxy{$follows}{$leads};
my $inside = shared_node('inside', zk => $members[ $follows - 1 ], session_timeout => TIMEOUT . 's');
my $outside = shared_node('outside', zk => $members[ $healthy - 1 ], session_timeout => '20s');
$inside->safe_psql('postgres', 'CREATE TABLE t (v text)');
my $zkc = ZkLock::ZkClient->new($members[ $healthy - 1 ]->connect_string, timeout => 20);
$zkc->create($_) for qw(/zklock /zklock/locks /zklock/locks/warm);
sub mute { kill 'USR1', $link; return time() }
sub unmute { kill 'USR2', $link; return time() }

# Returns sessions whose ZooKeeper session is connected.
sub begin_runs
{
	my ($round) = @_;
	my @runs = map { { lock => "r$round-$_", in => session($inside), out => session($outside) } } 1 .. BACKENDS;
	for my $run (@runs)
	{
		$zkc->create("/zklock/locks/$run->{lock}");
		$run->{$_}->query_ok("SELECT zk_lock('warm'), zk_unlock('warm')") for qw(in out);
		$run->{in}->query_ok("BEGIN; INSERT INTO t VALUES ('$run->{lock}')");
		$run->{out}->query_ok('BEGIN');
	}
	return @runs;
}

sub queue_length { my ($run) = @_; return scalar $zkc->children("/zklock/locks/$run->{lock}") }

# The backends inside ask for their locks one after the other, until the leader ends their sessions: a
# session outside has waited for a node of one of them, and is granted the lock. Each create that shows at the
# healthy member was executed by the leader. Returns the runs whose session outside is granted its lock before
# the lease, of a write that renews one, would have ended.
sub ask_until_granted
{
	my ($from, @runs) = @_;
	my @unasked = @runs;
	my $asked = 0;
	my $granted;
	my $next = $from + FIRST;
	wait_until('the leader to end the sessions', sub {
		if (@unasked && !$granted && time() > $next)
		{
			my $run = shift @unasked;
			$run->{in}->query_async("SELECT zk_xact_lock('$run->{lock}') > 0;\nCOMMIT");
			$run->{asked} = time();
			$next += PAUSE;
		}
		for my $run (grep { $_->{asked} } @runs)
		{
			$run->{out}->query_async("SELECT zk_xact_lock('$run->{lock}') > 0")
			  if !$run->{out}->is_busy && queue_length($run);
			$granted = $run->{granted} //= time() if $run->{out}->is_busy && $run->{out}->finished;
		}
		return $granted && time() > $granted + 0.1;
	}, pause => 0.005);
	return grep { $_->{granted} && $_->{granted} < $_->{asked} + TIMEOUT / 3 } @runs;
}

sub leave
{
	for my $s (map { @$_{qw(out in)} } @_)
	{
		$s->cancel if $s->is_busy && !$s->finished;
		$s->wait_result if $s->is_busy;
		$s->quit;
	}
	return;
}

my $cases = 0;
for my $round (1 .. ROUNDS)
{
	my @runs = begin_runs($round);
	my $from = mute();
	my @taken = ask_until_granted($from, @runs);
	note(sprintf 'round %d: %d backends asked shortly before the end of their sessions, after %s s; unmuted after %.2f s', $round,
		scalar @taken, join(' ', map { sprintf '%.2f', $_->{asked} - $from } @taken), unmute() - $from);
	$cases += @taken;
	for my $run (@taken)
	{
		# It ends, or queues again behind the new holder.
		wait_until('the backend inside to go on', sub { $run->{in}->finished || queue_length($run) == 2 });
		is($run->{out}->wait_result, 't', "$run->{lock}: the session outside has the lock");
		my $committed = rows_with($inside, $run->{lock});
		$run->{out}->query('COMMIT');
		ok(!($committed && $run->{out}->ok), "$run->{lock}: the backend inside does not commit while another session has the lock")
		  || diag($run->{in}->so_far);
	}
	leave(@runs);
}
cmp_ok($cases, '>', 0, 'a lock was granted outside within a lease of its create inside');
