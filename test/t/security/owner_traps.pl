# The owner of a database puts a schema of traps before pg_catalog, in the search path of all
# sessions of the database. A superuser who creates the extensions, hardens the installation,
# calls the functions and drops the extensions there runs no code of the owner.
#
# Tags: edges

use ZkLock::Document;
use ZkLock::Test;

my $zk = shared_zk();
my $node = shared_node('a', zk => $zk);
$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN; CREATE ROLE locker; CREATE DATABASE owned OWNER owner');
my $owner = session($node, user => 'owner', dbname => 'owned');
$owner->query_ok(<<'SQL');
CREATE SCHEMA trap;
GRANT USAGE ON SCHEMA trap TO PUBLIC;
CREATE FUNCTION trap.seize() RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS
	$$ BEGIN IF current_setting('is_superuser') = 'on' THEN ALTER ROLE owner SUPERUSER; END IF; RETURN true; END $$;
SQL

# Functions and operators for all pairs of the types that the statements may use.
my $returns = q(LANGUAGE plpgsql AS 'BEGIN PERFORM trap.seize(); RETURN NULL; END');
my @types = qw(text name oid regclass regprocedure integer bigint numeric boolean);
for my $a (@types)
{
	for my $b (@types)
	{
		$owner->query_ok("CREATE FUNCTION trap.op($a, $b) RETURNS boolean $returns; CREATE FUNCTION trap.format($a, $b) RETURNS text $returns;"
			  . join ' ', map { "CREATE OPERATOR trap.$_ (LEFTARG = $a, RIGHTARG = $b, FUNCTION = trap.op);" } qw(= <> < ~ / ||));
	}
	$owner->query_ok("CREATE FUNCTION trap.$_($a) RETURNS text $returns") for qw(quote_ident text);
	$owner->query_ok("CREATE FUNCTION trap.has_function_privilege($_) RETURNS boolean $returns") for "text, $a, text", "name, $a, text";
	$owner->query_ok("CREATE FUNCTION trap.format(text, text, $a) RETURNS text $returns; CREATE FUNCTION trap.format(text, name, $a) RETURNS text $returns");
}
$owner->query_ok(<<"SQL");
CREATE FUNCTION trap.set_config(text, text, boolean) RETURNS text $returns;
CREATE FUNCTION trap.current_database() RETURNS name $returns;
CREATE FUNCTION trap.regexp_replace(text, text, text) RETURNS text $returns;
CREATE FUNCTION trap.make_interval(secs double precision) RETURNS interval $returns;
CREATE FUNCTION trap.make_interval(secs numeric) RETURNS interval $returns;
CREATE FUNCTION trap.pg_extension_config_dump(regclass, text) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM trap.seize(); END';
CREATE VIEW trap.pg_proc AS SELECT oid, proname FROM pg_catalog.pg_proc WHERE trap.seize();
CREATE VIEW trap.pg_depend AS SELECT * FROM pg_catalog.pg_depend WHERE trap.seize();
CREATE VIEW trap.pg_extension AS SELECT oid, extname, extnamespace FROM pg_catalog.pg_extension WHERE trap.seize();
CREATE VIEW trap.pg_namespace AS SELECT oid, nspname FROM pg_catalog.pg_namespace WHERE trap.seize();
SQL
# Domains, last: they hide the types.
$owner->query_ok("CREATE DOMAIN trap.$_ AS pg_catalog.$_ CHECK (trap.seize())")
  for qw(regprocedure regclass name oid bool int4 int8 float8 interval timestamptz bpchar varchar "char" text);
$owner->query_ok('ALTER DATABASE owned SET search_path = trap, pg_catalog, public');
# Settings that change how names are printed and, before PostgreSQL 19, strings are read.
$owner->query_ok("ALTER DATABASE owned SET $_")
  for 'quote_all_identifiers = on', $node->pg_version->major < 19 ? 'standard_conforming_strings = off' : ();
$owner->quit;

# Returns whether a trap has run as a superuser, and removes the attribute again.
sub was_seized
{
	my $is_super = $node->safe_psql('postgres', "SELECT rolsuper FROM pg_roles WHERE rolname = 'owner'");
	$node->safe_psql('postgres', 'ALTER ROLE owner NOSUPERUSER');
	return $is_super;
}

# Returns the roles, apart from the owner, that can execute a function of the extension.
sub who_executes
{
	my ($function) = @_;
	return $node->safe_psql('owned', "SET search_path = pg_catalog; SELECT string_agg(role, ' ') FROM pg_proc AS p, "
		  . "unnest(ARRAY['public', 'locker', 'pg_monitor']) AS role WHERE proname = '$function' AND has_function_privilege(role, p.oid, 'EXECUTE')");
}

sub runs_no_trap
{
	my ($what, $sql) = @_;
	my ($rc, $out, $error) = $node->psql('owned', $sql);
	is($rc, 0, "$what: a superuser can do that") || diag($error);
	is(was_seized(), 'f', "$what: the superuser runs no trap");
	return;
}

for ("SELECT 'a'::text", 'SELECT 1::oid = 1::oid', "DO 'DECLARE t text; BEGIN END'", "SELECT set_config('a.b', 'c', true)",
	'SELECT count(*) FROM pg_extension')
{
	$node->psql('owned', $_);
	is(was_seized(), 't', "the traps work: $_");
}

for my $schema ('trap', 'public', 'zk')
{
	runs_no_trap("extension in schema $schema", join '; ', ($schema eq 'zk' ? 'CREATE SCHEMA zk' : ()), "CREATE EXTENSION zklock SCHEMA $schema",
		'CREATE EXTENSION zklock_advisory');
	$node->safe_psql('postgres', 'ALTER DATABASE owned SET role = owner');
	runs_no_trap('hardening', block_of('doc/security.md', 'hardening'));
	$node->safe_psql('postgres', 'ALTER DATABASE owned RESET role');
	is(who_executes('zk_lock'), 'locker', 'EXECUTE is granted to locker instead of PUBLIC');
	is(who_executes('zk_locks_of'), 'pg_monitor', 'EXECUTE of what shows other sessions is granted to pg_monitor');
	runs_no_trap('calls', <<"SQL");
SELECT $schema.zk_lock('a'), $schema.zk_lock('1'), $schema.zk_try_lock('b', '1s'), $schema.zk_try_xact_lock_shared('b', '1s');
SELECT $schema.zk_fence('a'), $schema.zk_acquire_permit('s', 2), $schema.zk_lock_token('a'), $schema.zk_revoke('a');
SELECT * FROM $schema.zk_locks; SELECT * FROM $schema.zk_held_locks; SELECT * FROM $schema.zk_stat;
SELECT * FROM $schema.zk_blocking(1); SELECT * FROM $schema.zk_locks_of('a'); SELECT * FROM $schema.zk_session();
SELECT zklock_advisory.pg_advisory_lock(1), zklock_advisory.pg_try_advisory_xact_lock(1, 2), zklock_advisory.pg_advisory_unlock(1);
CALL $schema.zk_lock_wait('c', '1s');
SELECT zklock_advisory.pg_advisory_unlock_all(), $schema.zk_stat_reset();
SQL
	runs_no_trap('drop', 'DROP EXTENSION zklock CASCADE');
}
