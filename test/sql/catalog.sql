--
-- The objects of the extension: their names, arguments, attributes and privileges, and that
-- each has a comment.
--
CREATE TEMP VIEW members AS
	SELECT p.oid, p.proname, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result,
		p.prokind, p.provolatile, p.proparallel, p.proisstrict, p.prosecdef, p.proleakproof, p.proacl,
		p.proowner, p.prolang, p.prosqlbody, p.proconfig
	FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid
	WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock');

-- locks and semaphores
SELECT proname, arguments, result FROM members
WHERE proname ~ '^zk_(try_)?(xact_)?(lock|unlock|acquire|release)' ORDER BY proname COLLATE "C", arguments COLLATE "C";

-- all of them are volatile, parallel restricted, not strict
SELECT proname, arguments FROM members
WHERE prokind = 'f' AND proname ~ '^zk_(try_)?(xact_)?(lock|unlock|acquire|release)' AND
	(provolatile, proparallel, proisstrict, prosecdef, proleakproof) IS DISTINCT FROM
	('v'::"char", 'r'::"char", false, false, false);
-- PUBLIC may call all of them
SELECT proname, arguments FROM members
WHERE proname ~ '^zk_(try_)?(xact_)?(lock|unlock|acquire|release)' AND NOT has_function_privilege('public', oid, 'EXECUTE');

-- security and privileges of all functions and relations, new ones included
SELECT proname, arguments FROM members WHERE prosecdef OR proconfig IS NOT NULL OR proleakproof;
SELECT proname, arguments FROM members
WHERE NOT (prolang = (SELECT oid FROM pg_language WHERE lanname = 'c') OR prosqlbody IS NOT NULL);
SELECT proname, arguments FROM members
WHERE NOT has_function_privilege('public', oid, 'EXECUTE') ORDER BY proname COLLATE "C", arguments COLLATE "C";
SELECT m.proname, m.arguments, a.grantee::regrole, a.privilege_type, a.is_grantable FROM members AS m, aclexplode(m.proacl) AS a
WHERE a.grantee NOT IN (0, m.proowner) ORDER BY m.proname COLLATE "C", m.arguments COLLATE "C";
SELECT c.relname, c.relkind, string_agg(a.privilege_type, ',' ORDER BY a.privilege_type) FILTER (WHERE a.grantee = 0) AS public,
	bool_or(a.grantee NOT IN (0, c.relowner)) AS others
FROM pg_depend AS d JOIN pg_class AS c ON c.oid = d.objid, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS a
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
GROUP BY c.relname, c.relkind ORDER BY c.relname COLLATE "C";
SELECT count(*) AS columns_with_privileges
FROM pg_depend AS d JOIN pg_attribute AS a ON a.attrelid = d.objid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock') AND a.attacl IS NOT NULL;
-- no objects of other kinds, except for the row types of relations
SELECT DISTINCT d.classid::regclass::text AS kind FROM pg_depend AS d
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	AND NOT (d.classid = 'pg_type'::regclass AND EXISTS
		(SELECT FROM pg_type AS t WHERE t.oid = d.objid AND (t.typrelid <> 0 OR t.typelem <> 0)))
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock') ORDER BY kind;

-- functions without the prefix of the extension
SELECT proname FROM members WHERE proname !~ '^zk(_|lock_)';

-- views and their columns
SELECT a.attname, format_type(a.atttypid, a.atttypmod) AS type FROM pg_attribute AS a
WHERE attrelid = 'zk_held_locks'::regclass AND attnum > 0 ORDER BY attnum;
SELECT a.attname, format_type(a.atttypid, a.atttypmod) AS type FROM pg_attribute AS a
WHERE attrelid = 'zk_locks'::regclass AND attnum > 0 ORDER BY attnum;
SELECT pg_get_function_result('zk_session()'::regprocedure);

-- at most 45 functions
SELECT count(*) FROM members HAVING count(*) > 45;

-- objects of any kind without a comment
SELECT pg_describe_object(d.classid, d.objid, 0) AS without_comment
FROM pg_depend AS d
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	AND NOT (d.classid = 'pg_type'::regclass AND EXISTS
		(SELECT FROM pg_type AS t WHERE t.oid = d.objid AND (t.typrelid <> 0 OR t.typelem <> 0)))
	AND coalesce(obj_description(d.objid, d.classid::regclass::name), '') = '';
-- columns of views without a comment
SELECT c.relname, a.attname AS without_comment
FROM pg_depend AS d JOIN pg_class AS c ON c.oid = d.objid JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind = 'v'
	AND coalesce(col_description(c.oid, a.attnum), '') = '';
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
