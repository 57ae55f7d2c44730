# SQL semaphores and semaphores of other programs count each other's holders: Curator's
# InterProcessSemaphoreV2 and InterProcessSemaphoreMutex, and kazoo's Semaphore.

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(fails_with works);
use ZkLock::Cluster;
use ZkLock::Duel;
use ZkLock::Opponent;
use ZkLock::Shared;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;

my $zk = shared_zk();
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $java = ZkLock::Opponent->curator($zk->connect_string);
my $python = ZkLock::Opponent->kazoo($zk->connect_string);
my @servers = map { shared_node($_, zk => $zk, session_timeout => '10s') } qw(a b);

sub path { return "/zklock/semaphores/$_[0]" }

# Waits until a semaphore has $n holders and waiters. In Curator's layout the first waiter
# already has a permit node and holds the mutex; in kazoo's layout waiters have none.
sub wait_contenders
{
	my ($name, $layout, $n) = @_;
	my ($holders, $queue);
	return wait_until(
		"$n contenders for $name",
		sub {
			my ($held, $queued) =
			  $layout eq 'kazoo' ? ('', '-__lock__') : ('/leases', '/locks');
			$holders = () = $zkc->children(path($name) . $held);
			$queue = () = $zkc->children(path($name) . $queued);
			return $holders + $queue - ($layout eq 'kazoo' || !$queue ? 0 : 1) == $n;
		},
		diag => sub { "$holders permit nodes, $queue queue nodes" });
}

ZkLock::Duel->new(
	what => "Curator's semaphore of one",
	lock => 'v2', mode => 'permit',
	node_names => 'curator',
	theirs => sub { $java->lock(semaphore => path('v2'), leases => 1) },
	servers => \@servers, zk => $zk,
	queue => sub { wait_contenders('v2', 'curator', @_) })->all;
ZkLock::Duel->new(
	what => "Curator's semaphore mutex",
	lock => 'mutex', mode => 'permit',
	node_names => 'curator_mutex',
	theirs => sub { $java->lock(semaphore_mutex => path('mutex')) },
	servers => \@servers, zk => $zk,
	queue => sub { wait_contenders('mutex', 'curator', @_) })->all;
ZkLock::Duel->new(
	what => "kazoo's semaphore of one",
	lock => 'kazoo', mode => 'permit',
	node_names => 'kazoo',
	theirs => sub { $python->lock(semaphore => path('kazoo'), leases => 1) },
	servers => \@servers, zk => $zk,
	queue => sub { wait_contenders('kazoo', 'kazoo', @_) })->all;

# Three permits, for SQL and other programs.
for my $case ([ 'curator', "Curator's", $java ], [ 'kazoo', "kazoo's", $python ])
{
	my ($layout, $whose, $driver) = @$case;
	my $name = "three.$layout";
	my @theirs = map { $driver->lock(semaphore => path($name), leases => 3) } 1 .. 3;
	my @ours = map { session($_) } @servers;
	$_->query_ok("SET zklock.node_names = '$layout'") for @ours;
	my $try = "SELECT zk_try_acquire('$name', 3)";

	ok($theirs[0]->acquire(0), "$whose semaphore of three: they acquire one permit");
	works($ours[0], $try, 't', "$whose semaphore of three: we acquire one permit");
	works($ours[1], $try, 't', "$whose semaphore of three: our second server acquires one permit");
	works($ours[1], $try, 'f', "$whose semaphore of three: we get no fourth permit");
	ok(!$theirs[1]->acquire(100), "$whose semaphore of three: they get no fourth permit");
	$theirs[1]->acquire_async;
	wait_contenders($name, $layout, 4);
	$theirs[2]->acquire_async;
	wait_contenders($name, $layout, 5);
	works($ours[0], "SELECT zk_release('$name')", 't', "$whose semaphore of three: we release one permit");
	ok($theirs[1]->wait_result, "$whose semaphore of three: their first waiter is granted it");
	ok(!$theirs[2]->finished, "$whose semaphore of three: their second waiter still waits");
	works($ours[0],
		"SELECT kind, client, granted, count(*) FROM zk_locks WHERE name = '$name' GROUP BY 1, 2, 3 ORDER BY 2, 3",
		"semaphore|$layout|f|1\nsemaphore|$layout|t|2\nsemaphore|zklock|t|1",
		"$whose semaphore of three: zk_locks shows all holders and waiters");
	$theirs[0]->release;
	ok($theirs[2]->wait_result, "$whose semaphore of three: their second waiter is granted their released permit");
	$ours[0]->query_async("SELECT zk_acquire('$name', 3)");
	wait_contenders($name, $layout, 4);
	$theirs[1]->expire;
	like($ours[0]->wait_result, qr/^\d+$/, "$whose semaphore of three: we acquire the permit of their lost session");
	if ($layout eq 'kazoo')
	{
		fails_with($ours[1], "SELECT zk_try_acquire('$name', 4)", '22023',
			"$whose semaphore of three: another capacity than theirs is refused");
	}
	$_->query_ok('SELECT zk_unlock_all()') for @ours;
	$theirs[2]->release;
	wait_contenders($name, $layout, 0);
	pass("$whose semaphore of three: no node is left");
	$_->quit for @ours;
	$_->close for @theirs;
}

done_testing();
