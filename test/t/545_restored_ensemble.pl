# An ensemble is restored from an old copy of its data: holders lose their locks and get
# the error, tokens restart at those of the copy, and fences refuse the smaller tokens until
# an administrator resets them.
#
# Promises: 1.5, 6.1

use strict;
use warnings;

use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::Shared;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $dir = PostgreSQL::Test::Utils::tempdir();
mkdir "$dir/zk" or die "$dir/zk: $!";
my $zk = ZkLock::ZkServer->start(tick_time => 1000, dir => "$dir/zk");

# A server that starts reports sessions that it has not yet read as expired: no client
# connects before the server is ready.
my $proxy = ZkLock::Proxy->start(target => $zk);

# A server that has just started may leave a reconnection unanswered; the client retries
# after two thirds of this timeout.
my $node = shared_node('a', zk => $proxy, session_timeout => '20s');
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');
my $long = session($node);
my $sleeper = session($node);
$long->query_ok("SELECT zk_lock('before')");

# The server is down for the copy: the copy has all confirmed changes.
sub copy { return PostgreSQL::Test::RecursiveCopy::copypath(@_) }
$proxy->cut(refuse => 1);
$zk->stop;
copy("$dir/zk/data", "$dir/copy");
$zk->launch;
$zk->wait_ready;
$proxy->accept;
wait_state($long, 'connected');
works($long, 'SELECT state FROM zk_held_locks', 'held', 'the copy causes no loss');

my $holder = session($node);
$holder->query_ok(
	"SELECT zk_lock('many' || i), zk_unlock('many' || i) FROM generate_series(1, 100) AS i");
my $token = $holder->query_ok("SELECT zk_lock('guarded')");
works($holder, "SELECT zk_fence('guarded')", $token, 'a token is recorded after the copy was taken');
$long->query_ok("SELECT zk_lock('more'), zk_unlock('more')");
$_->query_ok("BEGIN; INSERT INTO t VALUES ('lost')") for $holder, $long;

# The server stays down until the leases of all sessions, a third of the timeout, have ended.
$proxy->cut(refuse => 1);
$zk->stop;
$sleeper->query_ok('SELECT pg_sleep(7)');
rename "$dir/zk/data", "$dir/zk/gone" or die "$dir/zk/data: $!";
copy("$dir/copy", "$dir/zk/data");
$zk->launch;
$zk->wait_ready;
$proxy->accept;
my $zkc = ZkLock::ZkClient->new($zk->connect_string);

commit_refused($holder, 'a session opened after the copy cannot commit');
commit_refused($long, 'a session opened before the copy, with newer requests, cannot commit');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, 'neither transaction is committed');
nothing_left($zkc, 'the sessions of the copy expire, with their locks');
works($long, "SELECT zk_try_lock('before')", 't', 'the locks can be acquired again');

my $next = session($node);
works($next, "SELECT zk_lock('guarded') < $token", 't', 'tokens are smaller than before');
fails_with($next, "SELECT zk_fence('guarded')", '40001',
	'a fence refuses the smaller token, with a hint', like => qr/HINT:.*zk_fence_reset/);
works($next, 'SELECT lock FROM zklock_fences', 'guarded', 'the table of fences shows the lock');
$next->query_ok('SELECT zk_fence_reset()');
works($next, "SELECT zk_fence('guarded') = zk_lock_token('guarded')", 't', 'the fence accepts the token after a reset');

$_->quit for $holder, $long, $next, $sleeper;
nothing_left($zkc, 'no node is left');

done_testing();
