# Each way in which a wait can end, for each kind of wait: it ends within a second of the event,
# not counting the time for which the processes that take part waited for a processor.
# Alone: it compares times.
#
# Promises: 4.1, 4.2
# Tags: edges

use Time::HiRes qw(time);
use ZkLock::Test;
use ZkLock::Ways;

use constant LIMIT => 1;

# In which a session is closed, whatever its ensemble does; the backend ends after that.
use constant CLOSING => 2;

# The timeout of a statement, and the interval at which a backend looks at its client.
use constant TIMEOUT_MS => 500;

# The session timeout is so long that no session expires here.
my ($zk, $zkc) = ZkLock::ZkServer->start->with_client(timeout => 120);
my $proxy = ZkLock::Proxy->start(target => $zk);
my ($here, $there) = map { zklock_node($_, zk => $zk, session_timeout => '290s') } qw(here there);
my $other = session($there);
$other->query_ok("SELECT zk_lock('there'), zk_acquire_permit('permit', 1)");
my $same = session($here);
$same->query_ok("SELECT zk_lock('here')");

# kind => [ statement, is the ensemble silent? ]
my %waits = (
	'a lock of this server' => ["SELECT zk_lock('here')"],
	'a lock of another server' => ["SELECT zk_lock('there')"],
	'several locks' => ["SELECT zk_xact_lock_many('{first,there}')"],
	'a permit' => ["SELECT zk_acquire_permit('permit', 1)"],
	'an answer' => [ "SELECT zk_lock('free')", 1 ],
	'a connection' => [ "SELECT zk_lock('free, too')", 1 ]);

for my $way (ways($here))
{
	# A fast shutdown is a termination of each backend.
	next if $way->{name} eq 'a shutdown';
	my $what = $way->{name};
	my $ends_backend = $way->{sqlstate} eq 'lost';
	my %s = map { $_ => prepared($_, $way) } keys %waits;
	$proxy->freeze;
	my (%began, %starved);
	for my $wait (sort keys %s)
	{
		$began{$wait} = time() + TIMEOUT_MS / 1000;
		$starved{$wait} = note_starvation({}, $s{$wait});
		$s{$wait}->query_async($waits{$wait}[0]);
	}
	if ($way->{event})
	{
		wait_blocked($_) for values %s;
		$starved{$_} = note_starvation({}, $s{$_}) for keys %s;
		$way->{event}->((values %s)[0]) if $way->{for_all};
		for my $wait (keys %s)
		{
			$began{$wait} = time();
			$way->{event}->($s{$wait}) unless $way->{for_all};
		}
	}
	my %late = lateness($ends_backend, \%began, \%starved, \%s);
	note("$what: ", join ', ', map { sprintf '%s %.3f s', $_, $late{$_} } sort keys %late);
	for my $wait (sort keys %s)
	{
		my $limit = LIMIT + ($way->{setting} && $way->{event} ? TIMEOUT_MS / 1000 : 0) + ($ends_backend ? CLOSING : 0);
		cmp_ok($late{$wait}, '<', $limit, "$what ends a wait for $wait within a second" . ($ends_backend ? ', and the backend in time' : ''));
		next if $ends_backend;
		my $expected = $waits{$wait}[1] && $what eq 'lock_timeout' ? qr/^08/ : qr/^$way->{sqlstate}$/;
		$s{$wait}->wait_result;
		like($s{$wait}->sqlstate, $expected, "$what ends a wait for $wait with its SQLSTATE");
	}
	$proxy->thaw;
	$_->drop for values %s;
	wait_zk_children($zkc, '/zklock/locks/there', 1);
	is(wait_zk_empty($zkc, "/zklock/locks/$_"), 0, "$what: no node of the lock $_ is left")
	  for 'first', 'free', 'free,%20too';
	is($zkc->children('/zklock/semaphores/permit/leases'), 1, "$what: no permit is left");
}

# Returns a session that can begin this wait. A wait for the ensemble has a timeout of its own.
sub prepared
{
	my ($wait, $way) = @_;
	my ($sql, $is_silent) = @{ $waits{$wait} };
	my $s = $is_silent ? session_with($here, connect_string => $proxy->connect_string) : session($here);
	$s->query_ok("SELECT zk_lock('warm-up'), zk_unlock('warm-up')") if $wait ne 'a connection';
	my $setting = $way->{setting};
	$setting = 'zklock.ensemble_timeout' if $is_silent && $way->{name} eq 'lock_timeout';
	$s->query_ok("SET $setting = '" . TIMEOUT_MS . "ms'") if $setting;
	return $s;
}

# Notes how long the test, the client and the backend have waited for a processor, in seconds, as
# long as each exists.
sub note_starvation
{
	my ($noted, $s) = @_;
	for my $pid ($$, $s->pid, $s->client_pid // ())
	{
		my ($ns) = read_file("/proc/$pid/schedstat") =~ /^\d+ (\d+)/ or next;
		$noted->{from}{$pid} //= $ns / 1e9;
		$noted->{to}{$pid} = $ns / 1e9;
	}
	return $noted;
}

sub ended
{
	my ($s, $is_process) = @_;
	return $is_process ? read_file('/proc/' . $s->pid . '/stat') !~ /\) [^ZX] / : $s->finished;
}

# Returns how long after the event each wait has ended, without the time of starvation.
sub lateness
{
	my ($is_process, $began, $starved, $s) = @_;
	my %late;
	wait_until('all waits to end', sub {
			for my $wait (grep { !exists $late{$_} } keys %$s)
			{
				my $ended = ended($s->{$wait}, $is_process);
				my $noted = note_starvation($starved->{$wait}, $s->{$wait});
				next if !$ended;
				$late{$wait} = time() - $began->{$wait};
				$late{$wait} -= $noted->{to}{$_} - $noted->{from}{$_} for keys %{ $noted->{from} };
			}
			return keys %late == keys %$s;
		},
		pause => 0.005,
		diag => sub { 'not ended: ' . join ', ', grep { !exists $late{$_} } keys %$s });
	return %late;
}
