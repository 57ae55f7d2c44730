# What PostgreSQL 19 adds and a session with locks can meet. With earlier versions, the same
# promises about what these have of it.
# Promise: 12.1
# Tags: edges

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start->with_client(timeout => 60);
my $node = zklock_node('a', zk => $zk, init => [ allows_streaming => 1 ]);
my $is_new = $node->pg_version->major >= 19;
my $elsewhere = zklock_node('b', zk => $zk,
	extra_conf => "deadlock_timeout = '50ms'\nwal_level = " . ($is_new ? 'replica' : 'logical') . "\n");
my $holder = session($node);

# A session that waits for another server, and one that waits on the same server, take part
# when the server begins to decode logically: each process has to confirm that.
{
	my ($remote, $local) = map { session($elsewhere) } 1 .. 2;
	$holder->query_ok("SELECT zk_lock('decoding')");
	$remote->query_async("SELECT zk_lock('decoding')");
	wait_blocked($remote);
	$local->query_async("SELECT zk_lock('decoding')");
	wait_blocked_locally($local);
	is($elsewhere->safe_psql('postgres', q{SELECT slot_name FROM pg_create_logical_replication_slot('s', 'test_decoding')}),
		's', 'the server begins to decode while sessions wait for a lock');
	$elsewhere->safe_psql('postgres', q{SELECT pg_drop_replication_slot('s')});
	ok(!$remote->finished && !$local->finished, 'the sessions still wait');
	$holder->query_ok("SELECT zk_unlock('decoding')");
	like($remote->wait_result, qr/^\d+$/, 'the session that waited for the other server is granted the lock');
	$remote->query_ok("SELECT zk_unlock('decoding')");
	like($local->wait_result, qr/^\d+$/, 'the session that waited on its server is granted the lock');
	$_->quit for $remote, $local;
}

# Long waits are in the log: from 19 on by default.
{
	my $s = session($elsewhere);
	is($s->query('SHOW log_lock_waits'), $is_new ? 'on' : 'off', 'the default of log_lock_waits');
	$s->query_ok('SET log_lock_waits = on') unless $is_new;
	$holder->query_ok("SELECT zk_lock('long wait')");
	my $offset = -s $elsewhere->logfile;
	$s->query_async("SELECT zk_lock('long wait')");
	ok(wait_for_log($elsewhere, qr/still waiting for.*"long wait"/, $offset), 'a long wait for another server is in the log');
	$holder->query_ok("SELECT zk_unlock('long wait')");
	$s->wait_result;
	$s->quit;
}

# PL/pgSQL of 19 evaluates "SELECT expression INTO" without the executor.
{
	my $s = session($node);
	$s->query_ok(q{CREATE FUNCTION into_variable(name text) RETURNS bool LANGUAGE plpgsql AS
		'DECLARE token bigint; BEGIN SELECT zk_xact_lock(name) INTO token; RETURN token > 0; END'});
	$s->query_ok('SET zklock.commit_check = always; BEGIN');
	works($s, "SELECT into_variable('into')", 't', 'a lock is acquired by SELECT INTO');
	$zkc->delete($_) for queue_of($zkc, 'into');
	commit_refused($s, 'a commit after the loss of this lock is refused');
	$s->quit;
}

if ($is_new)
{
	waits_are_counted();
	repack();
	wait_for_primary();
	wait_for_standby_position();
}
$holder->quit;
nothing_left($zkc, 'no node is left');

sub waits_are_counted
{
	my $s = session($node);
	my $waits = q{SELECT waits FROM pg_stat_lock WHERE locktype = 'advisory'};
	my $before = $node->safe_psql('postgres', $waits);
	$holder->query_ok("SELECT zk_lock('counted')");
	$s->query_ok("SET deadlock_timeout = '10ms'");
	$s->query_async("SELECT zk_lock('counted')");
	wait_blocked_locally($s);
	wait_for_log($node, qr/still waiting for/, 0);
	$holder->query_ok("SELECT zk_unlock('counted')");
	$s->wait_result;
	$s->query_ok('SELECT zk_unlock_all()');
	wait_for_sql($node, "SELECT ($waits) > $before", 't');
	pass('pg_stat_lock counts the waits for sessions of the same server');
	$s->quit;
	return;
}

# REPACK (CONCURRENTLY) decodes the changes in a process of its own. It cannot be undone
# (t/loss/irreversible), so a loss does not cancel it.
sub repack
{
	my $s = session($node);
	my $other = session($node);
	$s->query_ok('CREATE TABLE packed (id int PRIMARY KEY, v text); INSERT INTO packed SELECT g, g FROM generate_series(1, 1000) g');
	$s->query_ok("SELECT zk_lock('repack')");
	my $id = zk_session_id($s);
	works($s, 'REPACK (CONCURRENTLY) packed', '', 'REPACK (CONCURRENTLY) in a session that holds a lock');
	works($other, "SELECT zk_try_lock('repack')", 'f', 'the lock is still held');

	# The last step waits for a reader of the table.
	$other->query_ok('BEGIN; SELECT * FROM packed LIMIT 1');
	$s->query_async('REPACK (CONCURRENTLY) packed');
	wait_blocked_locally($s);
	$other->query_ok("INSERT INTO packed VALUES (0, 'meanwhile')");
	lose_lock($zk, $zkc, 'repack', $id);
	$other->query_ok('COMMIT');
	$s->wait_result;
	ok($s->ok, 'a loss does not cancel REPACK (CONCURRENTLY)') || diag($s->error);
	works($other, 'SELECT count(*) FROM packed', '1001', 'the table has all rows');
	fails_with($s, 'SELECT 1', '40001', 'the next statement reports the loss', like => qr/"repack"/);
	$_->quit for $s, $other;
	return;
}

# WAIT FOR runs without a snapshot, and zklock takes none for it.
sub wait_for_primary
{
	my $s = session($node);
	my $never = q{WAIT FOR LSN 'FFFFFFF/0' WITH (MODE 'primary_flush')};
	$s->query_ok("SELECT zk_lock('flush')");
	works($s, q{WAIT FOR LSN '0/1' WITH (MODE 'primary_flush')}, 'success', 'WAIT FOR in a session that holds a lock');
	$s->query_async($never);
	wait_for_sql($node, 'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $s->pid, 'WaitForWalFlush');
	$s->cancel;
	failed_with($s, '57014', 'WAIT FOR can be cancelled', hint => 0);
	$s->query_async($never);
	wait_for_sql($node, 'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $s->pid, 'WaitForWalFlush');
	$zkc->delete($_) for queue_of($zkc, 'flush');
	failed_with($s, '40001', 'a loss ends WAIT FOR', like => qr/lock "flush" was lost/);
	works($s, "SELECT zk_lock('flush') > 0, zk_unlock('flush')", 't|t', 'the session can lock again');
	$s->quit;
	return;
}

# On a standby, PostgreSQL refuses to wait in a session that holds any lock of its own.
sub wait_for_standby_position
{
	$node->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'base', has_streaming => 1);
	$standby->start;
	my ($s, $free) = map { session($standby) } 1 .. 2;
	$s->query_ok("SELECT zk_lock('replay')");
	my $reached = $node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
	$node->wait_for_catchup($standby);
	my $later = $node->safe_psql('postgres', q{SELECT pg_current_wal_insert_lsn() + 1});
	works($s, "WAIT FOR LSN '$reached'", 'success', 'a position that is reached');
	fails_with($s, "WAIT FOR LSN '$later'", '55000', 'PostgreSQL refuses to wait for a later position', hint => 0,
		like => qr/while holding locks/);
	works($s, "SELECT zk_unlock('replay')", 't', 'the lock is still held');
	$free->query_async("WAIT FOR LSN '$later'");
	$node->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, '', repeat('x', 10000)); SELECT pg_switch_wal()});
	is($free->wait_result, 'success', 'a session without a lock waits for it');
	$_->quit for $s, $free;
	$standby->stop;
	return;
}
