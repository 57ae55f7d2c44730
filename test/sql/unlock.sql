--
-- Releasing a lock that is not held, held in the other mode, or only at transaction level,
-- gives a warning and returns false.
-- Covers properties 1, 2, 11 and 12.
--
-- Promise: 1.2
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate

-- never held
SELECT zk_unlock('unlock.a');
SELECT zk_unlock_many(ARRAY['unlock.a']);
SELECT zk_unlock_shared('unlock.a');
SELECT zk_unlock_many_shared(ARRAY['unlock.a']);

-- released already
SELECT zk_lock('unlock.a') > 0 AS locked;
SELECT zk_unlock('unlock.a');
SELECT zk_unlock('unlock.a');

-- held in the other mode: the lock stays
SELECT zk_lock_shared('unlock.a') > 0 AS locked;
SELECT zk_unlock('unlock.a');
SELECT name, mode, hold_count FROM zk_held_locks;
SELECT zk_unlock_shared('unlock.a');
SELECT zk_lock('unlock.a') > 0 AS locked;
SELECT zk_unlock_shared('unlock.a');
SELECT name, mode, hold_count FROM zk_held_locks;
SELECT zk_unlock('unlock.a');

-- another name: another lock
SELECT zk_lock('5') > 0 AS locked;
SELECT zk_unlock('#5');
SELECT zk_unlock('0,5');
SELECT zk_unlock('5');

-- several names: a result for each
SELECT zk_lock('unlock.a') > 0 AS locked;
SELECT zk_unlock_many(ARRAY['unlock.b', 'unlock.a']);
SELECT zk_unlock('unlock.a');


-- zk_unlock_all releases both modes, however often acquired; without locks it is no error
SELECT zk_lock('unlock.a') > 0, zk_lock('unlock.a') > 0, zk_lock_shared('unlock.a') > 0,
       zk_lock_shared('unlock.b') > 0, zk_lock('1,2') > 0, zk_lock('3') > 0;
SELECT zk_unlock_all();
SELECT count(*) FROM zk_held_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT zk_unlock_all();
SELECT zk_unlock('unlock.a');

-- PostgreSQL's own advisory locks are independent
SELECT zk_lock('7') > 0 AS locked, zk_lock('7,8') > 0 AS locked2;
SELECT pg_advisory_lock(7), pg_advisory_lock(7, 8);
SELECT pg_advisory_unlock(7), pg_advisory_unlock(7, 8);
SELECT name, hold_count FROM zk_held_locks ORDER BY name;
SELECT pg_advisory_lock(9);
SELECT zk_unlock_all();
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT pg_advisory_unlock(9);

-- pg_advisory_unlock_all() removes the local lock; the lock is still held, without a message
SELECT zk_lock('unlock.a') > 0 AS locked, zk_lock_shared('unlock.s') > 0 AS shared;
SELECT pg_advisory_unlock_all();
SELECT name, mode, hold_count, state FROM zk_held_locks ORDER BY name;
SELECT zk_lock('unlock.a') > 0 AS again, zk_lock_shared('unlock.a') > 0 AS other, zk_lock('unlock.s') > 0 AS upgrade;
SELECT name, mode, hold_count, state FROM zk_held_locks ORDER BY name, mode;
SELECT zk_unlock('unlock.a'), zk_unlock('unlock.a'), zk_unlock_shared('unlock.a'),
       zk_unlock('unlock.s'), zk_unlock_shared('unlock.s');
SELECT count(*) FROM zk_held_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
