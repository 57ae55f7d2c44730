# A server without shared_preload_libraries; a hot standby, in databases of other encodings,
# dropped and created again; and the threads of a backend.
#
# Promise: 3.8
# Tags: user, edges

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $primary = zklock_node(
	'primary',
	zk => $zk,
	init => [ allows_streaming => 1 ]);
my $plain = zklock_node('plain', zk => $zk);
my $lock = '/zklock/locks/x';
my $t = session($plain);

# Returns the signal masks of the threads of a process, without its main thread.
sub thread_masks
{
	my ($pid) = @_;
	return map { /^SigBlk:\s*([0-9a-f]+)$/m ? $1 : () }
	  map { read_file("$_/status") }
	  grep { $_ !~ m{/$pid$} } glob "/proc/$pid/task/*";
}

is($primary->safe_psql('postgres', 'SHOW zklock.root'), '/zklock', 'the settings exist from the start');
is($primary->safe_psql('postgres', "SELECT version FROM pg_get_loaded_modules() WHERE module_name = 'zklock'"),
	$primary->safe_psql('postgres', "SELECT default_version FROM pg_available_extensions WHERE name = 'zklock'"),
	'the loaded library says which version it is')
  if $primary->pg_version >= 18;
for my $node ($primary, $plain)
{
	my $how = 'server ' . $node->name;
	my $s = session($node);
	my $other = $node == $primary ? $t : session($primary);

	is(scalar(thread_masks($s->pid)),
		0, "$how: a backend without locks has no thread");
	$s->query("SELECT zk_lock('')");
	is(scalar(thread_masks($s->pid)), 0, "$how: an invalid name does not connect");

	$s->query_ok("SELECT zk_lock('x')");
	is($other->query("SELECT zk_try_lock('x')"),
		'f', "$how: the lock excludes the other server");
	my @masks = thread_masks($s->pid);
	cmp_ok(scalar(@masks), '>', 0, "$how: a backend with locks has threads");

	# All signals but SIGKILL, SIGSTOP and the two that the C library reserves.
	is_deeply([ grep { $_ ne 'fffffffe7ffbfeff' } @masks ],
		[], "$how: the threads block all signals");
	my $own = read_file('/proc/' . $s->pid . '/status');
	isnt($own =~ /^SigBlk:\s*([0-9a-f]+)$/m ? $1 : '',
		'fffffffe7ffbfeff', "$how: the backend itself does not");
	is(scalar(thread_masks(postmaster_pid($node->data_dir))),
		0, "$how: the postmaster has no thread");
	$s->query_ok("SELECT zk_unlock('x')");
	is($other->query("SELECT zk_try_xact_lock('x', interval '1 min')"),
		't', "$how: the lock is released");
	$s->quit;
	nothing_left($zkc, "$how: no node is left");
}

# A parallel plan, and a child process of the backend.
my $s = session($plain);
$s->query_ok(<<'SQL');
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0; SET force_parallel_mode = on;
CREATE TABLE many AS SELECT generate_series(1, 10000) AS n;
ANALYZE many;
SQL
is( $s->query(
		"SELECT zk_lock('x') > 0, count(*) FROM many WHERE n > 5 "
		  . 'GROUP BY zk_lock(\'x\') > 0'),
	't|9995', 'a lock can be acquired in a query with a parallel part');
is($s->query('SELECT count(*) FROM many WHERE n > 5'),
	'9995', 'parallel workers run while a lock is held');
is($t->query("SELECT zk_try_lock('x')"), 'f', 'the end of a parallel worker does not release the lock');

# Returns the open descriptors of a program that the backend starts, without
# PostgreSQL's own files: their kinds, without numbers.
sub inherited
{
	my ($backend) = @_;
	my $fds = PostgreSQL::Test::Utils::tempdir() . '/fds';
	$backend->query_ok('COPY (SELECT 1) TO PROGRAM '
		  . "'cat > /dev/null; ls -l /proc/self/fd > $fds'");
	return join ' ', sort map { s/\d+/N/gr } slurp_file($fds) =~ m{-> ([^/]\S+)}g;
}
my $without = session($plain);
is(inherited($s), inherited($without),
	'a program that the backend starts inherits no descriptor of its ZooKeeper session');
is($t->query("SELECT zk_try_lock('x')"), 'f', 'the end of the program releases no lock');
$_->quit for $s, $without;
nothing_left($zkc, 'parallel query: no node is left');

# A function that somebody declares PARALLEL SAFE although it locks. What a worker acquires
# would end with the worker, and a worker would wait for its own leader for ever.
$s = session($plain);
$s->query_ok('SELECT zk_session()');
$s->query_ok("SET $_ = 0") for qw(parallel_setup_cost parallel_tuple_cost min_parallel_table_scan_size);
$s->query_ok('SET ' . ($plain->pg_version < 16 ? 'force_parallel_mode' : 'debug_parallel_query') . ' = on');
my @in_worker = (
	"zk_lock('x')", "zk_xact_lock('x')", "zk_try_lock('x')", "zk_unlock('x')", 'zk_unlock_all()', "zk_acquire_permit('x', 1)",
	"zk_release_permit('x')", "zk_lock_token('x')", "zk_fence('x')", 'count(*) FROM zk_held_locks', 'state FROM zk_session()');
for my $held ('nothing', 'the lock')
{
	$s->query_ok("SELECT zk_lock('x')") if $held ne 'nothing';
	for my $call (@in_worker)
	{
		$s->query_ok("CREATE OR REPLACE FUNCTION unsafe() RETURNS text LANGUAGE plpgsql PARALLEL SAFE "
			  . "AS \$\$BEGIN RETURN (SELECT $call); END\$\$");
		fails_with($s, 'SELECT unsafe()', '25000', "the leader holds $held: a parallel worker is refused $call",
			like => qr/^HINT: .*PARALLEL RESTRICTED/m);
	}
}
is($s->query("SELECT zk_unlock('x')"), 't', 'the leader still holds its lock');
$s->query_ok('SELECT zk_unlock_all()');
$s->quit;
nothing_left($zkc, 'parallel worker: no node is left');


# A hot standby.
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);

$s = session($standby);
is($s->query('SELECT pg_is_in_recovery()'), 't', 'the server is a hot standby');
my $token = $s->query("SELECT zk_lock('x')");
like($token, qr/^\d+$/, 'a session of a hot standby can acquire a lock');
my $p = session($primary);
is($p->query("SELECT zk_try_lock('x')"), 'f', 'the lock excludes the primary');
is($t->query("SELECT zk_try_lock('x')"), 'f', 'the lock excludes other servers');
$s->query_ok("BEGIN; SELECT zk_xact_lock_shared('y')");
is($p->query("SELECT zk_try_lock_shared('y')"), 't', 'the primary shares a shared lock of the standby');
is($p->query("SELECT zk_try_lock('y')"), 'f', 'a shared lock of the standby excludes writers of the primary');
$p->query_ok("SELECT zk_unlock_shared('y')");
$s->query_ok('COMMIT');
is($p->query("SELECT zk_try_xact_lock('y', interval '1 min')"),
	't', 'COMMIT on the standby releases the lock');
$s->query_ok("BEGIN; SAVEPOINT a; SELECT zk_xact_lock('z'); ROLLBACK TO a");
is($p->query("SELECT zk_try_xact_lock('z', interval '1 min')"),
	't', 'ROLLBACK TO on the standby releases the lock');
$s->query_ok('COMMIT');
# A conflict with recovery cancels a wait, of an attempt too, and keeps the connection.
$primary->safe_psql('postgres', 'CREATE TABLE conflict AS SELECT 1');
$primary->wait_for_catchup($standby);
$standby->safe_psql('postgres', "ALTER SYSTEM SET max_standby_streaming_delay = '10ms'");
$standby->reload;
for my $call ("zk_lock('x')", "zk_try_lock('x', '1 h')")
{
	my $conflicting = session($standby);
	my $log = -s $standby->logfile;
	$conflicting->query_ok('BEGIN; SELECT * FROM conflict');
	$conflicting->query_async("SELECT $call");
	wait_blocked_locally($conflicting);
	$primary->safe_psql('postgres', 'BEGIN; LOCK TABLE conflict; SELECT pg_switch_wal(); COMMIT');
	failed_with($conflicting, '40001', "a conflict with recovery cancels $call", hint => 0, like => qr/conflict with recovery/);
	# The startup process repeats its signal every 5 ms until the transaction has ended, and PostgreSQL
	# ends a session that is idle when it sees the second one.
	my $answer = eval { $conflicting->query_ok('ROLLBACK'); $conflicting->query_ok("SELECT zk_try_lock('x', '10ms')") };
	my $ended = PostgreSQL::Test::Utils::slurp_file($standby->logfile, $log) =~ /FATAL: .*due to conflict with recovery/;
	is($answer // 'ended', $ended ? 'ended' : 'f', 'the session goes on after a conflict with recovery');
	$conflicting->quit;
}

my $local = session($standby);
$local->query_async("SELECT zk_try_lock('x', interval '1 h')");
wait_blocked_locally($local);
$t->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
is( $standby->safe_psql(
		'postgres', 'SELECT pg_blocking_pids(' . $local->pid . ')'),
	'{' . $s->pid . '}',
	'a waiter on the standby waits locally');

$standby->promote;
is($s->query("SELECT pg_is_in_recovery(), zk_lock_token('x')"),
	"f|$token", 'a lock survives the promotion of its server');
ok(!$t->finished && !$local->finished, 'the lock excludes others after the promotion');
$s->query_ok("SELECT zk_unlock('x')");
like($t->wait_result, qr/^\d+$/, 'a waiter is granted the lock after its release');
$t->query_ok("SELECT zk_unlock('x')");
is($local->wait_result, 't', 'the second waiter is granted the lock after the first');
$_->quit for $s, $local, $p;
nothing_left($zkc, 'hot standby: no node is left');
$standby->stop;


# Encodings. ü has one byte in some of them and two in others.
my %encodings = (
	LATIN1 => "SET client_encoding = 'UTF8'",
	LATIN9 => "SET client_encoding = 'UTF8'",
	WIN1252 => "SET client_encoding = 'UTF8'",
	EUC_JIS_2004 => "SET client_encoding = 'UTF8'",
	SQL_ASCII => 'SELECT 1');
my $name = "\xc3\xbc";
$t->query_ok("SET client_encoding = 'UTF8'");
for my $encoding (sort keys %encodings)
{
	my $dbname = lc $encoding;
	$plain->safe_psql('postgres',
		"CREATE DATABASE $dbname ENCODING '$encoding' "
		  . "TEMPLATE template0 LOCALE 'C'");
	$plain->safe_psql($dbname, 'CREATE EXTENSION zklock');
	$s = session($plain, dbname => $dbname);
	$s->query_ok($encodings{$encoding});
	$s->query_ok("SELECT zk_lock('$name')");
	is(join(' ', map { m{^/zklock/locks/([^/]+)} } lock_nodes($zkc)),
		'%C3%BC', "$encoding: the znode name of a lock is in UTF-8");
	is($t->query("SELECT zk_try_lock('$name')"),
		'f', "$encoding: the same name is the same lock");
	$p = session($primary);
	$p->query_ok("SET client_encoding = 'UTF8'");
	is($p->query("SELECT zk_try_lock('$name')"),
		'f', "$encoding: the same name is the same lock on another server");
	is($s->query('SELECT name FROM zk_held_locks'),
		$name, "$encoding: zk_held_locks shows the name as it was given");
	$p->quit;
	$s->quit;
	nothing_left($zkc, "$encoding: no node is left");
}


# DROP EXTENSION while a lock is held.
$s = session($plain);
$s->query_ok("SELECT zk_lock('x'); BEGIN; SELECT zk_xact_lock('y')");
$plain->safe_psql('postgres', 'DROP EXTENSION zklock');
$s->query('COMMIT');
is($s->sqlstate, '00000', 'a transaction commits without the extension');
$p = session($primary);
is($p->query("SELECT zk_try_xact_lock('y', interval '1 min')"),
	't', 'a commit without the extension releases transaction-level locks');
is($p->query("SELECT zk_try_lock('x')"),
	'f', 'a session-level lock outlives DROP EXTENSION');
$plain->safe_psql('postgres', 'CREATE EXTENSION zklock');
is($s->query("SELECT zk_unlock('x')"),
	't', 'the session-level lock can be released after CREATE EXTENSION');
is($p->query("SELECT zk_try_xact_lock('x', interval '1 min')"),
	't', 'the released lock is free for another server');
$s->query_ok("SELECT zk_lock('x')");
$plain->safe_psql('postgres', 'DROP EXTENSION zklock');
$s->query_ok('DISCARD ALL');
is($p->query("SELECT zk_try_xact_lock('x', interval '1 min')"),
	't', 'DISCARD ALL releases locks without the extension');
$s->quit;
$p->quit;
nothing_left($zkc, 'DROP EXTENSION: no node is left');

# Without shared_preload_libraries everything fails with the line to write, and CREATE EXTENSION
# succeeds with a warning.
my @line = (like => qr/HINT:.*shared_preload_libraries = 'zklock'.*restart/);
$plain->adjust_conf('postgresql.conf', 'shared_preload_libraries', q(''));
$t->quit;
$plain->restart;
$plain->safe_psql('postgres', 'CREATE ROLE nobody LOGIN');
for my $place ('CREATE EXTENSION', 'LOAD', 'session_preload_libraries', 'a call')
{
	local $ENV{PGOPTIONS} = $place =~ /^session/ ? "-c $place=zklock" : '';
	$s = session($plain);
	$s->query_ok("LOAD 'zklock'") if $place eq 'LOAD';
	if ($place eq 'CREATE EXTENSION')
	{
		my (undef, $warning) = $s->query('CREATE EXTENSION zklock');
		is($s->sqlstate, '00000', 'CREATE EXTENSION succeeds without shared_preload_libraries');
		like($warning, qr/WARNING:.*HINT:.*shared_preload_libraries = 'zklock'/s, 'the warning of DROP EXTENSION has the line to write');
	}
	my @calls = split /\n/, $s->query(<<'SQL');
SELECT format('SELECT %I(%s)', proname, (SELECT string_agg(
	quote_literal(CASE t WHEN 'text[]'::regtype THEN '{x}' WHEN 'interval'::regtype THEN '1s' ELSE '1' END) || '::' || t::regtype, ', ')
	FROM unnest(proargtypes::oid[]) AS t))
FROM pg_proc WHERE proname ~ '^zk' AND prokind = 'f'
	AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'c') ORDER BY 1
SQL
	cmp_ok(scalar @calls, '>', 30, "loaded by $place: all functions");
	fails_with($s, $_, '55000', "loaded by $place: $_", @line)
	  for @calls, q(CALL zk_lock_wait('x')), map { "SELECT * FROM $_" } qw(zk_locks zk_held_locks zk_stat);
	$s->quit;
}
$s = session($plain, user => 'nobody');
fails_with($s, q(SELECT zk_lock('x')), '55000', 'an ordinary role gets the same error', @line);
$s->quit;
