--
-- Semaphores in one session.
--
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate
CREATE TEMP VIEW held AS SELECT kind, name, mode, level, hold_count, state FROM zk_held_locks;

-- session level: each call acquires another permit
SELECT zk_acquire_permit('semaphores.a', 3);
SELECT zk_acquire_permit('semaphores.a', 3);
SELECT * FROM held;
SELECT zk_try_acquire_permit('semaphores.a', 3);
SELECT * FROM held;
-- this session holds all permits; the shortest time to wait is a millisecond
SELECT zk_try_acquire_permit('semaphores.a', 3);
SELECT zk_try_acquire_permit('semaphores.a', 3, '1 microsecond');
SELECT zk_acquire_permit('semaphores.a', 3);
SELECT zk_xact_acquire_permit('semaphores.a', 3);
SELECT * FROM held;
-- each release releases one permit
SELECT zk_release_permit('semaphores.a');
SELECT * FROM held;
SELECT zk_try_acquire_permit('semaphores.a', 3, '10s');
SELECT zk_release_permit('semaphores.a'), zk_release_permit('semaphores.a'), zk_release_permit('semaphores.a');
SELECT * FROM held;
SELECT zk_release_permit('semaphores.a');

-- the token of several permits is that of the oldest
SELECT zk_acquire_permit('semaphores.two', 2);
SELECT token AS first FROM zk_held_locks \gset
SELECT zk_acquire_permit('semaphores.two', 2);
SELECT max(token) > :first AS greater FROM zk_locks_of('semaphores.two');
SELECT token = :first AS of_the_oldest FROM zk_held_locks;
-- a release releases the permit that was acquired last
SELECT zk_release_permit('semaphores.two');
SELECT hold_count, token = :first AS of_the_oldest FROM zk_held_locks;
SELECT zk_unlock_all();
SELECT * FROM held;

-- capacity 1: a mutex that is not re-entrant
SELECT zk_acquire_permit('semaphores.mutex', 1);
SELECT zk_try_acquire_permit('semaphores.mutex', 1);
SELECT zk_acquire_permit('semaphores.mutex', 1);
SELECT zk_release_permit('semaphores.mutex');
SELECT zk_try_acquire_permit('semaphores.mutex', 1, '10s');
SELECT zk_release_permit('semaphores.mutex');

-- a semaphore and a lock of the same name are independent
SELECT zk_lock('semaphores.a') > 0 AS locked;
SELECT zk_acquire_permit('semaphores.a', 3);
SELECT * FROM held ORDER BY kind;
SELECT zk_unlock('semaphores.a');
SELECT zk_unlock('semaphores.a');
SELECT zk_lock_token('semaphores.a') IS NULL AS none;
SELECT * FROM held;
SELECT zk_release_permit('semaphores.a');
SELECT zk_lock('semaphores.a') > 0 AS locked;
SELECT zk_release_permit('semaphores.a');
SELECT zk_unlock_all();

-- another capacity
SELECT zk_acquire_permit('semaphores.size', 3);
SELECT zk_acquire_permit('semaphores.size', 4);
SELECT zk_try_acquire_permit('semaphores.size', 2);
\set VERBOSITY default
SELECT zk_try_acquire_permit('semaphores.size', 1);
SELECT zk_release_permit('semaphores.size');
SELECT zk_acquire_permit('semaphores.size', 4);
\set VERBOSITY sqlstate
SELECT * FROM held;

-- transaction level
BEGIN;
SELECT zk_xact_acquire_permit('semaphores.a', 3);
SELECT zk_try_xact_acquire_permit('semaphores.a', 3);
SELECT zk_acquire_permit('semaphores.a', 3);
SELECT * FROM held ORDER BY level;
-- a transaction-level permit cannot be released before
SELECT zk_release_permit('semaphores.a');
SELECT zk_release_permit('semaphores.a');
SELECT zk_acquire_permit('semaphores.a', 3);
COMMIT;
SELECT * FROM held;
BEGIN;
SELECT zk_xact_acquire_permit('semaphores.a', 3);
ROLLBACK;
SELECT * FROM held;
SELECT zk_release_permit('semaphores.a');

-- a session-level permit survives ROLLBACK, and ROLLBACK does not undo its release
BEGIN;
SELECT zk_acquire_permit('semaphores.a', 3);
ROLLBACK;
SELECT * FROM held;
BEGIN;
SELECT zk_release_permit('semaphores.a');
ROLLBACK;
SELECT * FROM held;

-- savepoints
BEGIN;
SELECT zk_xact_acquire_permit('semaphores.a', 3);
SAVEPOINT one;
SELECT zk_xact_acquire_permit('semaphores.a', 3);
SAVEPOINT two;
SELECT zk_xact_acquire_permit('semaphores.a', 3);
SELECT * FROM held;
ROLLBACK TO two;
SELECT * FROM held;
RELEASE two;
ROLLBACK TO one;
SELECT * FROM held;
SELECT zk_xact_acquire_permit('semaphores.a', 3);
RELEASE one;
SELECT * FROM held;
COMMIT;
SELECT * FROM held;

-- a failed block
DO $$
BEGIN
	PERFORM zk_xact_acquire_permit('semaphores.a', 2 + 1);
	BEGIN
		PERFORM zk_xact_acquire_permit('semaphores.a', 3);
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		PERFORM set_config('semaphores.held', hold_count::text, false) FROM held;
	END;
END $$;
SELECT current_setting('semaphores.held') AS after_the_block;
SELECT * FROM held;

-- DISCARD ALL releases permits
SELECT zk_acquire_permit('semaphores.a', 3);
DISCARD ALL;
CREATE TEMP VIEW held AS SELECT kind, name, mode, level, hold_count, state FROM zk_held_locks;
SELECT * FROM held;

-- PREPARE TRANSACTION
BEGIN;
SELECT zk_xact_acquire_permit('semaphores.a', 3);
PREPARE TRANSACTION 'semaphores';
SELECT * FROM held;

-- bad arguments
SELECT zk_acquire_permit(NULL, 1);
SELECT zk_acquire_permit('semaphores.a', NULL);
SELECT zk_try_acquire_permit('semaphores.a', 1, NULL);
SELECT zk_try_acquire_permit(NULL, 1, '1s');
SELECT zk_release_permit(NULL);
SELECT zk_acquire_permit('', 1);
SELECT zk_acquire_permit(repeat('x', 513), 1);
SELECT zk_acquire_permit('semaphores.a', 0);
SELECT zk_xact_acquire_permit('semaphores.a', -1);
SELECT zk_try_acquire_permit('semaphores.a', 10001);
SELECT zk_try_xact_acquire_permit('semaphores.a', 2147483647);
SELECT zk_try_acquire_permit('semaphores.a', 1, '-1s');
SELECT * FROM held;
-- the largest capacity, and names as for locks
SELECT zk_acquire_permit('semaphores.large', 10000);
SELECT zk_acquire_permit('semaphores/ size %-__lock__', 1);
SELECT zk_acquire_permit('semaphores/ size %', 1);
SELECT zk_acquire_permit('..', 1);
SELECT name FROM held ORDER BY name COLLATE "C";
SELECT zk_unlock_all();

-- each permit needs a node
\c -reuse-previous=on "options='-c zklock.max_locks=2'"
SELECT zk_acquire_permit('semaphores.max', 5);
SELECT zk_acquire_permit('semaphores.max', 5);
SELECT zk_acquire_permit('semaphores.max', 5);
SELECT zk_release_permit('semaphores.max');
SELECT zk_acquire_permit('semaphores.max', 5);
SELECT zk_unlock_all();
\c -reuse-previous=on "options=''"
