# SQL sessions and other programs as seen by each other while both hold and wait: views and
# participants, cancelled and deleted requests, other capacities, release requests.

use ZkLock::Opponent;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $java = ZkLock::Opponent->curator($zk->connect_string);
my $python = ZkLock::Opponent->kazoo($zk->connect_string);
my $node = shared_node('a', zk => $zk);
my $dba = session($node);

sub path { return "/zklock/locks/$_[0]" }
sub semaphore_path { return "/zklock/semaphores/$_[0]" }

# Returns the rows of zk_locks of a lock.
sub rows
{
	my ($lock) = @_;
	return $dba->query_ok("SELECT client, mode, granted FROM zk_locks
		WHERE name = '$lock' ORDER BY granted DESC, queue_position");
}

{
	my $reader = $java->lock(read => path('j'));
	my $writer = $java->lock(write => path('j'));
	my $ours = session($node);
	$reader->acquire;
	$ours->query_ok("SELECT zk_lock_shared('j')");
	$writer->acquire_async;
	wait_zk_children($zkc, path('j'), 3);
	is(rows('j'), "curator|shared|t\nzklock|shared|t\ncurator|exclusive|f",
		"zk_locks: shows Curator's reader and writer and our reader");
	$ours->query_ok("SELECT zk_unlock_shared('j')");
	$reader->release;
	$writer->wait_result;
	is(rows('j'), 'curator|exclusive|t', "zk_locks: shows Curator's writer as holder");
	$writer->release;

	my $lock = $python->lock(write => path('k'));
	my $behind = $python->lock(read => path('k'));
	$lock->acquire;
	$behind->acquire_async;
	wait_zk_children($zkc, path('k'), 2);
	is(rows('k'), "kazoo|exclusive|t\nkazoo|shared|f",
		"zk_locks: shows kazoo's writer and reader");
	works($dba, "SELECT application_name FROM zk_locks WHERE name = 'k' AND granted",
		$lock->identifier, "zk_locks: shows kazoo's identifier");
	works($dba, "SELECT zk_revoke('k')", 0, 'zk_revoke: asks no kazoo program');
	works($dba, "SELECT application_name FROM zk_locks WHERE name = 'k' AND granted",
		$lock->identifier, 'zk_revoke: leaves what a kazoo program says about itself');
	$lock->release;
	$behind->wait_result;
	$behind->release;
	$_->close for $reader, $writer, $lock, $behind;
	nothing_left($zkc, 'zk_locks: no node is left');
}

# A semaphore: their waiter is interrupted, and the permit node of our waiter is deleted.
{
	my $theirs = $java->lock(semaphore => semaphore_path('v2'), leases => 2);
	my ($here, $third) = map { session($node) } 1 .. 2;
	ok($theirs->acquire(0), "Curator's permits: they acquire one");
	$here->query_ok("SELECT zk_acquire_permit('v2', 2)");
	my @owners = map { / pid=(\d+)/ ? $1 : 'theirs' }
	  map { $theirs->data(semaphore_path("v2/leases/$_")) } $theirs->participants;
	is_deeply([ sort @owners ], [ sort $here->pid, 'theirs' ],
		"Curator's permits: a program can read the owners of the permits");
	my $second = $java->lock(semaphore => semaphore_path('v2'), leases => 2);
	$second->acquire_async;
	wait_zk_children($zkc, semaphore_path('v2/leases'), 3);
	$second->interrupt;
	$second->outcome;
	like($second->failed, qr/Interrupted/,
		"Curator's permits: their wait for us is interrupted");
	wait_zk_empty($zkc, semaphore_path('v2/locks'));
	my %old = map { $_ => 1 } wait_zk_children($zkc, semaphore_path('v2/leases'), 2);

	$third->query_async("SELECT zk_acquire_permit('v2', 2)");
	my ($permit_node) = grep { !$old{$_} } wait_zk_children($zkc, semaphore_path('v2/leases'), 3);
	$zkc->delete(semaphore_path("v2/leases/$permit_node"));
	wait_until('a new permit node',
		sub { grep { !$old{$_} && $_ ne $permit_node } $zkc->children(semaphore_path('v2/leases')) });
	ok(!$third->finished,
		"Curator's permits: our waiter replaces its deleted permit node");
	$theirs->release;
	$third->wait_result;
	ok($third->ok, "Curator's permits: our waiter is granted the permit");
	$_->quit for $here, $third;
	$_->close for $theirs, $second;
	nothing_left($zkc, "Curator's permits: no node is left");
}

# Curator's Revoker: a request to a waiter has no effect, and all readers get ours.
{
	my $revoker = $java->lock(write => path('x'));
	$revoker->acquire;
	my $session = session($node);
	$session->query_async("SELECT zk_lock('x')");
	wait_zk_children($zkc, path('x'), 2);
	$revoker->revoke(path('x') . '/' . ($revoker->participants)[1]);
	$revoker->release;
	like($session->wait_result, qr/^\d+$/, 'a waiter ignores a request and acquires the lock');
	works($session, "SELECT zk_unlock('x')", 't', 'a waiter that ignored a request holds the lock');
	nothing_left($zkc, 'revoked: no node is left');

	my @readers = map { $java->lock(read => path('r')) } 1 .. 2;
	$_->revocable, $_->acquire for @readers;
	works($dba, "SELECT zk_revoke('r')", '2', "zk_revoke() requests the release from all of Curator's readers");
	ok($_->revoke_requested(30000), "each of Curator's readers gets the request") for @readers;
	$_->release for @readers;
}
