# No part of a long array waits for a heartbeat: with a session timeout of 90 s, the first one
# comes after 30 s, and each call ends earlier.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Shared;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 5000);
my $node = shared_node('a', zk => $zk, session_timeout => '90s');
my $s = session($node);
$s->reconnect('zklock.max_locks' => 2000);
$s->query_ok("SELECT zk_lock('ready'), zk_unlock('ready')");
$s->query_ok("SET statement_timeout = '25s'");

for my $n (150, 300, 1000)
{
	my $done = 0;
	for my $i (1 .. 20)
	{
		$s->query("SELECT cardinality(zk_lock_all(array_agg('name ' || i))) FROM generate_series(1, $n) AS i");
		last if $s->sqlstate ne '00000';
		$s->query('SELECT zk_unlock_all()');
		last if $s->sqlstate ne '00000';
		$done = $i;
	}
	is($done, 20, "no call with $n names waits for a heartbeat") || diag($s->error);
}

$s->quit;

done_testing();
