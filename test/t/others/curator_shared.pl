# SQL sessions and Curator's InterProcessReadWriteLock: readers share, writers exclude, and
# downgrades on either side admit no writer in between. Curator's Revoker.
#
# Promise: 9.1

use ZkLock::Contest;
use ZkLock::Opponent;
use ZkLock::Test;

my ($zk, $zkc, @servers) = contest();
my $java = ZkLock::Opponent->curator($zk->connect_string);

duel("Curator's reader against our writer", $java, read => 'r', 'exclusive',
	node_names => 'curator');
duel("Curator's writer against our reader", $java, write => 's', 'shared',
	node_names => 'curator');

my ($here, $there) = map { session($_) } @servers;
my $reader = $java->lock(read => path('x'));
my $writer = $java->lock(write => path('x'), beside => $reader);
my $other_reader = $java->lock(read => path('x'));
my $other_writer = $java->lock(write => path('x'));

# Readers.
{
	$here->query_ok("SELECT zk_lock_shared('x')");
	ok($reader->acquire(0), 'readers: their reader shares with ours');
	works($there, "SELECT zk_try_lock_shared('x')", 't',
		'readers: our second reader shares with both');
	ok($other_reader->acquire(0), 'readers: their second reader shares as well');
	ok(!$other_writer->acquire(0), 'readers: their writer is excluded');
	queue('x', 4);
	$other_writer->acquire_async;
	queue('x', 5);
	works($there, "SELECT zk_try_lock('x')", 'f', 'readers: our upgrade is excluded');
	queue('x', 5);
	$here->query_ok("SELECT zk_unlock_shared('x')");
	$reader->release;
	$other_reader->release;
	queue('x', 2);
	ok(!$other_writer->finished, 'readers: their writer waits for our last reader');
	works($here, "SELECT zk_try_lock_shared('x')", 'f',
		'readers: our reader does not overtake their waiting writer');
	ok(!$reader->acquire(0), 'readers: their reader does not overtake their waiting writer');
	queue('x', 2);
	$there->query_ok("SELECT zk_unlock_shared('x')");
	ok($other_writer->wait_result, 'readers: their writer acquires the lock after our last reader');
	$here->query_async("SELECT zk_lock_shared('x')");
	queue('x', 2);
	$reader->acquire_async;
	$other_reader->acquire_async;
	queue('x', 4);
	$there->query_async("SELECT zk_lock('x')");
	queue('x', 5);
	$other_writer->release;
	like($here->wait_result, qr/^\d+$/, 'readers: our reader at the head of the queue is granted the lock');
	ok($_->wait_result, 'readers: their readers at the head of the queue are granted the lock') for $reader, $other_reader;
	ok(!$there->finished, 'readers: the writer behind the readers waits');
	$reader->release;
	$here->query_ok("SELECT zk_unlock_shared('x')");
	queue('x', 2);
	ok(!$there->finished, 'readers: our writer waits for their last reader');
	$other_reader->release;
	like($there->wait_result, qr/^\d+$/, 'readers: our writer acquires the lock after their last reader');
	$there->query_ok("SELECT zk_unlock('x')");
	nothing_left($zkc, 'readers: no node is left');
}

# They acquire the write lock, then the read lock, then release the write lock. Curator
# 5.4.0 gives the reader a new number: any earlier contender precedes it. So there is no
# earlier contender here.
{
	ok($writer->acquire(0), 'their downgrade: they acquire the write lock');
	ok($reader->acquire(0), 'their downgrade: they acquire the read lock as well');
	$here->query_async("SELECT zk_lock('x')");
	queue('x', 3);
	$writer->release;
	queue('x', 2);
	ok(!$here->finished, 'their downgrade: our writer still waits');
	$there->query_async("SELECT zk_lock_shared('x')");
	queue('x', 3);
	$here->cancel;
	$here->wait_result;
	like($there->wait_result, qr/^\d+$/, 'their downgrade: our reader shares with theirs');
	works($here, "SELECT zk_try_lock('x')", 'f', 'their downgrade: our writer is still excluded');
	$reader->release;
	works($there, "SELECT zk_lock('x') > 0", 't',
		'their downgrade: our only sharer upgrades after their release');
	$there->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'their downgrade: no node is left');
}

# Later versions of Curator give the reader the writer's number: the reader then precedes
# all waiters.
{
	my $theirs = foreign_node($zkc, path('x'), 'WRIT');
	$here->query_async("SELECT zk_lock('x')");
	queue('x', 2);
	$there->query_async("SELECT zk_lock_shared('x')");
	queue('x', 3);
	my $shared = $theirs =~ s/WRIT/READ/r;
	$zkc->create($shared, ephemeral => 1);
	$zkc->delete($theirs);
	wait_until('our writer to watch their reader',
		sub { ($zk->four_letter('wchp') // '') =~ /^\Q$shared\E$/m });
	ok(!$here->finished && !$there->finished,
		'a downgrade in place: our writer and our reader behind it wait');
	$here->cancel;
	$here->wait_result;
	like($there->wait_result, qr/^\d+$/,
		'a downgrade in place: our reader shares once our writer is gone');
	works($here, "SELECT zk_try_lock('x')", 'f', 'a downgrade in place: our writer is excluded');
	$zkc->delete($shared);
	$there->query_ok("SELECT zk_unlock_shared('x')");
	nothing_left($zkc, 'a downgrade in place: no node is left');
}

# We downgrade: their writer waits, and their reader behind it.
{
	my $token = $here->query_ok("SELECT zk_lock('x')");
	$other_writer->acquire_async;
	queue('x', 2);
	$reader->acquire_async;
	queue('x', 3);
	works($here, "SELECT zk_lock_shared('x'), zk_unlock('x')", "$token|t",
		'our downgrade: exclusive becomes shared with the same token');
	wait_until(
		'their writer to watch our reader',
		sub {
			my ($ours) = grep { !/WRIT/ } map { path("x/$_") }
			  sort { substr($a, -10) <=> substr($b, -10) }
			  $zkc->children(path('x'));
			return ($zk->four_letter('wchp') // '') =~ /^\Q$ours\E$/m;
		});
	ok(!$other_writer->finished && !$reader->finished,
		'our downgrade: their writer and their reader wait');
	$other_writer->interrupt;
	$other_writer->outcome;
	ok($reader->wait_result,
		'our downgrade: their reader shares with us once no writer precedes it');
	ok(!$other_writer->acquire(0), 'our downgrade: their writer is excluded');
	$here->query_ok("SELECT zk_unlock_shared('x')");
	works($there, "SELECT zk_try_lock('x')", 'f', 'our downgrade: their reader still holds the lock');
	$reader->release;
	ok($other_writer->acquire(30000), 'our downgrade: their writer acquires the lock after the last reader');
	$other_writer->release;
	nothing_left($zkc, 'our downgrade: no node is left');
}

# Upgrades: ours succeeds if there is no other sharer. Theirs never succeeds, and affects
# no other client.
{
	my $token = $here->query_ok("SELECT zk_lock_shared('x')");
	$other_writer->acquire_async;
	queue('x', 2);
	works($here, "SELECT zk_lock('x')", $token,
		'our upgrade: we upgrade ahead of their waiting writer');
	ok(!$other_writer->finished, 'our upgrade: their writer still waits');
	ok(!$reader->acquire(0), 'our upgrade: their reader is excluded');
	works($here, "SELECT zk_unlock('x')", 't', 'our upgrade: we release the exclusive lock');
	ok(!$other_writer->finished, 'our upgrade: our shared lock still excludes their writer');
	$here->query_ok("SELECT zk_unlock_shared('x')");
	ok($other_writer->wait_result, 'our upgrade: their writer acquires the lock after our release');
	$other_writer->release;

	$here->query_ok("SELECT zk_lock_shared('x')");
	ok($reader->acquire(0), 'our upgrade: their reader shares with us');
	$here->query_async("SELECT zk_lock('x')");
	queue('x', 3);
	ok(!$here->finished, 'our upgrade: it waits for their reader');
	ok(!$other_reader->acquire(0), 'our upgrade: their second reader waits behind it');
	$reader->release;
	like($here->wait_result, qr/^\d+$/, 'our upgrade: it succeeds after their release');
	$here->query_ok('SELECT zk_unlock_all()');

	ok($reader->acquire(30000), 'their upgrade: their reader acquires the lock');
	ok(!$writer->acquire(100), 'their upgrade: is never granted');
	queue('x', 1);
	works($here, "SELECT zk_try_lock('x'), zk_try_lock_shared('x')", 'f|t',
		'their upgrade: their reader still shares, and we can share');
	$reader->release;
	works($here, "SELECT zk_lock('x') > 0", 't', 'their upgrade: we upgrade after their release');
	$here->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'upgrades: no node is left');
}

# Participants: readers and writers are listed separately.
{
	my @sharers = map { session($servers[1]) } 1 .. 4;
	$_->query_ok("SELECT zk_lock_shared('x')") for @sharers;
	my @readers = map { $java->lock(read => path('x')) } 1 .. 3;
	ok($_->acquire(30000), 'participants: their readers share with ours') for @readers;
	$here->query_async("SELECT zk_lock('x')");
	queue('x', 8);
	$other_writer->acquire_async;
	my @nodes = sort { substr($a, -10) <=> substr($b, -10) } queue('x', 9);
	is_deeply([ $reader->participants ], [ grep { /READ/ } @nodes ],
		'participants: their readers see all readers');
	is(scalar(grep { /READ/ } @nodes), 7, 'participants: there are seven readers');
	is_deeply([ $writer->participants ], [ grep { /WRIT/ } @nodes ],
		'participants: their writers see all writers');
	my %seen;
	$seen{ $zkc->get(path("x/$_"))->{data} =~ / pid=(\d+)/ ? $1 : 'Java' }++
	  for @nodes;
	is_deeply(\%seen, { Java => 4, map { $_->pid => 1 } @sharers, $here },
		'participants: the data of the nodes identify their owners');
	like($zkc->get(path("x/$nodes[4]"))->{data}, qr/^session\d+$/,
		"participants: their nodes have the data that they configured");
	$_->query_ok("SELECT zk_unlock_shared('x')") for @sharers;
	$_->release for @readers;
	like($here->wait_result, qr/^\d+$/, 'participants: our writer acquires the lock');
	$here->query_ok("SELECT zk_unlock('x')");
	ok($other_writer->wait_result, 'participants: then their writer acquires the lock');
	$other_writer->release;
	nothing_left($zkc, 'participants: no node is left');
}

# Curator's Revoker and zk_revoke() request the release from each other's holders.
{
	my ($s, $far) = map { session_with($_, node_names => 'curator_mutex') } @servers;

	# They request, we release.
	my $theirs = $java->lock(mutex => '/zklock/locks/x');
	$s->query_ok("SELECT zk_lock('x')");
	$theirs->acquire_async;
	wait_zk_children($zkc, '/zklock/locks/x', 2);
	works($s, "SELECT zk_revoked('x')", 'f', 'zk_revoked() is false without a request');
	my ($held) = queue_of($zkc, 'x');
	my $revoker = $java->lock(mutex => '/zklock/locks/x');
	$revoker->revoke($held);
	wait_until('the request', sub { $s->query("SELECT zk_revoked('x')") eq 't' });
	pass("Curator's request reaches our session");
	ok(!$theirs->finished, 'our session keeps its lock until it releases');
	$s->query_ok("SELECT zk_unlock('x')");
	ok($theirs->wait_result, 'they acquire the lock after our release');
	$theirs->release;

	# We request, they release.
	$theirs->revocable;
	ok($theirs->acquire(0), 'they hold a revocable lock');
	works($far, "SELECT zk_revoke('x')", '1', 'zk_revoke() requests the release from one holder');
	ok($theirs->revoke_requested(30000), 'their holder gets the request');
	$far->query_async("SELECT zk_lock('x')");
	$theirs->release;
	like($far->wait_result, qr/^\d+$/, 'we acquire the lock after their release');
	works($far, "SELECT zk_unlock('x')", 't', 'the lock is released');

	$_->quit for $s, $far;
	$_->close for $theirs, $revoker;
	nothing_left($zkc, 'revoker: no node is left');
}
