# The life of permits: every wait can be ended and leaves nothing, be
# it in the queue or behind the permits that are out; a permit ends with its
# session, by a crash after the session timeout; a lost permit is reported as an error.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(
	tick_time => 200,
	config => { maxSessionTimeout => 300000 });
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 120);
my $way = ZkLock::Proxy->start(target => $zk);

# Nothing is explained here by a session that times out, but on "short".
my ($here, $there) =
  map { zklock_node($_, zk => $zk, session_timeout => '290s') } qw(here there);
my $short = zklock_node(
	'short',
	proxy => $way,
	session_timeout => '2s',
	extra_conf => "restart_after_crash = on\n");
$here->safe_psql('postgres', 'CREATE TABLE t (v text)');

my $names;
our $pool = '/zklock/semaphores/s';
my ($holder, $waiter, $s);

sub member
{
	my ($node) = @_;
	my $member = session($node, application_name => 'member');
	$member->query_ok("SET zklock.node_names = $names");
	return $member;
}

sub leases { return $names eq 'kazoo' ? $pool : "$pool/leases" }
sub queue { return $names eq 'kazoo' ? "$pool-__lock__" : "$pool/locks" }

# Nodes of permits and in the queue.
sub nodes_become
{
	my ($permits, $queued) = @_;
	my $seen = '';
	return wait_until(
		"$permits permits and $queued in the queue",
		sub {
			$seen = join ' ', map { scalar $zkc->children($_) } leases(), queue();
			$seen eq "$permits $queued";
		},
		diag => sub { "last seen: $seen" });
}

# How many nodes there are while nobody but holder (and waiter) is there.
my @rest;

sub all_is_clean
{
	my ($scenario) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $clean = eval { nodes_become(@rest) };
	ok($clean, "$scenario: nothing is left") || diag($@);
	works($s, "SELECT count(*) FROM zk_held_locks", '0', "$scenario: nothing is held");
	works($s, "SELECT zk_try_acquire('s', 1)", 'f', "$scenario: a try says what is");
	works($s, "SELECT zk_try_acquire('free', 1), zk_release('free')", 't|t', "$scenario: the session goes on");
	return;
}

# The ways out of a wait, at both places where one waits: with the mutex, or in
# the queue behind one who has it.
sub ways_out
{
	my ($where) = @_;
	my %waits = (
		'session level' => "SELECT zk_acquire('s', 1)",
		'transaction level' => "SELECT zk_xact_acquire('s', 1)",
		'with a limit' => "SELECT zk_try_acquire('s', 1, '1 hour')");

	for my $wait (sort keys %waits)
	{
		my $scenario = "$where, $wait";
		$s->query_ok("SET lock_timeout = '100ms'");
		fails_with($s, $waits{$wait}, '55P03', "$scenario: lock_timeout", hint => 0);
		$s->query_ok('RESET lock_timeout');
		all_is_clean("$scenario, lock_timeout");

		$s->query_ok("SET statement_timeout = '100ms'");
		fails_with($s, $waits{$wait}, '57014', "$scenario: statement_timeout", hint => 0);
		$s->query_ok('RESET statement_timeout');
		all_is_clean("$scenario, statement_timeout");

		$s->query_async($waits{$wait});
		nodes_become($rest[0] + ($names ne 'kazoo' && !$rest[1]), $rest[1] + 1);
		wait_blocked($s);
		$s->cancel;
		failed_with($s, '57014', "$scenario: a cancel", hint => 0);
		all_is_clean("$scenario, cancel");
	}
	works($s, "SELECT zk_try_acquire('s', 1, '100ms')", 'f', "$where: a limit that passes");
	all_is_clean("$where, limit");

	$s->query_async("SELECT zk_acquire('s', 1)");
	nodes_become($rest[0] + ($names ne 'kazoo' && !$rest[1]), $rest[1] + 1);
	$s->terminate;
	$s->wait_result;
	ok(eval { nodes_become(@rest) }, "$where: terminate leaves nothing") || diag($@);
	$s = member($here);
	return;
}

sub test_waits
{
	($holder, $s) = (member($there), member($here));
	$holder->query_ok("SELECT zk_acquire('s', 1)");
	@rest = (1, 0);
	ways_out('behind a permit');

	$waiter = member($there);
	$waiter->query_async("SELECT zk_acquire('s', 1)");
	@rest = ($names eq 'kazoo' ? 1 : 2, 1);
	nodes_become(@rest);
	ways_out('in the queue');

	my $log = -s $here->logfile;
	$s->query_ok("SET log_lock_waits = on; SET deadlock_timeout = '50ms'");
	$s->query_async("SELECT zk_acquire('s', 1)");
	wait_for_log($here, qr/still waiting for a permit of semaphore "s".*Blocked by: .*"application_name":"member"/s, $log);
	pass('a long wait is logged with its blocker');
	$holder->query_ok("SELECT zk_release('s')");
	like($waiter->wait_result, qr/^\d+$/, 'who came first is served first');
	ok(!$s->finished, 'and nobody else');
	$waiter->quit;
	like($s->wait_result, qr/^\d+$/, 'then the next');
	$_->quit for $holder, $s;
	nothing_left($zkc, 'nothing is left of the waits');
	return;
}

# In a transaction that has read before.
sub test_snapshot
{
	($holder, $s) = (member($there), member($here));
	$holder->query_ok("SELECT zk_acquire('s', 1)");
	$s->query_ok('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
	$s->query_async("SELECT zk_xact_acquire('s', 1)");
	nodes_become($names eq 'kazoo' ? 1 : 2, 1);
	wait_blocked($s);
	$holder->quit;
	like($s->wait_result, qr/^\d+$/, 'a permit after a wait');
	like($s->error, qr/snapshot.*"s"/, 'and a warning that the snapshot is older');
	$s->query_ok('COMMIT');
	$s->quit;
	return;
}

# The end of a holder, and of one who waits with the mutex.
sub test_ends
{
	my %ends = (
		'quit' => sub { $_[0]->quit },
		'the client is killed' => sub { $_[0]->drop },
		'terminate' => sub { $_[0]->terminate });

	for my $end (sort keys %ends)
	{
		for my $level (qw(zk_acquire zk_xact_acquire))
		{
			my ($a, $b) = (member($here), member($there));
			$a->query_ok("BEGIN; SELECT $level('s', 1)");
			$b->query_async("SELECT zk_acquire('s', 1)");
			nodes_become($names eq 'kazoo' ? 1 : 2, 1);
			$ends{$end}->($a);
			like($b->wait_result, qr/^\d+$/, "$end, $level: who waits proceeds");
			$b->quit;
		}
	}
	nothing_left($zkc, 'sessions that end leave nothing');

	# A crash: after the session timeout.
	my ($a, $b, $c) = (member($short), member($short), member($there));
	$a->query_ok("SELECT zk_acquire('s', 1)");
	$b->query_async("SELECT zk_acquire('s', 1)");
	nodes_become($names eq 'kazoo' ? 1 : 2, 1);
	$c->query_async("SELECT zk_acquire('s', 1)");
	nodes_become($names eq 'kazoo' ? 1 : 2, 2);
	$a->kill9;
	like($c->wait_result, qr/^\d+$/, 'a crash of holder and waiter frees what they had');
	$_->quit for $a, $b, $c;
	$short->poll_query_until('postgres', 'SELECT true');
	nothing_left($zkc, 'and leaves nothing');
	return;
}

# Loss, of one permit of two and of all with the session.
sub test_loss
{
	local $pool = '/zklock/semaphores/l';
	$s = member($here);
	my $first = $s->query_ok("SELECT zk_acquire('l', 5)");
	$s->query_ok("BEGIN; SELECT zk_xact_acquire('l', 5)");
	works($s, 'SELECT count(*), sum(count) FROM zk_held_locks', '2|2', 'a permit at each level');
	$s->query_async('SELECT pg_sleep(600)');
	wait_for_sql($here, "SELECT state = 'active' FROM pg_stat_activity WHERE pid = " . $s->pid, 't');
	for my $child ($zkc->children(leases()))
	{
		my $path = leases() . "/$child";
		$zkc->delete($path) if $zkc->get($path)->{czxid} != $first;
	}
	failed_with($s, '40001', 'a permit removed by hand is a loss', like => qr/"l"/);
	$s->query_ok('ROLLBACK');
	works($s, "SELECT scope, count, state FROM zk_held_locks", 'session|1|held', 'told once; the other one stays');
	works($s, "SELECT zk_release('l')", 't', 'and can be released');

	$s->query_ok("BEGIN; INSERT INTO t VALUES ('lost')");
	$s->query_ok("SELECT zk_xact_acquire('l', 5)");
	$s->query_ok('SET LOCAL zklock.commit_check = always');
	$zkc->delete(leases() . "/$_") for $zkc->children(leases());
	commit_refused($s, 'nothing is committed without it', like => qr/"l"/);
	works($s, "SELECT count(*) FROM t", '0', 'and nothing is kept');
	$s->quit;

	my $cut = member($short);
	$cut->query_ok("SELECT zk_acquire('two', 2), zk_acquire('two', 2)");
	$cut->query_ok("SELECT zk_acquire('more' || i, 1) FROM generate_series(1, 5) AS i");
	$waiter = member($here);
	$pool = '/zklock/semaphores/two';
	$waiter->query_async("SELECT zk_acquire('two', 2)");
	nodes_become($names eq 'kazoo' ? 2 : 3, 1);
	$way->cut(refuse => 1);
	like($waiter->wait_result, qr/^\d+$/, 'a session that is cut off loses its permits');
	fails_with($cut, 'SELECT 1', '40001', 'which the error reports', like => qr/locks ("more\d"(, |(?! "))){5} and 1 other were lost/);
	works($cut, 'SELECT count(*) FROM zk_held_locks', '0', 'once');
	$way->accept;
	works($cut, "SELECT zk_try_acquire('two', 2, '1 min')", 't', 'then it can take others');
	$_->quit for $cut, $waiter;
	nothing_left($zkc, 'nothing is left after losses');
	return;
}

# One who waits sits out an outage; when its session is over, it queues again.
sub test_outage
{
	$holder = member($there);
	$holder->query_ok("SELECT zk_acquire('s', 1)");
	my $cut = member($short);
	$cut->query_async("SELECT zk_acquire('s', 1)");
	nodes_become($names eq 'kazoo' ? 1 : 2, 1);
	wait_blocked($cut);
	$way->cut;
	nodes_become($names eq 'kazoo' ? 1 : 2, 1);
	ok(!$cut->finished, 'a waiter survives a lost connection');
	$way->cut(refuse => 1);
	nodes_become(1, 0);
	ok(!$cut->finished, 'and the end of its session');
	$way->accept;
	nodes_become($names eq 'kazoo' ? 1 : 2, 1);
	$holder->query_ok("SELECT zk_release('s')");
	like($cut->wait_result, qr/^\d+$/, 'it queues again and gets its permit');
	$_->quit for $holder, $cut;
	nothing_left($zkc, 'nothing is left after outages');
	return;
}

for (qw(curator kazoo))
{
	$names = $_;
	subtest "node names of $names" => sub {
		test_waits();
		test_snapshot();
		test_ends();
		test_loss();
		test_outage();
		$zkc->delete("/zklock/semaphores/$_", recursive => 1) for $zkc->children('/zklock/semaphores');
	};
}

unlike(slurp_file($_->logfile), qr/PANIC/, 'no panic') for $here, $there, $short;
$zkc->close;
$_->stop for $here, $there, $short;
$way->stop;
$zk->stop;
done_testing();
