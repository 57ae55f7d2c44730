\echo Use "ALTER EXTENSION zklock_advisory UPDATE" to load this file. \quit

-- The view pg_locks is new.  It uses columns of zk_held_locks that version 0.9 of zklock has, too:
-- the two extensions can be updated in any order.

SELECT pg_catalog.set_config('search_path', 'pg_catalog', true);

DO $script$
DECLARE
	zklock name := (SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
		WHERE e.extname = 'zklock');
BEGIN
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
	IF NOT EXISTS (SELECT FROM pg_rewrite AS r JOIN pg_depend AS body ON body.objid = r.oid
		JOIN pg_depend AS member ON member.objid = body.refobjid
		JOIN pg_extension AS e ON e.oid = member.refobjid
		WHERE r.ev_class = 'zklock_advisory.pg_locks'::regclass AND body.classid = 'pg_rewrite'::regclass
			AND body.refclassid = 'pg_class'::regclass AND member.classid = 'pg_class'::regclass
			AND member.deptype = 'e' AND e.extname = 'zklock') THEN
		RAISE EXCEPTION 'the schema of extension zklock was renamed' USING HINT = 'Update the extension again.';
	END IF;
END
$script$;

COMMENT ON VIEW zklock_advisory.pg_locks IS
	'pg_catalog.pg_locks, and a row for each key that this session holds with the functions of this schema; does not contact the ensemble';

GRANT SELECT ON zklock_advisory.pg_locks TO PUBLIC;
