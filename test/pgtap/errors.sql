-- The SQLSTATE of each error that one session can provoke with the default settings.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS zklock;

BEGIN;
SELECT no_plan();

-- NULL is refused by every function
SELECT throws_ok(format('SELECT %s(%s)', f, k), '22004', NULL, format('%s(%s): NULL is an error', f, k))
FROM unnest('{zk_lock,zk_lock_shared,zk_xact_lock,zk_xact_lock_shared,zk_try_lock,zk_try_lock_shared,
	zk_try_xact_lock,zk_try_xact_lock_shared,zk_unlock,zk_unlock_shared,zk_lock_token}'::text[]) AS f,
	unnest('{"NULL",NULL::text}'::text[]) AS k;
SELECT throws_ok(format('SELECT %s(%s)', f, k), '22004', NULL, format('%s(%s): NULL is an error', f, k))
FROM unnest('{zk_lock_many,zk_lock_many_shared,zk_xact_lock_many,zk_xact_lock_many_shared,zk_try_lock_many,zk_try_lock_many_shared,
	zk_try_xact_lock_many,zk_try_xact_lock_many_shared,zk_unlock_many,zk_unlock_many_shared}'::text[]) AS f,
	unnest('{"NULL","ARRAY[''pgtap.a'', NULL]"}'::text[]) AS k;
SELECT throws_ok(format('SELECT %s(%L, timeout => NULL)', f, 'pgtap.a'), '22004', NULL, f || ': a timeout of NULL is an error')
FROM unnest('{zk_try_lock,zk_try_lock_shared,zk_try_xact_lock,zk_try_xact_lock_shared}'::text[]) AS f;

-- names
SELECT throws_ok(format('SELECT %s(%L::text)', f, ''), '22023', NULL, f || ': an empty name is an error')
FROM unnest('{zk_lock,zk_xact_lock_shared,zk_try_lock,zk_unlock,zk_lock_token}'::text[]) AS f;
SELECT throws_ok(format('SELECT %s(repeat(%L, 513))', f, 'x'), '22023', NULL, f || ': a name of 513 bytes is an error')
FROM unnest('{zk_lock,zk_xact_lock_shared,zk_try_lock,zk_unlock,zk_lock_token}'::text[]) AS f;
SELECT lives_ok($$ SELECT zk_xact_lock(repeat('x', 512)) $$, 'a name of 512 bytes is accepted');

-- timeouts
SELECT throws_ok(format('SELECT %s(%L, timeout => %L)', f, 'pgtap.a', w), '22023', NULL, format('%s: a timeout of %s is an error', f, w))
FROM unnest('{zk_try_lock,zk_try_lock_shared,zk_try_xact_lock,zk_try_xact_lock_shared}'::text[]) AS f,
	unnest('{-1s,-1 microsecond,1 day -25 hours}'::text[]) AS w;
SELECT lives_ok($$ SELECT zk_try_xact_lock('pgtap.a', timeout => '0') $$, 'a timeout of 0 is accepted');

SELECT * FROM finish();
ROLLBACK;
