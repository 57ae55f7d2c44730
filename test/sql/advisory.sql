--
-- The extension zklock_advisory has PostgreSQL's advisory lock functions by name, and pg_locks.
-- test/t/programs/advisory.pl tests that the results of the functions are the same.
--
\pset format unaligned
\pset tuples_only on
CREATE EXTENSION zklock_advisory;
SELECT extnamespace::regnamespace, extrelocatable FROM pg_extension WHERE extname = 'zklock_advisory';

-- all functions that PostgreSQL has, with the same arguments, results, attributes and privileges
SELECT p.oid::regprocedure FROM pg_proc AS p
WHERE proname ~ '^pg_(try_)?advisory_' AND pronamespace = 'pg_catalog'::regnamespace AND NOT EXISTS
	(SELECT FROM pg_proc AS d WHERE d.pronamespace = 'zklock_advisory'::regnamespace
		AND (d.proname, d.proargtypes, d.prorettype, d.proretset, d.provolatile, d.proisstrict, d.proparallel, d.prokind, d.prosecdef)
		= (p.proname, p.proargtypes, p.prorettype, p.proretset, p.provolatile, p.proisstrict, p.proparallel, p.prokind, p.prosecdef)
		AND d.proargnames IS NULL AND d.proconfig IS NULL AND d.proacl IS NULL AND p.proacl IS NULL);
SELECT count(*) FROM pg_proc WHERE pronamespace = 'zklock_advisory'::regnamespace;
SELECT relname, relkind, reloptions, has_table_privilege('public', oid, 'SELECT') AS select, obj_description(oid, 'pg_class') <> '' AS commented
FROM pg_class WHERE relnamespace = 'zklock_advisory'::regnamespace;
SELECT p.oid::regprocedure FROM pg_proc AS p
WHERE pronamespace = 'zklock_advisory'::regnamespace AND (prosqlbody IS NULL OR obj_description(oid, 'pg_proc') IS NULL);
SELECT nspacl IS NOT NULL AS granted, has_schema_privilege('public', oid, 'USAGE') AS usage, has_schema_privilege('public', oid, 'CREATE') AS create,
	obj_description(oid, 'pg_namespace') <> '' AS commented FROM pg_namespace WHERE nspname = 'zklock_advisory';

-- in search_path: before pg_catalog, after the schema in which the program creates its tables
SET search_path = "$user", public, zklock_advisory, pg_catalog;
SELECT pg_advisory_lock(7), pg_advisory_lock(7, 8), pg_advisory_lock_shared(-7);
SELECT replace(name, current_database(), 'DB') AS name, mode, level FROM zk_held_locks ORDER BY name COLLATE "C";
SELECT pg_advisory_lock(NULL), pg_try_advisory_lock(1, NULL);
SELECT pg_advisory_unlock(7), pg_advisory_unlock(7, 8), pg_advisory_unlock_shared(-7), pg_advisory_unlock(7);
BEGIN;
SELECT pg_advisory_xact_lock(7), pg_try_advisory_xact_lock(8), pg_try_advisory_xact_lock_shared(9), pg_advisory_xact_lock_shared(10);
SELECT replace(name, current_database(), 'DB') AS name, mode, level FROM zk_held_locks ORDER BY name COLLATE "C";
COMMIT;
SELECT pg_try_advisory_lock(7), pg_try_advisory_lock_shared(7, 8);
SELECT pg_advisory_unlock_all();
SELECT name FROM zk_held_locks;
-- argument types are resolved as for PostgreSQL's functions
SELECT pg_try_advisory_lock(1::smallint), pg_try_advisory_lock('1'), pg_try_advisory_lock(1::bigint);
SELECT hold_count FROM zk_held_locks;
SELECT pg_advisory_unlock_all();

-- objects that are parsed at creation keep the functions found then; bodies that are parsed
-- at execution use those of the search path
RESET search_path;
CREATE VIEW zklock_regress_view AS SELECT pg_try_advisory_lock(1) AS view;
CREATE FUNCTION zklock_regress_atomic() RETURNS boolean RETURN pg_try_advisory_lock(2);
CREATE FUNCTION zklock_regress_sql() RETURNS boolean LANGUAGE sql AS 'SELECT pg_try_advisory_lock(3)';
CREATE FUNCTION zklock_regress_plpgsql() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN pg_try_advisory_lock(4); END';
CREATE FUNCTION zklock_regress_set() RETURNS boolean LANGUAGE plpgsql SET search_path = public AS 'BEGIN RETURN pg_try_advisory_lock(5); END';
PREPARE zklock_regress_prepared AS SELECT pg_try_advisory_lock(6) AS prepared;
EXECUTE zklock_regress_prepared;
SELECT zklock_regress_plpgsql();
SELECT pg_advisory_unlock_all();
SET search_path = "$user", public, zklock_advisory, pg_catalog;
SELECT zklock_regress_atomic(), zklock_regress_sql(), zklock_regress_plpgsql(), zklock_regress_set(), view FROM zklock_regress_view;
EXECUTE zklock_regress_prepared;
SELECT replace(name, current_database(), 'DB') AS name FROM zk_held_locks ORDER BY name COLLATE "C";
SELECT objid AS on_this_server FROM pg_catalog.pg_locks
WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND database <> 0 ORDER BY 1;
SELECT pg_catalog.pg_advisory_unlock_all(), pg_advisory_unlock_all();
DEALLOCATE zklock_regress_prepared;
DROP VIEW zklock_regress_view;
DROP FUNCTION zklock_regress_atomic(), zklock_regress_sql(), zklock_regress_plpgsql(), zklock_regress_set();

-- programs that look their locks up in pg_locks: the columns are PostgreSQL's, and these queries
-- have the same answers with PostgreSQL's functions and with those of the extension
SELECT attnum, attname, atttypid::regtype FROM pg_attribute WHERE attrelid = 'pg_catalog.pg_locks'::regclass
EXCEPT SELECT attnum, attname, atttypid::regtype FROM pg_attribute WHERE attrelid = 'zklock_advisory.pg_locks'::regclass;
CREATE TABLE zklock_regress_shapes (program text, query text);
INSERT INTO zklock_regress_shapes VALUES
	('symfony', $$SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 2705032704 AND pid = pg_backend_pid()$$),
	('good_job, mine', $$SELECT string_agg(job::text, ' ' ORDER BY job) FROM (VALUES (7000000000), (7000000001), (-1)) AS jobs (job)
		LEFT JOIN pg_locks ON locktype = 'advisory' AND objsubid = 1 AND classid = (job::bit(64)::bit(32)::integer)
			AND objid = ((job::bit(64) << 32)::bit(32)::integer) WHERE pid = pg_backend_pid()$$),
	('que', $$SELECT count(*) FROM pg_locks JOIN (VALUES (7000000000), (1)) AS jobs (job)
		ON (classid::bigint << 32) + objid::bigint = job WHERE locktype = 'advisory'$$),
	('with_advisory_lock', $$SELECT string_agg(mode, ' ' ORDER BY mode) FROM pg_locks WHERE locktype = 'advisory' AND objid = 6
		AND classid = (-5)::integer AND database = (SELECT oid FROM pg_database WHERE datname = current_database())$$),
	('liquibase', $$SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
		WHERE locktype = 'advisory' AND classid = (-5)::integer AND objid = 6 AND objsubid = 2 AND granted$$),
	('goose', $$SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND ((classid::bigint << 32) | objid::bigint) = 7000000000$$),
	('objid alone', $$SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 6$$),
	('waiters', $$SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid IN (6, 2705032704)$$),
	('every column', $$SELECT string_agg(format('%s %s %s %s %s %s %s %s %s', classid, objid, objsubid, mode, granted,
			database = (SELECT oid FROM pg_database WHERE datname = current_database()), pid = pg_backend_pid(),
			virtualtransaction = (SELECT virtualtransaction FROM pg_catalog.pg_locks WHERE locktype = 'virtualxid' AND pid = pg_backend_pid()),
			num_nulls(relation, page, tuple, virtualxid, transactionid, waitstart)), E'\n' ORDER BY mode, classid, objid)
		FROM pg_locks WHERE locktype = 'advisory' AND database <> 0 AND NOT fastpath$$),
	('other kinds', $$SELECT string_agg(DISTINCT locktype, ' ' ORDER BY locktype) FROM pg_locks
		WHERE pid = pg_backend_pid() AND (locktype = 'virtualxid' OR relation = 'zklock_regress_shapes'::regclass)$$);
CREATE FUNCTION zklock_regress_answers(path text) RETURNS TABLE (program text, answer text) LANGUAGE plpgsql AS $$
DECLARE
	query text;
BEGIN
	PERFORM set_config('search_path', path, false);
	EXECUTE 'SELECT pg_advisory_lock(k), pg_advisory_lock(k) FROM unnest(''{0, -1, 7000000000, 9223372036854775807, -9223372036854775808}''::bigint[]) AS k';
	EXECUTE 'SELECT pg_advisory_lock_shared(-5, 6), pg_advisory_xact_lock(-5, 6), pg_advisory_xact_lock(2147483647, -2147483648)';
	FOR program, query IN SELECT s.program, s.query FROM zklock_regress_shapes AS s LOOP
		EXECUTE query INTO answer;
		RETURN NEXT;
	END LOOP;
	EXECUTE 'SELECT pg_advisory_unlock_all()';
END $$;
CREATE TABLE zklock_regress_postgresql AS SELECT * FROM zklock_regress_answers('public, pg_catalog');
CREATE TABLE zklock_regress_ours AS SELECT * FROM zklock_regress_answers('public, zklock_advisory, pg_catalog');
SELECT * FROM zklock_regress_ours;
SELECT * FROM zklock_regress_postgresql EXCEPT SELECT * FROM zklock_regress_ours;
-- released locks have no row, and neither has a name that is no key
SELECT count(zk_lock(format('advisory:%s:%s', current_database(), key))) AS locked
FROM unnest('{"",007,-0,-,"1,",",1","1,2,3","1 ",0x1,9223372036854775808,-9223372036854775809,9999999999999999999,"2147483648,1","1,-2147483649",x:1}'::text[]) AS key;
SELECT zk_lock('advisory:x:1') > 0 AS locked;
SELECT count(*) FROM zklock_advisory.pg_locks WHERE locktype = 'advisory' AND database <> 0 AND objid::bigint + classid::bigint >= 0;
SELECT zk_unlock_all();
DROP TABLE zklock_regress_shapes, zklock_regress_postgresql, zklock_regress_ours;
DROP FUNCTION zklock_regress_answers;

-- the bodies do not depend on search_path or on objects that the caller can define
CREATE SCHEMA zklock_regress_hijack;
CREATE FUNCTION zklock_regress_hijack.zk_lock(text) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RAISE ''hijacked''; END';
CREATE FUNCTION zklock_regress_hijack.current_database() RETURNS name LANGUAGE sql AS 'SELECT ''elsewhere''::name';
CREATE VIEW zklock_regress_hijack.pg_locks AS SELECT 'elsewhere' AS locktype;
CREATE VIEW zklock_regress_hijack.zk_held_locks AS SELECT * FROM zk_held_locks WHERE false;
CREATE FUNCTION zklock_regress_hijack.starts_with(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
SET search_path = zklock_regress_hijack, pg_catalog;
SELECT zklock_advisory.pg_advisory_lock(7);
SELECT objid FROM zklock_advisory.pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objsubid = 1;
RESET search_path;
SELECT replace(name, current_database(), 'DB') AS name FROM zk_held_locks;
SELECT zk_unlock_all();
SET client_min_messages = warning;
DROP SCHEMA zklock_regress_hijack CASCADE;
RESET client_min_messages;
-- zklock can be moved to another schema
BEGIN;
CREATE SCHEMA zklock_regress_other;
ALTER EXTENSION zklock SET SCHEMA zklock_regress_other;
SELECT zklock_advisory.pg_try_advisory_xact_lock(7);
ROLLBACK;
-- an ordinary role
SET client_min_messages = warning;
DROP ROLE IF EXISTS zklock_regress_user;
RESET client_min_messages;
CREATE ROLE zklock_regress_user;
SET ROLE zklock_regress_user;
SELECT zklock_advisory.pg_try_advisory_xact_lock(7);
CREATE FUNCTION zklock_advisory.pg_advisory_lock(integer) RETURNS void LANGUAGE sql AS '';
CREATE OR REPLACE VIEW zklock_advisory.pg_locks AS SELECT * FROM pg_catalog.pg_locks;
SET search_path = zklock_advisory, pg_catalog;
BEGIN;
SELECT pg_try_advisory_xact_lock(7);
SELECT objid, mode FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objsubid = 1;
COMMIT;
RESET search_path;
RESET ROLE;
-- who may not read PostgreSQL's view may not read this one
BEGIN;
REVOKE SELECT ON pg_catalog.pg_locks FROM PUBLIC;
SET LOCAL ROLE zklock_regress_user;
SELECT count(*) FROM zklock_advisory.pg_locks;
ROLLBACK;
DROP ROLE zklock_regress_user;

-- it is dropped with its schema, and cannot be created in another role's schema
DROP EXTENSION zklock_advisory;
SELECT count(*) FROM pg_namespace WHERE nspname = 'zklock_advisory';
CREATE SCHEMA zklock_advisory;
\set SHOW_CONTEXT never
CREATE EXTENSION zklock_advisory;
\set SHOW_CONTEXT errors
DROP SCHEMA zklock_advisory;
