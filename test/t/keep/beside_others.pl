# Sessions that keep a lock, beside contenders that do not ask for it: Curator's and kazoo's.
# The sessions find these in the queue, and give the lock up, long before zklock.keep_time has
# passed.
#
# Promise: 11.4

use ZkLock::Contest;
use ZkLock::Opponent;
use ZkLock::Test;

my ($zk, $zkc, @servers) = contest(may_crash => 1, set => { 'zklock.keep_time' => '10min' });
my $java = ZkLock::Opponent->curator($zk->connect_string);
my $python = ZkLock::Opponent->kazoo($zk->connect_string);
my $case = 0;

# Waits until the session has looked at its queue: it does that, and sends a proof, at
# least every T/6.
sub wait_looked
{
	my ($session) = @_;
	my $id = zk_session_id($session);
	my $before = requests_of($zk, $id);
	return wait_until('a scan of the queue', sub { requests_of($zk, $id) > $before + 2 });
}

# New sessions, because for a minute after it was asked a session keeps nothing.
sub keepers
{
	my ($names, $n) = @_;
	my @keepers = map { session_with($_, node_names => $names) } (@servers) x $n;
	return @keepers[0 .. $n - 1];
}

# An exclusive lock of a program against sessions with these node names.
sub beside
{
	my ($what, $program, $kind, $names, $mode, $n) = @_;
	my $lock = 'keep' . ++$case;
	my $sql = 'SELECT zk_xact_lock' . ($mode eq 'shared' ? '_shared' : '') . "('$lock')";
	my $theirs = $program->lock($kind => path($lock), timeout => 60000);

	# Only kept.
	my @keepers = keepers($names, $n);
	$_->query_ok($sql) for @keepers;
	queue($lock, $n);
	ok($theirs->acquire, "$what: what is only kept is given up");
	queue($lock, 1);
	$_->query_async($sql) for @keepers;
	queue($lock, 1 + ($mode eq 'shared' ? $n : 1));
	ok(!(grep { $_->finished } @keepers), "$what: the program excludes the sessions");
	$theirs->release;
	$_->wait_result for @keepers;
	queue($lock, 0);
	pass("$what: sessions that have found a contender keep nothing");
	$_->quit for @keepers;

	# In use.
	@keepers = keepers($names, $n);
	$_->query_ok($sql) for @keepers;
	queue($lock, $n);
	my $user = pop @keepers;
	$user->query_ok("BEGIN; $sql");
	$theirs->acquire_async;
	queue($lock, 2);
	wait_looked($user);
	ok(!$theirs->finished, "$what: a lock in use excludes the program");
	$user->query_ok('COMMIT');
	ok($theirs->wait_result, "$what: the release ends its wait");
	$theirs->release;
	queue($lock, 0);

	# A non-blocking attempt can be refused, but not granted beside a holder.
	$user->quit;
	($user) = keepers($names, 1);
	$user->query_ok("BEGIN; $sql");
	ok(!$theirs->acquire(0), "$what: an attempt of the program beside a lock in use is refused");
	$user->query_ok('COMMIT');
	works($user, "BEGIN; $sql; COMMIT", qr/^\d+$/, "$what: the session goes on");
	$_->quit for $user, @keepers;
	queue($lock, 0);
	return $theirs->close;
}

beside("Curator's write lock, three readers", $java, 'write', 'curator', 'shared', 3);
beside("Curator's write lock, a writer", $java, 'write', 'curator', 'exclusive', 1);
beside("Curator's mutex", $java, 'mutex', 'curator_mutex', 'exclusive', 1);
beside("kazoo's lock", $python, 'lock', 'kazoo', 'exclusive', 1);
beside("kazoo's write lock, three readers", $python, 'write', 'kazoo', 'shared', 3);

nothing_left($zkc, 'no node is left');
