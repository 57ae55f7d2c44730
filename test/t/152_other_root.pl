# Locks of the same name below different roots, or in different ensembles, are different
# locks. Sessions of one server that hold them do not wait for each other locally.

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(works);
use ZkLock::Cluster;
use ZkLock::Shared;
use ZkLock::ZkClient;

my $zk = shared_zk();
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
$zkc->create('/elsewhere');
my $node = shared_node('a', zk => $zk, session_timeout => '10s');
my $ensemble = $zk->connect_string;

my $holder = session($node);
$holder->query_ok("SELECT zk_lock('x')");
works(session($node), "SELECT zk_try_lock('x')", 'f', 'the held lock is refused to another session');

my $s = session($node);
$s->reconnect('zklock.root' => '/other');
works($s, "SELECT zk_try_lock('x')", 't', 'the lock of the same name below another root is free');

$s = session($node);
$s->reconnect('zklock.connect_string' => "$ensemble/elsewhere");
works($s, "SELECT zk_try_lock('x')", 't', '... and in another ensemble');

# A role that is renamed while its session is open.
$node->safe_psql('postgres', 'CREATE ROLE before_renaming SUPERUSER LOGIN');
$s = session($node);
$s->query_ok('SET SESSION AUTHORIZATION before_renaming');
$s->query_ok("SELECT zk_lock('y')");
works($s, "SELECT usename FROM zk_locks WHERE name = 'y'", 'before_renaming', 'the node of a lock contains the role');
$s->query_ok("SELECT zk_unlock('y')");
$node->safe_psql('postgres', 'ALTER ROLE before_renaming RENAME TO after_renaming');
$s->query_ok("SELECT zk_lock('y')");
works($s, "SELECT usename FROM zk_locks WHERE name = 'y'", 'after_renaming',
	'after a rename the next node contains the new name of the role');

done_testing();
