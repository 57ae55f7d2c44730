# Outages shorter than the session timeout cost nothing but time; longer ones
# cost a waiter its place in the queue and nothing else.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::FaultProxy;
use ZkLock::Proxy;
use ZkLock::ZkClient;
use ZkLock::ZkEnsemble;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $way_a = ZkLock::Proxy->start(target => $zk);
my $way_b = ZkLock::Proxy->start(target => $zk);
my $node_a = zklock_node('a', proxy => $way_a, session_timeout => '10s');
my $node_b = zklock_node('b', proxy => $way_b, session_timeout => '10s');
$_->safe_psql('postgres', 'CREATE TABLE t (v text)') for $node_a, $node_b;

# Drops the connections of a way and waits until somebody has come back on it.
sub blink
{
	my ($way) = @_;
	my $count = $way->connections;
	$way->cut;
	wait_until('the clients to come back',
		sub { $way->connections >= $count });
	return;
}

# A session of this server, with a ZooKeeper session of the timeout given.
sub connected_session
{
	my ($node, $timeout) = @_;
	my $s = session($node);
	$s->query_ok("SET zklock.session_timeout = '$timeout'") if $timeout;
	$s->query_ok("SELECT zk_try_lock('warm-up-' || pg_backend_pid())");
	$s->query_ok('SELECT zk_unlock_all()');
	return $s;
}

# Idle, with a lock.
{
	my $first = connected_session($node_a);
	my $second = connected_session($node_b);
	my $id = zk_session_id($first);
	$first->query_ok('BEGIN');
	my $token = $first->query_ok("SELECT zk_xact_lock('idle')");
	$first->query_ok("INSERT INTO t VALUES ('idle')");
	my @before = queue_of($zkc, 'idle');

	$way_a->cut(refuse => 1);
	wait_state($first, 'suspended');
	works($first, 'SELECT name, state FROM zk_held_locks', 'idle|suspect',
		'while the connection is away a hold is suspect');
	works($second, "SELECT zk_try_lock('idle')", 'f',
		'nobody gets a lock whose holder is only disconnected');
	$way_a->accept;
	wait_state($first, 'connected');
	is(zk_session_id($first), $id, 'a connection that comes back has its session');
	works($first, 'SELECT name, state FROM zk_held_locks', 'idle|held',
		'a lock is held again when the connection is back');
	is_deeply([ queue_of($zkc, 'idle') ],
		\@before, 'a short outage leaves the node of a lock alone');
	blink($way_a);
	works($first, "SELECT zk_lock_token('idle')", $token,
		'an outage leaves the token alone');
	works($first, 'COMMIT', '',
		'a transaction that was disconnected for a while commits');
	ok( wait_until('b to get it',
			sub { $second->query("SELECT zk_try_lock('idle')") eq 't' }),
		'and its lock is free then');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'an outage of a holder leaves nothing behind');
}

# Waiting, with several cuts.
{
	my $first = connected_session($node_a);
	my $second = connected_session($node_b);
	$first->query_ok("SELECT zk_lock('queue')");
	$second->query_async("SELECT zk_lock('queue')");
	wait_zk_children($zkc, '/zklock/locks/queue', 2);
	my @before = queue_of($zkc, 'queue');
	blink($_) for $way_b, $way_b, $way_a, $way_b, $way_a;
	is_deeply([ queue_of($zkc, 'queue') ],
		\@before, 'a waiter keeps its place over any number of outages');
	ok(!$second->finished, 'a waiter waits on while its connection comes and goes');
	$first->query_ok("SELECT zk_unlock('queue')");
	like($second->wait_result, qr/^\d+$/,
		'it gets the lock when the holder releases it');
	$second->query_ok('SELECT zk_unlock_all()');

	$first->query_ok("SELECT zk_lock('queue')");
	$second->query_async("SELECT zk_lock('queue')");
	wait_zk_children($zkc, '/zklock/locks/queue', 2);
	$way_b->cut(refuse => 1);
	$first->query_ok("SELECT zk_unlock('queue')");
	wait_zk_children($zkc, '/zklock/locks/queue', 1);
	$way_b->accept;
	like($second->wait_result, qr/^\d+$/,
		'a release that happened during the outage is seen after it');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'outages of waiters leave nothing behind');
}

# Waiting, with an outage that is longer than connect_timeout.
{
	my $first = connected_session($node_a);
	my $second = connected_session($node_b);
	my $clock = connected_session($node_b);
	$first->query_ok("SELECT zk_lock('patience')");
	$second->query_ok("SET zklock.connect_timeout = '200ms'");

	# Its place in the queue is not enough: it must have heard who is before it.
	$second->query_ok("SET log_lock_waits = on; SET deadlock_timeout = '10ms'");
	my $offset = -s $node_b->logfile;
	$second->query_async("SELECT zk_lock('patience')");
	wait_for_log($node_b, qr/still waiting for zk lock "patience"/, $offset);
	$way_b->cut(refuse => 1);
	wait_state($clock, 'suspended');
	$clock->query_ok("SET zklock.connect_timeout = '1s'");
	fails_with($clock, "SELECT zk_lock('other')", '08006',
		'a call that needs an answer does not wait longer than connect_timeout',
		like => qr/"other".*^.*DETAIL:  It did not come back within 1000 ms/ms);
	ok(!$second->finished,
		'a wait for another holder goes on when connect_timeout is over');
	$way_b->accept;
	wait_state($clock, 'connected');
	works($clock, "SELECT zk_lock('other')", qr/^\d+$/,
		'the session whose call failed can lock again afterwards');
	$first->query_ok("SELECT zk_unlock('patience')");
	like($second->wait_result, qr/^\d+$/,
		'the patient waiter gets the lock in the end');
	$_->query_ok('SELECT zk_unlock_all()') for $second, $clock;
	nothing_left($zkc, 'an outage longer than connect_timeout leaves nothing');
}

# Waiting, with an outage that is longer than the session timeout.
{
	my $first = connected_session($node_a);
	my $second = connected_session($node_b, '2s');
	$first->query_ok("SELECT zk_lock('again')");
	$second->query_async("SELECT zk_lock('again')");
	wait_zk_children($zkc, '/zklock/locks/again', 2);
	my ($holder, $waiter) = queue_of($zkc, 'again');
	$way_b->cut(refuse => 1);
	wait_zk_children($zkc, '/zklock/locks/again', 1);
	ok(!$second->finished, 'a waiter whose session has expired waits on');
	$way_b->accept;
	wait_zk_children($zkc, '/zklock/locks/again', 2);
	my ($holder_now, $waiter_now) = queue_of($zkc, 'again');
	is($holder_now, $holder, 'the holder is undisturbed by that');
	isnt($waiter_now, $waiter, 'it is queued again when it is back');
	$first->query_ok("SELECT zk_unlock('again')");
	like($second->wait_result, qr/^\d+$/, 'and gets the lock then');
	is($second->error, '', 'silently');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'a waiter queued again leaves nothing behind');
}

# The same, when the ensemble is out of reach again before the next session is open.
{
	my $way = ZkLock::FaultProxy->start(target => $zk);
	my $node = zklock_node('d', zk => $way, session_timeout => '2s');
	my $first = connected_session($node_a);
	my $second = connected_session($node);
	my $clock = session($node_a);
	$first->query_ok("SELECT zk_lock('again')");
	$second->query_ok("SET zklock.connect_timeout = '300ms'");
	$second->query_ok("SET log_lock_waits = on; SET deadlock_timeout = '10ms'");
	my $offset = -s $node->logfile;
	$second->query_async("SELECT zk_lock('again')");
	wait_for_log($node, qr/still waiting for zk lock "again"/, $offset);
	$way->arm(fault => 'expire');
	$way->arm(fault => 'cut_after', op => 'connect', down => 1);
	wait_until('the next outage', sub { $way->hits == 2 });
	$clock->query_ok('SELECT pg_sleep(1)');
	ok(!$second->finished,
		'connect_timeout does not end a wait whose session has expired');
	$way->up;
	wait_zk_children($zkc, '/zklock/locks/again', 2);
	$first->query_ok("SELECT zk_unlock('again')");
	like($second->wait_result, qr/^\d+$/, 'which gets the lock in another session');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'two outages in one wait leave nothing behind');
	$node->stop;
}

# A call that needs an answer, with a silent network and a silent server.
for my $silent ([ 'network', sub { $way_b->freeze }, sub { $way_b->thaw } ],
	[ 'server', sub { $zk->pause }, sub { $zk->resume } ])
{
	my ($what, $break, $heal) = @$silent;
	for my $call (
		[ lock => "SELECT zk_lock('answer')" ],
		[ try => "SELECT zk_try_lock('answer', interval '0')" ],
		[ 'call for several locks' => "SELECT zk_xact_lock(ARRAY['answer', 'answer2'])" ])
	{
		my ($kind, $sql) = @$call;
		my $second = connected_session($node_b, '2s');
		$second->query_ok("SET zklock.connect_timeout = '300ms'");
		$break->();
		fails_with($second, $sql, '08006',
			"a $kind that a silent $what leaves without an answer fails",
			like => qr/"answer"/);
		$heal->();
		nothing_left($zkc,
			"a $kind given up with a silent $what leaves nothing when it heals"
		);
		$second->query_ok('RESET zklock.connect_timeout');
		works($second, "SELECT zk_try_lock('answer')",
			't', "the session can lock again after a silent $what");
	}
	my $second = connected_session($node_b);
	$break->();
	$second->query_async("SELECT zk_lock('answer')");
	wait_blocked($second);
	$second->cancel;
	failed_with($second, '57014',
		"a call without an answer of a silent $what can be cancelled",
		hint => 0);
	$second->query_async("SELECT zk_lock(ARRAY['answer', 'answer2'])");
	wait_blocked($second);
	$second->cancel;
	failed_with($second, '57014', "a call for several locks likewise", hint => 0);
	$heal->();
	nothing_left($zkc,
		"a call cancelled with a silent $what leaves nothing when it heals");
	works($second, "SELECT zk_try_lock('answer')",
		't', "the session can lock again after that cancel");
	$second->query_ok('SELECT zk_unlock_all()');

	$break->();
	$second->query_async("SELECT zk_lock('answer')");
	wait_blocked($second);
	$second->terminate;
	$second->wait_result;
	is($second->sqlstate, 'lost',
		"a call without an answer of a silent $what can be terminated");
	$heal->();
	nothing_left($zkc,
		"a call terminated with a silent $what leaves nothing for long");
}

# Answers that come slowly. The connection is cut in the middle of a call, so that
# connect_timeout begins; then one answer comes, and the next one is late.
{
	my $way = ZkLock::FaultProxy->start(target => $zk);
	my $node = zklock_node('c', zk => $way, session_timeout => '10s');
	my $caller = connected_session($node);
	my $clock = session($node_a);
	$caller->query_ok("SET zklock.connect_timeout = '2s'");
	$way->arm(fault => 'lose_answer', op => 'create2', path => 'slow', down => 1);
	$caller->query_async("SELECT zk_lock('slow')");
	wait_until('the cut', sub { $way->hits == 1 });
	$clock->query_ok('SELECT pg_sleep(0.2)');
	$way->arm(fault => 'hold_answer', op => 'getChildren', path => 'slow');
	$way->up;
	wait_until('the late answer', sub { $way->hits == 2 });
	$clock->query_ok('SELECT pg_sleep(2)');
	ok(!$caller->finished,
		'an answer that comes within connect_timeout begins it from the start');
	$way->release;
	like($caller->wait_result, qr/^\d+$/, 'a call with slow answers gets its lock');
	$caller->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'slow answers leave nothing behind');
	$node->stop;
}

# Releasing while disconnected.
{
	my $first = connected_session($node_a);
	my $second = connected_session($node_b);
	my $id = zk_session_id($first);
	$first->query_ok("SELECT zk_lock('release')");
	$second->query_async("SELECT zk_lock('release')");
	wait_zk_children($zkc, '/zklock/locks/release', 2);
	$way_a->cut(refuse => 1);
	wait_state($first, 'suspended');
	works($first, "SELECT zk_unlock('release')", 't',
		'a release succeeds while the ensemble is out of reach');
	is(scalar(queue_of($zkc, 'release')), 2,
		'the node is still there as long as the outage lasts');
	$way_a->accept;
	like($second->wait_result, qr/^\d+$/,
		'the release is carried out when the connection is back, with an idle backend'
	);
	is(zk_session_id($first), $id, 'in the same session');
	$second->query_ok('SELECT zk_unlock_all()');

	$first->query_ok("SELECT zk_lock('release')");
	$way_a->cut(refuse => 1);
	wait_state($first, 'suspended');
	$first->query_ok("SELECT zk_unlock('release')");
	$first->query_async('SELECT pg_sleep(3600)');
	wait_asleep($first);
	$way_a->accept;
	wait_zk_empty($zkc, '/zklock/locks/release');
	ok(!$first->finished,
		'a release kept back is carried out while the backend is busy');
	$first->cancel;
	$first->wait_result;
	is(zk_session_id($first), $id, 'also in the same session');

	$first->query_ok('BEGIN');
	$first->query_ok("SELECT zk_xact_lock('release')");
	$way_a->cut(refuse => 1);
	wait_state($first, 'suspended');
	works($first, 'ROLLBACK', '', 'a rollback needs no ensemble');
	works($second, "SELECT zk_try_lock('release')", 'f',
		'its lock is free when the connection is back, not before');
	$way_a->accept;
	wait_zk_empty($zkc, '/zklock/locks/release');
	works($second, "SELECT zk_try_lock('release')", 't', 'but then it is');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'releases during an outage are not forgotten');
}

# Under load: the referee is the clock of this machine. What two exclusive
# holders were told must never overlap.
{
	my $loop = <<'SQL';
DO $$
DECLARE
	mine bigint;
	n integer := 0;
BEGIN
	WHILE n < 60 LOOP
		BEGIN
			mine := zk_lock('load');
			INSERT INTO referee VALUES (mine, clock_timestamp(), NULL);
			UPDATE referee SET until = clock_timestamp()
				WHERE token = mine;
			PERFORM zk_unlock('load');
			n := n + 1;
		EXCEPTION WHEN connection_exception THEN
			INSERT INTO t VALUES ('again');
		END;
	END LOOP;
END $$
SQL
	$_->safe_psql('postgres', <<'SQL') for $node_a, $node_b;
CREATE TABLE referee (token bigint PRIMARY KEY, since timestamptz, until timestamptz);
SQL
	my @workers =
	  map { connected_session($_) } $node_a, $node_b, $node_a, $node_b;
	$_->query_async($loop) for @workers;
	my $cuts = 0;
	while (grep { !$_->finished } @workers)
	{
		$_->cut for $cuts % 2 ? $way_a : $way_b;
		$cuts++;
		wait_until(
			'progress',
			sub {
				(grep { !$_->finished } @workers) == 0
				  || $way_a->connections + $way_b->connections >= 2;
			});
	}
	$_->wait_result for @workers;
	is(join(' ', map { $_->sqlstate } @workers), '00000 00000 00000 00000',
		'work goes on while connections are cut all the time');
	cmp_ok($cuts, '>', 5, 'which they were');
	my @holds = sort { $a->[0] <=> $b->[0] }
	  map { [ split /\|/ ] }
	  map {
		split /\n/, $_->safe_psql('postgres',
			'SELECT token, extract(epoch FROM since), extract(epoch FROM until) FROM referee'
		)
	  } $node_a, $node_b;
	is(scalar(@holds), 240, 'every hold had a token of its own');
	my @overlaps = grep { $holds[$_][1] < $holds[ $_ - 1 ][2] } 1 .. $#holds;
	is(scalar(@overlaps), 0,
		'holds follow each other in the order of their tokens and never overlap');
	nothing_left($zkc, 'cuts in any moment of a call leave nothing behind');
}
$zkc->close;
$_->stop for $node_a, $node_b;
$zk->stop;

# An ensemble that loses a member.
{
	my $ensemble = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500);
	$zkc = ZkLock::ZkClient->new($ensemble->connect_string);
	my @nodes = map {
		zklock_node("of_$_", zk => $ensemble, session_timeout => '10s')
	} qw(a b);
	my ($first, $second) = map { session($_) } @nodes;

	my $member_of = sub {
		my ($s) = @_;
		my $server = $s->query_ok('SELECT server FROM zk_session()');
		my ($member) =
		  grep { $_->connect_string eq $server } $ensemble->members;
		return $member;
	};
	my %whom = (
		'the leader' => sub { $ensemble->leader },
		'a follower' => sub { ($ensemble->followers)[0] },
		"the holder's server" => sub { $member_of->($first) },
		"the waiter's server" => sub { $member_of->($second) });
	for my $what (sort keys %whom)
	{
		$_->query_ok("SELECT zk_lock('own-' || pg_backend_pid())") for $first, $second;
		$first->query_ok('BEGIN');
		$first->query_ok("SELECT zk_xact_lock('member')");
		my $victim = $whom{$what}->();
		$second->query_async("SELECT zk_lock('member')");
		my @before = wait_zk_children($zkc, '/zklock/locks/member', 2);
		$victim->kill9;
		$ensemble->wait_ready(2);
		wait_state($first, 'connected');
		wait_until('the tree',
			sub { eval { $zkc->children('/zklock/locks/member') } });
		is_deeply([ $zkc->children('/zklock/locks/member') ],
			\@before, "holder and waiter survive the death of $what");
		ok(!$second->finished, "the waiter waits on after the death of $what");
		works($first, 'COMMIT', '',
			"the holder commits after the death of $what");
		like($second->wait_result, qr/^\d+$/,
			"the waiter gets the lock after the death of $what");
		$_->query_ok('SELECT zk_unlock_all()') for $first, $second;
		$ensemble->restart;
		wait_until('kazoo', sub { $zkc->state eq 'CONNECTED' });
		nothing_left($zkc, "the death of $what leaves nothing behind");
	}
	$_->stop for @nodes;
	$zkc->close;
	$ensemble->stop;
}

done_testing();
