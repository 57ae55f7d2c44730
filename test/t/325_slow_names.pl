# If the name service is silent after the connection is lost, a lost lock is still
# reported after the session timeout.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::Shim;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $proxy = ZkLock::Proxy->start(target => $zk);
my $shim = ZkLock::Shim->build;
local @ENV{ $shim->names } = $shim->values;
my $node = zklock_node('a', zk => 'localhost:' . $proxy->port, session_timeout => '2s');

my $idle = session($node);
$idle->query_ok("SELECT zk_lock('idle')");
my $busy = session($node);
$busy->query_ok("BEGIN; SELECT zk_xact_lock('busy')");
$busy->query_async('SELECT pg_sleep(600)');
$shim->break('names');
$proxy->cut(refuse => 1);
failed_with($busy, '40001', 'the running statement is cancelled', like => qr/"busy"/);
fails_with($idle, 'SELECT 1', '40001', 'an idle session gets the error with its next statement', like => qr/"idle"/);
$shim->heal('names');

# Proves that the name service is used.
$proxy->accept;
$busy->query_ok('ROLLBACK');
works($busy, "SELECT zk_try_lock('again')", 't', 'a session can be opened when the name service answers');
$shim->break('names');
my $new = session($node);
$new->query_ok("SET zklock.connect_timeout = '1s'");
fails_with($new, "SELECT zk_lock('x')", '08001', 'no session can be opened while the name service is silent');
$shim->heal('names');

$_->quit for $idle, $busy, $new;
$node->stop;
$proxy->stop;
$zk->stop;
done_testing();
