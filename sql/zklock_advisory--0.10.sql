\echo Use "CREATE EXTENSION zklock_advisory" to load this file. \quit

-- PostgreSQL's advisory lock functions under their own names, cluster-wide, for
-- programs that cannot be changed, and a view pg_locks in which these find their locks.
-- A lock is named after the database and the key, so applications in databases of
-- different names do not exclude each other.
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

	-- The session may also hold locks whose names only look like a key's: 'advisory:a:007', or a
	-- number that is too large.  They have no row, and are not converted: the query is materialized,
	-- so that no condition of a caller is evaluated before its own.
	EXECUTE format($view$
CREATE VIEW zklock_advisory.pg_locks WITH (security_invoker) AS
	SELECT locktype, database, relation, page, tuple, virtualxid, transactionid, classid, objid, objsubid,
		virtualtransaction, pid, mode, granted, fastpath, waitstart
	FROM pg_catalog.pg_locks
	UNION ALL (
	WITH held AS MATERIALIZED (
		SELECT DISTINCT mode, key[1]::bigint AS key1, key[2]::bigint AS key2
		FROM %I.zk_held_locks,
			format('advisory:%%s:', current_database()) AS prefix,
			regexp_match(substr(name, length(prefix) + 1), '^(0|-?[1-9][0-9]{0,18})(?:,(0|-?[1-9][0-9]{0,9}))?$') AS key
		WHERE kind = 'lock' AND state <> 'lost' AND starts_with(name, prefix)
			AND CASE WHEN key[2] IS NULL
				THEN key[1]::numeric BETWEEN -9223372036854775808 AND 9223372036854775807
				ELSE key[1]::numeric BETWEEN -2147483648 AND 2147483647
					AND key[2]::numeric BETWEEN -2147483648 AND 2147483647 END)
	SELECT 'advisory', (SELECT oid FROM pg_database WHERE datname = current_database()),
		NULL, NULL, NULL, NULL, NULL,
		(CASE WHEN key2 IS NULL THEN key1 >> 32 ELSE key1 END & 4294967295)::oid,
		(coalesce(key2, key1) & 4294967295)::oid,
		CASE WHEN key2 IS NULL THEN 1 ELSE 2 END::smallint,
		(SELECT virtualtransaction FROM pg_catalog.pg_locks WHERE pid = pg_backend_pid() LIMIT 1),
		pg_backend_pid(), CASE mode WHEN 'exclusive' THEN 'ExclusiveLock' ELSE 'ShareLock' END, true, false, NULL
	FROM held)
$view$, zklock);

	-- The owner of zklock's schema can rename it at any moment, and give the name to another schema.
	IF EXISTS (SELECT FROM pg_depend AS body JOIN pg_proc AS p ON p.oid = body.objid
		WHERE body.classid = 'pg_proc'::regclass AND p.pronamespace = 'zklock_advisory'::regnamespace
			AND body.refclassid = 'pg_proc'::regclass AND NOT EXISTS (
				SELECT FROM pg_depend AS member JOIN pg_extension AS e ON e.oid = member.refobjid
				WHERE member.classid = 'pg_proc'::regclass AND member.objid = body.refobjid
					AND member.deptype = 'e' AND e.extname = 'zklock'))
		OR NOT EXISTS (SELECT FROM pg_rewrite AS r JOIN pg_depend AS body ON body.objid = r.oid
			JOIN pg_depend AS member ON member.objid = body.refobjid
			JOIN pg_extension AS e ON e.oid = member.refobjid
			WHERE r.ev_class = 'zklock_advisory.pg_locks'::regclass AND body.classid = 'pg_rewrite'::regclass
				AND body.refclassid = 'pg_class'::regclass AND member.classid = 'pg_class'::regclass
				AND member.deptype = 'e' AND e.extname = 'zklock') THEN
		RAISE EXCEPTION 'the schema of extension zklock was renamed' USING HINT = 'Create the extension again.';
	END IF;
END
$script$;

COMMENT ON FUNCTION zklock_advisory.pg_advisory_unlock_all() IS
	'pg_advisory_unlock_all, cluster-wide: releases all locks and permits of zklock that the session holds at session level';

COMMENT ON VIEW zklock_advisory.pg_locks IS
	'pg_catalog.pg_locks, and a row for each key that this session holds with the functions of this schema; does not contact the ensemble';

GRANT SELECT ON zklock_advisory.pg_locks TO PUBLIC;
