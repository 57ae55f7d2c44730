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

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(time sleep);
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Shared;
use ZkLock::Util qw(free_port wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkEnsemble;

use constant TICK => 1;
use constant TIMEOUT => 4 * TICK;
use constant BACKENDS => 12;

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

# Returns sessions with a connected ZooKeeper session that has been idle for a while.
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
		sleep(0.11);
	}
	return @runs;
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

# When does the leader end sessions?  The first round shows that.
my $phase;
my $both = 0;
for my $round (0 .. 5)
{
	my @runs = begin_runs($round);
	sleep(2 + rand);
	my $from = mute();
	my $ask = $from + 2;
	if (defined $phase)
	{
		$ask = $from + TIMEOUT * 0.56;
		$ask += 0.01 while abs(($ask - $phase + 0.3) - int($ask - $phase + 0.3 + 0.5)) > 0.01;
	}
	sleep($ask - time());
	$_->{in}->query_async("SELECT zk_xact_lock('$_->{lock}') > 0;\nCOMMIT") for @runs;
	my $asked = time();
	my $until = defined $phase ? $asked + 0.5 : $asked + 8;
	sleep(0.05);
	$_->{out}->query_async("SELECT zk_xact_lock('$_->{lock}') > 0") for @runs;
	my $granted;
	while (time() < $until)
	{
		for my $run (grep { !$_->{granted} && $_->{out}->finished } @runs) { $run->{granted} = $granted = time() }
		last if $granted && (!defined $phase || time() > $granted + 0.1);
		sleep(0.004);
	}
	my $to = unmute();
	note(sprintf 'round %d: asked after %.2f s, in %.3f s; first grant outside %s; unmuted after %.2f s', $round, $asked - $from,
		$asked - $ask, $granted ? sprintf('%.2f s', $granted - $from) : 'none', $to - $from);
	if (!defined $phase) { $phase = $granted if $granted; leave(@runs); next }
	for my $run (@runs)
	{
		next if !$run->{granted};
		my $ended = eval { wait_until('the end inside', sub { $run->{in}->finished }, timeout => 3); 1 };
		$run->{in}->cancel if !$ended;
		my $answer = $run->{in}->wait_result;
		my $state = $run->{in}->sqlstate . ($ended ? '' : ' (waited, was cancelled)');
		my $has = $run->{out}->wait_result eq 't';
		$run->{out}->query('COMMIT');
		my $committed = $inside->safe_psql('postgres', "SELECT count(*) FROM t WHERE v = '$run->{lock}'");
		$both++ if $has && $run->{out}->ok && $committed;
		ok(!($has && $run->{out}->ok && $committed), "$run->{lock}: not both commit")
		  || diag("inside: '$answer' $state; outside: $has " . $run->{out}->sqlstate);
	}
	leave(@runs);
	last if $both;
}
is($both, 0, 'no two sessions have the same lock and both commit');
done_testing();
