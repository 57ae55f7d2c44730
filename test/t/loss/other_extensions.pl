# Other extensions use the same hooks, in front of zklock and behind it in shared_preload_libraries: all of
# them see each statement, and zklock's promises hold. Those that are not installed are left out.
# Promise: 5.3, 5.6, 5.8
# Tags: edges

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my %conf = (
	pg_stat_statements => "pg_stat_statements.track = all\n",
	auto_explain => "auto_explain.log_min_duration = 0\nauto_explain.log_nested_statements = on\n",
	postgres_fdw => '',
	pgaudit => "pgaudit.log = all\n",
	pg_cron => "cron.use_background_workers = on\n",
	pg_hint_plan => '');

for my $order ('before', 'behind')
{
	my $node = zklock_node("zklock_$order", zk => $zk, extension => 0);
	my @others = grep { -e $node->config_data('--pkglibdir') . "/$_.so" } sort keys %conf;
	my @libraries = $order eq 'before' ? ('zklock', @others) : (@others, 'zklock');
	$node->append_conf('postgresql.conf',
		"shared_preload_libraries = '@{[ join ', ', @libraries ]}'\n" . join '', @conf{@others});
	$node->restart;
	note("zklock $order: @others");
	$node->safe_psql('postgres', 'CREATE EXTENSION zklock');
	for my $other (grep { $_ ne 'auto_explain' } @others)
	{
		$node->safe_psql('postgres', "CREATE EXTENSION $other");
	}
	prepare($node);
	with_others($node, $order, { map { $_ => 1 } @others });
	$node->stop;
}
nothing_left($zkc, 'nothing is left');

sub prepare
{
	my ($node) = @_;
	my ($host, $port, $user) = ($node->host, $node->port, scalar getpwuid $>);
	$node->safe_psql('postgres', 'CREATE DATABASE remote');
	$node->safe_psql('remote', 'CREATE TABLE there (v text)');
	$node->safe_psql('postgres', <<"SQL");
CREATE SERVER remote FOREIGN DATA WRAPPER postgres_fdw
	OPTIONS (host '$host', port '$port', dbname 'remote');
CREATE USER MAPPING FOR PUBLIC SERVER remote OPTIONS (user '$user', password_required 'false');
CREATE FOREIGN TABLE there (v text) SERVER remote;
CREATE TABLE here (v text);
CREATE TABLE jobs (v bigint);
CREATE FUNCTION nested() RETURNS void LANGUAGE plpgsql AS
	'BEGIN PERFORM pg_sleep(600); END';
SQL
	return;
}

# Runs a statement that waits until the session has lost its lock "x".
sub lose_during
{
	my ($s, $wait, $statement) = @_;
	my $id = zk_session_id($s);
	$s->query_async($statement);
	$wait->($s);
	lose_lock($zk, $zkc, 'x', $id);
	return;
}

sub with_others
{
	my ($node, $order, $has) = @_;
	my ($s, $gate) = (session($node), session($node));
	my $offset = -s $node->logfile;
	$s->query_ok("SELECT cron.schedule('* * * * *', \$\$INSERT INTO jobs SELECT zk_xact_lock('cron')\$\$)")
	  if $has->{pg_cron};

	# A running statement, one inside a function, a command.
	for my $statement ('SELECT pg_sleep(600)', 'SELECT nested()', 'LOCK TABLE here')
	{
		$gate->query_ok('BEGIN; LOCK TABLE here');
		$s->query_ok("BEGIN; SELECT zk_lock('x')");
		lose_during($s, $statement =~ /LOCK/ ? \&wait_blocked_locally : \&wait_asleep, $statement);
		failed_with($s, '40001', "zklock $order: a loss ends $statement", like => qr/lock "x" was lost/);
		$gate->query_ok('COMMIT');
		$s->query_ok('ROLLBACK');
		works($s, 'SELECT 1', '1', "zklock $order: the loss is reported once ($statement)");
	}

	# The commit check comes before the remote commit.
	$s->query_ok("SET zklock.commit_check = always; SELECT zk_lock('x')");
	$s->query_ok("BEGIN; INSERT INTO here VALUES ('x'); INSERT INTO there VALUES ('x')");
	$zkc->delete($_) for queue_of($zkc, 'x');
	fails_with($s, 'COMMIT', '40001', "zklock $order: a commit without its lock is refused", like => qr/"x"/);
	is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM here), (SELECT count(*) FROM there)'), '0|0',
		"zklock $order: no local and no remote row");

	# A command that cannot be undone.
	$gate->query_ok('BEGIN; LOCK TABLE here');
	$s->query_ok("SELECT zk_lock('x')");
	lose_during($s, \&wait_blocked_locally, 'VACUUM here');
	$gate->query_ok('COMMIT');
	$s->wait_result;
	ok($s->ok, "zklock $order: VACUUM is not refused after a loss") or diag($s->error);
	fails_with($s, 'SELECT 1', '40001', "zklock $order: the next statement reports it", like => qr/"x"/);

	$s->query_ok("SELECT zk_lock('x')");
	works($s, 'DISCARD ALL', '', "zklock $order: DISCARD ALL");
	works($s, 'SELECT count(*) FROM zk_held_locks', '0', "zklock $order: it has released the lock");

	# What the others have seen.
	my $log = slurp_file($node->logfile, $offset);
	if ($has->{auto_explain})
	{
		like($log, qr/Query Text: SELECT zk_lock\('x'\)/, "zklock $order: auto_explain sees statements");
	}
	if ($has->{pgaudit})
	{
		like($log, qr/AUDIT: .*SELECT zk_lock\('x'\)/, "zklock $order: pgaudit sees statements");
		like($log, qr/AUDIT: .*DISCARD ALL/, "zklock $order: pgaudit sees commands");
	}
	if ($has->{pg_stat_statements})
	{
		works($s, q{SELECT count(*) > 0 FROM pg_stat_statements WHERE query LIKE 'SELECT zk_lock(%' AND calls > 0},
			't', "zklock $order: pg_stat_statements counts statements");
	}
	if ($has->{pg_cron})
	{
		ok(wait_for_sql($node, 'SELECT count(*) > 0 FROM jobs WHERE v > 0', 't'), "zklock $order: a job of pg_cron locks");
		works($s, 'SELECT count(cron.unschedule(jobid)) FROM cron.job', '1', "zklock $order: the job is removed");
		wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pg_cron%' AND query LIKE 'INSERT%'}, '0');
	}
	$_->quit for $s, $gate;
	return;
}
