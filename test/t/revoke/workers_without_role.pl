# Background workers without a role count as superusers, as for pg_cancel_backend(): a member of
# pg_signal_backend cannot request the release of their locks. An autovacuum worker, which
# evaluates the expressions of indexes, acquires no lock.

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $node = zklock_node('node', zk => $zk, extra_conf => "autovacuum_naptime = 1s\n");
my $dba = session($node);
$dba->query_ok('CREATE ROLE signaller LOGIN IN ROLE pg_signal_backend');

{
	my $library = PostgreSQL::Test::Utils::tempdir() . '/worker.so';
	system_or_bail($ENV{CC} // 'cc', '-Wall', '-fPIC', '-shared', '-I',
		$node->config_data('--includedir-server'), '-o', $library, 'test/shim/worker.c');
	$dba->query_ok("CREATE FUNCTION run_in_worker(text, text) RETURNS int LANGUAGE c AS '$library'");
	my $pid = $dba->query_ok("SELECT run_in_worker('$library', \$\$SELECT zk_xact_lock('worker'); SELECT pg_sleep(600)\$\$)");
	wait_for_sql($node, "SELECT wait_event FROM pg_stat_activity WHERE pid = $pid", 'PgSleep');
	works($dba, "SELECT name, pid, granted FROM zk_locks", "worker|$pid|t", 'a background worker without a role holds a lock');
	works($dba, "SELECT zklock_backend_session($pid) = session_id FROM zk_locks", 't', 'other backends find its session');
	my $signaller = session($node, user => 'signaller');
	fails_with($signaller, "SELECT pg_cancel_backend($pid)", '42501', "PostgreSQL's rule for workers without a role", hint => 0);
	fails_with($signaller, "SELECT zk_revoke('worker')", '42501', 'the same rule for requests to release',
		like => qr/must be superuser to request release of lock "worker"/);
	works($dba, "SELECT zk_revoke('worker')", '1', 'a superuser may request the release');
	$dba->query_ok("SELECT pg_terminate_backend($pid)");
	wait_zk_empty($zkc, '/zklock/locks/worker');
	$signaller->quit;
}

{
	$dba->query_ok(<<'SQL');
CREATE FUNCTION hold(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN PERFORM public.zk_xact_lock('invoices'); RETURN v; END $$;
CREATE TABLE indexed (v int) WITH (autovacuum_analyze_threshold = 1, autovacuum_analyze_scale_factor = 0);
CREATE INDEX ON indexed (hold(v));
SQL
	my $log = -s $node->logfile;
	my $before = $dba->query('SELECT acquisitions FROM zk_stat');
	$dba->query_ok('ALTER INDEX indexed_hold_idx RENAME TO expression; INSERT INTO indexed SELECT generate_series(1, 10)');
	my $acquired = $dba->query('SELECT acquisitions FROM zk_stat');
	cmp_ok($acquired, '>', $before, "a role's own statements acquire the lock");
	wait_for_log($node, qr/ERROR:  cannot acquire zk locks in an autovacuum worker.*automatic analyze of table "postgres.public.indexed"/s, $log);
	works($dba, 'SELECT acquisitions FROM zk_stat', $acquired, 'autovacuum acquires no lock');
	nothing_left($zkc, 'no node is left');
}
