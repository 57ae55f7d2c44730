# The extension preloaded or not, on a hot standby, in databases of other
# encodings, dropped and made again; and what a backend costs.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check qw(nothing_left);
use ZkLock::Cluster;
use ZkLock::Util qw(read_file);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $primary = zklock_node(
	'primary',
	zk => $zk,
	preload => 1,
	init => [ allows_streaming => 1 ]);
my $plain = zklock_node('plain', zk => $zk);
my $lock = '/zklock/locks/x';
my $t = session($plain);

# Signal masks of the threads of a process, its first one left out.
sub thread_masks
{
	my ($pid) = @_;
	return map { /^SigBlk:\s*([0-9a-f]+)$/m ? $1 : () }
	  map { read_file("$_/status") }
	  grep { $_ !~ m{/$pid$} } glob "/proc/$pid/task/*";
}

sub postmaster
{
	my ($pid) = read_file($_[0]->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	return $pid;
}


# Preloaded or not.
is($primary->safe_psql('postgres', 'SHOW zklock.root'),
	'/zklock', 'preloaded, the settings are there from the beginning');
for my $node ($primary, $plain)
{
	my $how = $node == $primary ? 'preloaded' : 'not preloaded';
	my $s = session($node);
	my $other = $node == $primary ? $t : session($primary);

	is(scalar(thread_masks($s->pid)),
		0, "$how: a backend without locks has no thread");
	$s->query_ok(
		"SELECT zk_lock_token('x'), zk_unlock_all(), zk_unlock('x')");
	is( $s->query(
			'SELECT state, session_id, locks, '
			  . '(SELECT count(*) FROM zk_held_locks) FROM zk_session()'),
		'closed||0|0',
		"$how: to look does not connect");
	$s->query("SELECT zk_lock('')");
	is(scalar(thread_masks($s->pid)), 0, "$how: nor does a bad name");

	$s->query_ok("SELECT zk_lock('x')");
	is($other->query("SELECT zk_try_lock('x')"),
		'f', "$how: the lock excludes the other server");
	my @masks = thread_masks($s->pid);
	cmp_ok(scalar(@masks), '>', 0, "$how: a backend with locks has threads");

	# All but SIGKILL, SIGSTOP and the two that the C library keeps.
	is_deeply([ grep { $_ ne 'fffffffe7ffbfeff' } @masks ],
		[], "$how: with all signals blocked");
	my $own = read_file('/proc/' . $s->pid . '/status');
	isnt($own =~ /^SigBlk:\s*([0-9a-f]+)$/m ? $1 : '',
		'fffffffe7ffbfeff', "$how: not so the backend itself");
	is(scalar(thread_masks(postmaster($node))),
		0, "$how: the postmaster has no thread");
	$s->query_ok("SELECT zk_unlock('x')");
	is($other->query("SELECT zk_try_xact_lock('x', interval '1 min')"),
		't', "$how: and is released");
	$s->quit;
	nothing_left($zkc, "$how: no node is left");
}

# Loaded in a session before or after the settings are made.
my $s = session($plain);
$s->query_ok("SET zklock.root = '/elsewhere'");
$s->query_ok("SELECT zk_lock('x')");
is( join(' ', $zkc->children('/elsewhere/locks')),
	'x', 'a setting made before the library is loaded counts');
my $p = session($primary);
is($p->query("SELECT zk_try_xact_lock('x')"),
	't', 'below another root there are other locks');
is($t->query("SELECT zk_try_xact_lock('x', interval '1 min')"),
	't', 'also for sessions of the same server');
$p->quit;
$s->quit;
nothing_left($zkc, 'no node is left there', root => '/elsewhere');

# Whom it lets in.
$plain->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
$s = session($plain, user => 'ordinary');
like($s->query("SELECT zk_lock('x')"),
	qr/^\d+$/, 'an ordinary role can take a lock');
is($s->query("SELECT zk_unlock('x')"), 't', 'and release it');
for my $setting (qw(zklock.root zklock.connect_string zklock.commit_check))
{
	$s->query("SET $setting = '/x'");
	is($s->sqlstate, '42501', "but not set $setting");
}
$s->quit;
nothing_left($zkc, 'ordinary role: no node is left');

# A parallel plan, and a child of the backend.
$s = session($plain);
$s->query_ok(<<'SQL');
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0; SET force_parallel_mode = on;
CREATE TABLE many AS SELECT generate_series(1, 10000) AS n;
ANALYZE many;
SQL
is( $s->query(
		"SELECT zk_lock('x') > 0, count(*) FROM many WHERE n > 5 "
		  . 'GROUP BY zk_lock(\'x\') > 0'),
	't|9995', 'a lock can be taken in a query with a parallel part');
is($s->query('SELECT count(*) FROM many WHERE n > 5'),
	'9995', 'and parallel workers come and go while it is held');
is($t->query("SELECT zk_try_lock('x')"), 'f', 'which they do not release');

# What a program that the backend starts has open besides PostgreSQL's own files: kinds of
# descriptors, without their numbers.
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
is($t->query("SELECT zk_try_lock('x')"), 'f', 'and its end releases nothing');
$_->quit for $s, $without;
nothing_left($zkc, 'parallel query: no node is left');


# READ ONLY transactions.
$s = session($primary);
for my $level ('READ COMMITTED', 'REPEATABLE READ',
	'SERIALIZABLE', 'SERIALIZABLE, DEFERRABLE')
{
	$s->query_ok("BEGIN ISOLATION LEVEL $level, READ ONLY");
	$s->query_ok("SELECT zk_xact_lock('x'), zk_lock('y')");
	is($t->query("SELECT zk_try_lock('x')"),
		'f', "$level READ ONLY: a lock can be taken");
	$s->query_ok("SAVEPOINT a; SELECT zk_xact_lock('z'); ROLLBACK TO a");
	is($t->query("SELECT zk_try_xact_lock('z', interval '1 min')"),
		't', "$level READ ONLY: and rolled back");
	$s->query_ok("SELECT zk_unlock('y'); COMMIT");
	is($s->sqlstate, '00000', "$level READ ONLY: it commits");
	is($t->query("SELECT zk_try_xact_lock('x', interval '1 min')"),
		't', "$level READ ONLY: and releases");
}
$s->quit;
nothing_left($zkc, 'READ ONLY: no node is left');


# A hot standby.
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);

$s = session($standby);
is($s->query('SELECT pg_is_in_recovery()'), 't', 'on a hot standby');
my $token = $s->query("SELECT zk_lock('x')");
like($token, qr/^\d+$/, 'a lock can be taken');
$p = session($primary);
is($p->query("SELECT zk_try_lock('x')"), 'f', 'which excludes the primary');
is($t->query("SELECT zk_try_lock('x')"), 'f', 'and other servers');
$s->query_ok("BEGIN; SELECT zk_xact_lock_shared('y')");
is($p->query("SELECT zk_try_lock_shared('y')"), 't', 'and shared ones');
is($p->query("SELECT zk_try_lock('y')"), 'f', 'as everywhere');
$p->query_ok("SELECT zk_unlock_shared('y')");
$s->query_ok('COMMIT');
is($p->query("SELECT zk_try_xact_lock('y', interval '1 min')"),
	't', 'the end of a transaction releases there, too');
$s->query_ok("BEGIN; SAVEPOINT a; SELECT zk_xact_lock('z'); ROLLBACK TO a");
is($p->query("SELECT zk_try_xact_lock('z', interval '1 min')"),
	't', 'and a rollback to a savepoint');
$s->query_ok('COMMIT');
my $local = session($standby);
$local->query_async("SELECT zk_try_lock('x', interval '1 h')");
wait_blocked_locally($local);
$t->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
is( $standby->safe_psql(
		'postgres', 'SELECT pg_blocking_pids(' . $local->pid . ')'),
	'{' . $s->pid . '}',
	'waiters of the standby wait there');

$standby->promote;
is($s->query("SELECT pg_is_in_recovery(), zk_lock_token('x')"),
	"f|$token", 'a lock survives the promotion of its server');
ok(!$t->finished && !$local->finished, 'and goes on to exclude');
$s->query_ok("SELECT zk_unlock('x')");
like($t->wait_result, qr/^\d+$/, 'until it is released');
$t->query_ok("SELECT zk_unlock('x')");
is($local->wait_result, 't', 'to each in turn');
$_->quit for $s, $local, $p;
nothing_left($zkc, 'hot standby: no node is left');
$standby->stop;


# Encodings. ü is one byte here and two there.
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
		'%C3%BC', "$encoding: the name of a lock is that in UTF-8");
	is($t->query("SELECT zk_try_lock('$name')"),
		'f', "$encoding: the same name is the same lock");
	$p = session($primary);
	$p->query_ok("SET client_encoding = 'UTF8'");
	is($p->query("SELECT zk_try_lock('$name')"),
		'f', "$encoding: on another server as well");
	is($s->query('SELECT name FROM zk_held_locks'),
		$name, "$encoding: it is shown as it was given");
	$p->quit;
	$s->quit;
	nothing_left($zkc, "$encoding: no node is left");
}
$s = session($plain, dbname => 'sql_ascii');
$s->query("SELECT zk_lock(E'\\xff')");
is($s->sqlstate, '22021', 'SQL_ASCII: bytes that are no UTF-8 are no name');
$s->quit;
nothing_left($zkc, 'bad encoding: no node is left');


# DROP EXTENSION while a lock is held.
$s = session($plain);
$s->query_ok("SELECT zk_lock('x'); BEGIN; SELECT zk_xact_lock('y')");
$plain->safe_psql('postgres', 'DROP EXTENSION zklock');
$s->query('COMMIT');
is($s->sqlstate, '00000', 'a transaction ends well without the extension');
$p = session($primary);
is($p->query("SELECT zk_try_xact_lock('y', interval '1 min')"),
	't', 'and releases its locks');
is($p->query("SELECT zk_try_lock('x')"),
	'f', 'a session-level lock outlives DROP EXTENSION');
$plain->safe_psql('postgres', 'CREATE EXTENSION zklock');
is($s->query("SELECT zk_unlock('x')"),
	't', 'and can be released when the extension is back');
is($p->query("SELECT zk_try_xact_lock('x', interval '1 min')"),
	't', 'for others');
$s->query_ok("SELECT zk_lock('x')");
$plain->safe_psql('postgres', 'DROP EXTENSION zklock');
$s->query_ok('DISCARD ALL');
is($p->query("SELECT zk_try_xact_lock('x', interval '1 min')"),
	't', 'DISCARD ALL releases without the extension');
$s->quit;
$p->quit;
$plain->safe_psql('postgres', 'CREATE SCHEMA s');
$plain->safe_psql('postgres', 'CREATE EXTENSION zklock SCHEMA s');
is($t->query("SELECT s.zk_try_lock('x', '1 min'), s.zk_unlock('x')"),
	't|t', 'it can live in any schema');
is($t->query('SELECT count(*) FROM s.zk_held_locks'), '0', 'with its views');
nothing_left($zkc, 'DROP EXTENSION: no node is left');

$t->quit;
$_->stop for $primary, $plain;
done_testing();
