# An ensemble is restored from an old copy of its data: holders lose their locks and get
# the error, and tokens restart at those of the copy. Fences compare no tokens: no healthy holder is
# refused, and a holder of the old ensemble is.
#
# Promises: 1.5, 5.1, 6.1

use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use ZkLock::Test;

my $dir = PostgreSQL::Test::Utils::tempdir();
mkdir "$dir/zk" or die "$dir/zk: $!";
my $zk = ZkLock::ZkServer->start(tick_time => 1000, dir => "$dir/zk");

# A server that starts reports sessions that it has not yet read as expired: no client
# connects before the server is ready.
my $proxy = ZkLock::Proxy->start(target => $zk);

# A server that has just started may leave a reconnection unanswered; the client retries
# after two thirds of this timeout.
my $node = shared_node('a', zk => $proxy, session_timeout => '40s');
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');
my $long = session($node);
my $sleeper = session($node);
$long->query_ok("SELECT zk_lock('before')");

# The log of the running server has all confirmed changes; only proofs are written meanwhile.
sub copy { return PostgreSQL::Test::RecursiveCopy::copypath(@_) }
copy("$dir/zk/data", "$dir/copy");

my $holder = session($node);
$holder->query_ok(
	"SELECT zk_lock('many' || i), zk_unlock('many' || i) FROM generate_series(1, 100) AS i");
my $token = $holder->query_ok("SELECT zk_lock('guarded')");
works($holder, "SELECT zk_fence('guarded')", $token, 'a holder fences after the copy was taken');
$long->query_ok("SELECT zk_lock('more'), zk_unlock('more')");
$_->query_ok("BEGIN; INSERT INTO t VALUES ('lost')") for $holder, $long;

# A holder that does not notice anything until it ends the session by its own clock.
my $silent = ZkLock::Proxy->start(target => $zk);
my $stopped = session_with($node, connect_string => $silent->connect_string, session_timeout => '60s');
$stopped->query_ok("SELECT zk_lock('stopped'), zk_fence('stopped')");
$stopped->query_ok("BEGIN; INSERT INTO t VALUES ('lost')");
$silent->freeze;

# The server stays down until half of each lease has passed, a sixth of the timeout: then a commit asks the ensemble.
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
works($next, "SELECT zk_fence('guarded') = zk_lock_token('guarded')", 't', 'a fence passes with a smaller token');
$next->query_ok('SELECT zk_unlock_all()');
for my $mode ('_shared', '', '_shared')
{
	works($_, "SELECT zk_lock$mode('guarded') = zk_fence('guarded'), zk_unlock$mode('guarded')", 't|t',
		"sessions of the new ensemble and of the old server fence in turn: zk_lock$mode") for $next, $long;
}
$next->query_ok("SELECT zk_lock('stopped')");
works($next, "SELECT zk_fence('stopped') < $token", 't', 'a holder of the new ensemble fences a lock that one of the old ensemble holds');
$stopped->query_async("SELECT zk_fence('stopped')");
wait_blocked($stopped, or => sub { $stopped->finished });
$silent->thaw;
failed_with($stopped, '40001', 'the holder of the old ensemble is refused, although its token is greater', like => qr/"stopped" was lost/);
$stopped->query('COMMIT');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, 'the holder of the old ensemble cannot commit');

$_->quit for $holder, $long, $next, $sleeper, $stopped;
nothing_left($zkc, 'no node is left');
