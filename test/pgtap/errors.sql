-- The SQLSTATE of each error that one session can provoke.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS zklock;

BEGIN;
SELECT no_plan();

-- limits; first, while the session is new
SET LOCAL zklock.max_locks = 1;
SELECT lives_ok($$ SELECT zk_lock('pgtap.a') $$, 'the first lock of one allowed is acquired');
SELECT throws_ok($$ SELECT zk_lock('pgtap.b') $$, '53400', NULL, 'a lock beyond zklock.max_locks is an error');
SELECT throws_ok($$ SELECT zk_try_xact_lock_shared('pgtap.b') $$, '53400', NULL, '... also for a non-blocking attempt');
SELECT throws_like($$ SELECT zk_lock('pgtap.b') $$, '%"pgtap.b"%', '... and the error names the lock');
SELECT zk_unlock_all() \g /dev/null
SET LOCAL zklock.max_locks = 1000;

-- node names without a shared mode
SET LOCAL zklock.node_names = curator_mutex;
SELECT throws_ok($$ SELECT zk_lock_shared('pgtap.b') $$, '0A000', NULL, 'curator_mutex has no shared mode');
SELECT throws_like($$ SELECT zk_lock_shared('pgtap.b') $$, '%"pgtap.b"%', '... and the error names the lock');
SET LOCAL zklock.node_names = curator;

-- no ensemble
SET LOCAL zklock.connect_timeout = '100ms';
CREATE FUNCTION pg_temp.nowhere(statement text) RETURNS text LANGUAGE plpgsql
	SET zklock.connect_string = '127.0.0.1:1' AS $$ BEGIN EXECUTE statement; RETURN ''; END $$;
SELECT throws_ok($$ SELECT pg_temp.nowhere('SELECT zk_lock(1)') $$, '08001', NULL, 'an unreachable ensemble is an error');
SELECT throws_like($$ SELECT pg_temp.nowhere('SELECT zk_lock(1)') $$, '%"#1"%', '... and the error names the lock');
SET LOCAL zklock.connect_timeout = '10s';

-- NULL is refused by every function in every form
SELECT throws_ok(format('SELECT %s(%s)', f, k), '22004', NULL, format('%s(%s): NULL is an error', f, k))
FROM unnest('{zk_lock,zk_lock_shared,zk_xact_lock,zk_xact_lock_shared,zk_try_lock,zk_try_lock_shared,
	zk_try_xact_lock,zk_try_xact_lock_shared,zk_unlock,zk_unlock_shared,zk_lock_token}'::text[]) AS f,
	unnest('{NULL::text,NULL::bigint,"NULL::integer, 1","1, NULL::integer",NULL::text[],"ARRAY[''pgtap.a'', NULL]"}'::text[]) AS k;
SELECT throws_ok(format('SELECT %s(%L, wait => NULL)', f, 'pgtap.a'), '22004', NULL, f || ': a timeout of NULL is an error')
FROM unnest('{zk_try_lock,zk_try_lock_shared,zk_try_xact_lock,zk_try_xact_lock_shared}'::text[]) AS f;

-- names
SELECT throws_ok(format('SELECT %s(%L::text)', f, ''), '22023', NULL, f || ': an empty name is an error')
FROM unnest('{zk_lock,zk_xact_lock_shared,zk_try_lock,zk_unlock,zk_lock_token}'::text[]) AS f;
SELECT throws_ok(format('SELECT %s(repeat(%L, 513))', f, 'x'), '22023', NULL, f || ': a name of 513 bytes is an error')
FROM unnest('{zk_lock,zk_xact_lock_shared,zk_try_lock,zk_unlock,zk_lock_token}'::text[]) AS f;
SELECT lives_ok($$ SELECT zk_xact_lock(repeat('x', 512)) $$, 'a name of 512 bytes is accepted');

-- timeouts
SELECT throws_ok(format('SELECT %s(%L, wait => %L)', f, 'pgtap.a', w), '22023', NULL, format('%s: a timeout of %s is an error', f, w))
FROM unnest('{zk_try_lock,zk_try_lock_shared,zk_try_xact_lock,zk_try_xact_lock_shared}'::text[]) AS f,
	unnest('{-1s,-1 microsecond,1 day -25 hours}'::text[]) AS w;
SELECT lives_ok($$ SELECT zk_try_xact_lock('pgtap.a', wait => '0') $$, 'a timeout of 0 is accepted');

SELECT * FROM finish();
ROLLBACK;
