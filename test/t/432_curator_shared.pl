# SQL sessions and Curator's InterProcessReadWriteLock: readers share, writers
# exclude, downgrades on either side let nobody in between.

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(nothing_left works);
use ZkLock::Cluster;
use ZkLock::Contest;
use ZkLock::Opponent;

my ($zk, $zkc, @servers) = contest();
my $java = ZkLock::Opponent->curator($zk->connect_string);

duel("Curator's reader against a writer of ours", $java, read => 'r', 'exclusive',
	node_names => 'curator');
duel("Curator's writer against a reader of ours", $java, write => 's', 'shared',
	node_names => 'curator');

my ($here, $there) = map { session($_) } @servers;
my $reader = $java->lock(read => path('x'));
my $writer = $java->lock(write => path('x'), beside => $reader);
my $other_reader = $java->lock(read => path('x'));
my $other_writer = $java->lock(write => path('x'));

# Readers.
{
	$here->query_ok("SELECT zk_lock_shared('x')");
	ok($reader->acquire(0), 'readers: a reader of theirs is let in to ours');
	works($there, "SELECT zk_try_lock_shared('x')", 't',
		'readers: and another of ours to both');
	ok($other_reader->acquire(0), 'readers: and another of theirs');
	ok(!$other_writer->acquire(0), 'readers: no writer of theirs is');
	queue('x', 4);
	$other_writer->acquire_async;
	queue('x', 5);
	works($there, "SELECT zk_try_lock('x')", 'f', 'readers: nor an upgrade of ours');
	queue('x', 5);
	$here->query_ok("SELECT zk_unlock_shared('x')");
	$reader->release;
	$other_reader->release;
	queue('x', 2);
	ok(!$other_writer->finished, 'readers: a writer of theirs waits for the last of ours');
	works($here, "SELECT zk_try_lock_shared('x')", 'f',
		'readers: no reader of ours passes it');
	ok(!$reader->acquire(0), 'readers: nor one of theirs');
	queue('x', 2);
	$there->query_ok("SELECT zk_unlock_shared('x')");
	ok($other_writer->wait_result, 'readers: it is next');
	$here->query_async("SELECT zk_lock_shared('x')");
	queue('x', 2);
	$reader->acquire_async;
	$other_reader->acquire_async;
	queue('x', 4);
	$there->query_async("SELECT zk_lock('x')");
	queue('x', 5);
	$other_writer->release;
	like($here->wait_result, qr/^\d+$/, 'readers: all at the head are let in, ours');
	ok($_->wait_result, 'readers: and theirs') for $reader, $other_reader;
	ok(!$there->finished, 'readers: the writer behind them is not');
	$reader->release;
	$here->query_ok("SELECT zk_unlock_shared('x')");
	queue('x', 2);
	ok(!$there->finished, 'readers: it waits for the last of theirs');
	$other_reader->release;
	like($there->wait_result, qr/^\d+$/, 'readers: and is next');
	$there->query_ok("SELECT zk_unlock('x')");
	nothing_left($zkc, 'readers: nothing is left');
}

# They hold exclusively, then share, then give up exclusive. Curator 5.4.0 gives
# the reader a number of its own: an earlier contender is served before it, whichever
# that is. So nobody may have come before.
{
	ok($writer->acquire(0), 'their downgrade: they hold');
	ok($reader->acquire(0), 'their downgrade: and share with themselves');
	$here->query_async("SELECT zk_lock('x')");
	queue('x', 3);
	$writer->release;
	queue('x', 2);
	ok(!$here->finished, 'their downgrade: a writer of ours is not let in');
	$there->query_async("SELECT zk_lock_shared('x')");
	queue('x', 3);
	$here->cancel;
	$here->wait_result;
	like($there->wait_result, qr/^\d+$/, 'their downgrade: a reader of ours is');
	works($here, "SELECT zk_try_lock('x')", 'f', 'their downgrade: still no writer');
	$reader->release;
	works($there, "SELECT zk_lock('x') > 0", 't',
		'their downgrade: when they are gone our only sharer upgrades');
	$there->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'their downgrade: nothing is left');
}

# Later versions of Curator give the reader the writer's number, which then is
# before those who wait.
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
		'a downgrade in place: neither our writer nor our reader behind it gets in');
	$here->cancel;
	$here->wait_result;
	like($there->wait_result, qr/^\d+$/,
		'a downgrade in place: without the writer our reader does');
	works($here, "SELECT zk_try_lock('x')", 'f', 'a downgrade in place: no writer');
	$zkc->delete($shared);
	$there->query_ok("SELECT zk_unlock_shared('x')");
	nothing_left($zkc, 'a downgrade in place: nothing is left');
}

# The same by us: a writer of theirs waits, and a reader of theirs behind it.
{
	my $token = $here->query_ok("SELECT zk_lock('x')");
	$other_writer->acquire_async;
	queue('x', 2);
	$reader->acquire_async;
	queue('x', 3);
	works($here, "SELECT zk_lock_shared('x'), zk_unlock('x')", "$token|t",
		'our downgrade: exclusive becomes shared under the same token');
	wait_until(
		'their writer to watch our reader',
		sub {
			my ($ours) = grep { !/WRIT/ } map { path("x/$_") }
			  sort { substr($a, -10) <=> substr($b, -10) }
			  $zkc->children(path('x'));
			return ($zk->four_letter('wchp') // '') =~ /^\Q$ours\E$/m;
		});
	ok(!$other_writer->finished && !$reader->finished,
		'our downgrade: neither their writer nor their reader gets in');
	$other_writer->interrupt;
	$other_writer->outcome;
	ok($reader->wait_result,
		'our downgrade: a reader of theirs joins us when no writer is before it');
	ok(!$other_writer->acquire(0), 'our downgrade: no writer does');
	$here->query_ok("SELECT zk_unlock_shared('x')");
	works($there, "SELECT zk_try_lock('x')", 'f', 'our downgrade: their reader stays');
	$reader->release;
	ok($other_writer->acquire(30000), 'our downgrade: a writer follows the last reader');
	$other_writer->release;
	nothing_left($zkc, 'our downgrade: nothing is left');
}

# Upgrades: ours works when nobody else shares; theirs never does, and harms
# nobody.
{
	my $token = $here->query_ok("SELECT zk_lock_shared('x')");
	$other_writer->acquire_async;
	queue('x', 2);
	works($here, "SELECT zk_lock('x')", $token,
		'our upgrade: ahead of a writer of theirs that waits');
	ok(!$other_writer->finished, 'our upgrade: which goes on waiting');
	ok(!$reader->acquire(0), 'our upgrade: and keeps readers of theirs out');
	works($here, "SELECT zk_unlock('x')", 't', 'our upgrade: released');
	ok(!$other_writer->finished, 'our upgrade: and still shared');
	$here->query_ok("SELECT zk_unlock_shared('x')");
	ok($other_writer->wait_result, 'our upgrade: then the writer is next');
	$other_writer->release;

	$here->query_ok("SELECT zk_lock_shared('x')");
	ok($reader->acquire(0), 'our upgrade: they share with us');
	$here->query_async("SELECT zk_lock('x')");
	queue('x', 3);
	ok(!$here->finished, 'our upgrade: it waits for a reader of theirs');
	ok(!$other_reader->acquire(0), 'our upgrade: no further one is let in');
	$reader->release;
	like($here->wait_result, qr/^\d+$/, 'our upgrade: and no longer');
	$here->query_ok('SELECT zk_unlock_all()');

	ok($reader->acquire(30000), 'their upgrade: they share');
	ok(!$writer->acquire(100), 'their upgrade: is never granted');
	queue('x', 1);
	works($here, "SELECT zk_try_lock('x'), zk_try_lock_shared('x')", 'f|t',
		'their upgrade: leaves them sharing, and us');
	$reader->release;
	works($here, "SELECT zk_lock('x') > 0", 't', 'their upgrade: and then upgrading');
	$here->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'upgrades: nothing is left');
}

# Who takes part: readers and writers apart.
{
	my @sharers = map { session($servers[1]) } 1 .. 4;
	$_->query_ok("SELECT zk_lock_shared('x')") for @sharers;
	my @readers = map { $java->lock(read => path('x')) } 1 .. 3;
	ok($_->acquire(30000), 'participants: readers of both kinds') for @readers;
	$here->query_async("SELECT zk_lock('x')");
	queue('x', 8);
	$other_writer->acquire_async;
	my @nodes = sort { substr($a, -10) <=> substr($b, -10) } queue('x', 9);
	is_deeply([ $reader->participants ], [ grep { /READ/ } @nodes ],
		'participants: their readers see all readers');
	is(scalar(grep { /READ/ } @nodes), 7, 'participants: which are seven');
	is_deeply([ $writer->participants ], [ grep { /WRIT/ } @nodes ],
		'participants: and their writers of all writers');
	my %seen;
	$seen{ $zkc->get(path("x/$_"))->{data} =~ /"pid":(\d+)/ ? $1 : 'Java' }++
	  for @nodes;
	is_deeply(\%seen, { Java => 4, map { $_->pid => 1 } @sharers, $here },
		'participants: the nodes say who is who');
	like($zkc->get(path("x/$nodes[4]"))->{data}, qr/^session\d+$/,
		"participants: theirs have the data that they chose");
	$_->query_ok("SELECT zk_unlock_shared('x')") for @sharers;
	$_->release for @readers;
	like($here->wait_result, qr/^\d+$/, 'participants: our writer is next');
	$here->query_ok("SELECT zk_unlock('x')");
	ok($other_writer->wait_result, 'participants: and theirs');
	$other_writer->release;
	nothing_left($zkc, 'participants: nothing is left');
}

# Sessions that end while they share.
{
	ok($reader->acquire(0), 'loss: a reader of theirs');
	$here->query_ok("SELECT zk_lock_shared('x')");
	$there->query_async("SELECT zk_lock('x')");
	queue('x', 3);
	$reader->expire;
	queue('x', 2);
	ok(!$there->finished, 'loss: whose session ends leaves ours');
	$here->terminate;
	like($there->wait_result, qr/^\d+$/,
		'loss: when ours has ended, too, a writer is let in');
	$reader->try('release');
	ok(!$reader->acquire(0), 'loss: it keeps them out');
	$there->query_ok("SELECT zk_unlock('x')");
	ok($reader->acquire(30000), 'loss: until it releases');
	$reader->release;
	nothing_left($zkc, 'loss: nothing is left');
}

$zkc->close;
$_->stop for $java, @servers, $zk;
done_testing();
