# An invalid value that was configured before the library defined its settings is an error.
# No lock is acquired with the built-in default, which the administrator did not choose.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $node = zklock_node('a', zk => $zk, extra_conf => "zklock.root = '/configured'\n");
$node->safe_psql('postgres', 'CREATE DATABASE inv');
$node->safe_psql('inv', 'CREATE EXTENSION zklock');

sub is_refused
{
	my ($s, $setting, $value, $name, %opt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return fails_with($s, $opt{sql} // "SELECT zk_lock('x')", '22023', $name,
		like => qr/ERROR: .*invalid value for parameter "zklock\.\Q$setting\E": "\Q$value\E".*^HINT: .*ALTER DATABASE/ims);
}

# Every kind of setting, one after the other, configured for a database.
my %invalid = (connect_string => 'zk1,zk2', root => 'app', session_timeout => '50ms', connect_timeout => 'soon', acl => 'creater',
	node_names => 'curators', commit_check => 'allways', stale_snapshot => 'errors', max_locks => '100001', on_revoke => 'cancle',
	deadlock_detection => 'maybe', log_min_messages => 'loud');
for my $name (sort keys %invalid)
{
	$node->safe_psql('postgres', "ALTER DATABASE inv SET zklock.$name = '$invalid{$name}'");
	my $s = session($node, dbname => 'inv');
	is_refused($s, $name, $invalid{$name}, "zklock.$name = '$invalid{$name}'");
	$s->quit;
	$node->safe_psql('postgres', "ALTER DATABASE inv RESET zklock.$name");
}

$node->safe_psql('postgres', "ALTER DATABASE inv SET zklock.root = 'app'");
my $s = session($node, dbname => 'inv');
is_refused($s, 'root', 'app', $_, sql => $_)
  for "SELECT zk_try_xact_lock('x')", 'SELECT * FROM zk_locks', "SELECT zk_acquire('x', 1)", "LOAD 'zklock'", "SELECT zk_lock('x')";
$s->query_ok("BEGIN; CREATE TABLE kept (i int); SAVEPOINT p");
is_refused($s, 'root', 'app', 'a call in a transaction is refused');
$s->query_ok('ROLLBACK TO p; COMMIT');
works($s, 'SELECT count(*) FROM kept', '0', 'the transaction can continue after the error');
$s->query_ok("SET zklock.root = '/other'");
is_refused($s, 'root', 'app', 'another value is no remedy: RESET would restore the invalid one');
my $postgres = session($node);
works($postgres, "SELECT zk_lock('x') > 0", 't', 'other databases are not affected');
$postgres->quit;
$node->safe_psql('postgres', "ALTER DATABASE inv SET zklock.root = '/app'");
is_refused($s, 'root', 'app', 'the session still has the former value');
$s->quit;
$s = session($node, dbname => 'inv');
works($s, "SELECT zk_lock('x') > 0, current_setting('zklock.root')", 't|/app', 'a new session has the corrected value');
$s->quit;
$node->safe_psql('postgres', 'ALTER DATABASE inv RESET zklock.root');

# SET, also below another value.
for my $set ("SET zklock.commit_check = 'allways'", "SET LOCAL zklock.commit_check = 'allways'; SAVEPOINT p; SET LOCAL zklock.commit_check = 'always'",
	"SET zklock.commit_check = 'allways'; SET LOCAL zklock.commit_check = 'always'")
{
	$s = session($node);
	$s->query_ok("BEGIN; $set");
	is_refused($s, 'commit_check', 'allways', $set);
	$s->query_ok('ROLLBACK');
	works($s, "SELECT zk_lock('x') > 0, current_setting('zklock.commit_check')", 't|lease', 'the invalid value ends with the transaction');
	$s->quit;
}

# A configuration file. A session that has loaded the library keeps the former value, as
# PostgreSQL reports in the log, and so do its parallel workers.
my $loaded = session($node);
$loaded->query_ok("SELECT zk_lock('kept')");
$node->append_conf('postgresql.conf', "zklock.root = 'app'\n");
$node->reload;
ok($node->poll_query_until('postgres', 'SHOW zklock.root', 'app'), 'the file was read');
$s = session($node);
is_refused($s, 'root', 'app', 'an invalid value of a configuration file is refused');
my $parallel = $node->pg_version < 16 ? 'force_parallel_mode' : 'debug_parallel_query';
$loaded->query_ok("SET $parallel = on");
like($loaded->query('EXPLAIN SELECT count(*) FROM pg_class'), qr/Gather/, 'the query uses a parallel worker');
works($loaded, "SELECT count(*) > 0, current_setting('zklock.root') FROM pg_class", 't|/configured',
	'a session with the library keeps the former value, also in a parallel worker');
$loaded->quit;
$node->append_conf('postgresql.conf', "zklock.root = '/corrected'\n");
$node->reload;
ok($node->poll_query_until('postgres', 'SHOW zklock.root', '/corrected'), 'the corrected file was read');
works($s, "SELECT zk_lock('x') > 0, current_setting('zklock.root')", 't|/corrected', 'the same session locks after the reload');
$s->quit;

# The first call of a session comes while its query has parallel workers: PostgreSQL sets no
# settings then.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE few AS SELECT generate_series(1, 3) AS i;
ANALYZE few;
CREATE FUNCTION early(bigint) RETURNS boolean LANGUAGE plpgsql PARALLEL RESTRICTED AS 'BEGIN RETURN zk_try_lock($1); END';
SQL
$s = session($node);
$s->query_ok("SET $_ = 0") for qw(parallel_setup_cost parallel_tuple_cost min_parallel_table_scan_size);
like($s->query('EXPLAIN SELECT early(i) FROM few'), qr/Gather/, 'a query that locks above its workers');
fails_with($s, 'SELECT early(i) FROM few', '25000', 'the library is not loaded without the settings that are configured',
	like => qr/^HINT: .*zk_session\(\).*shared_preload_libraries/m);
$s->query_ok('SELECT zk_session()');
works($s, 'SELECT early(i), name FROM few, LATERAL current_setting($$zklock.root$$) name', "t|/corrected\nt|/corrected\nt|/corrected",
	'after a call before it the query locks with the settings that are configured');
$s->quit;

# With the library loaded when a session starts.
$node->safe_psql('postgres', "ALTER DATABASE inv SET zklock.root = 'app'");
$node->append_conf('postgresql.conf', "session_preload_libraries = 'zklock'\n");
$node->reload;
ok($node->poll_query_until('postgres', 'SHOW session_preload_libraries', 'zklock'), 'the library is loaded by session_preload_libraries');
my ($failed, undef, $why) = $node->psql('inv', 'SELECT 1');
is($failed, 2, 'with session_preload_libraries a session does not start with an invalid value');
like($why, qr/FATAL: .*invalid value for parameter "zklock\.root": "app"\n.*HINT:/s, 'and the error says why');
{
	local $ENV{PGOPTIONS} = '-c session_preload_libraries=';
	$node->safe_psql('inv', 'ALTER DATABASE inv RESET zklock.root');
}
$s = session($node, dbname => 'inv');
works($s, "SELECT current_setting('zklock.root')", '/corrected', 'a superuser connects without the library and corrects the value');
$s->quit;
$node->adjust_conf('postgresql.conf', 'session_preload_libraries', undef);

# With the library loaded when the server starts.
$node->append_conf('postgresql.conf', "zklock.acl = 'creater'\nshared_preload_libraries = 'zklock'\n");
$node->stop;
ok(!$node->start(fail_ok => 1), 'with shared_preload_libraries the server does not start with an invalid value');
like(slurp_file($node->logfile), qr/FATAL:  invalid value for parameter "zklock\.acl": "creater"\n.*HINT:/, 'the server log has the reason');
$node->adjust_conf('postgresql.conf', 'zklock.acl', undef);
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', undef);
$node->start;
$node->safe_psql('postgres', "ALTER DATABASE inv SET zklock.root = 'app'");
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'zklock'\n");
$node->restart;
my ($rc, $out, $err) = $node->psql('inv', "SELECT zk_lock('x') > 0, current_setting('zklock.root')");
is($out, 't|/corrected', 'an invalid value of a database is replaced by that of the file');
like($err, qr/^WARNING:  invalid value for parameter "zklock\.root": "app"/m, 'with a warning, as PostgreSQL does for its own settings');
$s = session($node);
fails_with($s, "$_ SET zklock.root = 'app'", '22023', "an invalid value is refused at once: $_", hint => 0)
  for 'ALTER DATABASE inv', 'ALTER ROLE ALL', '';
$s->quit;

is_deeply([ grep { $_ eq 'zklock' } map { s{^/}{}r } $zkc->children('/') ], [], 'no znode was created below the built-in root');
nothing_left($zkc, "no node is left below $_", root => $_) for '/configured', '/app', '/corrected';
$zkc->close;
$node->stop;
done_testing();
