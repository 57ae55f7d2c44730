# A wait for the local lock ends with an error at the moment when the lock is granted:
# no lock is left, in the ensemble and in PostgreSQL's lock manager.
#
# Promise: 4.2

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Shared;

my ($zk, $zkc) = shared_zk_and_client();
my $node = shared_node('a', zk => $zk, session_timeout => '10s');

# The waiter is stopped while the lock is granted and the cancel is sent, so it receives
# both when it continues.
my %wait = (
	'a wait without a timeout' => "SELECT zk_lock('x')",
	'a timed attempt' => "SELECT zk_try_lock('x', interval '50 s')",
	'a shared wait' => "SELECT zk_lock_shared('x')",
	'a wait for several names' => "SELECT zk_xact_lock_many(ARRAY['w', 'x'])");
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
	failed_with($waiter, '57014', "$what is cancelled when the lock is granted",
		hint => 0);
	works($waiter,
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
		'0', "$what: no local lock is left");
	works($next, "SELECT zk_try_lock('x', interval '10 s')",
		't', "$what: the next session can acquire the lock");
	$_->quit for $holder, $waiter, $next;
	nothing_left($zkc, "$what: nothing is left");
}

done_testing();
