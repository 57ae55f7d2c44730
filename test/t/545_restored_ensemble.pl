# An ensemble that is restored from an old copy of its data has forgotten what came
# after: holders lose their locks and get the error, tokens restart at the copy's, and
# fences refuse them until an administrator resets them.

use strict;
use warnings;

use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $dir = PostgreSQL::Test::Utils::tempdir();
mkdir "$dir/zk" or die "$dir/zk: $!";
my $zk = ZkLock::ZkServer->start(tick_time => 500, dir => "$dir/zk");

# A server that has just started can leave a reconnection without an answer; the client
# tries again after two thirds of that.
my $node = zklock_node('a', zk => $zk, session_timeout => '10s');
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');
my $long = session($node);
$long->query_ok("SELECT zk_lock('before')");

# The copy is of a server that is down: everything that it has confirmed is in it.
sub copy { return PostgreSQL::Test::RecursiveCopy::copypath(@_) }
$zk->stop;
copy("$dir/zk/data", "$dir/copy");
$zk->launch;
$zk->wait_ready;
wait_state($long, 'connected');
works($long, 'SELECT state FROM zk_held_locks', 'held', 'taking a copy costs no lock');

my $holder = session($node);
$holder->query_ok(
	"SELECT zk_lock('many' || i), zk_unlock('many' || i) FROM generate_series(1, 100) AS i");
my $token = $holder->query_ok("SELECT zk_lock('guarded')");
works($holder, "SELECT zk_fence('guarded')", $token, 'a token is recorded after the copy was taken');
$long->query_ok("SELECT zk_lock('more'), zk_unlock('more')");
$_->query_ok("BEGIN; INSERT INTO t VALUES ('lost')") for $holder, $long;

# It stays down until no session trusts an earlier answer.
$zk->stop;
for my $s ($holder, $long)
{
	wait_until('the end of the lease',
		sub { $s->query_ok('SELECT lease_remaining FROM zk_session()') eq '00:00:00' });
}
rename "$dir/zk/data", "$dir/zk/gone" or die "$dir/zk/data: $!";
copy("$dir/copy", "$dir/zk/data");
$zk->launch;
$zk->wait_ready;
my $zkc = ZkLock::ZkClient->new($zk->connect_string);

commit_refused($holder, 'who came after the copy can not commit');
commit_refused($long, 'nor can who was there before, and has seen more since');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, 'and nobody has');
nothing_left($zkc, 'the sessions of the copy expire, with their locks');
works($long, "SELECT zk_try_lock('before')", 't', 'they can be acquired again');

my $next = session($node);
works($next, "SELECT zk_lock('guarded') < $token", 't', 'tokens are smaller than before');
fails_with($next, "SELECT zk_fence('guarded')", '40001',
	'which a fence refuses, and says what to do', like => qr/HINT:.*zk_fence_reset/);
works($next, 'SELECT lock FROM zklock_fences', 'guarded', 'the table of fences names those concerned');
$next->query_ok('SELECT zk_fence_reset()');
works($next, "SELECT zk_fence('guarded') = zk_lock_token('guarded')", 't', 'after a reset it is taken');

$_->quit for $holder, $long, $next;
nothing_left($zkc, 'nothing is left');
$zkc->close;
$node->stop;
$zk->stop;
done_testing();
