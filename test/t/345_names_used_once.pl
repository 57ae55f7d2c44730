# Names that are used once do not pile up: the session that has created the znode of a
# lock deletes it when nobody uses it any more, also at its end.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

# The server itself removes nothing.
my $zk = ZkLock::ZkServer->start(container_check_ms => 3600000);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $node = zklock_node('a', zk => $zk);
my $other = zklock_node('b', zk => $zk);
my $s = session($node);
my $t = session($other);

sub names { return join ' ', sort $zkc->children('/zklock/locks') }

$s->query_ok("SELECT zk_lock('order:' || i), zk_unlock('order:' || i) FROM generate_series(1, 300) AS i");
is(scalar(split / /, names()), 300, '300 names have a znode each');
$s->query_ok("SELECT zk_lock('kept')");
wait_until('the empty ones to go', sub { names() eq 'kept' });
pass('the empty ones are deleted, the held one stays');

$s->query_ok("SELECT zk_lock('shared'), zk_unlock('shared')");
works($t, "SELECT zk_lock('shared') > 0", 't', 'another server uses a name next');
$s->query_ok("SELECT zk_lock('later'), zk_unlock('later')");
wait_until('an empty one to go', sub { names() eq 'kept shared' });
works($t, "SELECT zk_lock_token('shared') = zk_lock('shared')", 't', 'and holds it undisturbed');
$t->query_ok('SELECT zk_unlock_all()');
wait_until('its znode to go', sub { names() eq 'kept' });
pass('until it has released it');

$s->query_ok("SELECT zk_lock('last'), zk_unlock('last'), zk_unlock('kept')");
$s->quit;
wait_until('the end of the session', sub { names() eq '' });
pass('the end of a session leaves no empty znode');

$t->quit;
$_->stop for $node, $other;
$zkc->close;
$zk->stop;
done_testing();
