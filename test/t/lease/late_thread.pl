# Promise: 5.11
#
# A session connects again if a heartbeat of it is late. Requests count as heartbeats, whichever
# thread sends them: while the I/O thread gets no processor, a backend that sends requests all the
# time keeps its connection.

use PostgreSQL::Test::Utils;
use ZkLock::Shim;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $shim = ZkLock::Shim->build;
my $node = do {
	local @ENV{ $shim->names } = $shim->values;
	zklock_node('a', zk => $zk, session_timeout => '24s');
};
my $session = session($node);
$session->query_ok("SELECT zk_lock('x'), zk_unlock('x')");

# The thread wakes up again when one and a half times the interval of heartbeats have passed; a heartbeat
# is late after one and a quarter, so the backend, or the ensemble, may get no processor for ten seconds.
my $busy = <<~'SQL';
	DO $$
	DECLARE until timestamptz := clock_timestamp() + '12s';
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
