-- The objects of the extension: functions with their arguments and results, views,
-- privileges, comments.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS zklock;

BEGIN;
SELECT no_plan();
SET LOCAL intervalstyle = postgres;

SELECT has_extension('zklock', 'zklock is installed');

-- every function and procedure: arguments with their names and defaults, and the result
CREATE TEMP TABLE expected (name text, arguments text, result text);
INSERT INTO expected VALUES
	('zk_lock', 'name text', 'bigint'), ('zk_lock_shared', 'name text', 'bigint'),
	('zk_xact_lock', 'name text', 'bigint'), ('zk_xact_lock_shared', 'name text', 'bigint'),
	('zk_unlock', 'name text', 'boolean'), ('zk_unlock_shared', 'name text', 'boolean'),
	('zk_lock_many', 'names text[]', 'bigint[]'), ('zk_lock_many_shared', 'names text[]', 'bigint[]'),
	('zk_xact_lock_many', 'names text[]', 'bigint[]'), ('zk_xact_lock_many_shared', 'names text[]', 'bigint[]'),
	('zk_unlock_many', 'names text[]', 'boolean[]'), ('zk_unlock_many_shared', 'names text[]', 'boolean[]'),
	('zk_unlock_all', '', 'void'),
	('zk_lock_token', 'name text', 'bigint'),
	('zk_lock_wait', 'IN name text, IN timeout interval DEFAULT NULL::interval', NULL),
	('zk_acquire_permit', 'name text, permits integer', 'void'), ('zk_xact_acquire_permit', 'name text, permits integer', 'void'),
	('zk_release_permit', 'name text', 'boolean'),
	('zk_fence', 'name text', 'bigint'),
	('zk_fence_reset', 'name text', 'void'), ('zk_fence_reset', '', 'void'),
	('zk_fence_vacuum', 'older_than interval', 'bigint'),
	('zk_revoke', 'name text', 'integer'), ('zk_revoked', 'name text', 'boolean'),
	('zk_session', 'OUT session_id text, OUT state text, OUT server text, OUT session_timeout interval, '
		'OUT lease_remaining interval, OUT connected_at timestamp with time zone, OUT locks integer', 'record'),
	('zk_stat_reset', '', 'void'),
	('zk_locks_of', 'name text', 'SETOF zk_locks'),
	('zk_blocking', 'pid integer', 'TABLE(server text, pid integer, name text, mode text, granted boolean)'),
	-- the views and the table need these
	('zklock_held_locks', 'OUT kind text, OUT name text, OUT mode text, OUT level text, OUT hold_count bigint, '
		'OUT token bigint, OUT acquired_at timestamp with time zone, OUT state text', 'SETOF record'),
	('zklock_locks', 'OUT kind text, OUT name text, OUT mode text, OUT granted boolean, OUT kept boolean, '
		'OUT queue_position integer, OUT token bigint, OUT server text, OUT pid integer, OUT datname text, '
		'OUT usename text, OUT application_name text, OUT client text, OUT session_id text, '
		'OUT requested_at timestamp with time zone, OUT znode text', 'SETOF record'),
	('zklock_stat', 'OUT acquisitions bigint, OUT waits bigint, OUT wait_time double precision, '
		'OUT timeouts bigint, OUT cancels bigint, OUT deadlocks bigint, OUT sessions_opened bigint, '
		'OUT sessions_lost bigint, OUT locks_lost bigint, OUT commits_refused bigint, OUT revocations bigint, '
		'OUT stats_reset timestamp with time zone', 'SETOF record'),
	('zk_server', '', 'text'), ('zklock_fences_keep', '', 'trigger');
INSERT INTO expected
	SELECT format('zk_try_%slock%s', level, mode), $$name text, timeout interval DEFAULT '00:00:00'::interval$$, 'boolean'
	FROM unnest('{"",xact_}'::text[]) AS level, unnest('{"",_shared}'::text[]) AS mode
	UNION ALL SELECT format('zk_try_%slock_many%s', level, mode), $$names text[], timeout interval DEFAULT '00:00:00'::interval$$, 'boolean'
	FROM unnest('{"",xact_}'::text[]) AS level, unnest('{"",_shared}'::text[]) AS mode
	UNION ALL SELECT format('zk_try_%sacquire_permit', level), $$name text, permits integer, timeout interval DEFAULT '00:00:00'::interval$$, 'boolean'
	FROM unnest('{"",xact_}'::text[]) AS level;

CREATE TEMP VIEW members AS
	SELECT p.oid::regprocedure AS signature, p.* FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid
	WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock');
SELECT is(count(m.oid), 1::bigint, format('%s(%s) returns %s', e.name, e.arguments, coalesce(e.result, 'nothing: a procedure')))
FROM expected AS e LEFT JOIN members AS m ON m.proname = e.name AND pg_get_function_arguments(m.oid) = e.arguments
	AND pg_get_function_result(m.oid) IS NOT DISTINCT FROM e.result
GROUP BY e.name, e.arguments, e.result;
SELECT is_empty(
	$$ SELECT m.signature FROM members AS m LEFT JOIN expected AS e
	   ON m.proname = e.name AND pg_get_function_arguments(m.oid) = e.arguments
	   WHERE e.name IS NULL $$,
	'the extension has no other functions');
SELECT cmp_ok((SELECT count(*) FROM members), '<=', 45::bigint, 'the extension has at most 45 functions');

SELECT is_empty($$ SELECT signature FROM members WHERE obj_description(oid, 'pg_proc') IS NULL $$,
	'every function has a comment');
SELECT is_empty($$ SELECT signature FROM members WHERE prosecdef OR proisstrict $$,
	'every function runs as its caller, and is called with NULL');
SELECT is_empty(
	$$ SELECT signature FROM members
	   WHERE provolatile <> CASE proname WHEN 'zk_server' THEN 's' ELSE 'v' END $$,
	'functions are volatile, except for the name of the server');
-- a procedure and a trigger are called by no query, and a write forbids parallel workers altogether
SELECT is_empty(
	$$ SELECT signature FROM members
	   WHERE proparallel <> CASE WHEN proname = 'zk_server' THEN 's'
		WHEN proname ~ '^zk_fence' OR proname IN ('zk_lock_wait', 'zklock_fences_keep') THEN 'u' ELSE 'r' END $$,
	'functions may run in no parallel worker');
SELECT results_eq(
	$$ SELECT proname FROM members WHERE NOT has_function_privilege('public', oid, 'EXECUTE') ORDER BY proname COLLATE "C" $$,
	$$ SELECT unnest('{zk_fence_reset,zk_fence_reset,zk_fence_vacuum,zk_revoke,zk_stat_reset,zklock_fences_keep}'::name[]) $$,
	'PUBLIC may call every function except those of administrators');
SELECT function_privs_are(current_schema(), 'zk_revoke', '{text}'::name[], 'pg_signal_backend', '{EXECUTE}',
	'pg_signal_backend may call zk_revoke');

-- fencing
SELECT columns_are('zklock_fences', '{lock,token,fenced_at,fenced_by}'::name[], 'zklock_fences has its columns');
SELECT col_is_pk('zklock_fences', 'lock', 'a lock has one row in zklock_fences');
SELECT table_privs_are('zklock_fences'::name, 'public'::name, '{}'::name[], 'PUBLIC has no privileges on zklock_fences');
SELECT table_privs_are('zklock_fences'::name, 'pg_database_owner'::name, '{SELECT,INSERT}'::name[],
	'the owner of the database may dump and restore zklock_fences');
SELECT is((SELECT array_agg(format('%s %s', tgname, tgenabled) ORDER BY tgname COLLATE "C") FROM pg_trigger WHERE tgrelid = 'zklock_fences'::regclass),
	'{zklock_fences_keep A,zklock_fences_keep_all A}', 'the triggers of zklock_fences fire for logical replication, too');
SELECT is_empty($$ SELECT tgname FROM pg_trigger WHERE tgrelid = 'zklock_fences'::regclass AND obj_description(oid, 'pg_trigger') IS NULL $$,
	'the triggers of zklock_fences have comments');
SELECT is((SELECT extconfig FROM pg_extension WHERE extname = 'zklock'), ARRAY['zklock_fences'::regclass::oid],
	'the rows of zklock_fences are dumped');
SELECT isnt(obj_description('zklock_fences'::regclass), NULL, 'zklock_fences has a comment');
SELECT is_empty(
	$$ SELECT attname FROM pg_attribute WHERE attrelid = 'zklock_fences'::regclass AND attnum > 0
	   AND col_description(attrelid, attnum) IS NULL $$,
	'every column of zklock_fences has a comment');

-- the view
SELECT has_view('zk_held_locks', 'zk_held_locks is a view');
SELECT columns_are('zk_held_locks',
	'{kind,name,mode,level,hold_count,token,acquired_at,state}'::name[], 'zk_held_locks has its columns');
SELECT col_type_is('zk_held_locks', c, t, format('zk_held_locks.%s is %s', c, t))
FROM (VALUES ('kind'::name, 'text'), ('name', 'text'), ('mode', 'text'), ('level', 'text'), ('hold_count', 'bigint'),
	('token', 'bigint'), ('acquired_at', 'timestamp with time zone'), ('state', 'text')) AS v(c, t);
SELECT table_privs_are('zk_held_locks'::name, 'public'::name, '{SELECT}'::name[], 'every role may read zk_held_locks');
SELECT isnt(obj_description('zk_held_locks'::regclass), NULL, 'zk_held_locks has a comment');
SELECT is_empty(
	$$ SELECT attname FROM pg_attribute WHERE attrelid = 'zk_held_locks'::regclass AND attnum > 0
	   AND col_description(attrelid, attnum) IS NULL $$,
	'every column of zk_held_locks has a comment');

-- the view of all locks
SELECT columns_are('zk_locks',
	'{kind,name,mode,granted,kept,queue_position,token,server,pid,datname,usename,application_name,client,'
	'session_id,requested_at,znode}'::name[], 'zk_locks has its columns');
SELECT col_type_is('zk_locks', attname, CASE attname WHEN 'granted' THEN 'boolean' WHEN 'kept' THEN 'boolean' WHEN 'queue_position' THEN 'integer'
	WHEN 'token' THEN 'bigint' WHEN 'pid' THEN 'integer' WHEN 'requested_at' THEN 'timestamp with time zone'
	ELSE 'text' END, format('type of zk_locks.%s', attname))
FROM pg_attribute WHERE attrelid = 'zk_locks'::regclass AND attnum > 0;
SELECT table_privs_are('zk_locks'::name, 'public'::name, '{SELECT}'::name[], 'every role may read zk_locks');

-- the counters
SELECT columns_are('zk_stat',
	'{acquisitions,waits,wait_time,timeouts,cancels,deadlocks,sessions_opened,sessions_lost,'
	'locks_lost,commits_refused,revocations,stats_reset}'::name[], 'zk_stat has its columns');
SELECT col_type_is('zk_stat', attname, CASE attname WHEN 'wait_time' THEN 'double precision'
	WHEN 'stats_reset' THEN 'timestamp with time zone' ELSE 'bigint' END, format('type of zk_stat.%s', attname))
FROM pg_attribute WHERE attrelid = 'zk_stat'::regclass AND attnum > 0;
SELECT table_privs_are('zk_stat'::name, 'public'::name, '{SELECT}'::name[], 'every role may read zk_stat');

SELECT * FROM finish();
ROLLBACK;
