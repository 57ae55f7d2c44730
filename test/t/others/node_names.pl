# SQL sessions with different zklock.node_names exclude each other on one lock.
#
# Promise: 9.2
# Tags: user

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my @servers = map { shared_node($_, zk => $zk) } qw(a b);

# node names => available modes => pattern of the nodes
my %modes = (
	curator => { exclusive => qr/__WRIT__\d+$/, shared => qr/__READ__\d+$/ },
	curator_mutex => { exclusive => qr/-lock-\d+$/ },
	kazoo => { exclusive => qr/__lock__\d+$/, shared => qr/__rlock__\d+$/ });

my %here = map { $_ => session_with($servers[0], node_names => $_) } sort keys %modes;
my %there = map { $_ => session_with($servers[1], node_names => $_) } sort keys %modes;

sub queue { return wait_zk_children($zkc, '/zklock/locks/x', $_[0]) }

sub sql
{
	my ($verb, $mode) = @_;
	return "SELECT zk_$verb" . ($mode eq 'shared' ? '_shared' : '') . "('x')";
}

# The first session holds; the second session's non-blocking attempt fails, and it waits
# and acquires the lock.
sub test_pair
{
	my ($mine, $my_mode, $yours, $your_mode) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($holder, $waiter) = ($here{$mine}, $there{$yours});
	my $what = "$mine, $my_mode, and $yours, $your_mode";
	my $token = $holder->query_ok(sql('lock', $my_mode));
	my ($node) = queue(1);
	like($node, $modes{$mine}{$my_mode}, "$what: the names are those of $mine");
	if ($my_mode eq 'shared' && $your_mode eq 'shared')
	{
		works($waiter, sql('try_lock', $your_mode), 't', "$what: both share");
		works($here{curator_mutex}, sql('try_lock', 'exclusive'), 'f',
			"$what: a third session is excluded");
		$waiter->query_ok(sql('unlock', $your_mode));
		$holder->query_ok(sql('unlock', $my_mode));
		return queue(0);
	}
	works($waiter, sql('try_lock', $your_mode), 'f', "$what: a non-blocking attempt fails");
	queue(1);
	$waiter->query_async(sql('lock', $your_mode));
	queue(2);
	ok(!$waiter->finished, "$what: the second session waits");
	$holder->query_ok(sql('unlock', $my_mode));
	cmp_ok($waiter->wait_result, '>', $token,
		"$what: the second session acquires the released lock, with a greater token");
	$waiter->query_ok(sql('unlock', $your_mode));
	return queue(0);
}

for my $mine (sort keys %modes)
{
	for my $yours (sort keys %modes)
	{
		for my $my_mode (sort keys %{ $modes{$mine} })
		{
			test_pair($mine, $my_mode, $yours, $_) for sort keys %{ $modes{$yours} };
		}
	}
}
nothing_left($zkc, 'no pair leaves a node');

# A queue with all node names.
{
	my $holder = foreign_node($zkc, '/zklock/locks/x', 'WRIT');
	my @waiting = (
		[ $here{kazoo}, 'shared' ],
		[ $there{curator}, 'shared' ],
		[ $there{curator_mutex}, 'exclusive' ],
		[ $here{curator}, 'exclusive' ]);
	for my $i (0 .. $#waiting)
	{
		my ($session, $mode) = @{ $waiting[$i] };
		$session->query_async(sql('lock', $mode));
		# The writers wait for the local lock of their servers.
		$i < 2 ? queue(2 + $i) : wait_blocked($session);
	}
	$zkc->delete($holder);
	like($waiting[$_][0]->wait_result, qr/^\d+$/,
		'readers with different node names share') for 0, 1;
	ok(!$waiting[2][0]->finished && !$waiting[3][0]->finished,
		'writers with different node names wait for both readers');
	$waiting[1][0]->query_ok(sql('unlock', 'shared'));
	wait_until('the first writer to queue',
		sub { grep { /$modes{curator_mutex}{exclusive}/ } queue(2) });
	ok(!$waiting[2][0]->finished, 'the first writer waits for the other reader');
	$waiting[0][0]->query_ok(sql('unlock', 'shared'));
	like($waiting[2][0]->wait_result, qr/^\d+$/, 'the first writer acquires the lock after the readers');
	ok(!$waiting[3][0]->finished, 'the second writer still waits');
	$waiting[2][0]->query_ok(sql('unlock', 'exclusive'));
	like($waiting[3][0]->wait_result, qr/^\d+$/, 'the second writer acquires the lock after the first');
	$waiting[3][0]->query_ok(sql('unlock', 'exclusive'));
	nothing_left($zkc, 'the queue leaves no node');
}

# Upgrade and downgrade next to waiters with other node names.
for my $names ([ 'curator', 'kazoo' ], [ 'kazoo', 'curator' ])
{
	my ($mine, $yours) = @$names;
	my ($holder, $waiter) = ($here{$mine}, $there{$yours});
	my $token = $holder->query_ok(sql('lock', 'shared'));
	$waiter->query_async(sql('lock', 'exclusive'));
	queue(2);
	works($holder, sql('lock', 'exclusive'), $token,
		"$mine upgrades ahead of a writer of $yours");
	ok(!$waiter->finished, "the writer of $yours still waits");
	works($holder, sql('unlock', 'exclusive'), 't', "$mine downgrades");
	ok(!$waiter->finished, "the writer of $yours waits after the downgrade");
	$holder->query_ok(sql('unlock', 'shared'));
	like($waiter->wait_result, qr/^\d+$/, "the writer of $yours acquires the lock after the release");

	$holder->query_async(sql('lock', 'exclusive'));
	queue(2);
	works($waiter, sql('lock', 'shared') =~ s/$/, zk_unlock('x')/r, qr/^\d+\|t$/,
		"$yours downgrades before a writer of $mine");
	wait_until('the downgrade',
		sub { !grep { /$modes{$yours}{exclusive}/ } queue(2) });
	ok(!$holder->finished, "the writer of $mine waits after the downgrade");
	works($there{$mine}, sql('try_lock', 'shared'), 'f',
		"a reader of $mine does not overtake the writer");
	$waiter->query_ok(sql('unlock', 'shared'));
	like($holder->wait_result, qr/^\d+$/, "the writer of $mine acquires the lock after the last reader");
	$holder->query_ok(sql('unlock', 'exclusive'));

	$_->query_ok(sql('lock', 'shared')) for $holder, $waiter;
	$holder->query_async(sql('lock', 'exclusive'));
	queue(3);
	$waiter->query_async(sql('lock', 'exclusive'));
	failed_with($waiter, '40P01', "two upgrades, $mine and $yours: one fails",
		hint => 0);
	$waiter->query_ok(sql('unlock', 'shared'));
	like($holder->wait_result, qr/^\d+$/, 'the other upgrade succeeds');
	$holder->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, "$mine and $yours: no node is left");
}
