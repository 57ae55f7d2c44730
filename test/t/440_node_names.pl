# SQL sessions that give their nodes different names, by zklock.node_names, exclude
# each other on one lock: promise 9.2.

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(failed_with fails_with nothing_left works);
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my @servers = map { zklock_node($_, zk => $zk, session_timeout => '10s') } qw(a b);

# node names => the modes that there are, and what the nodes look like
my %modes = (
	curator => { exclusive => qr/__WRIT__\d+$/, shared => qr/__READ__\d+$/ },
	curator_mutex => { exclusive => qr/-lock-\d+$/ },
	kazoo => { exclusive => qr/__lock__\d+$/, shared => qr/__rlock__\d+$/ });

sub speaking
{
	my ($server, $names) = @_;
	my $session = session($servers[$server]);
	$session->query_ok("SET zklock.node_names = '$names'");
	return $session;
}

my %here = map { $_ => speaking(0, $_) } sort keys %modes;
my %there = map { $_ => speaking(1, $_) } sort keys %modes;

sub queue { return wait_zk_children($zkc, '/zklock/locks/x', $_[0]) }

sub sql
{
	my ($verb, $mode) = @_;
	return "SELECT zk_$verb" . ($mode eq 'shared' ? '_shared' : '') . "('x')";
}

# The first holds, the second tries and waits; and gets it.
sub pair
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
			"$what: a third one is excluded");
		$waiter->query_ok(sql('unlock', $your_mode));
		$holder->query_ok(sql('unlock', $my_mode));
		return queue(0);
	}
	works($waiter, sql('try_lock', $your_mode), 'f', "$what: a try is refused");
	queue(1);
	$waiter->query_async(sql('lock', $your_mode));
	queue(2);
	ok(!$waiter->finished, "$what: a wait waits");
	$holder->query_ok(sql('unlock', $my_mode));
	cmp_ok($waiter->wait_result, '>', $token,
		"$what: it gets what is released, with a greater token");
	$waiter->query_ok(sql('unlock', $your_mode));
	return queue(0);
}

for my $mine (sort keys %modes)
{
	for my $yours (sort keys %modes)
	{
		for my $my_mode (sort keys %{ $modes{$mine} })
		{
			pair($mine, $my_mode, $yours, $_) for sort keys %{ $modes{$yours} };
		}
	}
}
nothing_left($zkc, 'no pair leaves anything behind');

# A queue of all of them.
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
		# The writers wait on their own servers, in PostgreSQL's lock manager.
		$i < 2 ? queue(2 + $i) : wait_blocked($session);
	}
	$zkc->delete($holder);
	like($waiting[$_][0]->wait_result, qr/^\d+$/,
		'readers of two kinds are let in together') for 0, 1;
	ok(!$waiting[2][0]->finished && !$waiting[3][0]->finished,
		'writers of two kinds wait for both');
	$waiting[1][0]->query_ok(sql('unlock', 'shared'));
	wait_until('the first writer to queue',
		sub { grep { /$modes{curator_mutex}{exclusive}/ } queue(2) });
	ok(!$waiting[2][0]->finished, 'each of them');
	$waiting[0][0]->query_ok(sql('unlock', 'shared'));
	like($waiting[2][0]->wait_result, qr/^\d+$/, 'the first of them is next');
	ok(!$waiting[3][0]->finished, 'and alone');
	$waiting[2][0]->query_ok(sql('unlock', 'exclusive'));
	like($waiting[3][0]->wait_result, qr/^\d+$/, 'then the second one');
	$waiting[3][0]->query_ok(sql('unlock', 'exclusive'));
	nothing_left($zkc, 'the queue leaves nothing behind');
}

# Upgrade and downgrade beside waiters of another kind.
for my $names ([ 'curator', 'kazoo' ], [ 'kazoo', 'curator' ])
{
	my ($mine, $yours) = @$names;
	my ($holder, $waiter) = ($here{$mine}, $there{$yours});
	my $token = $holder->query_ok(sql('lock', 'shared'));
	$waiter->query_async(sql('lock', 'exclusive'));
	queue(2);
	works($holder, sql('lock', 'exclusive'), $token,
		"$mine upgrades ahead of a writer of $yours");
	ok(!$waiter->finished, 'which goes on waiting');
	works($holder, sql('unlock', 'exclusive'), 't', 'and back');
	ok(!$waiter->finished, 'which lets no writer in');
	$holder->query_ok(sql('unlock', 'shared'));
	like($waiter->wait_result, qr/^\d+$/, "$yours is next");

	$holder->query_async(sql('lock', 'exclusive'));
	queue(2);
	works($waiter, sql('lock', 'shared') =~ s/$/, zk_unlock('x')/r, qr/^\d+\|t$/,
		"$yours downgrades before a writer of $mine");
	wait_until('the downgrade',
		sub { !grep { /$modes{$yours}{exclusive}/ } queue(2) });
	ok(!$holder->finished, 'which lets no writer in');
	works($there{$mine}, sql('try_lock', 'shared'), 'f',
		'and readers stay behind it');
	$waiter->query_ok(sql('unlock', 'shared'));
	like($holder->wait_result, qr/^\d+$/, 'until the last share is gone');
	$holder->query_ok(sql('unlock', 'exclusive'));

	$_->query_ok(sql('lock', 'shared')) for $holder, $waiter;
	$holder->query_async(sql('lock', 'exclusive'));
	queue(3);
	$waiter->query_async(sql('lock', 'exclusive'));
	failed_with($waiter, '40P01', "two upgraders, $mine and $yours: one gets the error",
		hint => 0);
	$waiter->query_ok(sql('unlock', 'shared'));
	like($holder->wait_result, qr/^\d+$/, 'and the other has it');
	$holder->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, "$mine and $yours: nothing is left");
}

fails_with($here{curator_mutex}, sql('lock', 'shared'), '0A000',
	'the names of InterProcessMutex know no shared mode');

$zkc->close;
$_->stop for @servers, $zk;
done_testing();
