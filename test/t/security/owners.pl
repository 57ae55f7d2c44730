# What owners of databases and schemas, and roles that create roles, can do to the extension.
# The hardening of doc/security.md excludes a role without EXECUTE, no matter how it calls.
#
# Tags: edges

use ZkLock::Document;
use ZkLock::Test;

my $zk = shared_zk();
my $node = shared_node('a', zk => $zk);
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION zklock_advisory;
CREATE ROLE ordinary LOGIN;
CREATE ROLE creating LOGIN CREATEROLE;
SET ROLE creating;
CREATE ROLE created LOGIN;
RESET ROLE;
CREATE ROLE boss LOGIN SUPERUSER;
CREATE ROLE owner LOGIN;
GRANT CREATE ON SCHEMA public TO ordinary;
CREATE DATABASE owned OWNER owner;
CREATE DATABASE apart OWNER owner;
SQL
$node->safe_psql('owned', 'ALTER SCHEMA public OWNER TO owner; CREATE EXTENSION zklock');
$node->safe_psql('apart', 'CREATE SCHEMA zk; GRANT USAGE ON SCHEMA zk TO PUBLIC; CREATE EXTENSION zklock SCHEMA zk');

sub denied
{
	my ($s, $what, @statements) = @_;
	fails_with($s, $_, '42501', "$what: $_", hint => 0) for @statements;
	return;
}

# EXECUTE is revoked by the statement of the document.
$node->safe_psql('postgres', 'CREATE ROLE locker; ' . block_of('doc/security.md', 'hardening'));
my $s = session($node, user => 'ordinary');
denied($s, 'without EXECUTE', "SELECT zk_lock('x')", "SELECT zk_try_lock('x', '1s')", "SELECT zk_lock('1,2')",
	'SELECT * FROM zk_locks', "SELECT * FROM zk_locks_of('x')", 'SELECT * FROM zk_held_locks', 'SELECT * FROM zk_stat',
	'SELECT zklock_advisory.pg_advisory_lock(1)', 'SELECT zklock_advisory.pg_try_advisory_xact_lock(1, 2)',
	'SELECT zklock_advisory.pg_advisory_unlock_all()', 'DO $$BEGIN PERFORM zk_lock($k$1$k$); END$$', "EXPLAIN SELECT zk_lock('1')",
	'CREATE AGGREGATE a (interval) (sfunc = zk_try_lock, stype = text)', 'CREATE OPERATOR @@@ (rightarg = text, function = zk_lock)',
	"CREATE MATERIALIZED VIEW m AS SELECT zk_lock('1')", "SELECT zk_fence('x')");
$s->query_ok("CREATE VIEW v AS SELECT zk_lock('1'); CREATE TABLE d (token bigint DEFAULT zk_lock('1'))");
denied($s, 'without EXECUTE, through an own object', 'SELECT * FROM v', 'INSERT INTO d DEFAULT VALUES');
denied($s, 'without EXECUTE, as a C function', q(CREATE FUNCTION f(text) RETURNS bigint LANGUAGE c AS '$libdir/zklock', 'zk_lock'),
	q(CREATE FUNCTION f(text) RETURNS bigint LANGUAGE internal AS 'zk_lock'), "LOAD 'zklock'");
$s->quit;
$node->safe_psql('postgres', 'GRANT locker TO ordinary');
$s = session($node, user => 'ordinary');
works($s, "SELECT zk_lock('1') > 0, zk_unlock_all()", 't|', 'a member of the granted role can lock');
denied($s, 'a member of the granted role cannot see other sessions', 'SELECT * FROM zk_locks');
$s->quit;

# A role that creates roles.
$s = session($node, user => 'creating');
denied($s, 'CREATEROLE', "ALTER ROLE created SET zklock.root = '/x'", 'ALTER ROLE created SET zklock.max_locks = 5',
	"ALTER ROLE boss SET zklock.stale_snapshot = 'off'", "ALTER ROLE ALL SET zklock.stale_snapshot = 'off'",
	'GRANT SET ON PARAMETER zklock.root TO creating');
$s->query_ok("ALTER ROLE created SET zklock.stale_snapshot = 'off'");
my $t = session($node, user => 'created');
works($t, 'SHOW zklock.stale_snapshot', 'off', 'CREATEROLE can change settings of ordinary roles for a role that is not superuser');
$t->quit;
fails_with($s, "ALTER ROLE created SET zklock.other = '1'", '42602', 'an unknown setting is refused', hint => 0);
$s->quit;

# Before PostgreSQL 16 it can grant itself any role that is not a superuser's.
$s = session($node, user => 'creating');
if ($node->safe_psql('postgres', 'SHOW server_version_num') < 160000)
{
	denied($s, 'CREATEROLE', "SELECT zk_revoke('x')", "SELECT zk_lock('1')");
	$s->query_ok('GRANT locker, pg_signal_backend TO creating');
	works($s, "SELECT zk_revoke('x'), zk_lock('1') > 0, zk_unlock('1')", '0|t|t', 'the role can revoke and lock when it grants itself roles');
}
else
{
	denied($s, 'CREATEROLE', 'GRANT locker TO creating', 'GRANT pg_signal_backend TO creating');
}
$s->quit;

# The owner of a database, and of the schema that the extension is in.
$s = session($node, user => 'owner', dbname => 'owned');
denied($s, 'an owner', "ALTER DATABASE owned SET zklock.root = '/x'", 'ALTER FUNCTION zk_lock(text) OWNER TO owner',
	'ALTER FUNCTION zk_lock(text) SECURITY DEFINER', "ALTER FUNCTION zk_lock(text) SET zklock.stale_snapshot = 'error'",
	q(CREATE OR REPLACE FUNCTION zk_lock(text) RETURNS bigint LANGUAGE sql AS 'SELECT 1'),
	'ALTER EXTENSION zklock UPDATE', 'ALTER EXTENSION zklock SET SCHEMA pg_temp',
	'DROP EXTENSION zklock', 'CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION zk_unlock_all()',
	"SELECT zk_revoke('x')");
fails_with($s, 'DROP FUNCTION zk_lock(text) CASCADE', '2BP01', 'an owner of the schema cannot drop a function');
$s->query_ok("ALTER DATABASE owned SET zklock.stale_snapshot = 'off'");
$t = session($node, dbname => 'owned');
works($t, 'SHOW zklock.stale_snapshot', 'off', 'the owner of a database can change settings of ordinary roles for all its sessions');
$t->quit;
$s->query_ok("CREATE FUNCTION zk_lock(varchar) RETURNS bigint LANGUAGE sql AS 'SELECT 666::bigint'");
works($s, "SELECT zk_lock('x'::varchar)", '666', "the owner of the schema can create a function with the name of zklock's function");
$s->query_ok('DROP SCHEMA public CASCADE');
works($s, "SELECT count(*) FROM pg_extension WHERE extname = 'zklock'", '0', 'the owner of the schema can drop it with the extension');
$s->quit;

# The extension in a separate schema.
$s = session($node, user => 'owner', dbname => 'apart');
denied($s, "in a superuser's schema", 'DROP SCHEMA zk CASCADE',
	"CREATE FUNCTION zk.zk_lock(varchar) RETURNS bigint LANGUAGE sql AS 'SELECT 666::bigint'");
works($s, "SELECT zk.zk_lock('x') = zk.zk_fence('x'), zk.zk_unlock_all()", 't|', 'the functions work');
