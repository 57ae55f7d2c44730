# Semaphores of two PostgreSQL servers on one ensemble of three members: never more permits
# than the capacity, first come, first served, one capacity at a time, whatever node names the
# sessions use for locks. No session ends by itself: the timeout is long.
#
# Promises: 1.1, 2.1
# Tags: user

use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkEnsemble->start(
	size => 3,
	tick_time => 500,
	container_check_ms => 500)->with_client;
my %server = map { $_ => shared_node($_, zk => $zk) } qw(a b);
my $semaphores = '/zklock/semaphores';
my %names = (a => 'curator', b => 'kazoo');

sub member
{
	my ($server) = @_;
	return session_with($server{$server}, node_names => $names{$server});
}

# The parents of the permit nodes and of the queue of a semaphore.
sub leases { return "$semaphores/$_[0]/leases" }
sub queue { return "$semaphores/$_[0]/locks" }

sub test_count
{
	my ($a1, $a2, $b1) = (member('a'), member('a'), member('b'));

	like($a1->query("SELECT zk_acquire_permit('n', 2)"), qr/^$/, 'zk_acquire_permit() returns nothing');
	works($b1, "SELECT zk_try_acquire_permit('n', 2)", 't', 'another server acquires the second permit');
	works($a2, "SELECT zk_try_acquire_permit('n', 2)", 'f', 'there is no third permit');
	works($b1, "SELECT zk_try_acquire_permit('n', 2)", 'f', 'there is no third permit for a holder either');
	works($a1, "SELECT zk_release_permit('n')", 't', 'a permit is released');
	works($b1, "SELECT zk_try_acquire_permit('n', 2, '1 min')", 't', 'a released permit is available on another server');
	works($b1, 'SELECT zk_unlock_all()', '', 'zk_unlock_all() releases permits');
	works($a2, "SELECT zk_try_acquire_permit('n', 2, '1 min')", 't', "permits are available after zk_unlock_all(): $_") for 1, 2;
	$a2->query_ok('DISCARD ALL');
	works($b1, "SELECT zk_try_acquire_permit('n', 2, '1 min')", 't', "permits are available after DISCARD ALL: $_") for 1, 2;
	$b1->quit;
	works($a1, "SELECT zk_try_acquire_permit('n', 2, '1 min')", 't', "permits are available after the end of a session: $_") for 1, 2;
	$_->quit for $a1, $a2;
	return;
}

sub test_transactions
{
	my ($a, $b) = (member('a'), member('b'));

	for my $end (qw(COMMIT ROLLBACK))
	{
		$a->query_ok("BEGIN; SELECT zk_xact_acquire_permit('x', 1)");
		works($b, "SELECT zk_try_acquire_permit('x', 1)", 'f', "before $end the permit is held");
		wait_zk_empty($zkc, queue('x'));
		$b->query_async("SELECT zk_acquire_permit('x', 1)");
		wait_zk_children($zkc, queue('x'), 1);
		$a->query_ok($end);
		$b->wait_result;
		ok($b->ok, "$end releases the permit");
		$b->query_ok("SELECT zk_release_permit('x')");
	}
	$a->query_ok("BEGIN; SELECT zk_try_xact_acquire_permit('x', 2 - 1, '1 min'); SAVEPOINT s");
	fails_with($a, "SELECT zk_xact_acquire_permit('x', 1)", '40P01', 'a wait for a permit of the same session is a deadlock');
	$a->query_ok("ROLLBACK TO s; ROLLBACK; BEGIN; SAVEPOINT s; SELECT zk_xact_acquire_permit('x', 1)");
	wait_zk_empty($zkc, queue('x'));
	$b->query_async("SELECT zk_acquire_permit('x', 1)");
	wait_zk_children($zkc, queue('x'), 1);
	$a->query_ok('ROLLBACK TO s');
	$b->wait_result;
	ok($b->ok, 'ROLLBACK TO releases permits acquired after the savepoint');
	$_->quit for $a, $b;
	return;
}

sub test_order
{
	my @s = map { member($_) } qw(a b a b a);
	my @tokens;

	$_->query_ok("SELECT zk_acquire_permit('o', 2)") for @s[ 0, 1 ];

	# The queue nodes of the holders are deleted a moment after the grant.
	wait_zk_empty($zkc, queue('o'));
	for my $i (2 .. 4)
	{
		$s[$i]->query_async("SELECT zk_acquire_permit('o', 2)");
		wait_zk_children($zkc, queue('o'), $i - 1);
	}
	for my $i (2 .. 4)
	{
		$s[ $i - 2 ]->query_ok("SELECT zk_release_permit('o')");
		$s[$i]->wait_result;
		push @tokens, scalar $s[$i]->query('SELECT token FROM zk_held_locks');
		my @waiting = grep { !$s[$_]->finished } $i + 1 .. 4;
		is(scalar @waiting, 4 - $i, 'one released permit is granted to one waiter, in queue order');
	}
	ok($tokens[0] < $tokens[1] && $tokens[1] < $tokens[2], "tokens grow: @tokens");
	$_->quit for @s;
	return;
}

# Sessions of both servers request different capacities at once.
sub test_capacities
{
	my @s = map { member($_) } qw(a b a b);

	for my $round (1 .. 3)
	{
		my $name = "sizes$round";

		$s[$_]->query_async("SELECT zk_acquire_permit('$name', " . (10 + $_ % 2) . ')') for 0 .. 3;
		my @answers = map { scalar $_->wait_result } @s;
		my @errors = map { $_->error } @s;
		my $capacity = $zkc->get("$semaphores/$name")->{data};
		is_deeply(
			[ map { $_->sqlstate } @s ],
			$capacity == 10
			? [qw(00000 22023 00000 22023)]
			: [qw(22023 00000 22023 00000)],
			"one capacity wins: $capacity")
		  || diag(join "\n", @answers, @errors);
		my ($error) = grep { $_ } @errors;
		like($error, qr/"$name" has $capacity permits, not (?!$capacity)1[01]\n.*HINT/s, 'the error of the other sessions names both capacities');
		fails_with($s[0], "SELECT zk_try_acquire_permit('$name', 3)", '22023', 'a later session with another capacity gets the same error');
		$_->query_ok('SELECT zk_unlock_all()') for @s;
	}

	# Another program has created the semaphore, without a capacity.
	$zkc->create("$semaphores/theirs", makepath => 1, data => '');
	$s[$_]->query_ok("SELECT zk_acquire_permit('theirs', " . (10 + $_) . ')') for 0 .. 3;
	is($zkc->get("$semaphores/theirs")->{data}, '', "the capacity of another program's semaphore is not set, and sizes are not compared");
	$_->query_ok('SELECT zk_unlock_all()') for @s;
	$_->quit for @s;
	nothing_left($zkc, 'a call with another capacity leaves no node');
	return;
}

# A non-blocking attempt fails only if no permit is available, or if it has waited a second for the
# attempts of others.
sub test_tries
{
	my @s = map { member($_) } (qw(a b)) x 3;

	for my $round (1 .. 5)
	{
		$_->query_async("SELECT zk_try_acquire_permit('tries', 4), clock_timestamp() - statement_timestamp() >= '1 s'") for @s;
		my @answers = map { $_->wait_result || $_->error } @s;
		my ($granted, $slow) = map { my $wanted = $_; scalar grep { /^$wanted/ } @answers } 't', 'f\|t';
		my $answered = grep { /^[tf]\|/ } @answers;
		ok($answered == 6 && ($granted == 4 || $granted < 4 && $granted + $slow >= 4),
			'four of six simultaneous attempts acquire the four permits, unless they have waited a second') || diag("@answers");
		$_->query_ok('SELECT zk_unlock_all()') for @s;
		nothing_left($zkc, 'the four permits are released');
	}
	$_->quit for @s;
	return;
}

test_count();
test_transactions();
test_order();
test_capacities();
test_tries();
$zkc->delete("$semaphores/$_", recursive => 1) for $zkc->children($semaphores);

# The nodes that other programs rely on.
my ($a, $b) = (member('a'), member('b'));
$a->query_ok("SELECT zk_acquire_permit('seen', 5)");
is($zkc->get("$semaphores/seen")->{data}, '5', 'the capacity is the data of the znode');
my ($lease) = $zkc->children("$semaphores/seen/leases");
like($lease, qr/^_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lease-\d{10}$/, "a permit node has Curator's name");
like($zkc->get("$semaphores/seen/leases/$lease")->{data}, qr/^zklock .*pid=${\$a->pid}\b/, 'the data of a permit node name its owner');
wait_zk_empty($zkc, "$semaphores/seen/locks");

# A child node of another program counts as a permit.
$zkc->create("$semaphores/seen/leases/stranger", ephemeral => 1);
works($a, "SELECT zk_try_acquire_permit('seen', 5)", 't', "a permit beside that of another program: $_") for 1 .. 3;
works($a, "SELECT zk_try_acquire_permit('seen', 5)", 'f', 'the permit of another program counts');
$zkc->delete("$semaphores/seen/leases/stranger");
works($a, "SELECT zk_try_acquire_permit('seen', 5)", 't', 'the permit is available once the other program releases it');

$_->query_ok('SELECT zk_unlock_all()') for $a, $b;
nothing_left($zkc, 'no node is left');

# An unused semaphore is removed after a while, with its capacity.
wait_until('the semaphore to be removed', sub { !$zkc->exists("$semaphores/seen") });
works($a, "SELECT zk_acquire_permit('seen', 2)", '', 'a removed semaphore can have another capacity');
