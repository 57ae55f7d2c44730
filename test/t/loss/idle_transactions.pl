# PostgreSQL commits internal transactions while a session is idle: to deliver
# notifications, and to read invalidations. These transactions report no loss, because
# an error in them would end the connection. The next statement reports the loss. When a
# session ends, the transaction that drops its temporary tables is not refused either. Without
# track_activities PostgreSQL does not say that the session idles.
#
# Promise: 5.3
# Tags: edges

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client(timeout => 60);
my $node = shared_node('a', zk => $zk);
$node->safe_psql('postgres', 'CREATE TABLE changed (v int)');
my $other = session($node);

# PostgreSQL signals a session whose queue of invalidations is full to read it.
my $invalidate = <<'SQL';
DO $$
BEGIN
	FOR i IN 1..6000 LOOP
		EXECUTE 'ALTER TABLE changed ALTER v SET STATISTICS ' || i % 100;
		COMMIT;
	END LOOP;
END $$
SQL
my %reasons = (
	(map {
		my $listen = "SET track_activities = $_; LISTEN c";
		my $notify = sub { $other->query_ok('NOTIFY c') };
		"a notification, track_activities = $_," => [ $listen, $notify ],
		"a notification and a failed transaction, track_activities = $_," =>
		  [ $listen, $notify, 'BEGIN', 'SELECT 1/0', 'ROLLBACK' ]
	} qw(on off)),
	'invalidations' => [ 'SELECT 1', sub { $other->query_ok($invalidate) } ]);

for my $reason (sort keys %reasons)
{
	my ($prepare, $act, @transaction) = @{ $reasons{$reason} };
	my $s = session($node);
	$s->query_ok($prepare);
	$s->query_ok('SET zklock.commit_check = always');
	$s->query_ok("SELECT zk_lock('idle')");
	$s->query($_) for @transaction;
	wait_for_sql($node,
		q{SELECT wait_event FROM pg_stat_activity WHERE state IN ('idle', 'disabled') AND pid = } . $s->pid,
		'ClientRead');
	$zkc->delete($_) for queue_of($zkc, 'idle');
	$act->();
	fails_with($s, 'SELECT 1', '40001', "after $reason the next statement reports the loss",
		like => qr/lock "idle" was lost/);
	works($s, "SELECT 'this'", 'this', "after $reason the loss is reported once, and the connection stays open");
	$s->quit;
}

for my $end ('disconnects', 'is terminated')
{
	my $s = session($node);
	my $pid = $s->pid;
	$s->query_ok("SELECT zk_lock('idle')");
	$s->query_ok('CREATE TEMPORARY TABLE dropped ()');
	lose_lock($zk, $zkc, 'idle', zk_session_id($s));
	$end eq 'disconnects' ? $s->quit : $s->terminate;
	wait_for_sql($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", '0');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relname = 'dropped'}),
		'0', "a session with a lost lock $end: its temporary table is dropped");
}

# The lock is lost while the session, at its exit, waits to drop its temporary table: the commit of that
# waits for the standby as every other one.
{
	my ($s, $gate) = (session($node), session($node));
	my ($pid, $log) = ($s->pid, -s $node->logfile);
	$s->query_ok("SELECT zk_lock('idle')");
	my $schema = $s->query_ok('CREATE TEMPORARY TABLE dropped (); SELECT pg_my_temp_schema()::regnamespace');
	my $id = zk_session_id($s);
	require_standby($node);
	$gate->query_ok("BEGIN; LOCK TABLE $schema.dropped IN ACCESS SHARE MODE");
	$s->terminate;
	wait_for_sql($node, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid", 'Lock');
	lose_lock($zk, $zkc, 'idle', $id);
	$gate->query_ok('ROLLBACK');
	wait_for_sql($node, "SELECT count(*) = 0 OR bool_or(wait_event = 'SyncRep') FROM pg_stat_activity WHERE pid = $pid");
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
	$node->reload;
	wait_for_sql($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", '0');
	unlike(slurp_file($node->logfile, $log), qr/canceling wait for synchronous replication due to user request/,
		'a loss at the exit of a session does not end the wait for a standby');
}

nothing_left($zkc, 'nothing is left');
