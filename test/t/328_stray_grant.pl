# A wait for the local lock that ends with an error in the very moment in which
# the lock is granted leaves nothing: not in PostgreSQL's lock manager, either.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $node = zklock_node('a', zk => $zk, session_timeout => '10s');

# The waiter is held still while the lock is granted and the cancel is sent, so
# that it finds both when it goes on.
my %wait = (
	'a wait without limit' => "SELECT zk_lock('x')",
	'a wait with a limit' => "SELECT zk_try_lock('x', interval '50 s')",
	'a shared wait' => "SELECT zk_lock_shared('x')",
	'a wait for several' => "SELECT zk_xact_lock(ARRAY['w', 'x'])");
for my $what (sort keys %wait)
{
	my ($holder, $waiter, $next) = map { session($node) } 1 .. 3;
	$holder->query_ok("SELECT zk_lock('x')");
	$waiter->query_ok("SELECT zk_try_lock('warm'), zk_unlock('warm')");
	$waiter->query_async($wait{$what});
	wait_blocked($waiter);
	$waiter->pause;
	$holder->query_ok("SELECT zk_unlock('x')");
	$waiter->cancel;
	$waiter->resume;
	failed_with($waiter, '57014', "$what is cancelled as the lock is granted",
		hint => 0);
	works($waiter,
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
		'0', "$what: it has no lock of its server");
	works($next, "SELECT zk_try_lock('x', interval '10 s')",
		't', "$what: the next one gets the lock");
	$_->quit for $holder, $waiter, $next;
	nothing_left($zkc, "$what: nothing is left");
}

$zkc->close;
$node->stop;
$zk->stop;
done_testing();
