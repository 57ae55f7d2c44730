# A follower is cut off from the others right after it forwarded the create of a lock. It
# still answers pings and reads of its clients, while the leader expires their sessions.
# A holder whose session is on this follower cannot commit once another client may have
# the lock: the lease ends before that.
# Alone: its sessions have a timeout of three seconds.
#
# Promises: 5.1, 5.2

use ZkLock::Test;

# The session timeout is two ticks, the minimum of the servers: then the follower's report
# of heartbeats is relatively late. The follower takes long to notice that it is cut off.
use constant TICK_MS => 1500;
use constant RUNS => 9;

my $ensemble = ZkLock::ZkEnsemble->start(
	tick_time => TICK_MS,
	config => { syncLimit => 60 },
	isolable => 1);
my $isolated = $ensemble->isolable;
my ($other) = grep { $_ != $isolated } $ensemble->members;
my $zkc = ZkLock::ZkClient->new($other->connect_string, timeout => 60);
my $inside = shared_node('inside',
	zk => $isolated, session_timeout => 2 * TICK_MS . 'ms');
my $outside = shared_node('outside', zk => $other);
$inside->safe_psql('postgres', 'CREATE TABLE t (v text)');

# Time on the machine's clock, in ms.
my $clock_ms = 'extract(epoch FROM clock_timestamp()) * 1000';

# A transaction that outlives its lease, and its session timeout, commits.
{
	my $s = connected_session($inside, session_timeout => '12s');
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('long')");
	$s->query_ok("INSERT INTO t SELECT 'long' FROM pg_sleep(13)");
	works($s, 'COMMIT', '',
		'a transaction that is longer than the session timeout commits');
	is(rows_with($inside, 'long'), 1, 'the row of that transaction is there');
	$s->quit;
}

# Each run starts at another phase of the pings between client, follower and leader.
my %hold = (
	transaction => "SELECT zk_xact_lock('contended')",
	session => "SELECT zk_lock('contended')");
my @margins;
for my $run (1 .. RUNS)
{
	my $level = $run % 2 ? 'transaction' : 'session';
	my ($first, $second, $timeout, $lease_end);
	# A holder that gets no processor for a second loses its lock: then again.
	wait_until("run $run: the isolation of a holder", sub {
		($first, $second) = map { connected_session($_) } $inside, $outside;
		$timeout = $first->query_ok(
			'SELECT extract(epoch FROM session_timeout) * 1000 FROM zk_session()');
		my $isolate = $ensemble->isolation;
		$first->query_ok("SELECT pg_sleep($run * 0.129)");
		$first->query("BEGIN; INSERT INTO t VALUES ('run $run')");
		$first->query($hold{$level}) if $first->ok;
		my $held = $first->ok;
		$isolate->();
		$lease_end = $first->query(
			"SELECT $clock_ms + extract(epoch FROM lease_remaining) * 1000 FROM zk_session()"
		);
		return 1 if $held && $first->ok;
		$ensemble->heal;
		$_->quit for $first, $second;
		return 0;
	}, fatal => 1);
	my $granted = $second->query_ok("SELECT $clock_ms FROM zk_lock('contended')");
	commit_refused($first,
		"run $run: a transaction with a $level lock is refused");
	is(rows_with($inside, "run $run"), 0, "run $run: the refused transaction leaves no row");
	cmp_ok($granted, '>', $lease_end,
		"run $run: the lease ended before the second session was granted the lock");
	push @margins, ($granted - $lease_end) / $timeout;
	$ensemble->heal;
	$_->quit for $first, $second;
	nothing_left($zkc, "run $run: nothing is left");
}
note('granted after the end of the lease, in session timeouts: '
	  . join ' ', map { sprintf '%.2f', $_ } sort { $a <=> $b } @margins);

# With "lease" a commit within the lease sends no check. With "always" each commit sends
# a check. With "off" no commit sends a check; a loss that was noticed refuses it.
my %check = (
	lease => [ '00000', '45s' ],
	always => [ '40001', '9s' ],
	off => [ '40001', '9s' ]);
for my $check (sort keys %check)
{
	my ($sqlstate, $timeout) = @{ $check{$check} };
	my $first = session($inside);
	my $second = connected_session($outside);
	$first->reconnect('zklock.session_timeout' => $timeout);
	$first->query_ok("SET zklock.commit_check = $check");
	$first->query_ok("SELECT zk_try_lock('warm'), zk_unlock('warm')");
	my $isolate = $ensemble->isolation;
	$first->query_ok("BEGIN; INSERT INTO t VALUES ('$check')");
	$first->query_ok("SELECT zk_xact_lock('check')");
	$isolate->();
	$second->query_ok("SELECT zk_lock('check')") if $check eq 'off';
	$first->query('COMMIT');
	is($first->sqlstate, $sqlstate,
		"with commit_check = $check a commit through an isolated follower ends with $sqlstate"
	) || diag($first->error);
	is(rows_with($inside, $check), $sqlstate eq '00000' ? 1 : 0, 'the row is there exactly if the commit succeeded');
	$ensemble->heal;
	$_->quit for $first, $second;
	nothing_left($zkc, "commit_check = $check: nothing is left");
}
