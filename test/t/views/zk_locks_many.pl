# zk_locks pipelines its reads, up to a limit, and shows all of 10,000 locks while
# sessions connect and disconnect.
#
# Alone: it counts requests in flight, and keeps the ensemble busy.

use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 1000)->with_client(timeout => 30);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = zklock_node('a', zk => $zk,
	extra_conf => "zklock.max_locks = 3000\nlog_statement = none\n"
	  . "max_locks_per_transaction = 1000\n");

# SQL of an array of names: the prefix with each number.
sub names
{
	my ($prefix, $from, $to) = @_;
	return "(SELECT array_agg('$prefix' || i) FROM generate_series($from, $to) AS i)";
}

# Requests in flight, counted while the proxy holds the answers.
{
	my $holder = session($node);
	$holder->query_ok('SELECT cardinality(zk_lock_many(' . names('w', 1, 300) . '))');
	my $s = session_with($node, connect_string => $proxy->connect_string);
	is($s->query('SELECT count(*) FROM zk_locks'), '300', 'all 300 locks are shown');

	$proxy->clear_record;
	$proxy->arm(fault => 'hold_answer', op => 'getData', path => '/w\d');
	$s->query_async('SELECT count(*) FROM zk_locks');
	# Answers that the proxy holds count as missing.
	my $unanswered = sub {
		my @reads = grep { $_->{op} =~ /^(?:exists|getData|getChildren)$/ && $_->{paths}[0] ne '/zklock' }
		  $proxy->record;
		my ($held) = grep { $_->{fault} } @reads;
		return 0 if !$held || !defined $held->{answered};
		return scalar grep { !defined $_->{answered} || $_->{answered} >= $held->{answered} } @reads;
	};
	ok(wait_until('some requests', sub { $unanswered->() >= 50 }),
		'many requests are sent before the first is answered');
	cmp_ok($unanswered->(), '<=', 100, 'no more than a hundred requests are in flight');
	$proxy->disarm->release;
	is($s->wait_result, '300', 'all locks are shown after the answers');
	my @reads = grep { $_->{op} !~ /^(?:ping|sync)$/ && $_->{paths}[0] ne '/zklock' } $proxy->record;
	my @paths = map { @{ $_->{paths} } } @reads;
	is(scalar(@paths), 2 + 300 + 300 + 300, 'each lock is listed once, the length and the data of each node are read once');

	# One name: the lock, and the znodes of the semaphore.
	$proxy->clear_record;
	is($s->query(q(SELECT name, granted FROM zk_locks_of('w7'))), 'w7|t', 'zk_locks_of() returns the row of one name');
	my %read = map { $_ => 1 } grep { !/_c_/ } map { @{ $_->{paths} } }
	  grep { $_->{op} !~ /^(?:ping|sync)$/ } $proxy->record;
	is(join(' ', sort keys %read),
		'/zklock/locks/w7 /zklock/semaphores/w7 /zklock/semaphores/w7/leases /zklock/semaphores/w7/locks',
		'zk_locks_of() reads only the znodes of that name');
	$s->quit;
	$holder->quit;
	wait_until('the locks to go', sub { !lock_nodes($zkc) });
}

# 10,000 locks, while other sessions lock and unlock, wait and time out, connect and
# disconnect.
{
	my @holders = map { session($node) } 1 .. 5;
	for my $i (0 .. 4)
	{
		my $half = names("many $i ", 1, 1000);
		$holders[$i]->query_ok("SELECT cardinality(zk_lock_many_shared($half))");
		$half = names("many $i ", 1001, 2000);
		$holders[$i]->query_ok("SELECT cardinality(zk_lock_many_shared($half))");
	}
	my @busy = map { session($node) } 1 .. 3;
	$busy[0]->query_async(q(DO $$ BEGIN FOR i IN 1 .. 1000000 LOOP
		PERFORM zk_lock('busy ' || i % 50), zk_lock((i % 7)::text); PERFORM zk_unlock_all(); COMMIT;
		END LOOP; END $$));
	$busy[1]->query_async(q(DO $$ BEGIN FOR i IN 1 .. 1000000 LOOP
		PERFORM zk_try_lock('many 0 ' || 1 + i % 2000, '5ms'); COMMIT;
		END LOOP; END $$));
	$busy[2]->query_async(q(DO $$ BEGIN FOR i IN 1 .. 1000000 LOOP
		PERFORM zk_xact_lock_many(ARRAY['busy 1', 'x ' || i, 'y ' || i]); COMMIT;
		END LOOP; END $$));

	my $s = session($node);
	for my $round (1 .. 3)
	{
		my $guest = session($node);
		$guest->query_ok(qq(SELECT zk_lock('guest $round')));
		$s->query_async(qq(SELECT count(*) FILTER (WHERE name LIKE 'many %' AND granted AND mode = 'shared'),
			count(*) FILTER (WHERE name LIKE 'many %' AND granted AND mode = 'exclusive'),
			count(*) - count(DISTINCT znode), count(*) FILTER (WHERE client <> 'zklock') FROM zk_locks));
		$guest->terminate;
		is($s->wait_result(timeout => 120), '10000|0|0|0',
			"each of 10,000 locks is shown once (round $round)");
		is($s->error, '', 'the view reports no warning');
	}
	for my $b (@busy)
	{
		ok(!$b->finished, 'the other sessions were busy all the time') || diag($b->error);
		$b->cancel;
		$b->wait_result;
		is($b->sqlstate, '57014', 'the other sessions were busy until the cancel');
		$b->quit;
	}
	$_->quit for @holders;
	wait_until('the locks to go', sub { ($zk->four_letter('mntr') // '') =~ /^zk_ephemerals_count\t0$/m }, timeout => 600);
	is($s->query('SELECT count(*) FROM zk_locks'), '0', 'no lock is shown after all releases');
}
