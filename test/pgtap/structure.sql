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

SELECT has_extension('zklock', 'zklock is installed');

-- the functions, as in the manual's table
CREATE TEMP TABLE expected (name text, result text, waits boolean);
INSERT INTO expected VALUES
	('zk_lock', 'bigint', false), ('zk_lock_shared', 'bigint', false),
	('zk_xact_lock', 'bigint', false), ('zk_xact_lock_shared', 'bigint', false),
	('zk_try_lock', 'boolean', true), ('zk_try_lock_shared', 'boolean', true),
	('zk_try_xact_lock', 'boolean', true), ('zk_try_xact_lock_shared', 'boolean', true),
	('zk_unlock', 'boolean', false), ('zk_unlock_shared', 'boolean', false),
	('zk_lock_token', 'bigint', false);
CREATE TEMP TABLE keys (form text, arguments text[], result_is_array boolean);
INSERT INTO keys VALUES
	('a name', '{text}', false), ('a bigint', '{bigint}', false),
	('two integers', '{integer,integer}', false), ('an array of names', '{text[]}', true);
CREATE TEMP VIEW functions AS
	SELECT name, form, arguments || CASE WHEN waits THEN '{interval}' ELSE '{}' END::text[] AS arguments,
		CASE WHEN result_is_array AND result = 'bigint' THEN 'bigint[]' ELSE result END AS result
	FROM expected CROSS JOIN keys;

SELECT has_function(name::name, arguments::name[], format('%s accepts %s', name, form)) FROM functions;
SELECT function_returns(name::name, arguments::name[], result, format('%s of %s returns %s', name, form, result)) FROM functions;
SELECT function_lang_is(name::name, arguments::name[], 'c'::name, format('%s of %s is in C', name, form)) FROM functions;
SELECT volatility_is(name::name, arguments::name[], 'volatile', format('%s of %s is volatile', name, form)) FROM functions;
SELECT isnt_strict(name::name, arguments::name[], format('%s of %s is called with NULL', name, form)) FROM functions;
SELECT isnt_definer(name::name, arguments::name[], format('%s of %s runs as its caller', name, form)) FROM functions;
SELECT function_privs_are(current_schema(), name::name, arguments::name[], 'public', '{EXECUTE}',
	format('every role may call %s with %s', name, form)) FROM functions;

-- an untyped literal as the timeout
SELECT function_returns(name::name, '{text,text}'::name[], result, format('%s accepts its timeout as text', name))
FROM expected WHERE waits;
SELECT volatility_is(name::name, '{text,text}'::name[], 'volatile', format('%s with a timeout as text is volatile', name))
FROM expected WHERE waits;

SELECT has_function('zk_unlock_all', '{}'::name[], 'zk_unlock_all has no arguments');
SELECT function_returns('zk_unlock_all', '{}'::name[], 'void', 'zk_unlock_all returns nothing');
SELECT volatility_is('zk_unlock_all', '{}'::name[], 'volatile', 'zk_unlock_all is volatile');
SELECT has_function('zk_session', '{}'::name[], 'zk_session has no arguments');
SELECT is(pg_get_function_arguments('zk_session()'::regprocedure),
	'OUT session_id text, OUT state text, OUT server text, OUT session_timeout interval, '
	'OUT lease_remaining interval, OUT connected_at timestamp with time zone, OUT locks integer',
	'zk_session returns the documented columns');

SELECT is_empty(
	$$ SELECT oid::regprocedure FROM pg_proc JOIN functions AS f ON f.name = proname
	   WHERE proparallel <> 'r' $$,
	'no lock function may run in a parallel worker');
SELECT is_empty(
	$$ SELECT oid::regprocedure FROM pg_proc WHERE proname ~ '^zk_' AND obj_description(oid, 'pg_proc') IS NULL $$,
	'every function has a comment');

-- a wait without a transaction
CREATE TEMP TABLE single_keys AS SELECT v.a FROM (VALUES ('{text}'::name[]), ('{bigint}'), ('{integer,integer}')) AS v(a);
CREATE TEMP TABLE waits AS
	SELECT a FROM single_keys UNION ALL SELECT a || '{interval}'::name[] FROM single_keys UNION ALL SELECT '{text,text}';
SELECT is_procedure('zk_lock_wait', a, format('zk_lock_wait%s is a procedure', a)) FROM waits;
SELECT function_privs_are(current_schema(), 'zk_lock_wait', a, 'public', '{EXECUTE}', format('every role may call zk_lock_wait%s', a))
FROM waits;

-- semaphores
CREATE TEMP TABLE semaphores (name name, arguments name[], result text);
INSERT INTO semaphores VALUES
	('zk_acquire', '{text,integer}', 'bigint'), ('zk_xact_acquire', '{text,integer}', 'bigint'),
	('zk_try_acquire', '{text,integer,interval}', 'boolean'), ('zk_try_xact_acquire', '{text,integer,interval}', 'boolean'),
	('zk_release', '{text}', 'boolean');
SELECT function_returns(name, arguments, result, format('%s returns %s', name, result)) FROM semaphores;
SELECT volatility_is(name, arguments, 'volatile', format('%s is volatile', name)) FROM semaphores;
SELECT isnt_strict(name, arguments, format('%s is called with NULL', name)) FROM semaphores;
SELECT isnt_definer(name, arguments, format('%s runs as its caller', name)) FROM semaphores;
SELECT function_privs_are(current_schema(), name, arguments, 'public', '{EXECUTE}', format('every role may call %s', name))
FROM semaphores;
SELECT is_empty(
	$$ SELECT oid::regprocedure FROM pg_proc JOIN semaphores AS s ON s.name = proname WHERE proparallel <> 'r' $$,
	'no function of semaphores may run in a parallel worker');
-- revocation
SELECT function_returns('zk_revoked', a, 'boolean', format('zk_revoked%s returns boolean', a)) FROM single_keys;
SELECT function_privs_are(current_schema(), 'zk_revoked', a, 'public', '{EXECUTE}', format('every role may call zk_revoked%s', a)) FROM single_keys;
SELECT volatility_is('zk_revoked', a, 'volatile', format('zk_revoked%s is volatile', a)) FROM single_keys;
SELECT isnt_strict('zk_revoked', a, format('zk_revoked%s is called with NULL', a)) FROM single_keys;

-- fencing
SELECT function_returns('zk_fence', a, 'bigint', format('zk_fence%s returns the token', a)) FROM single_keys;
SELECT function_returns('zk_fence_reset', a, 'void', format('zk_fence_reset%s returns nothing', a)) FROM single_keys;
SELECT function_privs_are(current_schema(), f::name, a, 'public', p::name[], format('%s%s: every role has %s', f, a, p))
FROM (VALUES ('zk_fence', '{EXECUTE}'), ('zk_fence_reset', '{}')) AS v(f, p), single_keys;
SELECT volatility_is(f, a, 'volatile', format('%s%s is volatile', f, a)) FROM unnest('{zk_fence,zk_fence_reset}'::name[]) AS f, single_keys;
SELECT isnt_strict(f, a, format('%s%s is called with NULL', f, a)) FROM unnest('{zk_fence,zk_fence_reset}'::name[]) AS f, single_keys;
SELECT isnt_definer(f, a, format('%s%s runs as its caller', f, a)) FROM unnest('{zk_fence,zk_fence_reset}'::name[]) AS f, single_keys;
SELECT is_empty(
	$$ SELECT oid::regprocedure FROM pg_proc WHERE proname ~ '^zk_fence' AND proparallel <> 'u' $$,
	'zk_fence and zk_fence_reset forbid parallel queries');
SELECT columns_are('zklock_fences', '{lock,token,fenced_at,fenced_by}'::name[], 'zklock_fences has its columns');
SELECT col_is_pk('zklock_fences', 'lock', 'a lock has one row in zklock_fences');
SELECT table_privs_are('zklock_fences'::name, 'public'::name, '{}'::name[], 'PUBLIC has no privileges on zklock_fences');
SELECT table_privs_are('zklock_fences'::name, 'pg_database_owner'::name, '{SELECT,INSERT}'::name[],
	'the owner of the database may dump and restore zklock_fences');
SELECT is((SELECT array_agg(format('%s %s', tgname, tgenabled) ORDER BY tgname COLLATE "C") FROM pg_trigger WHERE tgrelid = 'zklock_fences'::regclass),
	'{zklock_fences_keep A,zklock_fences_keep_all A}', 'the triggers of zklock_fences fire for logical replication, too');
SELECT is_empty($$ SELECT tgname FROM pg_trigger WHERE tgrelid = 'zklock_fences'::regclass AND obj_description(oid, 'pg_trigger') IS NULL $$,
	'the triggers of zklock_fences have comments');
SELECT function_privs_are(current_schema(), 'zklock_fences_keep', '{}'::name[], 'public', '{}', 'PUBLIC may not call the function of the triggers');
SELECT function_returns('zk_fence_reset', '{}'::name[], 'void', 'zk_fence_reset resets all');
SELECT function_returns('zk_fence_vacuum', '{interval}'::name[], 'bigint', 'zk_fence_vacuum has an age as argument and returns a count');
SELECT function_privs_are(current_schema(), f, a::name[], 'public', '{}', format('PUBLIC may not call %s%s', f, a))
FROM (VALUES ('zk_fence_reset'::name, '{}'), ('zk_fence_vacuum', '{interval}')) AS v(f, a);
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
	'{kind,name,mode,scope,count,token,acquired_at,state}'::name[], 'zk_held_locks has its columns');
SELECT col_type_is('zk_held_locks', c, t, format('zk_held_locks.%s is %s', c, t))
FROM (VALUES ('kind'::name, 'text'), ('name', 'text'), ('mode', 'text'), ('scope', 'text'), ('count', 'bigint'),
	('token', 'bigint'), ('acquired_at', 'timestamp with time zone'), ('state', 'text')) AS v(c, t);
SELECT table_privs_are('zk_held_locks'::name, 'public'::name, '{SELECT}'::name[], 'every role may read zk_held_locks');
SELECT isnt(obj_description('zk_held_locks'::regclass), NULL, 'zk_held_locks has a comment');
SELECT is_empty(
	$$ SELECT attname FROM pg_attribute WHERE attrelid = 'zk_held_locks'::regclass AND attnum > 0
	   AND col_description(attrelid, attnum) IS NULL $$,
	'every column of zk_held_locks has a comment');

-- the view of all locks
SELECT columns_are('zk_locks',
	'{kind,name,mode,granted,queue_position,token,server,pid,datname,usename,application_name,client,'
	'session_id,since,znode}'::name[], 'zk_locks has its columns');
SELECT col_type_is('zk_locks', attname, CASE attname WHEN 'granted' THEN 'boolean' WHEN 'queue_position' THEN 'integer'
	WHEN 'token' THEN 'bigint' WHEN 'pid' THEN 'integer' WHEN 'since' THEN 'timestamp with time zone'
	ELSE 'text' END, format('type of zk_locks.%s', attname))
FROM pg_attribute WHERE attrelid = 'zk_locks'::regclass AND attnum > 0;
SELECT table_privs_are('zk_locks'::name, 'public'::name, '{SELECT}'::name[], 'every role may read zk_locks');
SELECT function_privs_are(current_schema(), 'zklock_locks', '{}'::name[], 'public', '{EXECUTE}', 'every role may call the function of zk_locks');
SELECT is(pg_get_function_result(format('zk_locks_of(%s)', array_to_string(a, ','))::regprocedure), 'SETOF zk_locks',
	format('zk_locks_of%s returns rows of the view', a)) FROM single_keys;
SELECT function_privs_are(current_schema(), 'zk_locks_of', a, 'public', '{EXECUTE}', format('every role may call zk_locks_of%s', a)) FROM single_keys;
SELECT volatility_is('zk_locks_of', a, 'volatile', format('zk_locks_of%s is volatile', a)) FROM single_keys;
SELECT isnt_strict('zk_locks_of', a, format('zk_locks_of%s is called with NULL', a)) FROM single_keys;

SELECT is(pg_get_function_result('zk_blocking(integer)'::regprocedure),
	'TABLE(server text, pid integer, name text, mode text, granted boolean)', 'zk_blocking returns the documented columns');
SELECT is(pg_get_function_arguments('zk_blocking(integer)'::regprocedure), 'pid integer', 'the argument of zk_blocking has a name');
SELECT function_privs_are(current_schema(), 'zk_blocking', '{integer}'::name[], 'public', '{EXECUTE}', 'every role may call zk_blocking');

-- revocation
SELECT function_returns('zk_revoke', a, 'integer', format('zk_revoke%s returns integer', a)) FROM single_keys;
SELECT function_privs_are(current_schema(), 'zk_revoke', a, 'public', '{}', format('PUBLIC may not call zk_revoke%s', a)) FROM single_keys;
SELECT function_privs_are(current_schema(), 'zk_revoke', a, 'pg_signal_backend', '{EXECUTE}',
	format('pg_signal_backend may call zk_revoke%s', a)) FROM single_keys;
SELECT volatility_is('zk_revoke', a, 'volatile', format('zk_revoke%s is volatile', a)) FROM single_keys;
SELECT isnt_strict('zk_revoke', a, format('zk_revoke%s is called with NULL', a)) FROM single_keys;
SELECT isnt_definer('zk_revoke', a, format('zk_revoke%s runs as its caller', a)) FROM single_keys;
SELECT is_empty($$ SELECT oid::regprocedure FROM pg_proc WHERE proname IN ('zk_revoke', 'zk_revoked') AND proparallel <> 'r' $$,
	'zk_revoke and zk_revoked may not run in a parallel worker');
SELECT is((SELECT proparallel FROM pg_proc WHERE proname = 'zklock_locks'), 'r'::"char", 'zklock_locks may not run in a parallel worker');

-- the counters
SELECT columns_are('zk_stat',
	'{acquisitions,waits,wait_time,timeouts,cancels,deadlocks,sessions_opened,sessions_lost,'
	'locks_lost,commits_refused,revocations,round_trips,lock_table_reads,stats_reset}'::name[], 'zk_stat has its columns');
SELECT col_type_is('zk_stat', attname, CASE attname WHEN 'wait_time' THEN 'interval'
	WHEN 'stats_reset' THEN 'timestamp with time zone' ELSE 'bigint' END, format('type of zk_stat.%s', attname))
FROM pg_attribute WHERE attrelid = 'zk_stat'::regclass AND attnum > 0;
SELECT table_privs_are('zk_stat'::name, 'public'::name, '{SELECT}'::name[], 'every role may read zk_stat');
SELECT function_returns('zk_stat_reset', '{}'::name[], 'void', 'zk_stat_reset has no arguments and returns nothing');
SELECT function_privs_are(current_schema(), 'zk_stat_reset', '{}'::name[], 'public', '{}', 'PUBLIC may not call zk_stat_reset');

SELECT * FROM finish();
ROLLBACK;
