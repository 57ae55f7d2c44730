# Outages shorter than the session timeout only cost time. After a longer outage a
# waiter is queued again, at the end of the queue.
#
# Promises: 3.5, 4.4, 5.1
# Tags: user

use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $proxy_a = ZkLock::Proxy->start(target => $zk);
my $proxy_b = ZkLock::Proxy->start(target => $zk);
my $node_a = zklock_node('a', proxy => $proxy_a);
my $node_b = zklock_node('b', proxy => $proxy_b);
$_->safe_psql('postgres', 'CREATE TABLE t (v text)') for $node_a, $node_b;

# Drops the connections of a proxy and waits until the clients have reconnected.
sub blink
{
	my ($proxy) = @_;
	my $count = $proxy->connections;
	$proxy->cut;
	wait_until('the clients to reconnect',
		sub { $proxy->connections >= $count });
	return;
}

# An idle holder.
{
	my $first = connected_session($node_a);
	my $second = connected_session($node_b);
	my $id = zk_session_id($first);
	$first->query_ok('BEGIN');
	my $token = $first->query_ok("SELECT zk_xact_lock('idle')");
	$first->query_ok("INSERT INTO t VALUES ('idle')");
	my @before = queue_of($zkc, 'idle');

	$proxy_a->cut(refuse => 1);
	wait_state($first, 'suspended');
	works($first, 'SELECT name, state FROM zk_held_locks', 'idle|suspect',
		'the state of a lock is suspect while the connection is down');
	works($second, "SELECT zk_try_lock('idle')", 'f',
		'an attempt is refused while the holder is disconnected');
	$proxy_a->accept;
	wait_state($first, 'connected');
	is(zk_session_id($first), $id, 'a reconnect keeps the ZooKeeper session');
	works($first, 'SELECT name, state FROM zk_held_locks', 'idle|held',
		'the state of a lock is held after the reconnect');
	is_deeply([ queue_of($zkc, 'idle') ],
		\@before, 'a short outage keeps the node of a lock');
	blink($proxy_a);
	works($first, "SELECT zk_lock_token('idle')", $token,
		'an outage keeps the token of a lock');
	works($first, 'COMMIT', '',
		'a transaction commits after a short outage');
	ok( wait_until('the grant to b',
			sub { $second->query("SELECT zk_try_lock('idle')") eq 't' }),
		'the lock is free after that commit');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'an outage of a holder leaves no node');

	# blink() counts the connections.
	$_->quit for $first, $second;
	wait_until('the connections to end', sub { !$proxy_a->connections && !$proxy_b->connections });
}

# A waiter, with several cuts.
{
	my $first = connected_session($node_a);
	my $second = connected_session($node_b);
	$first->query_ok("SELECT zk_lock('queue')");
	$second->query_async("SELECT zk_lock('queue')");
	wait_zk_children($zkc, '/zklock/locks/queue', 2);
	my @before = queue_of($zkc, 'queue');
	blink($_) for $proxy_b, $proxy_b, $proxy_a, $proxy_b, $proxy_a;
	is_deeply([ queue_of($zkc, 'queue') ],
		\@before, 'a waiter keeps its node over several short outages');
	ok(!$second->finished, 'a waiter goes on waiting over several short outages');
	$first->query_ok("SELECT zk_unlock('queue')");
	like($second->wait_result, qr/^\d+$/,
		'the waiter is granted the lock when the holder releases it');
	$second->query_ok('SELECT zk_unlock_all()');

	$first->query_ok("SELECT zk_lock('queue')");
	$second->query_async("SELECT zk_lock('queue')");
	wait_zk_children($zkc, '/zklock/locks/queue', 2);
	$proxy_b->cut(refuse => 1);
	$first->query_ok("SELECT zk_unlock('queue')");
	wait_zk_children($zkc, '/zklock/locks/queue', 1);
	$proxy_b->accept;
	like($second->wait_result, qr/^\d+$/,
		'a release during the outage is noticed after the reconnect');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'outages of waiters leave no node');
}

# A waiter, with an outage longer than the session timeout.
{
	my $first = connected_session($node_a);
	my $second = connected_session($node_b, session_timeout => '2s');
	$first->query_ok("SELECT zk_lock('again')");
	$second->query_async("SELECT zk_lock('again')");
	wait_zk_children($zkc, '/zklock/locks/again', 2);
	my ($holder, $waiter) = queue_of($zkc, 'again');
	$proxy_b->cut(refuse => 1);
	wait_zk_children($zkc, '/zklock/locks/again', 1);
	ok(!$second->finished, 'a waiter whose session has expired goes on waiting');
	$proxy_b->accept;
	wait_zk_children($zkc, '/zklock/locks/again', 2);
	my ($holder_now, $waiter_now) = queue_of($zkc, 'again');
	is($holder_now, $holder, 'the holder keeps its node');
	isnt($waiter_now, $waiter, 'the waiter is queued again with a new node after the outage');
	$first->query_ok("SELECT zk_unlock('again')");
	like($second->wait_result, qr/^\d+$/, 'the waiter queued again is granted the lock');
	is($second->error, '', 'the waiter queued again gets no message');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'a waiter queued again leaves no node');
}

# The same, if the ensemble is unreachable again before the next session is open.
{
	my $proxy = ZkLock::FaultProxy->start(target => $zk);
	my $node = zklock_node('d', zk => $proxy);
	my $first = connected_session($node_a);
	my $second = connected_session($node);
	my $sleeper = session($node_a);
	$first->query_ok("SELECT zk_lock('again')");
	$second->query_ok("SET zklock.ensemble_timeout = '4s'");
	$second->query_ok("SET log_lock_waits = on; SET deadlock_timeout = '10ms'");
	my $offset = -s $node->logfile;
	$second->query_async("SELECT zk_lock('again')");
	wait_for_log($node, qr/still waiting for zk lock "again"/, $offset);
	$proxy->arm(fault => 'cut_after', op => 'connect', down => 1);
	$proxy->arm(fault => 'expire');
	wait_until('the next outage', sub { $proxy->hits == 2 });
	$sleeper->query_ok('SELECT pg_sleep(5)');
	ok(!$second->finished, 'ensemble_timeout does not end a wait whose session has expired');
	$proxy->up;
	wait_zk_children($zkc, '/zklock/locks/again', 2);
	$first->query_ok("SELECT zk_unlock('again')");
	like($second->wait_result, qr/^\d+$/, 'the waiter is granted the lock in the next session');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'two outages in one wait leave no node');
	$node->stop;
}

# A call that needs an answer, while the network is silent.
{
	for my $call (
		[ lock => "SELECT zk_lock('answer')" ],
		[ 'non-blocking attempt' => "SELECT zk_try_lock('answer', interval '0')" ],
		[ 'call for several locks' => "SELECT zk_xact_lock_many(ARRAY['answer', 'answer2'])" ])
	{
		my ($kind, $sql) = @$call;
		my $second = connected_session($node_b);
		$second->query_ok("SET zklock.ensemble_timeout = '300ms'");
		$proxy_b->freeze;
		fails_with($second, $sql, '08006',
			"a $kind without an answer of a silent network fails",
			like => qr/"answer"/);
		$proxy_b->thaw;
		nothing_left($zkc, "a $kind that failed because of a silent network leaves no node after the silence");
		$second->query_ok('RESET zklock.ensemble_timeout');
		works($second, "SELECT zk_try_lock('answer')",
			't', 'the session can lock again after a silent network');
		$second->query_ok('SELECT zk_unlock_all()');
		$second->quit;
	}
	my $second = connected_session($node_b, ensemble_timeout => '10min');
	$proxy_b->freeze;
	$second->query_async("SELECT zk_lock('answer')");
	wait_blocked($second);
	$second->cancel;
	failed_with($second, '57014',
		'a call that waits for an answer of a silent network can be cancelled',
		hint => 0);
	$second->query_async("SELECT zk_lock_many(ARRAY['answer', 'answer2'])");
	wait_blocked($second);
	$second->cancel;
	failed_with($second, '57014', 'a call for several locks can be cancelled as well', hint => 0);
	$proxy_b->thaw;
	nothing_left($zkc,
		'a call cancelled while the network is silent leaves no node after the silence');
	works($second, "SELECT zk_try_lock('answer')",
		't', 'the session can lock again after that cancel');
	$second->query_ok('SELECT zk_unlock_all()');

	$proxy_b->freeze;
	$second->query_async("SELECT zk_lock('answer')");
	wait_blocked($second);
	$second->terminate;
	$second->wait_result;
	is($second->sqlstate, 'lost',
		'a call that waits for an answer of a silent network can be terminated');
	$proxy_b->thaw;
	nothing_left($zkc, 'a call terminated while the network is silent leaves no node');
}

# Slow answers: each comes within ensemble_timeout, all of them together do not.
{
	my $proxy = ZkLock::FaultProxy->start(target => $zk);
	my $node = zklock_node('c', zk => $proxy);
	my $caller = connected_session($node);
	my $sleeper = session($node_a);
	$caller->query_ok("SET zklock.ensemble_timeout = '14s'");
	$proxy->arm(fault => 'hold_answer', op => 'multi');
	$caller->query_async("SELECT zk_lock_many(ARRAY['slow', 'slower']) IS NOT NULL");
	for my $op (qw(multi getData))
	{
		wait_until("the answer to $op", sub { grep { $_->{op} eq $op && $_->{fault} } $proxy->record });
		$sleeper->query_ok('SELECT pg_sleep(8)');
		$proxy->disarm;
		$proxy->arm(fault => 'hold_answer', op => 'getData', path => 'slow') if $op eq 'multi';
		$proxy->release;
	}
	is($caller->wait_result, 't', 'ensemble_timeout begins again with each answer that brings the call further');
	$proxy->disarm->release;
	$caller->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'slow answers leave no node');
	$node->stop;
}

# Releases while disconnected.
{
	my $first = connected_session($node_a);
	my $second = connected_session($node_b);
	my $id = zk_session_id($first);

	# A statement of a disconnected holder may wait for the check.
	$first->query_ok('SET zklock.commit_check = off');
	$first->query_ok("SELECT zk_lock('release')");
	$second->query_async("SELECT zk_lock('release')");
	wait_zk_children($zkc, '/zklock/locks/release', 2);
	$proxy_a->cut(refuse => 1);
	wait_state($first, 'suspended');
	works($first, "SELECT zk_unlock('release')", 't',
		'a release succeeds while the ensemble is unreachable');
	is(scalar(queue_of($zkc, 'release')), 2,
		'the node stays until the end of the outage');
	$proxy_a->accept;
	like($second->wait_result, qr/^\d+$/,
		'the queued release is sent after the reconnect of an idle backend'
	);
	is(zk_session_id($first), $id, 'an idle backend sends the release in the same ZooKeeper session');
	$second->query_ok('SELECT zk_unlock_all()');

	$first->query_ok("SELECT zk_lock('release')");
	$proxy_a->cut(refuse => 1);
	wait_state($first, 'suspended');
	$first->query_ok("SELECT zk_unlock('release')");
	$first->query_async('SELECT pg_sleep(3600)');
	wait_asleep($first);
	$proxy_a->accept;
	wait_zk_empty($zkc, '/zklock/locks/release');
	ok(!$first->finished,
		'the queued release is sent after the reconnect of a busy backend');
	$first->cancel;
	$first->wait_result;
	is(zk_session_id($first), $id, 'a busy backend sends the release in the same ZooKeeper session');

	nothing_left($zkc, 'releases during an outage leave no node');
}

# Under load: the times of two exclusive holds never overlap, by the clock of this
# machine.
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
			INSERT INTO holds VALUES (mine, clock_timestamp(), NULL);
			UPDATE holds SET until = clock_timestamp()
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
CREATE TABLE holds (token bigint PRIMARY KEY, since timestamptz, until timestamptz);
SQL
	my @workers =
	  map { connected_session($_) } $node_a, $node_b, $node_a, $node_b;
	$_->query_async($loop) for @workers;
	my $cuts = 0;
	while (grep { !$_->finished } @workers)
	{
		$_->cut for $cuts % 2 ? $proxy_a : $proxy_b;
		$cuts++;
		wait_until(
			'progress',
			sub {
				(grep { !$_->finished } @workers) == 0
				  || $proxy_a->connections + $proxy_b->connections >= 2;
			}) or last;
	}
	$_->wait_result for @workers;
	is(join(' ', map { $_->sqlstate } @workers), '00000 00000 00000 00000',
		'all workers succeed although connections are cut repeatedly');
	cmp_ok($cuts, '>', 5, 'there were many cuts');
	my @holds = sort { $a->[0] <=> $b->[0] }
	  map { [ split /\|/ ] }
	  map {
		split /\n/, $_->safe_psql('postgres',
			'SELECT token, extract(epoch FROM since), extract(epoch FROM until) FROM holds'
		)
	  } $node_a, $node_b;
	is(scalar(@holds), 240, 'every hold is recorded');
	my @overlaps = grep { $holds[$_][1] < $holds[ $_ - 1 ][2] } 1 .. $#holds;
	is(scalar(@overlaps), 0,
		'no holds overlap, in the order of their tokens');
	nothing_left($zkc, 'cuts at any moment of a call leave no node');
}
$zkc->close;
$_->stop for $node_a, $node_b;
$zk->stop;

# The death of a member of the ensemble.
{
	# The longest session timeout is 20 ticks: longer than an election on a busy machine.
	my $ensemble = ZkLock::ZkEnsemble->start(size => 3, tick_time => 2000);
	$zkc = ZkLock::ZkClient->new($ensemble->connect_string);
	my @nodes = map {
		zklock_node("of_$_", zk => $ensemble, session_timeout => '40s')
	} qw(a b);
	my ($first, $second) = map { session($_) } @nodes;

	my $member_of = sub {
		my ($s) = @_;
		my $server = $s->query_ok('SELECT server FROM zk_session()');
		my ($member) =
		  grep { $_->connect_string eq $server } $ensemble->members;
		return $member;
	};
	my %members = (
		'the leader' => sub { $ensemble->leader },
		'a follower' => sub { ($ensemble->followers)[0] },
		"the holder's server" => sub { $member_of->($first) },
		"the waiter's server" => sub { $member_of->($second) });
	for my $what (sort keys %members)
	{
		$_->query_ok("SELECT zk_lock('own-' || pg_backend_pid())") for $first, $second;
		$first->query_ok('BEGIN');
		$first->query_ok("SELECT zk_xact_lock('member')");
		my $victim = $members{$what}->();
		$second->query_async("SELECT zk_lock('member')");
		my @before = wait_zk_children($zkc, '/zklock/locks/member', 2);
		$victim->kill9;
		$ensemble->wait_ready(2);
		wait_state($first, 'connected');
		wait_until('the tree',
			sub { eval { $zkc->children('/zklock/locks/member') } });
		is_deeply([ $zkc->children('/zklock/locks/member') ],
			\@before, "holder and waiter survive the death of $what");
		ok(!$second->finished, "the waiter goes on waiting after the death of $what");
		works($first, 'COMMIT', '',
			"the holder commits after the death of $what");
		like($second->wait_result, qr/^\d+$/,
			"the waiter is granted the lock after the death of $what");
		$_->query_ok('SELECT zk_unlock_all()') for $first, $second;
		$ensemble->restart;
		wait_until('kazoo', sub { $zkc->state eq 'CONNECTED' });
		nothing_left($zkc, "the death of $what leaves no node");
	}
	$_->stop for @nodes;
	$zkc->close;
	$ensemble->stop;
}
