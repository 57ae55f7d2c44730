--
-- zklock.session_locks = off: functions of session level fail with 55000 and a hint, and
-- functions of transaction level succeed.
--
\set VERBOSITY sqlstate
CREATE EXTENSION zklock_advisory;
SELECT zk_lock('session_locks.before') > 0 AS locked;
SET zklock.session_locks = off;

SELECT zk_lock('session_locks.a');
SELECT zk_lock_shared('session_locks.a');
SELECT zk_lock_all(ARRAY['session_locks.a']);
SELECT zk_lock_all_shared(ARRAY['session_locks.a']);
SELECT zk_try_lock('session_locks.a');
SELECT zk_try_lock_shared('session_locks.a', '1s');
SELECT zk_try_lock_all(ARRAY['session_locks.a']);
SELECT zk_try_lock_all_shared(ARRAY['session_locks.a']);
SELECT zk_unlock('session_locks.before');
SELECT zk_unlock_shared('session_locks.before');
SELECT zk_unlock_all(ARRAY['session_locks.before']);
SELECT zk_unlock_all_shared(ARRAY['session_locks.before']);
SELECT zk_acquire('session_locks.a', 2);
SELECT zk_try_acquire('session_locks.a', 2);
SELECT zk_release('session_locks.a');
CALL zk_lock_wait('session_locks.a');
SELECT zklock_advisory.pg_advisory_lock(1);
SELECT zklock_advisory.pg_try_advisory_lock_shared(1, 2);
SELECT zklock_advisory.pg_advisory_unlock(1);
\set VERBOSITY default
SELECT zk_lock('session_locks.a');
SELECT name, count FROM zk_held_locks;

-- transaction level
BEGIN;
SELECT zk_xact_lock('session_locks.a') > 0 AS lock, zk_try_xact_lock_shared('session_locks.s') AS try,
       zk_xact_lock_all(ARRAY['session_locks.b', 'session_locks.c']) IS NOT NULL AS names,
       zk_xact_acquire('session_locks.p', 2) > 0 AS permit, zk_lock_token('session_locks.a') > 0 AS token;
SELECT zklock_advisory.pg_try_advisory_xact_lock(1);
SELECT count(*) FROM zk_held_locks WHERE scope = 'transaction';
COMMIT;

-- a pooler's zk_unlock_all() releases what the session had before
SELECT zk_unlock_all();
SELECT count(*) FROM zk_held_locks;
RESET zklock.session_locks;
DROP EXTENSION zklock_advisory;
