--
-- A role can create objects in the schema of the extension, or in a schema of the users'
-- search_path. Neither the installation nor the use of the extension calls these objects.
--
\pset format unaligned
\pset tuples_only on
BEGIN;
DROP EXTENSION zklock;
CREATE SCHEMA trap;
CREATE FUNCTION trap.fail(text) RETURNS text LANGUAGE plpgsql AS
	$$ BEGIN RAISE EXCEPTION '% was called', $1; END $$;
-- functions that match a call as well as those of pg_catalog, or better
CREATE FUNCTION trap.pg_extension_config_dump(text, text) RETURNS text LANGUAGE sql RETURN trap.fail('pg_extension_config_dump');
CREATE FUNCTION trap.make_interval(secs double precision) RETURNS interval LANGUAGE sql RETURN trap.fail('make_interval')::interval;
CREATE FUNCTION trap.make_interval(secs numeric) RETURNS interval LANGUAGE sql RETURN trap.fail('make_interval')::interval;
-- operators for all pairs of the types that are compared and divided
DO $$
DECLARE
	op text;
	l regtype;
	r regtype;
BEGIN
	FOR op, l, r IN
		SELECT o, t1, t2 FROM unnest('{=,<>,<,>,/}'::text[]) AS o,
			unnest('{text,name,varchar,integer,bigint,numeric,double precision,boolean}'::regtype[]) AS t1,
			unnest('{text,name,varchar,integer,bigint,numeric,double precision,boolean}'::regtype[]) AS t2
	LOOP
		EXECUTE format('CREATE OR REPLACE FUNCTION trap.op(%s, %s) RETURNS boolean LANGUAGE plpgsql AS '
			'''BEGIN RAISE EXCEPTION ''''operator of %s and %s was called''''; END''', l, r, l, r);
		EXECUTE format('CREATE OPERATOR trap.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = trap.op)', op, l, r);
	END LOOP;
END $$;
CREATE EXTENSION zklock SCHEMA trap;
-- objects of the extension depend only on each other and on PostgreSQL's objects
CREATE TEMP VIEW member AS
	SELECT classid, objid FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	UNION ALL SELECT 'pg_rewrite'::regclass, r.oid FROM pg_rewrite AS r
		JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = r.ev_class
		WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
			AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock');
SELECT pg_describe_object(d.classid, d.objid, 0) AS member, pg_describe_object(d.refclassid, d.refobjid, 0) AS stranger
FROM pg_depend AS d JOIN member AS m USING (classid, objid)
WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_class'::regclass, 'pg_type'::regclass, 'pg_cast'::regclass)
	AND (d.refclassid, d.refobjid) NOT IN (SELECT classid, objid FROM member)
	AND NOT (d.refclassid = 'pg_type'::regclass AND (SELECT t.typrelid FROM pg_type AS t WHERE t.oid = d.refobjid)
		IN (SELECT objid FROM member WHERE classid = 'pg_class'::regclass));

-- the traps work: an unqualified operator calls one
SAVEPOINT unqualified;
SET LOCAL search_path = trap, pg_catalog;
SELECT 1 = 2::bigint;
ROLLBACK TO unqualified;
-- a user with this schema first in search_path, and with objects of the same names
SET LOCAL search_path = pg_temp, trap, pg_catalog;
CREATE TEMP TABLE zk_locks (kind text, name text, mode text, granted boolean, queue_position int, server text, pid int, session_id text);
SELECT zk_lock('hostile.a') IS NOT NULL AS locked, zk_try_lock('hostile.b', '0') AS tried;
SELECT zk_fence('hostile.a') IS NOT NULL AS fenced;
SELECT name FROM zk_held_locks ORDER BY name COLLATE pg_catalog."C";
SELECT count(*) FROM trap.zk_locks WHERE name OPERATOR(pg_catalog.=) 'hostile.a';
SELECT count(wait_time) FROM zk_stat;
SELECT count(*) FROM zk_blocking(pg_backend_pid());
SELECT zk_unlock('hostile.a') AS a, zk_unlock('hostile.b') AS b;
ROLLBACK;
