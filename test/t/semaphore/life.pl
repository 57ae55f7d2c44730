# The life of permits: every wait, in the queue or at its head, can be ended and leaves
# no node; a permit ends with its session, after a crash with the session timeout; a lost
# permit is reported as an error.
#
# Promises: 4.1, 4.2, 5.3

use PostgreSQL::Test::Utils;
use ZkLock::Test;
use ZkLock::Ways;

my ($zk, $zkc) = shared_zk_and_client(timeout => 120);
my $proxy = ZkLock::Proxy->start(target => $zk);

# Sessions time out only on "short".
my ($here, $there) =
  map { shared_node($_, zk => $zk, session_timeout => '290s') } qw(here there);
my $short = zklock_node(
	'short',
	proxy => $proxy,
	session_timeout => '2s',
	extra_conf => "restart_after_crash = on\n");
$here->safe_psql('postgres', 'CREATE TABLE t (v text)');

# The session's wait for a permit, which returns nothing, succeeds.
sub granted
{
	my ($session, $name) = @_;
	my (undef, $error) = $session->wait_result;
	return ok($session->ok, $name) || diag($error);
}

our $semaphore = '/zklock/semaphores/s';
my ($holder, $waiter, $s);

sub member
{
	my ($node) = @_;
	return session($node, application_name => 'member');
}

sub leases { return "$semaphore/leases" }
sub queue { return "$semaphore/locks" }

# Waits for these numbers of permit nodes and queue nodes.
sub nodes_become
{
	my ($permits, $queued) = @_;
	return nodes_become_or_end($permits, $queued, []);
}

# The same, or waits for the end of a waiter. Dies if a waiter is granted a permit while
# the holders, the permit nodes before the wait, are all there.
sub nodes_become_or_end
{
	my ($permits, $queued, $holders, @waiters) = @_;
	my ($seen, @granted, %left) = '';
	wait_until(
		"$permits permits and $queued in the queue",
		sub {
			@granted = grep { $_->succeeded } @waiters;
			%left = map { $_ => 1 } $zkc->children(leases());
			$seen = keys(%left) . ' ' . $zkc->children(queue());
			$seen eq "$permits $queued" || grep { $_->finished } @waiters;
		},
		diag => sub { "last seen: $seen" });
	die "more permits than the semaphore has: @{[ keys %left ]}"
	  if @granted && @$holders && !grep { !$left{$_} } @$holders;
	return 1;
}

# The numbers of nodes with only the holder (and the waiter).
my @rest;

sub all_is_clean
{
	my ($scenario) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $clean = eval { nodes_become(@rest) };
	ok($clean, "$scenario: no node is left") || diag($@);
	works($s, "SELECT count(*) FROM zk_held_locks", '0', "$scenario: nothing is held");
	works($s, "SELECT zk_try_acquire_permit('s', 1)", 'f', "$scenario: a non-blocking attempt still fails");
	works($s, "SELECT zk_try_acquire_permit('free', 1), zk_release_permit('free')", 't|t', "$scenario: the session works");
	return;
}

# The ways to end a wait, at the head of the queue or behind another waiter.
sub ways_out
{
	my ($where) = @_;
	my %waits = (
		'session level' => "SELECT zk_acquire_permit('s', 1)",
		'transaction level' => "SELECT zk_xact_acquire_permit('s', 1)",
		'timed attempt' => "SELECT zk_try_acquire_permit('s', 1, '1 hour')");

	for my $wait (sort keys %waits)
	{
		for my $way (ways($here, 'lock_timeout', 'statement_timeout', 'a cancel'))
		{
			wait_ends($way, $s, $waits{$wait}, "$where, $wait", blocked => sub { nodes_become($rest[0] + !$rest[1], $rest[1] + 1) });
			all_is_clean("$where, $wait, $way->{name}");
		}
	}
	works($s, "SELECT zk_try_acquire_permit('s', 1, '100ms')", 'f', "$where: a timed attempt fails");
	all_is_clean("$where, timed attempt");

	$s->query_async("SELECT zk_acquire_permit('s', 1)");
	nodes_become($rest[0] + !$rest[1], $rest[1] + 1);
	$s->terminate;
	$s->wait_result;
	ok(eval { nodes_become(@rest) }, "$where: a terminated backend leaves no node") || diag($@);
	$s = member($here);
	return;
}

sub test_waits
{
	($holder, $s) = (member($there), member($here));
	$holder->query_ok("SELECT zk_acquire_permit('s', 1)");
	@rest = (1, 0);
	ways_out('behind a permit');

	$waiter = member($there);
	$waiter->query_async("SELECT zk_acquire_permit('s', 1)");
	@rest = (2, 1);
	nodes_become(@rest);
	ways_out('in the queue');

	my $log = -s $here->logfile;
	$s->query_ok("SET log_lock_waits = on; SET deadlock_timeout = '50ms'");
	$s->query_async("SELECT zk_acquire_permit('s', 1)");
	wait_for_log($here, qr/still waiting for a permit of semaphore "s".*Blocked by: .* application_name=member/s, $log);
	pass('a long wait is logged with its blocker');
	$holder->query_ok("SELECT zk_release_permit('s')");
	granted($waiter, 'the first waiter is granted the permit');
	ok(!$s->finished, 'the second waiter still waits');
	$waiter->quit;
	granted($s, 'then the second waiter is granted the permit');
	$_->quit for $holder, $s;
	nothing_left($zkc, 'no node of the waits is left');
	return;
}

# In a transaction that has a snapshot already.
sub test_snapshot
{
	($holder, $s) = (member($there), member($here));
	$holder->query_ok("SELECT zk_acquire_permit('s', 1)");
	$s->query_ok("SET log_lock_waits = on; SET deadlock_timeout = '50ms'");
	$s->query_ok('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
	my $log = -s $here->logfile;
	$s->query_async("SELECT zk_xact_acquire_permit('s', 1)");
	wait_for_log($here, qr/still waiting for a permit/, $log);
	$holder->quit;
	granted($s, 'the permit is granted after a wait');
	like($s->error, qr/snapshot.*"s"/, 'a warning reports that the snapshot is older than the grant');
	$s->query_ok('COMMIT');
	$s->quit;
	return;
}

# The end of a holder, and of the waiter at the head of the queue.
sub test_ends
{
	my %ends = (
		'quit' => sub { $_[0]->quit },
		'the client is killed' => sub { $_[0]->drop },
		'terminate' => sub { $_[0]->terminate });

	for my $end (sort keys %ends)
	{
		for my $level (qw(zk_acquire_permit zk_xact_acquire_permit))
		{
			my ($a, $b) = (member($here), member($there));
			$a->query_ok("BEGIN; SELECT $level('s', 1)");
			$b->query_async("SELECT zk_acquire_permit('s', 1)");
			nodes_become(2, 1);
			$ends{$end}->($a);
			granted($b, "$end, $level: the waiter is granted the permit");
			$b->quit;
		}
	}
	nothing_left($zkc, 'sessions that end leave no node');

	# After a crash the permit ends with the session timeout.
	my ($a, $b, $c) = (member($short), member($short), member($there));
	$a->query_ok("SELECT zk_acquire_permit('s', 1)");
	my @holders = $zkc->children(leases());
	$b->query_async("SELECT zk_acquire_permit('s', 1)");
	nodes_become_or_end(2, 1, \@holders, $b);
	$c->query_async("SELECT zk_acquire_permit('s', 1)");
	nodes_become_or_end(2, 2, \@holders, $b, $c);
	$a->kill9;
	granted($c, 'a crash of holder and waiter frees the permit');
	$_->quit for $a, $b, $c;
	$short->poll_query_until('postgres', 'SELECT true');
	nothing_left($zkc, 'a crash leaves no node');
	return;
}

# The loss of one of two permits, and of all permits with the session.
sub test_loss
{
	local $semaphore = '/zklock/semaphores/l';
	$s = member($here);
	$s->query_ok("SELECT zk_acquire_permit('l', 5)");
	my $first = $s->query('SELECT token FROM zk_held_locks');
	$s->query_ok("BEGIN; SELECT zk_xact_acquire_permit('l', 5)");
	works($s, 'SELECT count(*), sum(hold_count) FROM zk_held_locks', '2|2', 'a permit at each level');
	$s->query_async('SELECT pg_sleep(600)');
	wait_for_sql($here, "SELECT state = 'active' FROM pg_stat_activity WHERE pid = " . $s->pid, 't');
	for my $child ($zkc->children(leases()))
	{
		my $path = leases() . "/$child";
		$zkc->delete($path) if $zkc->get($path)->{czxid} != $first;
	}
	failed_with($s, '40001', 'a permit whose node was deleted is reported as lost', like => qr/"l"/);
	$s->query_ok('ROLLBACK');
	works($s, "SELECT level, hold_count, state FROM zk_held_locks", 'session|1|held', 'the loss is reported once; the other permit stays');
	works($s, "SELECT zk_release_permit('l')", 't', 'the other permit can be released');

	$s->query_ok("BEGIN; INSERT INTO t VALUES ('lost')");
	$s->query_ok("SELECT zk_xact_acquire_permit('l', 5)");
	$s->query_ok('SET LOCAL zklock.commit_check = always');
	$zkc->delete(leases() . "/$_") for $zkc->children(leases());
	commit_refused($s, 'a commit without the permit is refused', like => qr/"l"/);
	works($s, "SELECT count(*) FROM t", '0', 'a refused commit writes nothing');
	$s->quit;

	my $cut = member($short)->reconnect('zklock.session_timeout' => '4s');
	$cut->query_ok("SELECT zk_acquire_permit('two', 2), zk_acquire_permit('two', 2)");
	$cut->query_ok("SELECT zk_acquire_permit('more' || i, 1) FROM generate_series(1, 5) AS i");
	$waiter = member($here);
	$semaphore = '/zklock/semaphores/two';
	my @holders = $zkc->children(leases());
	$waiter->query_async("SELECT zk_acquire_permit('two', 2)");
	nodes_become_or_end(3, 1, \@holders, $waiter);
	$proxy->cut(refuse => 1);
	granted($waiter, 'a disconnected session loses its permits');
	fails_with($cut, 'SELECT 1', '40001', 'the error reports the lost permits', like => qr/locks "more\d" and 6 others were lost/);
	works($cut, 'SELECT count(*) FROM zk_held_locks', '0', 'the loss is reported once');
	$proxy->accept;
	works($cut, "SELECT zk_try_acquire_permit('two', 2, '1 min')", 't', 'the session can acquire other permits');
	$_->quit for $cut, $waiter;
	nothing_left($zkc, 'no node is left after losses');
	return;
}

# A waiter survives an outage; when its session expires, it queues again.
sub test_outage
{
	$holder = member($there);
	$holder->query_ok("SELECT zk_acquire_permit('s', 1)");
	my $cut = member($short);
	$cut->query_async("SELECT zk_acquire_permit('s', 1)");
	nodes_become(2, 1);
	wait_blocked($cut);
	$proxy->cut;
	nodes_become(2, 1);
	ok(!$cut->finished, 'a waiter survives a lost connection');
	$proxy->cut(refuse => 1);
	nodes_become(1, 0);
	ok(!$cut->finished, 'a waiter survives the end of its session');
	$proxy->accept;
	nodes_become(2, 1);
	$holder->query_ok("SELECT zk_release_permit('s')");
	granted($cut, 'the waiter queues again and is granted its permit');
	$_->quit for $holder, $cut;
	nothing_left($zkc, 'no node is left after outages');
	return;
}

test_waits();
test_snapshot();
test_ends();
test_loss();
test_outage();

unlike(slurp_file($_->logfile), qr/PANIC/, 'no panic') for $here, $there, $short;
