--
-- When the server's lock table is full, a lock call fails with 53200, and changes nothing.
-- Covers property 36.
--
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate
SELECT zk_lock('full.before') > 0 AS locked;
SELECT pg_advisory_lock(i, 1) IS NULL FROM generate_series(1, 10000000) AS i OFFSET 10000000;
-- a few slots may have become free meanwhile
SELECT zk_lock('full.' || i) IS NULL FROM generate_series(1, 900) AS i OFFSET 1000;
SELECT zk_lock('full.one_more');
SELECT zk_try_lock('full.one_more');
SELECT zk_xact_lock('full.one_more');
SELECT zk_lock_many(ARRAY['full.one_more', 'full.two_more']);
SELECT count(*) FROM zk_held_locks WHERE name LIKE '%more';
-- the locks held before are still held
SELECT zk_lock('full.before') = zk_lock_token('full.before') AS held;
SELECT pg_advisory_unlock_all();
SELECT zk_lock('full.one_more') > 0 AS locked;
SELECT name, hold_count, state FROM zk_held_locks WHERE name IN ('full.before', 'full.one_more') ORDER BY name;
SELECT zk_unlock_all();
SELECT count(*) FROM zk_held_locks;

\c -reuse-previous=on "options=''"
\set VERBOSITY default
--
-- zklock.max_locks limits the nodes of a session. A call beyond the limit fails with 53400,
-- and changes nothing.
--
\set VERBOSITY sqlstate
\c -reuse-previous=on "options='-c zklock.max_locks=3'"
SELECT zk_lock('max_locks.1') > 0, zk_lock_shared('max_locks.2') > 0, zk_lock('3') > 0;
SELECT zk_lock('max_locks.4');
SELECT zk_xact_lock('max_locks.4');
SELECT zk_try_lock('max_locks.4');
-- re-entry and downgrade need no node of their own
SELECT zk_lock('max_locks.1') > 0 AS again, zk_lock_shared('max_locks.1') > 0 AS shared;
SELECT zk_unlock('max_locks.1'), zk_unlock('max_locks.1');
-- an upgrade needs a node
SELECT zk_lock('max_locks.2');
SELECT name, mode, hold_count, state FROM zk_held_locks ORDER BY name;
-- all or nothing: the first name alone would be within the limit
SELECT zk_unlock('3');
SELECT zk_lock_many(ARRAY['max_locks.3', 'max_locks.4']);
SELECT name FROM zk_held_locks ORDER BY name;
SELECT zk_lock('max_locks.3') > 0 AS fits;
SELECT zk_unlock_all();

\c -reuse-previous=on "options=''"
\set VERBOSITY default
--
-- An array can name more locks than a session may hold. The call is refused before it
-- locks any of them, and a cancel ends every loop over the names.
--
\set VERBOSITY sqlstate
CREATE TABLE many AS SELECT array_agg('many.' || i) AS names FROM generate_series(1, 300000) AS i;
-- no local lock was acquired: the server's lock table has no room for them (53200)
SELECT zk_lock_many(names) FROM many;
SELECT zk_xact_lock_many_shared(names) FROM many;
SELECT zk_try_lock_many(names) FROM many;
SELECT zk_try_xact_lock_many(names, '1s') FROM many;
\c -reuse-previous=on "options='-c zklock.max_locks=7143'"
SELECT zk_lock_many(names) FROM many;
\c -reuse-previous=on "options=''"
-- no ZooKeeper session was opened
SELECT state FROM zk_session();

-- names that are already held, and duplicates, do not count
\c -reuse-previous=on "options='-c zklock.max_locks=3'"
SELECT zk_lock_many(array_fill('many.1'::text, ARRAY[300000])) IS NOT NULL AS locked;
SELECT count(*), count(DISTINCT t) FROM unnest(zk_lock_many(array_fill('many.1'::text, ARRAY[300000]))) AS t;
SELECT zk_unlock('many.1');
SELECT zk_lock_many(ARRAY['many.1', 'many.2', 'many.3', 'many.1']) IS NOT NULL AS locked;
SELECT zk_lock_many(ARRAY['many.1', 'many.2', 'many.3', 'many.4']);
SELECT name, hold_count FROM zk_held_locks ORDER BY name;
SELECT array_length(zk_unlock_many(array_fill('many.1'::text, ARRAY[300000])), 1) AS once;
SELECT name, hold_count FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_all();
\c -reuse-previous=on "options=''"

-- no name is held
SELECT count(zk_lock_token(t)), count(*) FROM many, unnest(names) AS t;
DROP TABLE many;

-- A cancel that is pending when the function begins ends the call at the first name, and
-- the next function of the statement is not called.
SELECT pg_cancel_backend(pg_backend_pid()), zk_try_lock_many(ARRAY['a', 'b']), pg_advisory_lock(4711);
SELECT pg_cancel_backend(pg_backend_pid()), zk_unlock_many(ARRAY['a', 'b']), pg_advisory_lock(4711);
SELECT pg_cancel_backend(pg_backend_pid()), zk_lock_many(ARRAY['a', 'b']), pg_advisory_lock(4711);
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND pid = pg_backend_pid();
-- an error in a later name releases none of the names before it
SELECT zk_lock_many(ARRAY['a', 'b']) IS NOT NULL AS locked;
SELECT zk_unlock_many(ARRAY['a', 'b', NULL]);
SELECT zk_unlock_many(ARRAY['a', 'b', '']);
SELECT name, hold_count FROM zk_held_locks ORDER BY name;
-- each name has a result, and a duplicate counts once
SELECT zk_unlock_many(ARRAY['a', 'c', 'b']);
SELECT count(*) FROM zk_held_locks;
SELECT zk_lock_many(ARRAY['a', 'b']) IS NOT NULL AS locked;
SELECT zk_unlock_many(ARRAY['a', 'b', 'a']);
SELECT count(*) FROM zk_held_locks;
