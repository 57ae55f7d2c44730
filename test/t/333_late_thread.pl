# Promise: 5.11
#
# A session connects again if a heartbeat of it is late. Requests count as heartbeats, whichever
# thread sends them: while the I/O thread gets no processor, a backend that sends requests all the
# time keeps its connection.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check qw(works);
use ZkLock::Cluster;
use ZkLock::Shim;
use ZkLock::ZkServer;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $shim = ZkLock::Shim->build;
my $node = do {
	local @ENV{ $shim->names } = $shim->values;
	zklock_node('a', zk => $zk, session_timeout => '4s');
};
my $session = session($node);
$session->query_ok("SELECT zk_lock('x'), zk_unlock('x')");

# The thread wakes up again after four times the interval of heartbeats.
my $busy = <<~'SQL';
	DO $$
	DECLARE until timestamptz := clock_timestamp() + '6s';
	BEGIN
		WHILE clock_timestamp() < until LOOP
			PERFORM zk_lock('x'), zk_unlock('x'), pg_sleep(0.01);
		END LOOP;
	END $$
	SQL
my $lines = sub { return () = slurp_file($node->logfile) =~ /late with a heartbeat/g };
$shim->break('polls');
$session->query_ok($busy);
is(scalar($lines->()), 0, 'no heartbeat is late while the backend sends requests');
$shim->heal('polls');
works($session, "SELECT zk_try_lock('x')", 't', 'the session goes on');

$session->quit;
done_testing();
