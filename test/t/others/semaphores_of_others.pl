# SQL semaphores and semaphores of other programs count each other's holders: Curator's
# InterProcessSemaphoreV2 and InterProcessSemaphoreMutex.
#
# Promise: 9.1

use ZkLock::Duel;
use ZkLock::Opponent;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $java = ZkLock::Opponent->curator($zk->connect_string);
my @servers = map { shared_node($_, zk => $zk) } qw(a b);

sub path { return "/zklock/semaphores/$_[0]" }

# Waits until a semaphore has $n holders and waiters. The first waiter already has a permit
# node and holds the mutex.
sub wait_contenders
{
	my ($name, $n) = @_;
	my ($holders, $queue);
	return wait_until(
		"$n contenders for $name",
		sub {
			$holders = () = $zkc->children(path($name) . '/leases');
			$queue = () = $zkc->children(path($name) . '/locks');
			return $holders + $queue - ($queue ? 1 : 0) == $n;
		},
		diag => sub { "$holders permit nodes, $queue queue nodes" });
}

ZkLock::Duel->new(
	what => "Curator's semaphore of one",
	lock => 'v2', mode => 'permit',
	node_names => 'curator',
	theirs => sub { $java->lock(semaphore => path('v2'), leases => 1) },
	servers => \@servers, zk => $zk,
	queue => sub { wait_contenders('v2', @_) })->all;
ZkLock::Duel->new(
	what => "Curator's semaphore mutex",
	lock => 'mutex', mode => 'permit',
	node_names => 'curator_mutex',
	theirs => sub { $java->lock(semaphore_mutex => path('mutex')) },
	servers => \@servers, zk => $zk,
	queue => sub { wait_contenders('mutex', @_) })->all;
# Three permits, for SQL and other programs.
{
	my $name = 'three';
	my @theirs = map { $java->lock(semaphore => path($name), leases => 3) } 1 .. 3;
	my @ours = map { session($_) } @servers;
	$ours[1]->reconnect('zklock.node_names' => 'kazoo');
	my $try = "SELECT zk_try_acquire_permit('$name', 3)";

	ok($theirs[0]->acquire(0), 'a semaphore of three: they acquire one permit');
	works($ours[0], $try, 't', 'a semaphore of three: we acquire one permit');
	works($ours[1], $try, 't', 'a semaphore of three: our second server acquires one permit');
	works($ours[1], $try, 'f', 'a semaphore of three: we get no fourth permit');
	ok(!$theirs[1]->acquire(100), 'a semaphore of three: they get no fourth permit');
	$theirs[1]->acquire_async;
	wait_contenders($name, 4);
	$theirs[2]->acquire_async;
	wait_contenders($name, 5);
	works($ours[0], "SELECT zk_release_permit('$name')", 't', 'a semaphore of three: we release one permit');
	ok($theirs[1]->wait_result, 'a semaphore of three: their first waiter is granted it');
	ok(!$theirs[2]->finished, 'a semaphore of three: their second waiter still waits');
	works($ours[0],
		"SELECT kind, client, granted, count(*) FROM zk_locks WHERE name = '$name' GROUP BY 1, 2, 3 ORDER BY 2, 3",
		"semaphore|curator|f|1\nsemaphore|curator|t|2\nsemaphore|zklock|t|1",
		'a semaphore of three: zk_locks shows all holders and waiters');
	$theirs[0]->release;
	ok($theirs[2]->wait_result, 'a semaphore of three: their second waiter is granted their released permit');
	$ours[0]->query_async("SELECT zk_acquire_permit('$name', 3)");
	wait_contenders($name, 4);
	$theirs[1]->expire;
	$ours[0]->wait_result;
	ok($ours[0]->ok, 'a semaphore of three: we acquire the permit of their lost session');
	$_->query_ok('SELECT zk_unlock_all()') for @ours;
	$theirs[2]->release;
	wait_contenders($name, 0);
	pass('a semaphore of three: no node is left');
	$_->quit for @ours;
	$_->close for @theirs;
}
