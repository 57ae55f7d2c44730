# What other programs see of us and we of them while both hold and wait, and what
# they do in our midst: requests given up or removed, wrong sizes, requests to release.

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(fails_with nothing_left works);
use ZkLock::Cluster;
use ZkLock::Opponent;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $java = ZkLock::Opponent->curator($zk->connect_string);
my $python = ZkLock::Opponent->kazoo($zk->connect_string);
my $node = zklock_node('a', zk => $zk, session_timeout => '10s');
my $dba = session($node);

sub path { return "/zklock/locks/$_[0]" }
sub pool { return "/zklock/semaphores/$_[0]" }

sub ours
{
	my ($settings) = @_;
	my $session = session($node);
	$session->query_ok($settings);
	return $session;
}

# zk_locks, for locks.
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
		'zk_locks: readers and a writer of Curator, and ours');
	$ours->query_ok("SELECT zk_unlock_shared('j')");
	$reader->release;
	$writer->wait_result;
	is(rows('j'), 'curator|exclusive|t', 'zk_locks: the writer holds it');
	$writer->release;

	my $lock = $python->lock(write => path('k'));
	my $behind = $python->lock(read => path('k'));
	$lock->acquire;
	$behind->acquire_async;
	wait_zk_children($zkc, path('k'), 2);
	is(rows('k'), "kazoo|exclusive|t\nkazoo|shared|f",
		'zk_locks: a writer and a reader of kazoo');
	works($dba, "SELECT application_name FROM zk_locks WHERE name = 'k' AND granted",
		$lock->identifier, 'zk_locks: and what the program says of itself');
	$lock->release;
	$behind->wait_result;
	$behind->release;
	$_->close for $reader, $writer, $lock, $behind;
	nothing_left($zkc, 'zk_locks: nothing is left');
}

# A semaphore with a wish of theirs among ours that a thread gives up, and one of
# ours that somebody removes.
{
	my $theirs = $java->lock(semaphore => pool('v2'), leases => 2);
	my ($here, $third) = map { session($node) } 1 .. 2;
	ok($theirs->acquire(0), "Curator's permits: one is theirs");
	$here->query_ok("SELECT zk_acquire('v2', 2)");
	my @who = map { /"pid":(\d+)/ ? $1 : 'theirs' }
	  map { $theirs->data(pool("v2/leases/$_")) } $theirs->participants;
	is_deeply([ sort @who ], [ sort $here->pid, 'theirs' ],
		"Curator's permits: a program sees whose the others are");
	my $second = $java->lock(semaphore => pool('v2'), leases => 2);
	$second->acquire_async;
	wait_zk_children($zkc, pool('v2/leases'), 3);
	$second->interrupt;
	$second->outcome;
	like($second->failed, qr/Interrupted/,
		"Curator's permits: a thread that waits for us is interrupted");
	wait_zk_empty($zkc, pool('v2/locks'));
	my %old = map { $_ => 1 } wait_zk_children($zkc, pool('v2/leases'), 2);

	$third->query_async("SELECT zk_acquire('v2', 2)");
	my ($wish) = grep { !$old{$_} } wait_zk_children($zkc, pool('v2/leases'), 3);
	$zkc->delete(pool("v2/leases/$wish"));
	wait_until('a new wish',
		sub { grep { !$old{$_} && $_ ne $wish } $zkc->children(pool('v2/leases')) });
	ok(!$third->finished,
		"Curator's permits: a wish of ours that was removed is made again");
	$theirs->release;
	like($third->wait_result, qr/^\d+$/, "Curator's permits: and granted");
	$_->quit for $here, $third;
	$_->close for $theirs, $second;
	nothing_left($zkc, "Curator's permits: nothing is left");
}

# The same with kazoo, which gives a semaphore its size.
{
	my $here = ours("SET zklock.node_names = 'kazoo'");
	my $theirs = $python->lock(semaphore => pool('ours'), leases => 2);
	$here->query_ok("SELECT zk_acquire('ours', 2)");
	ok($theirs->acquire(0), "kazoo's permits: a semaphore of two is one for them, too");
	is_deeply([ sort map { /"pid":(\d+)/ ? $1 : $_ } $theirs->lease_holders ],
		[ sort $here->pid, $theirs->identifier ],
		"kazoo's permits: they see who has them");
	my $second = $python->lock(semaphore => pool('ours'), leases => 2);
	$second->acquire_async;
	wait_zk_children($zkc, pool('ours-__lock__'), 1);
	$second->cancel;
	$second->outcome;
	like($second->failed, qr/^CancelledError/,
		"kazoo's permits: a wait of theirs for us is cancelled");
	wait_zk_empty($zkc, pool('ours-__lock__'));
	my $larger = $python->lock(semaphore => pool('ours'), leases => 3);
	is($larger->try('acquire', 0), undef, "kazoo's permits: a size of ours binds them");
	like($larger->failed, qr/^ValueError/, "kazoo's permits: as the error says");
	$here->query_ok('SELECT zk_unlock_all()');
	$theirs->release;

	$zkc->create(pool('data'), data => 'of somebody');
	$theirs = $python->lock(semaphore => pool('data'), leases => 1);
	ok($theirs->acquire(0), "kazoo's permits: data that are no number bind them not");
	works($here, "SELECT zk_try_acquire('data', 1)", 'f',
		"kazoo's permits: nor us, and we exclude each other");
	$theirs->release;
	works($here, "SELECT zk_try_acquire('data', 1, '30s')", 't',
		"kazoo's permits: either way");
	$here->quit;
	$_->close for $theirs, $second, $larger;
	nothing_left($zkc, "kazoo's permits: nothing is left");
}

# Revoker finds a holder of ours among the participants.
{
	my $waiter = $java->lock(write => path('x'));
	my $asker = $java->lock(write => path('x'));

	# Asks the holder, and waits until it has put its own data back, or is gone.
	my $ask = sub {
		my ($setting) = @_;
		my $session = ours("SET zklock.on_revoke = '$setting'; SELECT zk_lock('x')");
		$waiter->acquire_async;
		wait_zk_children($zkc, path('x'), 2);
		my $holder = path('x') . '/' . ($asker->participants)[0];
		my $data = $zkc->get($holder)->{data};
		$asker->revoke($holder);
		wait_until('the request to be noticed',
			sub { (eval { $zkc->get($holder)->{data} } // $data) eq $data });
		return $session;
	};

	my $session = $ask->('ignore');
	works($session, 'SELECT 1', '1', 'asked, ignore: goes on');
	is($session->error, '', 'asked, ignore: and is not told');
	ok(!$waiter->finished, 'asked, ignore: the program waits on');
	$session->quit;
	ok($waiter->wait_result, 'asked, ignore: until the session ends');
	$waiter->release;

	$session = $ask->('notice');
	works($session, 'SELECT 1', '1', 'asked, notice: goes on');
	like($session->error, qr/NOTICE: .*"x"/, 'asked, notice: and gets it');
	$session->quit;
	ok($waiter->wait_result, 'asked, notice: the lock is handed over at its end');
	$waiter->release;

	$ask->('terminate');
	ok($waiter->wait_result, 'asked, terminate: the lock is handed over');
	$waiter->release;

	# Who waits is no holder.
	$asker->acquire;
	$session = session($node);
	$session->query_async("SELECT zk_lock('x')");
	wait_zk_children($zkc, path('x'), 2);
	$asker->revoke(path('x') . '/' . ($asker->participants)[1]);
	$asker->release;
	like($session->wait_result, qr/^\d+$/, 'asked while it waits: waits on');
	works($session, "SELECT zk_unlock('x')", 't', 'asked while it waits: and has it');
	nothing_left($zkc, 'asked: nothing is left');

	my @readers = map { $java->lock(read => path('r')) } 1 .. 2;
	$_->revocable, $_->acquire for @readers;
	works($dba, "SELECT zk_revoke('r')", '2', 'asking: all readers of Curator');
	ok($_->revoke_requested(30000), 'asking: they get the request') for @readers;
	$_->release for @readers;
}

$zkc->close;
$_->stop for $java, $python, $node, $zk;
done_testing();
