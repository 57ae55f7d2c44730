# Calls with many names.
#
# Promise: 4.3

use ZkLock::Test;

use constant NAMES => 1000;

my ($zk, $zkc) = shared_zk_and_client(timeout => 60);
my $proxy = ZkLock::Proxy->start(target => $zk);
my $node = shared_node('a', proxy => $proxy);
my $dba = session($node);
my $s = session($node);

# A call with a thousand names waits for a silent ensemble. Meanwhile databases can be
# created and dropped, which needs an answer of every backend, and the call can be
# cancelled.
$s->reconnect('zklock.max_locks' => NAMES + 1, 'zklock.ensemble_timeout' => '10min');
$s->query_ok("SELECT zk_lock('ready'), zk_unlock('ready')");

for my $end (qw(cancel statement_timeout))
{
	$proxy->freeze;
	$s->query_ok("SET statement_timeout = '5s'") if $end eq 'statement_timeout';
	$s->query_async("SELECT zk_lock_many(array_agg('$end' || i)) FROM generate_series(1, ${\NAMES}) AS i");
	wait_blocked($s, or => sub { $end eq 'statement_timeout' && $s->finished });
	works($dba, 'CREATE DATABASE other', '', "$end: a database is created while the call waits");
	works($dba, 'DROP DATABASE other', '', "$end: a database is dropped while the call waits");
	$s->cancel if $end eq 'cancel';
	failed_with($s, '57014', "$end: the call is cancelled", hint => 0);
	$proxy->thaw;
	works($s, "SELECT count(*) FROM zk_held_locks", '0', "$end: nothing is held");
	nothing_left($zkc, "$end: nothing is left");
}
$s->query_ok('RESET statement_timeout');
works($s, "SELECT count(*) FROM (SELECT unnest(zk_lock_many(array_agg('n' || i))) FROM generate_series(1, ${\NAMES}) AS i) AS t",
	NAMES, 'the session can lock as many names afterwards');
works($s, "SELECT true = ALL (zk_unlock_many(array_agg('n' || i))) FROM generate_series(1, ${\NAMES}) AS i", 't', 'the session can release them');
nothing_left($zkc, 'nothing is left in the end');

# No part of a long array waits for a heartbeat: with a session timeout of 240 s, the first one
# comes after 80 s, and each call ends earlier.
my $slow = ZkLock::ZkServer->start(tick_time => 5000);
$s->reconnect(
	'zklock.max_locks' => 2000,
	'zklock.connect_string' => $slow->connect_string,
	'zklock.session_timeout' => '240s');
$s->query_ok("SELECT zk_lock('ready'), zk_unlock('ready')");
$s->query_ok("SET statement_timeout = '55s'");

for my $n (150, 300, 1000)
{
	my $done = 0;
	for my $i (1 .. 20)
	{
		$s->query("SELECT cardinality(zk_lock_many(array_agg('name ' || i))) FROM generate_series(1, $n) AS i");
		last if $s->sqlstate ne '00000';
		$s->query('SELECT zk_unlock_all()');
		last if $s->sqlstate ne '00000';
		$done = $i;
	}
	is($done, 20, "no call with $n names waits for a heartbeat") || diag($s->error);
}
