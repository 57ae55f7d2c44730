\echo Use "CREATE EXTENSION zklock_advisory" to load this file. \quit

-- PostgreSQL's advisory lock functions under their own names, cluster-wide, for
-- programs that cannot be changed.  A lock is named after the database and the
-- key, so applications in databases of different names do not exclude each other.
--
-- The bodies are parsed now, with names that are qualified by their schemas: neither
-- the installation nor a call depends on a search path.  CREATE SCHEMA fails if the
-- schema already exists.

SELECT pg_catalog.set_config('search_path', 'pg_catalog', true);

CREATE SCHEMA zklock_advisory;

COMMENT ON SCHEMA zklock_advisory IS
	'cluster-wide functions with the names of PostgreSQL''s advisory lock functions; for search_path, before pg_catalog';

GRANT USAGE ON SCHEMA zklock_advisory TO PUBLIC;

DO $script$
DECLARE
	zklock name := (SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
		WHERE e.extname = 'zklock');
	advisory record;
BEGIN
	FOR advisory IN
		SELECT format('%s(%s)', f.function, k.arguments) AS signature, f.function, f.result,
			f.cluster_wide, format('format(%L, current_database(), %s)', k.format, k.parameters) AS lock
		FROM (VALUES
			('pg_advisory_lock', 'void', 'zk_lock'),
			('pg_advisory_lock_shared', 'void', 'zk_lock_shared'),
			('pg_advisory_xact_lock', 'void', 'zk_xact_lock'),
			('pg_advisory_xact_lock_shared', 'void', 'zk_xact_lock_shared'),
			('pg_try_advisory_lock', 'boolean', 'zk_try_lock'),
			('pg_try_advisory_lock_shared', 'boolean', 'zk_try_lock_shared'),
			('pg_try_advisory_xact_lock', 'boolean', 'zk_try_xact_lock'),
			('pg_try_advisory_xact_lock_shared', 'boolean', 'zk_try_xact_lock_shared'),
			('pg_advisory_unlock', 'boolean', 'zk_unlock'),
			('pg_advisory_unlock_shared', 'boolean', 'zk_unlock_shared'))
			AS f (function, result, cluster_wide),
			(VALUES
				('bigint', 'advisory:%s:%s', '$1'),
				('integer, integer', 'advisory:%s:%s,%s', '$1, $2'))
			AS k (arguments, format, parameters)
	LOOP
		EXECUTE format('CREATE FUNCTION zklock_advisory.%s RETURNS %s '
			'LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED RETURN %I.%s(%s)',
			advisory.signature, advisory.result, zklock, advisory.cluster_wide, advisory.lock);
		EXECUTE format('COMMENT ON FUNCTION zklock_advisory.%s IS %L',
			advisory.signature, advisory.function || ', cluster-wide');
	END LOOP;

	EXECUTE format('CREATE FUNCTION zklock_advisory.pg_advisory_unlock_all() RETURNS void '
		'LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED RETURN %I.zk_unlock_all()', zklock);

	-- The owner of zklock's schema can rename it at any moment, and give the name to another schema.
	IF EXISTS (SELECT FROM pg_depend AS body JOIN pg_proc AS p ON p.oid = body.objid
		WHERE body.classid = 'pg_proc'::regclass AND p.pronamespace = 'zklock_advisory'::regnamespace
			AND body.refclassid = 'pg_proc'::regclass AND NOT EXISTS (
				SELECT FROM pg_depend AS member JOIN pg_extension AS e ON e.oid = member.refobjid
				WHERE member.classid = 'pg_proc'::regclass AND member.objid = body.refobjid
					AND member.deptype = 'e' AND e.extname = 'zklock')) THEN
		RAISE EXCEPTION 'the schema of extension zklock was renamed' USING HINT = 'Create the extension again.';
	END IF;
END
$script$;

COMMENT ON FUNCTION zklock_advisory.pg_advisory_unlock_all() IS
	'pg_advisory_unlock_all, cluster-wide: releases all locks and permits of zklock that the session holds at session level';
