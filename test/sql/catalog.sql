--
-- All objects of the extension: this list is the contract. Functions with the names of their
-- arguments, defaults, results, volatility, parallel safety, strictness and privileges; views with
-- their columns and privileges. Each object has a comment.
--
\pset format unaligned
\pset tuples_only on
CREATE TEMP VIEW members AS
	SELECT d.classid, d.objid FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'zklock';
SELECT format('%s(%s)', proname, pg_get_function_arguments(p.oid)) AS function, pg_get_function_result(p.oid) AS returns,
	(SELECT lanname FROM pg_language AS l WHERE l.oid = prolang) AS language,
	CASE provolatile WHEN 'v' THEN 'volatile' WHEN 's' THEN 'stable' ELSE 'immutable' END AS volatility,
	CASE proparallel WHEN 'r' THEN 'restricted' WHEN 'u' THEN 'unsafe' ELSE 'safe' END AS parallel,
	CASE WHEN proisstrict THEN 'strict' END AS strict,
	(SELECT string_agg(CASE a.grantee WHEN 0 THEN 'public' ELSE a.grantee::regrole::text END
			|| CASE WHEN a.is_grantable THEN ' with grant option' ELSE '' END, ', ' ORDER BY a.grantee)
		FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) AS a WHERE a.grantee <> proowner) AS execute
FROM members JOIN pg_proc AS p ON p.oid = objid AND classid = 'pg_proc'::regclass
ORDER BY proname COLLATE "C", pg_get_function_arguments(p.oid) COLLATE "C";
SELECT relname AS relation, relkind, reloptions,
	(SELECT string_agg(format('%s: %s', CASE a.grantee WHEN 0 THEN 'public' ELSE a.grantee::regrole::text END, a.privilege_type), ', ' ORDER BY a.privilege_type)
		FROM aclexplode(coalesce(relacl, acldefault('r', relowner))) AS a WHERE a.grantee <> relowner) AS privileges
FROM members JOIN pg_class AS c ON c.oid = objid AND classid = 'pg_class'::regclass ORDER BY relname COLLATE "C";
SELECT c.relname AS relation, a.attname AS column, format_type(a.atttypid, a.atttypmod) AS type
FROM members JOIN pg_class AS c ON c.oid = objid AND classid = 'pg_class'::regclass JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY c.relname COLLATE "C", a.attnum;
-- no objects of other kinds, except for the row types of relations
SELECT DISTINCT classid::regclass::text AS kind FROM members
WHERE NOT (classid = 'pg_type'::regclass AND EXISTS
	(SELECT FROM pg_type AS t WHERE t.oid = objid AND (t.typrelid <> 0 OR t.typelem <> 0))) ORDER BY kind;
-- nobody runs as the owner, and no body depends on a search path
SELECT p.oid::regprocedure FROM members JOIN pg_proc AS p ON p.oid = objid AND classid = 'pg_proc'::regclass
WHERE prosecdef OR proconfig IS NOT NULL OR proleakproof
	OR NOT (prolang = (SELECT oid FROM pg_language WHERE lanname = 'c') OR prosqlbody IS NOT NULL);
SELECT attrelid::regclass, attname FROM members JOIN pg_attribute ON attrelid = objid AND classid = 'pg_class'::regclass
WHERE attacl IS NOT NULL;
-- names have the prefix of the extension
SELECT p.oid::regprocedure FROM members JOIN pg_proc AS p ON p.oid = objid AND classid = 'pg_proc'::regclass WHERE proname !~ '^zk(_|lock_)';
SELECT objid::regclass FROM members JOIN pg_class AS c ON c.oid = objid AND classid = 'pg_class'::regclass WHERE relname !~ '^zk(_|lock_)';

-- objects and columns without a comment
SELECT pg_describe_object(classid, objid, 0) AS without_comment FROM members
WHERE NOT (classid = 'pg_type'::regclass AND EXISTS
		(SELECT FROM pg_type AS t WHERE t.oid = objid AND (t.typrelid <> 0 OR t.typelem <> 0)))
	AND coalesce(obj_description(objid, classid::regclass::name), '') = '';
SELECT attrelid::regclass, attname AS without_comment FROM members JOIN pg_attribute ON attrelid = objid AND classid = 'pg_class'::regclass
WHERE attnum > 0 AND NOT attisdropped AND coalesce(col_description(attrelid, attnum), '') = '';
SELECT obj_description(oid, 'pg_extension') <> '' AS commented FROM pg_extension WHERE extname = 'zklock';

-- the extension can be created in any schema, and DROP EXTENSION leaves nothing
BEGIN;
DROP EXTENSION zklock;
CREATE SCHEMA "Zk lock";
CREATE EXTENSION zklock SCHEMA "Zk lock";
SELECT "Zk lock".zk_lock('catalog.a') > 0 AS locked;
SELECT name FROM "Zk lock".zk_held_locks;
ALTER EXTENSION zklock SET SCHEMA public;
SELECT name FROM public.zk_held_locks;
SELECT public.zk_unlock('catalog.a');
DROP EXTENSION zklock;
SELECT count(*) FROM pg_proc WHERE proname ~ '^zk(_|lock_)';
ROLLBACK;

\c -reuse-previous=on "options=''"
\set VERBOSITY default
--
-- The extension can be dropped while this session holds locks, which it keeps.
--
\set VERBOSITY sqlstate
SELECT zk_lock('drop.a') > 0 AS locked;
BEGIN;
SET LOCAL client_min_messages = warning;
DROP EXTENSION zklock CASCADE;
SELECT count(*) FROM pg_extension WHERE extname = 'zklock';
ROLLBACK;
SELECT zk_unlock('drop.a');
SELECT zk_lock('drop.a') > 0 AS locked, zk_unlock('drop.a');
