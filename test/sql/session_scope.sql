--
-- Session-level locks are independent of transactions.
-- Covers properties 4, 5 and 28.
--
-- Promises: 3.2, 3.6
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate

-- acquired in a transaction that is rolled back: held
BEGIN;
SELECT zk_lock('session_scope.a') > 0 AS locked;
ROLLBACK;
SELECT name, mode, level, hold_count, state FROM zk_held_locks;

-- released in a transaction that is rolled back: released
BEGIN;
SELECT zk_unlock('session_scope.a');
ROLLBACK;
SELECT count(*) FROM zk_held_locks;

-- the same when an error ends the transaction
BEGIN;
SELECT zk_lock('session_scope.a') > 0 AS locked, zk_lock_shared('session_scope.s') > 0 AS shared;
SELECT 1 / 0;
-- before ROLLBACK no statement is accepted
SELECT zk_unlock('session_scope.a');
SELECT count(*) FROM zk_held_locks;
ROLLBACK;
SELECT name, mode, level, hold_count, state FROM zk_held_locks ORDER BY name;
SELECT zk_unlock('session_scope.a'), zk_unlock_shared('session_scope.s');

-- the same when the statement itself fails after acquiring the lock
SELECT zk_lock('session_scope.a') / 0;
SELECT name, mode, level, hold_count, state FROM zk_held_locks;
SELECT zk_unlock('session_scope.a');

-- session-level locks are independent of savepoints
BEGIN;
SAVEPOINT one;
SELECT zk_lock('session_scope.a') > 0 AS locked;
ROLLBACK TO one;
SELECT zk_lock('session_scope.b') > 0 AS locked;
RELEASE one;
SELECT name FROM zk_held_locks ORDER BY name;
SAVEPOINT two;
SELECT zk_unlock('session_scope.a');
ROLLBACK TO two;
SELECT name FROM zk_held_locks ORDER BY name;
COMMIT;
SELECT name FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_all();

-- a failed block of PL/pgSQL does not release the lock
DO $$
BEGIN
	BEGIN
		PERFORM zk_lock('session_scope.a');
		RAISE EXCEPTION 'no';
	EXCEPTION WHEN raise_exception THEN
		NULL;
	END;
END $$;
SELECT name, mode, level, hold_count, state FROM zk_held_locks;

-- the lock ends with the connection
\c
SELECT count(*) FROM zk_held_locks;
SELECT zk_lock('session_scope.a') > 0 AS locked;
SELECT zk_unlock_all();

\c -reuse-previous=on "options=''"
\set VERBOSITY default
--
-- DISCARD ALL releases session-level locks; other DISCARD commands do not.
-- Covers property 35.
--
\set VERBOSITY sqlstate
SELECT zk_lock('discard.a') > 0, zk_lock('discard.a') > 0, zk_lock_shared('discard.a') > 0,
       zk_lock_shared('discard.s') > 0, zk_lock('1') > 0;
DISCARD PLANS;
DISCARD SEQUENCES;
DISCARD TEMP;
RESET ALL;
DEALLOCATE ALL;
SELECT name, mode, hold_count FROM zk_held_locks ORDER BY name, mode;
DISCARD ALL;
SELECT count(*) FROM zk_held_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT zk_unlock('discard.a');

-- in a transaction DISCARD ALL is refused and releases nothing
BEGIN;
SELECT zk_lock('discard.a') > 0 AS locked;
DISCARD ALL;
ROLLBACK;
SELECT name FROM zk_held_locks;
-- without locks DISCARD ALL does nothing
DISCARD ALL;
DISCARD ALL;
SELECT count(*) FROM zk_held_locks;
-- the next lock succeeds
SELECT zk_lock('discard.a') > 0 AS locked;
DISCARD ALL;

\c -reuse-previous=on "options=''"
\set VERBOSITY default
--
-- zklock.session_locks = off: functions that acquire at session level fail with 55000 and a
-- hint. Functions that release, and functions of transaction level, succeed.
--
\set VERBOSITY sqlstate
CREATE EXTENSION zklock_advisory;
SELECT zk_lock('session_locks.before') > 0 AS locked, zk_lock('session_locks.one') > 0 AS one,
       zk_lock_shared('session_locks.shared') > 0 AS shared, zk_lock_many(ARRAY['session_locks.x', 'session_locks.y']) IS NOT NULL AS many,
       zk_lock_many_shared(ARRAY['session_locks.x', 'session_locks.y']) IS NOT NULL AS many_shared,
       zk_acquire_permit('session_locks.permit', 2) AS permit, zklock_advisory.pg_advisory_lock(1) AS advisory;
SET zklock.session_locks = off;

SELECT zk_lock('session_locks.a');
SELECT zk_lock_shared('session_locks.a');
SELECT zk_lock_many(ARRAY['session_locks.a']);
SELECT zk_lock_many_shared(ARRAY['session_locks.a']);
SELECT zk_try_lock('session_locks.a');
SELECT zk_try_lock_shared('session_locks.a', '1s');
SELECT zk_try_lock_many(ARRAY['session_locks.a']);
SELECT zk_try_lock_many_shared(ARRAY['session_locks.a']);
SELECT zk_unlock('session_locks.one'), zk_unlock_shared('session_locks.shared'), zk_unlock_many(ARRAY['session_locks.x', 'session_locks.y']),
       zk_unlock_many_shared(ARRAY['session_locks.x', 'session_locks.y']), zk_release_permit('session_locks.permit');
SELECT zk_acquire_permit('session_locks.a', 2);
SELECT zk_try_acquire_permit('session_locks.a', 2);
CALL zk_lock_wait('session_locks.a');
SELECT zklock_advisory.pg_advisory_lock(1);
SELECT zklock_advisory.pg_try_advisory_lock_shared(1, 2);
SELECT zklock_advisory.pg_advisory_unlock(1);
\set VERBOSITY default
SELECT zk_lock('session_locks.a');
SELECT name, hold_count FROM zk_held_locks;

-- transaction level
BEGIN;
SELECT zk_xact_lock('session_locks.a') > 0 AS lock, zk_try_xact_lock_shared('session_locks.s') AS try,
       zk_xact_lock_many(ARRAY['session_locks.b', 'session_locks.c']) IS NOT NULL AS names,
       zk_xact_acquire_permit('session_locks.p', 2) AS permit, zk_lock_token('session_locks.a') > 0 AS token;
SELECT zklock_advisory.pg_try_advisory_xact_lock(1);
SELECT count(*) FROM zk_held_locks WHERE level = 'transaction';
COMMIT;

-- a pooler's zk_unlock_all() releases what the session had before
SELECT zk_unlock_all();
SELECT count(*) FROM zk_held_locks;
RESET zklock.session_locks;
DROP EXTENSION zklock_advisory;
