# The owner of a database owns the schema of the extension, and exchanges its name with that of
# another schema again and again. Code of the other schema does not run as a superuser who hardens
# or creates an extension.

use ZkLock::Document;
use ZkLock::Test;

use constant ATTEMPTS => 20;

my $zk = shared_zk();
my $node = shared_node('a', zk => $zk);
$node->safe_psql('postgres', 'CREATE ROLE locker; CREATE ROLE dbo LOGIN; CREATE DATABASE owned OWNER dbo');
$node->safe_psql('owned', 'CREATE EXTENSION zklock');
my ($caller, $renamer) = map { session($node, user => 'dbo', dbname => 'owned') } 1 .. 2;

# The names are exchanged, and after "pause" seconds exchanged again, until a cancel.
$caller->query_ok(<<'SQL');
CREATE SCHEMA mine; GRANT USAGE ON SCHEMA mine TO PUBLIC;
CREATE SCHEMA other; GRANT USAGE ON SCHEMA other TO PUBLIC;
CREATE FUNCTION mine.seize() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN ALTER ROLE dbo SUPERUSER; END IF;
	RETURN 1;
END $$;
CREATE PROCEDURE mine.rename(pause float) LANGUAGE plpgsql AS $$
BEGIN
	SET synchronous_commit = off;
	LOOP
		ALTER SCHEMA public RENAME TO third; ALTER SCHEMA other RENAME TO public; ALTER SCHEMA third RENAME TO other; COMMIT;
		PERFORM pg_sleep(pause);
	END LOOP;
END $$;
SQL

sub while_renaming
{
	my ($pause, $run) = @_;
	$renamer->query_async("CALL mine.rename($pause)");
	$run->();
	$renamer->cancel;
	$renamer->wait_result;
	$renamer->query_ok('ALTER SCHEMA public RENAME TO third; ALTER SCHEMA other RENAME TO public; ALTER SCHEMA third RENAME TO other')
	  if $node->safe_psql('owned', q(SELECT to_regprocedure('public.zk_fence(text)') IS NULL)) eq 't';
	return;
}

sub nobody_is_seized
{
	my ($what) = @_;
	is($node->safe_psql('postgres', q(SELECT rolsuper FROM pg_roles WHERE rolname = 'dbo')), 'f',
		"$what: the owner of the database is no superuser");
	$node->safe_psql('postgres', 'ALTER ROLE dbo NOSUPERUSER');
	return;
}

# Twins of the functions, for statements that name these.
$caller->query_ok(<<'SQL');
DO $$
DECLARE
	f record;
BEGIN
	FOR f IN SELECT p.proname, p.prokind, pg_get_function_identity_arguments(p.oid) AS arguments, p.prorettype::regtype AS result
		FROM pg_proc AS p JOIN pg_depend AS d ON d.objid = p.oid AND d.deptype = 'e' AND d.classid = 'pg_proc'::regclass
		JOIN pg_extension AS e ON e.oid = d.refobjid
		WHERE e.extname = 'zklock' AND NOT p.proretset AND p.proname LIKE 'zk\_%'
	LOOP
		IF f.prokind = 'p' THEN
			EXECUTE format('CREATE PROCEDURE other.%I(%s) LANGUAGE plpgsql AS ''BEGIN PERFORM mine.seize(); END''', f.proname, f.arguments);
		ELSIF f.result <> 'record'::regtype THEN
			EXECUTE format('CREATE FUNCTION other.%I(%s) RETURNS %s LANGUAGE sql AS ''SELECT mine.seize(); SELECT NULL::%4$s''',
				f.proname, f.arguments, f.result, CASE f.result WHEN 'void'::regtype THEN 'void' ELSE f.result::text END);
		END IF;
	END LOOP;
END $$;
CREATE VIEW other.zk_held_locks AS SELECT 'lock'::text AS kind, 'x'::text AS name, 'shared'::text AS mode, mine.seize()::text AS state;
SQL

my $public = <<'SQL';
SELECT count(*) FROM pg_proc AS p JOIN pg_depend AS d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'zklock' WHERE has_function_privilege('public', p.oid, 'EXECUTE')
SQL
my ($failed, $missed) = (0, 0);
while_renaming(
	'random() / 500',
	sub {
		for (1 .. ATTEMPTS)
		{
			my ($rc) = $node->psql('owned', block_of('doc/security.md', 'hardening'));
			$failed++ if $rc;
			$missed++ if !$rc && $node->safe_psql('owned', $public) ne '0';
			$node->psql('owned', 'GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public, other TO PUBLIC');
		}
	});
is($missed, 0, "hardening beside renames leaves no function to PUBLIC, or fails ($failed times)");

my $foreign = <<'SQL';
SELECT count(*) FROM pg_depend AS d
LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid LEFT JOIN pg_class AS v ON v.oid = r.ev_class
LEFT JOIN pg_proc AS called ON d.refclassid = 'pg_proc'::regclass AND called.oid = d.refobjid
LEFT JOIN pg_class AS read ON d.refclassid = 'pg_class'::regclass AND read.oid = d.refobjid
WHERE coalesce(p.pronamespace, v.relnamespace) = 'zklock_advisory'::regnamespace
	AND coalesce(called.proowner, read.relowner) = 'dbo'::regrole
SQL
($failed, $missed) = (0, 0);
while_renaming(
	'random() / 500',
	sub {
		for (1 .. ATTEMPTS)
		{
			my ($rc) = $node->psql('owned', 'CREATE EXTENSION zklock_advisory');
			$failed++ if $rc;
			$missed++ if !$rc && $node->safe_psql('owned', $foreign) ne '0';
			$node->psql('owned', 'DROP EXTENSION zklock_advisory') if !$rc;
		}
	});
is($missed, 0, "zklock_advisory, created beside renames, uses only objects of zklock, or is not created ($failed times)");
nobody_is_seized('a superuser who administers');
