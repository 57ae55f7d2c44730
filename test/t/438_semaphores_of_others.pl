# Semaphores in SQL and those of other programs count each other's holders:
# Curator's InterProcessSemaphoreV2 and InterProcessSemaphoreMutex, kazoo's
# Semaphore.

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(fails_with works);
use ZkLock::Cluster;
use ZkLock::Duel;
use ZkLock::Opponent;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $java = ZkLock::Opponent->curator($zk->connect_string);
my $python = ZkLock::Opponent->kazoo($zk->connect_string);
my @servers = map { zklock_node($_, zk => $zk, session_timeout => '10s') } qw(a b);

sub path { return "/zklock/semaphores/$_[0]" }

# Waits until so many have a permit or want one. In Curator's layout the first who
# waits has his lease already, and holds the mutex; in kazoo's who waits has none.
sub takers
{
	my ($name, $layout, $n) = @_;
	my ($holders, $queue);
	return wait_until(
		"$n takers of $name",
		sub {
			my ($held, $queued) =
			  $layout eq 'kazoo' ? ('', '-__lock__') : ('/leases', '/locks');
			$holders = () = $zkc->children(path($name) . $held);
			$queue = () = $zkc->children(path($name) . $queued);
			return $holders + $queue - ($layout eq 'kazoo' || !$queue ? 0 : 1) == $n;
		},
		diag => sub { "$holders children hold, $queue wait" });
}

ZkLock::Duel->new(
	what => "Curator's semaphore of one",
	lock => 'v2', mode => 'permit',
	node_names => 'curator',
	theirs => sub { $java->lock(semaphore => path('v2'), leases => 1) },
	servers => \@servers, zk => $zk,
	queue => sub { takers('v2', 'curator', @_) })->all;
ZkLock::Duel->new(
	what => "Curator's semaphore mutex",
	lock => 'mutex', mode => 'permit',
	node_names => 'curator_mutex',
	theirs => sub { $java->lock(semaphore_mutex => path('mutex')) },
	servers => \@servers, zk => $zk,
	queue => sub { takers('mutex', 'curator', @_) })->all;
ZkLock::Duel->new(
	what => "kazoo's semaphore of one",
	lock => 'kazoo', mode => 'permit',
	node_names => 'kazoo',
	theirs => sub { $python->lock(semaphore => path('kazoo'), leases => 1) },
	servers => \@servers, zk => $zk,
	queue => sub { takers('kazoo', 'kazoo', @_) })->all;

# Three permits, for any programs.
for my $case ([ 'curator', "Curator's", $java ], [ 'kazoo', "kazoo's", $python ])
{
	my ($layout, $whose, $driver) = @$case;
	my $name = "three.$layout";
	my @theirs = map { $driver->lock(semaphore => path($name), leases => 3) } 1 .. 3;
	my @ours = map { session($_) } @servers;
	$_->query_ok("SET zklock.node_names = '$layout'") for @ours;
	my $try = "SELECT zk_try_acquire('$name', 3)";

	ok($theirs[0]->acquire(0), "$whose semaphore of three: they take one");
	works($ours[0], $try, 't', "$whose semaphore of three: we take one");
	works($ours[1], $try, 't', "$whose semaphore of three: another server takes one");
	works($ours[1], $try, 'f', "$whose semaphore of three: there is no fourth for us");
	ok(!$theirs[1]->acquire(100), "$whose semaphore of three: nor for them");
	$theirs[1]->acquire_async;
	takers($name, $layout, 4);
	$theirs[2]->acquire_async;
	takers($name, $layout, 5);
	works($ours[0], "SELECT zk_release('$name')", 't', "$whose semaphore of three: we give one back");
	ok($theirs[1]->wait_result, "$whose semaphore of three: who waited first gets it");
	ok(!$theirs[2]->finished, "$whose semaphore of three: and no other");
	works($ours[0],
		"SELECT kind, client, granted, count(*) FROM zk_locks WHERE name = '$name' GROUP BY 1, 2, 3 ORDER BY 2, 3",
		"semaphore|$layout|f|1\nsemaphore|$layout|t|2\nsemaphore|zklock|t|1",
		"$whose semaphore of three: zk_locks shows who is who");
	$theirs[0]->release;
	ok($theirs[2]->wait_result, "$whose semaphore of three: they give one back, to the next");
	$ours[0]->query_async("SELECT zk_acquire('$name', 3)");
	takers($name, $layout, 4);
	$theirs[1]->expire;
	like($ours[0]->wait_result, qr/^\d+$/, "$whose semaphore of three: their lost session frees one for us");
	if ($layout eq 'kazoo')
	{
		fails_with($ours[1], "SELECT zk_try_acquire('$name', 4)", '22023',
			"$whose semaphore of three: it has the size that they gave it");
	}
	$_->query_ok('SELECT zk_unlock_all()') for @ours;
	$theirs[2]->release;
	takers($name, $layout, 0);
	pass("$whose semaphore of three: nothing is left");
	$_->quit for @ours;
	$_->close for @theirs;
}

$_->stop for @servers;
done_testing();
