# A holder that is cut off from the ensemble stops before another session is granted its
# lock, whatever it is doing: the silent cut of the client, of its follower from the
# leader, of the leader with its client, and the same with connections that come and go.
# Several holders sleep: each is cut off at another moment between two of its proofs.
# Alone: it compares times, without the time for which a holder waits for a processor after
# the first moment at which it may have to stop.
#
# Promise: 5.11
# Tags: user

use Time::HiRes qw(time);
use ZkLock::Test;

# The session timeout T is four ticks. A holder that is cut off stops after T/6 at the earliest,
# if its lock is new. A follower notices late that it is cut off.
use constant TICK_MS => 1500;
use constant EARLIEST_STOP => 4 * TICK_MS / 6000;
use constant SYNC_LIMIT => { follower => 60, leader => 8 };

# A member that tries to lead without the votes of the others gives up after five ticks,
# instead of twenty; several may fail before one leads.
use constant INIT_LIMIT => 5;

# What a holder does when it is cut off.
my %work = (
	(map { ("sleep$_" => 'SELECT pg_sleep(60)') } 1 .. 6),
	computation => 'DO $$ BEGIN LOOP NULL; END LOOP; END $$',
	table => 'LOCK TABLE locked',
	program => "COPY rows FROM PROGRAM 'sleep 60'",
	idle => undef,
	notify => 'COMMIT');

# Cuts the holders off with $cut, and compares when they stop with when the waiters go on.
sub holders_stop
{
	my ($kind, $here, $there, $zkc, $cut, $meanwhile) = @_;
	my (%holder, %waiter, %stopped, %before, %starved, %granted);
	my $blocker = session($here);
	my $first = session($here);
	require_standby($here);
	$blocker->query_ok('BEGIN; LOCK TABLE locked');
	for my $work (sort keys %work)
	{
		my $s = $holder{$work} = session($here);
		$waiter{$work} = session($there);
		$s->query_ok('SET synchronous_commit = local; SET zklock.commit_check = always');
		$s->query_ok('BEGIN') if $work ne 'idle';
		select(undef, undef, undef, rand TICK_MS / 3000);
		$s->query_ok("SELECT zk_lock('$kind $work')");
		$s->query_ok('INSERT INTO rows VALUES (1); NOTIFY c') if $work eq 'notify';
	}
	$first->query_ok('SET synchronous_commit = on');
	$first->query_async('BEGIN; INSERT INTO rows VALUES (2); NOTIFY c; COMMIT');
	wait_for_standby($first);
	for my $work (sort keys %work)
	{
		$holder{$work}->query_async($work{$work}) if $work{$work};
		wait_blocked_locally($holder{$work}, or => sub { $holder{$work}->finished }) if $work =~ /table|notify/;
		$waiter{$work}->query_async("SELECT zk_lock('$kind $work')");
		wait_queued_or_ended($zkc, "/zklock/locks/$kind $work" =~ s/ /%20/gr, $waiter{$work});
	}

	my $began = time;
	$cut->();
	wait_until(
		'all holders to stop and all waiters to go on',
		sub {
			$meanwhile->() if $meanwhile;
			for my $work (keys %work)
			{
				$before{$work} = starved($holder{$work}->pid)
				  if !defined $before{$work} || time < $began + EARLIEST_STOP;
				if (!$stopped{$work} && $holder{$work}->is_busy && $holder{$work}->finished)
				{
					$stopped{$work} = time;
					$starved{$work} = starved($holder{$work}->pid) - $before{$work};
				}
				$granted{$work} //= time if $waiter{$work}->finished;
				next if $work ne 'idle' || !$granted{idle} || $holder{idle}->is_busy;
				$holder{idle}->query_async('SELECT 1');
			}
			return keys %stopped == keys %work && keys %granted == keys %work;
		},
		pause => 0.005,
		timeout => 90);
	for my $work (sort keys %work)
	{
		$holder{$work}->wait_result;
		$waiter{$work}->wait_result;
		# No hook is around a commit that waits for the queue of NOTIFY.
		is($holder{$work}->sqlstate, $work eq 'notify' ? '57014' : '40001', "$kind: $work: the loss is reported")
		  || diag($holder{$work}->error);
		like($holder{$work}->error, qr/^DETAIL:.* did not confirm the session in time/m, "$kind: $work: the error says that the session was not confirmed in time")
		  unless $work eq 'idle' || $work eq 'notify';
		ok($waiter{$work}->ok, "$kind: $work: another session is granted the lock")
		  || diag($waiter{$work}->error);
		my $times = sprintf 'stopped %.2f s, granted %.2f s after the cut, starved for %.2f s',
		  $stopped{$work} - $began, $granted{$work} - $began, $starved{$work};
		note("$kind: $work: $times");
		next if $work eq 'idle';
		ok($stopped{$work} - $starved{$work} < $granted{$work},
			"$kind: $work: the holder has stopped before another session is granted its lock")
		  || diag($times);
	}
	$_->quit for values %waiter, values %holder, $blocker;
	$first->terminate;
	return;
}

# Cuts the connections of a cut-off leader, which accepts sessions, again and again.
sub holders_stop_between_connections
{
	my ($here, $there, $zkc, $cut, $proxy) = @_;
	my $cuts = 0;
	my $again = 0;
	my $next = 0;
	my $flap = sub {
		return if time < $next;
		$again += $proxy->connections if $cuts++;
		$proxy->cut;
		$next = time + TICK_MS / 4000;
	};
	holders_stop('connections come and go', $here, $there, $zkc, $cut, $flap);
	cmp_ok($again, '>', 0, 'holders are connected again between the cuts');
	return;
}

for my $kind ('follower', 'leader', 'flapping leader')
{
	my ($role) = $kind =~ /(\w+)$/;
	my $ensemble = ZkLock::ZkEnsemble->start(
		tick_time => TICK_MS,
		config => { syncLimit => SYNC_LIMIT->{$role}, initLimit => INIT_LIMIT },
		isolable => $role);
	my $isolated = $ensemble->isolable;
	my @others = grep { $_ != $isolated } $ensemble->members;
	is($isolated, $ensemble->leader, 'the isolable member leads') if $role eq 'leader';
	my $proxy = ZkLock::Proxy->start(target => $isolated);
	my $here = zklock_node('by_' . $kind =~ tr/ /_/r, proxy => $proxy,
		session_timeout => 4 * TICK_MS . 'ms',
		init => [ allows_streaming => 1 ],
		extra_conf => "synchronous_commit = local\n");
	my $there = zklock_node('beside_' . $kind =~ tr/ /_/r, zk => join(',', map { $_->connect_string } @others));
	my $zkc = ZkLock::ZkClient->new($others[0]->connect_string, timeout => 60);
	$here->safe_psql('postgres', 'CREATE TABLE locked (v int); CREATE TABLE rows (v int)');

	if ($kind eq 'follower')
	{
		holders_stop('client cut off', $here, $there, $zkc, sub { $proxy->freeze });
		$proxy->cut;
		$proxy->thaw;
		holders_stop('follower cut off', $here, $there, $zkc, $ensemble->isolation);
	}
	elsif ($kind eq 'flapping leader')
	{
		holders_stop_between_connections($here, $there, $zkc, $ensemble->isolation, $proxy);
	}
	else
	{
		holders_stop('leader cut off', $here, $there, $zkc, $ensemble->isolation);
		$ensemble->heal;
		$ensemble->wait_ready;
	}
	is($here->safe_psql('postgres', 'SELECT count(*) FROM rows WHERE v = 1'), 0,
		"$kind: no row of a cut-off holder is committed");
	$_->stop for $here, $there;
	$zkc->close;
	$proxy->stop;
	$ensemble->stop;
}
