# A command that PostgreSQL refuses inside a transaction block cannot be undone: it is
# checked before it starts, never refused at its end, and a lock that is lost while it
# runs is reported by the next statement (promise 5.6).

use strict;
use warnings;

use File::Temp ();
use PostgreSQL::Test::Cluster;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $node = zklock_node('a', zk => $zk, session_timeout => '2s',
	init => [ allows_streaming => 1 ]);
my $publisher = PostgreSQL::Test::Cluster->new('publisher');
$publisher->init(allows_streaming => 'logical');
$publisher->start;
$publisher->safe_psql('postgres', 'CREATE PUBLICATION p; CREATE PUBLICATION q');
my $connection = $publisher->connstr . ' dbname=postgres';
my $space = File::Temp->newdir('spaceXXXXXX', TMPDIR => 1);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t (v int);
CREATE TABLE part (v int) PARTITION BY RANGE (v);
CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (10);
CREATE INDEX part_v ON part (v);
SQL

sub remove_by_hand
{
	my ($lock) = @_;
	my @nodes = queue_of($zkc, $lock);
	$zkc->delete($_) for @nodes;
	return scalar @nodes;
}

# What a command that fails too late would leave on disk.
sub files
{
	my $data = $node->data_dir;
	return join ' ', sort map { glob "$data/$_/*" } qw(base pg_tblspc), ;
}

sub prepare
{
	my ($name) = @_;
	$node->safe_psql('postgres',
		"BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION '$name'");
	return;
}

prepare('prepared');

# In an order in which each of them can be done.
my @commands = (
	"COMMIT PREPARED 'prepared'",
	'CREATE DATABASE d',
	"CREATE TABLESPACE s LOCATION '$space'",
	'ALTER DATABASE d SET TABLESPACE s',
	'DROP DATABASE d',
	'DROP TABLESPACE s',
	'ALTER SYSTEM SET work_mem = 8192',
	'ALTER SYSTEM RESET work_mem',
	'VACUUM t',
	'VACUUM',
	'CLUSTER',
	'CREATE INDEX CONCURRENTLY i ON t (v)',
	'REINDEX INDEX CONCURRENTLY i',
	'REINDEX TABLE CONCURRENTLY t',
	'REINDEX TABLE part',
	'REINDEX INDEX part_v',
	'REINDEX SCHEMA public',
	'REINDEX DATABASE postgres',
	'REINDEX SYSTEM postgres',
	'DROP INDEX CONCURRENTLY i',
	'ALTER TABLE part DETACH PARTITION part1 CONCURRENTLY',
	"CREATE SUBSCRIPTION u CONNECTION '$connection' PUBLICATION p",
	'ALTER SUBSCRIPTION u REFRESH PUBLICATION',
	'ALTER SUBSCRIPTION u ADD PUBLICATION q',
	'ALTER SUBSCRIPTION u SET PUBLICATION p',
	'DROP SUBSCRIPTION u',
);

{
	my $s = session($node);
	$s->query_ok('SET zklock.commit_check = always');
	$s->query_ok('SET client_min_messages = warning');
	for my $command (@commands)
	{
		fails_with($s, "BEGIN\\;$command\\;", '25001',
			"PostgreSQL refuses it in a block: $command", hint => 0);
		$s->query_ok('ROLLBACK');
		$s->query_ok("SELECT zk_lock('irreversible')");
		is(remove_by_hand('irreversible'), 1, 'its lock is removed by hand');
		my $before = files();
		fails_with($s, $command, '40001', "and it fails if a lock was lost: $command",
			like => qr/"irreversible"/);
		is(files(), $before, 'and leaves the files as they were');
		works($s, $command, '', "and nothing of it was done: $command");
	}
	$s->quit;
}

# ROLLBACK PREPARED and DISCARD ALL get rid of something: they always work.
for my $way_out ("ROLLBACK PREPARED 'unwanted'", 'DISCARD ALL')
{
	prepare('unwanted') if $way_out =~ /ROLLBACK/;
	my $s = session($node);
	$s->query_ok('SET zklock.commit_check = always');
	fails_with($s, "BEGIN\\;$way_out\\;", '25001',
		"PostgreSQL refuses it in a block: $way_out", hint => 0);
	$s->query_ok('ROLLBACK');
	$s->query_ok("SELECT zk_lock('irreversible')");
	remove_by_hand('irreversible');
	works($s, $way_out, '', "it works with a lost lock: $way_out");
	$s->quit;
}

# An ensemble that does not answer.
{
	prepare('silent');
	my $s = session($node);
	$s->query_ok('SET zklock.commit_check = always');
	for my $command ("COMMIT PREPARED 'silent'", 'CREATE DATABASE silent')
	{
		$s->query_ok("SELECT zk_lock('silent')");
		my $before = files();
		$zk->pause;
		fails_with($s, $command, '40001', "a silent ensemble refuses: $command");
		is(files(), $before, 'and leaves the files as they were');
		$zk->resume;

		# The silence was as long as the session timeout: the session may have expired.
		$s->query('SELECT zk_unlock_all()');
		ok($s->ok || $s->error =~ /^\S*\s*ERROR:  lock "silent" was lost$/m, 'the lock is released, or lost');
		works($s, $command, '', "and nothing of it was done: $command");
	}
	prepare('silent');
	$s->query_ok("SELECT zk_lock('silent')");
	$zk->pause;
	works($s, "ROLLBACK PREPARED 'silent'", '',
		'ROLLBACK PREPARED does not ask a silent ensemble');
	$zk->resume;
	$s->quit;
}

# The lock is lost while the command runs. Others keep the commands waiting.
sub lose_while_waiting
{
	my ($command, $wait_event, $proceed) = @_;
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('meanwhile')");
	my $id = zk_session_id($s);
	$s->query_async($command);
	my $waits = "SELECT wait_event = '$wait_event' FROM pg_stat_activity WHERE pid = " . $s->pid;
	wait_for_sql($node, $waits, 't');
	lose_lock($zk, $zkc, 'meanwhile', $id);
	is($node->safe_psql('postgres', $waits), 't', "a loss does not cancel: $command");
	$proceed->();
	$s->wait_result;
	ok($s->ok, "and it is done: $command") or diag($s->error);
	wait_until('the report of the loss', sub { $s->query('SELECT 1'); !$s->ok });
	is($s->sqlstate, '40001', 'and a later statement reports the loss');
	like($s->error, qr/"meanwhile"/, 'with the name of the lock');
	works($s, 'SELECT 1', '1', 'once');
	$s->quit;
	return;
}

sub behind
{
	my ($statement, $command, $wait_event) = @_;
	my $gate = session($node);
	$gate->query_ok("BEGIN; $statement");
	lose_while_waiting($command, $wait_event, sub { $gate->query_ok('COMMIT') });
	$gate->quit;
	return;
}

behind('INSERT INTO t VALUES (2)', 'CREATE INDEX CONCURRENTLY late ON t (v)', 'virtualxid');
is($node->safe_psql('postgres',
		"SELECT indisvalid FROM pg_index WHERE indexrelid = 'late'::regclass"),
	't', 'the index is valid');
behind('INSERT INTO t VALUES (2)', 'REINDEX INDEX CONCURRENTLY late', 'virtualxid');
behind('LOCK TABLE t', 'VACUUM t', 'relation');
$node->safe_psql('postgres', 'CREATE DATABASE source');
behind(q{COMMENT ON DATABASE source IS 'locked'}, 'CREATE DATABASE copy TEMPLATE source',
	'object');
behind(q{COMMENT ON DATABASE copy IS 'locked'}, 'DROP DATABASE copy', 'object');
prepare('replicated');
$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
$node->reload;
wait_for_sql($node, 'SHOW synchronous_standby_names', 'nobody');
lose_while_waiting("COMMIT PREPARED 'replicated'", 'SyncRep', sub {
		$node->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
		$node->reload;
	});

# Commands that can be undone are cancelled, and refused at their end.
{
	my $gate = session($node);
	my $s = session($node);
	$gate->query_ok('BEGIN; LOCK TABLE t');
	$s->query_ok("SELECT zk_lock('meanwhile')");
	my $id = zk_session_id($s);
	$s->query_async('CREATE INDEX undone ON t (v)');
	wait_blocked_locally($s);
	lose_lock($zk, $zkc, 'meanwhile', $id);
	failed_with($s, '40001', 'a command that can be undone is cancelled by a loss',
		like => qr/"meanwhile"/);
	$gate->query_ok('COMMIT');
	$_->quit for $gate, $s;
}
is($node->safe_psql('postgres', "SELECT to_regclass('undone') IS NULL"), 't',
	'and has no effect');

nothing_left($zkc, 'no command leaves anything behind');
unlike(server_log($node), qr/PANIC|terminated by signal/, 'no backend has crashed');
$_->stop for $node, $publisher;
$zkc->close;
$zk->stop;
done_testing();
