# Promise 3.7: after a release has returned, an attempt that does not wait and
# begins later on the same server is never refused because of what was released.
# On another server it looks a second time, behind a sync, before it is refused.
# The delete of what is released is held back on its way until the attempt has
# looked twice.

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(nothing_left works);
use ZkLock::Cluster;
use ZkLock::FaultProxy;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $here = zklock_node('here', proxy => $proxy, session_timeout => '20s');
my $there = zklock_node('there', zk => $zk, session_timeout => '20s');

# Who releases, who tries then, and a session of another server.
my $s = session($here);
my $t = session($here);
my $far = session($there);
$_->query_ok("SELECT zk_lock('warm-up'), zk_unlock('warm-up')") for $s, $t, $far;

# Has somebody listed a queue, or permits, behind a sync?
sub looked_twice
{
	my %synced;
	for my $r (grep { $_->{answered} } $proxy->record)
	{
		return 1 if $r->{op} =~ /^getChildren/ && $synced{ $r->{connection} };
		$synced{ $r->{connection} } = 1 if $r->{op} eq 'sync';
	}
	return 0;
}

sub release_then_try
{
	my ($name, $take, $release, $try) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$s->query_ok($_) for @{$take};
	my $hits = $proxy->hits;
	$proxy->arm(fault => 'hold_request', op => [ 'delete', 'multi' ], path => '(x|leases)/');
	$s->query_ok($release);
	wait_until('the delete', sub { $proxy->hits > $hits });
	$proxy->clear_record;
	$t->query_async($try);
	wait_until('the try to look twice', sub { $t->finished || looked_twice() });
	ok(!$t->finished, "$name, then a try in another session: waits for the delete");
	$proxy->disarm->release;
	is($t->wait_result, 't', "$name, then a try in another session");
	$_->query_ok('SELECT zk_unlock_all()') for $s, $t;
	return;
}

my @locks = (
	[ 'zk_unlock', ["SELECT zk_lock('x')"], "SELECT zk_unlock('x')" ],
	[ 'zk_unlock_shared', ["SELECT zk_lock_shared('x')"], "SELECT zk_unlock_shared('x')" ],
	[ 'zk_unlock_all', ["SELECT zk_lock(ARRAY['x', 'y'])"], 'SELECT zk_unlock_all()' ],
	[ 'COMMIT', [ 'BEGIN', "SELECT zk_xact_lock('x')" ], 'COMMIT' ],
	[ 'ROLLBACK', [ 'BEGIN', "SELECT zk_xact_lock('x')" ], 'ROLLBACK' ],
	[ 'ROLLBACK TO', [ 'BEGIN', 'SAVEPOINT a', "SELECT zk_xact_lock('x')" ], 'ROLLBACK TO a' ],
	[ 'DISCARD ALL', [ 'ROLLBACK', "SELECT zk_lock('x')" ], 'DISCARD ALL' ]);
release_then_try(@{$_}, "SELECT zk_try_lock('x')") for @locks;
release_then_try('a try for several, shared', @{ $locks[0] }[ 1, 2 ],
	"SELECT zk_try_lock_shared(ARRAY['w', 'x'])");

my $take = "SELECT zk_acquire('s', 1)";
my @permits = (
	[ 'zk_release', [$take], "SELECT zk_release('s')" ],
	[ 'zk_unlock_all', [$take], 'SELECT zk_unlock_all()' ],
	[ 'COMMIT', [ 'BEGIN', "SELECT zk_xact_acquire('s', 1)" ], 'COMMIT' ],
	[ 'ROLLBACK', [ 'BEGIN', "SELECT zk_xact_acquire('s', 1)" ], 'ROLLBACK' ],
	[ 'ROLLBACK TO', [ 'BEGIN', 'SAVEPOINT a', "SELECT zk_xact_acquire('s', 1)" ], 'ROLLBACK TO a' ],
	[ 'DISCARD ALL', [ 'ROLLBACK', $take ], 'DISCARD ALL' ]);
release_then_try("permits: $_->[0]", @{$_}[ 1, 2 ], "SELECT zk_try_acquire('s', 1)") for @permits;

# Of those that a session has, one is released, whichever.
for my $oldest_first (0, 1)
{
	my @taken = ("SELECT zk_acquire('m', 3)", 'BEGIN', "SELECT zk_xact_acquire('m', 3)");
	my @none = ("SELECT zk_try_acquire('m', 3)", 'f');
	$far->query_ok("SELECT zk_acquire('m', 3)");
	release_then_try("one of two permits, the " . ($oldest_first ? 'older' : 'younger') . ' one',
		\@taken, $oldest_first ? "SELECT zk_release('m')" : 'COMMIT', $none[0]);
	$s->query_ok('ROLLBACK') if $oldest_first;
	$s->query_ok($_) for @taken, 'COMMIT', $taken[0];
	works($_, @none, 'permits that are held refuse a try') for $t, $s, $far;
	$s->query_ok('SELECT zk_unlock_all()');
	$far->query_ok('SELECT zk_unlock_all()');
}

$_->query_ok('SET zklock.deadlock_detection = off') for $s, $t;
release_then_try('without deadlock detection', @{ $locks[0] }[ 1, 2 ], "SELECT zk_try_lock('x')");
release_then_try('permits: without deadlock detection', @{ $permits[0] }[ 1, 2 ],
	"SELECT zk_try_acquire('s', 1)");
nothing_left($zkc, 'nothing is left');

# A holder on another server is no such case, and one on this server is seen locally.
$far->query_ok("SELECT zk_lock('x')");
works($t, "SELECT zk_try_lock('x')", 'f', 'a lock that another server holds is refused');
works($t, "SELECT zk_try_lock_shared('x')", 'f', '... in shared mode, too');
$far->query_ok("SELECT zk_unlock('x')");

# pg_advisory_unlock_all() takes the local lock from a holder, and what shows its
# session and its permits: it is a holder all the same. Once the session is shown
# again a try takes it for one that has released, and gives up in the end.
$t->query_ok("SET zklock.connect_timeout = '200ms'");
for my $case ([ "SELECT zk_lock('x')", "SELECT zk_try_lock('x')" ], [ $take, "SELECT zk_try_acquire('s', 1)" ])
{
	my ($hold, $try) = @{$case};
	$s->query_ok($hold);
	$s->query_ok('SELECT pg_advisory_unlock_all()');
	works($t, $try, 'f', 'a holder whose local locks were taken away refuses a try');
	$s->query_ok("SELECT zk_lock('other')");
	works($t, $try, 'f', '... also when it has others');
	$s->query_ok('SELECT zk_unlock_all()');
	works($t, "$try, count(*) FROM pg_locks WHERE locktype = 'userlock' AND pid = "
		  . $s->pid, 't|1', '... until it releases, and no entry of the lock table is left');
	$t->query_ok('SELECT zk_unlock_all()');
}

# The connection of who has released is down.
release_while_cut($_) for [ "SELECT zk_lock('x')", "SELECT zk_try_lock('x')" ],
  [ $take, "SELECT zk_try_acquire('s', 1)" ];

sub release_while_cut
{
	my ($hold, $try) = @{ $_[0] };
	$s->query_ok($hold);
	$proxy->arm(fault => 'hold_request', op => 'delete', path => '(x|leases)/');
	$s->query_ok('SELECT zk_unlock_all()');
	works($t, $try, 'f', 'a delete that does not come refuses a try after zklock.connect_timeout');
	$proxy->disarm->release;
	$t->query_ok("SET zklock.connect_timeout = '30s'");
	works($t, $try, 't', '... and one that comes does not');
	$t->query_ok('SELECT zk_unlock_all()');
	$t->query_ok("SET zklock.connect_timeout = '200ms'");
	return;
}
nothing_left($zkc, 'nothing is left in the end');

done_testing();
