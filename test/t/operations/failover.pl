# Failover: a primary crashes, or stops responding, while its sessions hold locks, and a
# standby is promoted. Sessions of the standby acquire the locks after the session timeout,
# and an open transaction of the old primary is committed nowhere.
#
# Promises: 3.4, 5.2

use PostgreSQL::Test::Cluster;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client(timeout => 30);

# Returns all processes of a server, the postmaster first.
sub processes
{
	my ($node) = @_;
	my $postmaster = postmaster_pid($node->data_dir);
	return ($postmaster, child_processes($postmaster));
}

# Starts a primary and its standby.
sub pair
{
	my ($name) = @_;
	my $primary = zklock_node("$name-primary",
		zk => $zk,
		init => [ allows_streaming => 1 ]);
	$primary->safe_psql('postgres', 'CREATE TABLE t (v text)');
	$primary->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new("$name-standby");
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->start;
	$primary->wait_for_catchup($standby);
	return ($primary, $standby);
}

# Opens holders on the primary, one in a transaction that has written, and waiters on the
# standby. Only the holders lose something: the others have the default session timeout.
sub holders_and_waiters
{
	my ($primary, $standby, $name) = @_;
	my ($writer, $leader) = map { session_with($primary, session_timeout => '15s') } 1, 2;
	$writer->query_ok('BEGIN');
	my $token = $writer->query_ok("SELECT zk_xact_lock('$name-writer')");
	$writer->query_ok("INSERT INTO t VALUES ('old')");
	my $lead = $leader->query_ok("SELECT zk_lock('$name-leader')");
	my ($next_writer, $next_leader) = map { session($standby) } 1, 2;
	$next_writer->query_async("SELECT zk_lock('$name-writer') > $token");
	$next_leader->query_async("SELECT zk_lock('$name-leader') > $lead");
	wait_zk_children($zkc, "/zklock/locks/$name-$_", 2) for qw(writer leader);
	return ($writer, $leader, $next_writer, $next_leader);
}

# Assertions after the promotion of the standby.
sub taken_over
{
	my ($standby, $next_writer, $next_leader, $what) = @_;
	is($next_writer->wait_result, 't',
		"$what: a waiter on the standby acquires the transaction-level lock, with a greater token");
	is($next_leader->wait_result, 't', "$what: a waiter on the standby acquires the session-level lock");
	works($next_writer, 'SELECT pg_is_in_recovery(), count(*) FROM t', 'f|0',
		"$what: the open transaction is not committed on the new primary");
	works($next_writer, "BEGIN; INSERT INTO t VALUES ('new'); COMMIT", '',
		"$what: the new holder commits on the new primary");
	return;
}

# The whole machine crashes: no backend closes its session.
{
	my ($primary, $standby) = pair('killed');
	my ($writer, $leader, @next) = holders_and_waiters($primary, $standby, 'killed');
	my ($postmaster, @children) = processes($primary);
	hold_still($postmaster, @children);
	kill 'KILL', @children;
	$primary->kill9;
	$standby->promote;
	taken_over($standby, @next, 'killed');
	$primary->start;
	is($primary->safe_psql('postgres', 'SELECT count(*) FROM t'), 0,
		'killed: the open transaction is not committed on the restarted old primary');
	my $late = session($primary);
	works($late, "SELECT zk_try_lock('killed-leader')", 'f',
		'killed: new sessions of the old primary are excluded');
	$_->quit for $late, @next;
	nothing_left($zkc, 'killed: no node is left');
	$_->stop for $primary, $standby;
}

# The machine is paused during the promotion and continues: there are two primaries.
{
	my ($primary, $standby) = pair('silent');
	my ($writer, $leader, @next) = holders_and_waiters($primary, $standby, 'silent');
	my @processes = processes($primary);
	hold_still(@processes);
	$standby->promote;
	taken_over($standby, @next, 'silent');
	kill 'CONT', @processes;
	commit_refused($writer,
		'silent: the old primary continues and cannot commit its open transaction');
	is($primary->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, 'silent: the open transaction is not committed on the old primary');
	fails_with($leader, "INSERT INTO t VALUES ('old leader')", '40001',
		"silent: the old primary's leader gets the error with its next statement");
	is($primary->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, 'silent: the failed statement writes nothing');
	works($leader, "SELECT zk_try_lock('silent-leader')", 'f',
		'silent: the former leader cannot acquire the lock again');
	works($leader, "INSERT INTO t VALUES ('divergent')", '',
		'silent: a statement without the lock still writes into the old primary');
	$_->quit for $writer, $leader, @next;
	nothing_left($zkc, 'silent: no node is left');
	$_->stop for $primary, $standby;
}
