--
-- The extension zklock_advisory has PostgreSQL's advisory lock functions by name.
-- test/t/425_advisory.pl tests that their results are the same.
--
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
SELECT objid AS on_this_server FROM pg_locks
WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND database <> 0 ORDER BY 1;
SELECT pg_catalog.pg_advisory_unlock_all(), pg_advisory_unlock_all();
DEALLOCATE zklock_regress_prepared;
DROP VIEW zklock_regress_view;
DROP FUNCTION zklock_regress_atomic(), zklock_regress_sql(), zklock_regress_plpgsql(), zklock_regress_set();

-- the bodies do not depend on search_path or on objects that the caller can define
CREATE SCHEMA zklock_regress_hijack;
CREATE FUNCTION zklock_regress_hijack.zk_lock(text) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RAISE ''hijacked''; END';
CREATE FUNCTION zklock_regress_hijack.current_database() RETURNS name LANGUAGE sql AS 'SELECT ''elsewhere''::name';
SET search_path = zklock_regress_hijack, pg_catalog;
SELECT zklock_advisory.pg_advisory_lock(7);
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
RESET ROLE;
DROP ROLE zklock_regress_user;

-- it is dropped with its schema, and cannot be created in another role's schema
DROP EXTENSION zklock_advisory;
SELECT count(*) FROM pg_namespace WHERE nspname = 'zklock_advisory';
CREATE SCHEMA zklock_advisory;
\set SHOW_CONTEXT never
CREATE EXTENSION zklock_advisory;
\set SHOW_CONTEXT errors
DROP SCHEMA zklock_advisory;
