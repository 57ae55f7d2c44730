--
-- Several names at once: all or nothing, duplicates count once, tokens in the
-- order of the argument.
--
-- Promise: 1.2
\pset format unaligned
\pset tuples_only on

-- tokens are in the order of the argument, whatever the order of locking
SELECT zk_lock_many(ARRAY['arrays.z', 'arrays.a', 'arrays.m']) =
       ARRAY[zk_lock_token('arrays.z'), zk_lock_token('arrays.a'), zk_lock_token('arrays.m')] AS same;
SELECT zk_unlock_many(ARRAY['arrays.m', 'arrays.a', 'arrays.z']);
SELECT count(*) FROM zk_held_locks;

-- duplicates count once, and have one token
SELECT array_length(tokens, 1) AS n, tokens[1] = tokens[3] AS same
FROM zk_lock_many(ARRAY['arrays.a', 'arrays.b', 'arrays.a']) AS tokens;
SELECT name, hold_count FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_many(ARRAY['arrays.a', 'arrays.b', 'arrays.a']);
SELECT count(*) FROM zk_held_locks;
SELECT zk_try_lock_many_shared(ARRAY['arrays.a', 'arrays.a']);
SELECT name, mode, hold_count FROM zk_held_locks;
SELECT zk_unlock_shared('arrays.a');

-- an empty array succeeds in every function
SELECT zk_lock_many('{}'::text[]) = '{}' AS lock, zk_lock_many_shared('{}'::text[]) = '{}' AS lock_shared,
       zk_xact_lock_many('{}'::text[]) = '{}' AS xact_lock, zk_xact_lock_many_shared('{}'::text[]) = '{}' AS xact_lock_shared;
SELECT zk_try_lock_many('{}'::text[]) AS try, zk_try_lock_many_shared('{}'::text[]) AS try_shared,
       zk_try_xact_lock_many('{}'::text[]) AS try_xact, zk_try_xact_lock_many_shared('{}'::text[]) AS try_xact_shared;
SELECT zk_unlock_many('{}'::text[]) AS unlock, zk_unlock_many_shared('{}'::text[]) AS unlock_shared;
SELECT count(*) FROM zk_held_locks;

-- a name and an array with this name are the same lock
SELECT (zk_lock_many(ARRAY['arrays.one']))[1] = zk_lock('arrays.one') AS same;
SELECT name, hold_count FROM zk_held_locks;
SELECT zk_unlock('arrays.one'), zk_unlock_many(ARRAY['arrays.one']);

-- names already held are counted, the others are acquired
SELECT zk_lock('arrays.b') > 0 AS locked;
SELECT array_length(zk_lock_many(ARRAY['arrays.a', 'arrays.b', 'arrays.c']), 1);
SELECT name, hold_count FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_all();

-- some held shared, some not held: all become exclusive
SELECT zk_lock_shared('arrays.b') > 0 AS locked;
SELECT array_length(zk_lock_many(ARRAY['arrays.a', 'arrays.b']), 1);
SELECT name, mode, hold_count FROM zk_held_locks ORDER BY name, mode;
SELECT zk_unlock_all();

-- an invalid element: nothing is locked
\set VERBOSITY sqlstate
SELECT zk_lock_many(ARRAY['arrays.a', NULL]);
SELECT zk_lock_many(ARRAY['arrays.a', '']);
SELECT zk_lock_many(ARRAY['arrays.a', repeat('x', 513)]);
SELECT zk_try_lock_many(ARRAY['arrays.a', NULL]);
SELECT zk_unlock_many(ARRAY['arrays.a', NULL]);
SELECT count(*) FROM zk_held_locks;

-- transaction-level locks are released together
BEGIN;
SELECT array_length(zk_xact_lock_many(ARRAY['arrays.a', 'arrays.b']), 1);
SELECT name, level FROM zk_held_locks ORDER BY name;
ROLLBACK;
SELECT count(*) FROM zk_held_locks;

-- a hundred names at once
SELECT array_length(zk_lock_many(array_agg('arrays.' || i)), 1) FROM generate_series(1, 100) AS i;
SELECT count(*), count(DISTINCT name) FROM zk_held_locks;
SELECT cardinality(array_positions(zk_unlock_many(array_agg('arrays.' || i ORDER BY i DESC)), true)) AS released FROM generate_series(1, 100) AS i;
SELECT count(*) FROM zk_held_locks;
