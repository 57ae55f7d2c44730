# After a release has returned, a later non-blocking attempt on the same
# server is never refused because of the released lock: the tag of the server in the names of
# nodes shows it. On another server the attempt reads the queue a second time, after a sync,
# before it is refused; so do attempts for permits on any server, except in the releasing session.
# Here the delete of the released node is held back until the attempt waits for it.
#
# Promise: 3.7

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $here = shared_node('here', proxy => $proxy);
my $there = shared_node('there', zk => $zk);

# The session that releases, the session that attempts, and a session of another server.
my $releaser = session($here);
my $contender = session($here);
my $remote = session($there);
$_->query_ok("SELECT zk_lock('warm-up'), zk_unlock('warm-up')") for $releaser, $contender, $remote;

# Does an attempt wait for the pending delete? It reads the predecessor in the queue of lock x.
sub waits_for_delete
{
	return !!grep { $_->{op} eq 'getData' && "@{ $_->{paths} // [] }" =~ m{/x/} } $proxy->record;
}

sub release_and_hold_delete
{
	my ($acquire, $release) = @_;
	$releaser->query_ok($_) for @{$acquire};
	my $hits = $proxy->hits;
	$proxy->arm(fault => 'hold_request', op => [ 'delete', 'multi' ], path => '(x|leases)/');
	$releaser->query_ok($release);
	wait_until('the delete', sub { $proxy->hits > $hits });
	$proxy->clear_record;
	return;
}

sub release_then_attempt
{
	my ($name, $acquire, $release, $attempt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	release_and_hold_delete($acquire, $release);
	$contender->query_async($attempt);
	wait_until('the attempt to end or wait', sub { $contender->finished || waits_for_delete() });
	ok(!$contender->finished, "$name: an attempt in another session waits for the delete");
	$proxy->disarm->release;
	is($contender->wait_result, 't', "$name: an attempt in another session succeeds");
	$_->query_ok('SELECT zk_unlock_all()') for $releaser, $contender;
	return;
}

sub release_then_permit
{
	my ($name, $acquire, $release, $attempt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	release_and_hold_delete($acquire, $release);
	works($contender, $attempt, 'f', "$name: an attempt in another session is refused while the node exists");
	my @creates = grep { $_->{op} =~ /^create/ && "@{ $_->{paths} // [] }" =~ /-lock-/ } $proxy->record;
	my @looks = grep { $_->{op} eq 'sync' && "@{ $_->{paths} // [] }" =~ /leases/ } $proxy->record;
	# A create that finds no parent is repeated.
	ok(@creates <= 2 && @looks == 1, "$name: the attempt is refused after one request, and a second look behind a sync")
	  or diag(@creates . ' creates, ' . @looks . ' looks');
	$releaser->query_async($attempt);
	$proxy->disarm->release;
	is($releaser->wait_result, 't', "$name: an attempt in the releasing session succeeds");
	$_->query_ok('SELECT zk_unlock_all()') for $releaser, $contender;
	return;
}

my @locks = (
	[ 'zk_unlock', ["SELECT zk_lock('x')"], "SELECT zk_unlock('x')" ],
	[ 'zk_unlock_shared', ["SELECT zk_lock_shared('x')"], "SELECT zk_unlock_shared('x')" ],
	[ 'zk_unlock_all', ["SELECT zk_lock_many(ARRAY['x', 'y'])"], 'SELECT zk_unlock_all()' ],
	[ 'COMMIT', [ 'BEGIN', "SELECT zk_xact_lock('x')" ], 'COMMIT' ],
	[ 'ROLLBACK', [ 'BEGIN', "SELECT zk_xact_lock('x')" ], 'ROLLBACK' ],
	[ 'ROLLBACK TO', [ 'BEGIN', 'SAVEPOINT a', "SELECT zk_xact_lock('x')" ], 'ROLLBACK TO a' ],
	[ 'DISCARD ALL', [ 'ROLLBACK', "SELECT zk_lock('x')" ], 'DISCARD ALL' ]);
release_then_attempt(@{$_}, "SELECT zk_try_lock('x')") for @locks;
release_then_attempt('an attempt at several names, shared', @{ $locks[0] }[ 1, 2 ],
	"SELECT zk_try_lock_many_shared(ARRAY['w', 'x'])");

my $old = '01000000-abcd-0001-0000-000000000007';
my $acquire = "SELECT zk_acquire_permit('s', 1)";
my @permits = (
	[ 'zk_release_permit', [$acquire], "SELECT zk_release_permit('s')" ],
	[ 'zk_unlock_all', [$acquire], 'SELECT zk_unlock_all()' ],
	[ 'COMMIT', [ 'BEGIN', "SELECT zk_xact_acquire_permit('s', 1)" ], 'COMMIT' ],
	[ 'ROLLBACK', [ 'BEGIN', "SELECT zk_xact_acquire_permit('s', 1)" ], 'ROLLBACK' ],
	[ 'ROLLBACK TO', [ 'BEGIN', 'SAVEPOINT a', "SELECT zk_xact_acquire_permit('s', 1)" ], 'ROLLBACK TO a' ],
	[ 'DISCARD ALL', [ 'ROLLBACK', $acquire ], 'DISCARD ALL' ]);
release_then_permit("permits: $_->[0]", @{$_}[ 1, 2 ], "SELECT zk_try_acquire_permit('s', 1)") for @permits;

# A session with two permits releases one of them, the older or the younger.
for my $oldest_first (0, 1)
{
	my @acquired = ("SELECT zk_acquire_permit('m', 3)", 'BEGIN', "SELECT zk_xact_acquire_permit('m', 3)");
	my @refused = ("SELECT zk_try_acquire_permit('m', 3)", 'f');
	$remote->query_ok("SELECT zk_acquire_permit('m', 3)");
	release_then_permit("one of two permits, the " . ($oldest_first ? 'older' : 'younger') . ' one',
		\@acquired, $oldest_first ? "SELECT zk_release_permit('m')" : 'COMMIT', $refused[0]);
	$releaser->query_ok('ROLLBACK') if $oldest_first;
	$releaser->query_ok($_) for @acquired, 'COMMIT', $acquired[0];
	works($_, @refused, 'an attempt is refused when all permits are held') for $contender, $releaser, $remote;
	$releaser->query_ok('SELECT zk_unlock_all()');
	$remote->query_ok('SELECT zk_unlock_all()');
}

$_->query_ok('SET zklock.deadlock_detection = off') for $releaser, $contender;
release_then_attempt('without deadlock detection', @{ $locks[0] }[ 1, 2 ], "SELECT zk_try_lock('x')");
release_then_permit('permits: without deadlock detection', @{ $permits[0] }[ 1, 2 ],
	"SELECT zk_try_acquire_permit('s', 1)");
nothing_left($zkc, 'nothing is left');

# A holder on another server.
$remote->query_ok("SELECT zk_lock('x')");
works($contender, "SELECT zk_try_lock('x')", 'f', 'an attempt at a lock that another server holds is refused');
works($contender, "SELECT zk_try_lock_shared('x')", 'f', 'an attempt in shared mode at a lock that another server holds is refused');
$remote->query_ok("SELECT zk_unlock('x')");

# Nodes of a version whose names have no server tag: a holder in each form of names.
for my $name ("_c_$old-__WRIT__", "_c_$old-lock-", "${\($old =~ s/-//gr)}__lock__")
{
	my $path = $zkc->create("/zklock/locks/x/$name", ephemeral => 1, sequence => 1, makepath => 1);
	works($contender, "SELECT zk_try_lock('x')", 'f', "an attempt behind a holder of an earlier version is refused: $name");
	$contender->query_async("SELECT zk_lock('x') > 0");
	wait_zk_children($zkc, '/zklock/locks/x', 2);
	ok(!$contender->finished, 'a wait behind a holder of an earlier version goes on');
	$zkc->delete($path);
	is($contender->wait_result, 't', 'a wait behind a holder of an earlier version ends with the release');
	$contender->query_ok("SELECT zk_unlock('x')");
}

# A session on this server that keeps the released lock gives it up.
$releaser->query_ok("SET zklock.keep_time = '10min'; SELECT zk_lock('x'); SELECT zk_unlock('x'); RESET zklock.keep_time");
works($contender, "SELECT zk_try_lock('x')", 't', 'an attempt succeeds at a lock that another session of the server keeps');
$contender->query_ok('SELECT zk_unlock_all()');

# pg_advisory_unlock_all() removes the local lock of a holder. The session still holds the
# lock. An attempt does not take its node for a pending delete: zklock.ensemble_timeout is longer
# than the statement may last.
$contender->query_ok("SET zklock.ensemble_timeout = '10min'; SET statement_timeout = '20s'");
for my $case ([ "SELECT zk_lock('x')", "SELECT zk_try_lock('x')" ],
	[ "SELECT zk_lock_shared('x')", "SELECT zk_try_lock('x')" ],
	[ "SELECT zk_lock('x')", "SELECT zk_try_lock_many(ARRAY['w', 'x', 'y'])" ],
	[ $acquire, "SELECT zk_try_acquire_permit('s', 1)" ])
{
	my ($hold, $attempt) = @{$case};
	$releaser->query_ok($hold);
	$releaser->query_ok('SELECT pg_advisory_unlock_all()');
	works($contender, $attempt, 'f', "an attempt is refused behind a holder without local locks: $hold, $attempt");
	$releaser->query_ok("SELECT zk_lock('other')");
	works($contender, $attempt, 'f', 'an attempt is refused also when the holder has another lock');
	$proxy->arm(fault => 'hold_request', op => 'delete', path => '/other/');
	my $hits = $proxy->hits;
	$releaser->query_ok("SELECT zk_unlock('other')");
	wait_until('the delete', sub { $proxy->hits > $hits });
	$contender->query_async($attempt);
	wait_until('the attempt to end or wait', sub { $contender->finished || waits_for_delete() });
	$proxy->disarm->release;
	is($contender->wait_result, 'f', 'an attempt is refused also when the delete of another lock was pending');
	$releaser->query_ok('SELECT zk_unlock_all()');
	works($contender, $attempt, 't', 'an attempt is granted after the release of the holder') unless $attempt =~ /permit/;
	$contender->query_ok('SELECT zk_unlock_all()');
}
$contender->query_ok("RESET statement_timeout; SET zklock.ensemble_timeout = '200ms'");

# The connection of the releasing session is down.
release_while_cut([ "SELECT zk_lock('x')", "SELECT zk_try_lock('x')" ]);

sub release_while_cut
{
	my ($hold, $attempt) = @{ $_[0] };
	$releaser->query_ok($hold);
	$proxy->arm(fault => 'hold_request', op => 'delete', path => '(x|leases)/');
	$releaser->query_ok('SELECT zk_unlock_all()');
	works($contender, $attempt, 'f', 'an attempt is refused after zklock.ensemble_timeout without the delete');
	$proxy->disarm->release;
	$contender->query_ok("SET zklock.ensemble_timeout = '30s'");
	works($contender, $attempt, 't', 'an attempt succeeds when the delete arrives');
	$contender->query_ok('SELECT zk_unlock_all()');
	$contender->query_ok("SET zklock.ensemble_timeout = '200ms'");
	return;
}
nothing_left($zkc, 'nothing is left in the end');
