# Curator's Revoker and zk_revoke() request the release from each other's holders.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Opponent;
use ZkLock::Shared;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;

my $zk = shared_zk();
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $java = ZkLock::Opponent->curator($zk->connect_string);
my $node = shared_node('a', zk => $zk, session_timeout => '10s');
my $other = shared_node('b', zk => $zk, session_timeout => '10s');
my ($s, $far) = map { session($_) } $node, $other;
$_->reconnect('zklock.node_names' => 'curator_mutex') for $s, $far;

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

# on_revoke = cancel: a request ends the transaction at once.
$s->query_ok("SET zklock.on_revoke = cancel");
$s->query_ok("BEGIN; SELECT zk_xact_lock('x')");
($held) = queue_of($zkc, 'x');
$s->query_async('SELECT pg_sleep(600)');
$theirs->acquire_async;
$revoker->revoke($held);
failed_with($s, '57014', "Curator's request cancels the holder's statement",
	like => qr/"x"/);
$s->query_ok('ROLLBACK');
ok($theirs->wait_result, 'they acquire the lock after the rollback');

# We request, they release.
$theirs->release;
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
nothing_left($zkc, 'no node is left');

done_testing();
