--
-- An array can name more locks than a session can have.  That is refused before
-- any work is done for them, and a cancel reaches every loop over the names.
--
\set VERBOSITY sqlstate
CREATE TEMP TABLE many AS SELECT array_agg('many.' || i) AS names FROM generate_series(1, 300000) AS i;
-- no local lock was taken: the server's lock table has no room for them (53200)
SELECT zk_lock(names) FROM many;
SELECT zk_xact_lock_shared(names) FROM many;
SELECT zk_try_lock(names) FROM many;
SELECT zk_try_xact_lock(names, '1s') FROM many;
SET zklock.max_locks = 100000;
SELECT zk_lock(names) FROM many;
RESET zklock.max_locks;
-- no session was opened for it
SELECT state FROM zk_session();

-- names that are held already, and repetitions, do not count
SET zklock.max_locks = 3;
SELECT zk_lock(array_fill('many.1'::text, ARRAY[300000])) IS NOT NULL AS locked;
SELECT count(*), count(DISTINCT t) FROM unnest(zk_lock_token(array_fill('many.1'::text, ARRAY[300000]))) AS t;
SELECT zk_lock(ARRAY['many.1', 'many.2', 'many.3', 'many.1']) IS NOT NULL AS locked;
SELECT zk_lock(ARRAY['many.1', 'many.2', 'many.3', 'many.4']);
SELECT name, count FROM zk_held_locks ORDER BY name;
-- what counts is the limit of the session, while it holds something
SET zklock.max_locks = 1000;
SELECT zk_lock(ARRAY['many.4', 'many.5']);
SELECT zk_unlock(array_fill('many.1'::text, ARRAY[300000])) AS once;
SELECT name, count FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_all();
RESET zklock.max_locks;

-- none is held
SELECT count(t), count(*) FROM many, unnest(zk_lock_token(names)) AS t;

-- A cancel that is pending when the function begins ends it at the first name:
-- what stands behind it is not done.
SELECT pg_cancel_backend(pg_backend_pid()), zk_lock_token(ARRAY['a', 'b']), pg_advisory_lock(4711);
SELECT pg_cancel_backend(pg_backend_pid()), zk_unlock(ARRAY['a', 'b']), pg_advisory_lock(4711);
SELECT pg_cancel_backend(pg_backend_pid()), zk_lock(ARRAY['a', 'b']), pg_advisory_lock(4711);
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND pid = pg_backend_pid();
-- nothing is changed by an error behind names that could be released
SELECT zk_lock(ARRAY['a', 'b']) IS NOT NULL AS locked;
SELECT zk_unlock(ARRAY['a', 'b', NULL]);
SELECT zk_unlock(ARRAY['a', 'b', '']);
SELECT zk_unlock(ARRAY['a', 'c', 'b']);
SELECT name, count FROM zk_held_locks ORDER BY name;
SELECT zk_unlock(ARRAY['a', 'b', 'a']);
SELECT count(*) FROM zk_held_locks;
