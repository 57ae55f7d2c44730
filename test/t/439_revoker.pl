# Curator's Revoker and zk_revoke() ask each other's holders to release.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Opponent;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $java = ZkLock::Opponent->curator($zk->connect_string);
my $node = zklock_node('a', zk => $zk, session_timeout => '10s');
my $other = zklock_node('b', zk => $zk, session_timeout => '10s');
my ($s, $far) = map { session($_) } $node, $other;
$_->query_ok("SET zklock.node_names = 'curator_mutex'") for $s, $far;

# They request, we release.
my $theirs = $java->lock(mutex => '/zklock/locks/x');
$s->query_ok("SELECT zk_lock('x')");
$theirs->acquire_async;
wait_zk_children($zkc, '/zklock/locks/x', 2);
works($s, "SELECT zk_revoked('x')", 'f', 'who is not asked is not');
my ($held) = queue_of($zkc, 'x');
my $asking = $java->lock(mutex => '/zklock/locks/x');
$asking->revoke($held);
wait_until('the request to be heard', sub { $s->query("SELECT zk_revoked('x')") eq 't' });
pass('Curator asks a session of ours');
ok(!$theirs->finished, 'which keeps its lock until it releases');
$s->query_ok("SELECT zk_unlock('x')");
ok($theirs->wait_result, 'and then it is theirs');
$theirs->release;

# cancel: a transaction that is asked ends at once.
$s->query_ok("SET zklock.on_revoke = cancel");
$s->query_ok("BEGIN; SELECT zk_xact_lock('x')");
($held) = queue_of($zkc, 'x');
$s->query_async('SELECT pg_sleep(600)');
$theirs->acquire_async;
$asking->revoke($held);
failed_with($s, '57014', 'Curator ends the statement of a holder that wants it so',
	like => qr/"x"/);
$s->query_ok('ROLLBACK');
ok($theirs->wait_result, 'and gets the lock');

# We request, they release.
$theirs->release;
$theirs->revocable;
ok($theirs->acquire(0), 'they hold a revocable lock');
works($far, "SELECT zk_revoke('x')", '1', 'zk_revoke() asks one holder');
ok($theirs->revoke_requested(30000), 'which gets the request');
$far->query_async("SELECT zk_lock('x')");
$theirs->release;
like($far->wait_result, qr/^\d+$/, 'and releases');
works($far, "SELECT zk_unlock('x')", 't', 'the lock is released');

$_->quit for $s, $far;
$_->close for $theirs, $asking;
nothing_left($zkc, 'no node is left');
$_->stop for $node, $other;
done_testing();
