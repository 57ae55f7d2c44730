--
-- Session-level locks are independent of transactions.
-- Covers properties 4, 5 and 28.
--
\set VERBOSITY sqlstate

-- acquired in a transaction that is rolled back: held
BEGIN;
SELECT zk_lock('session_scope.a') > 0 AS locked;
ROLLBACK;
SELECT name, mode, scope, count, state FROM zk_held_locks;

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
SELECT name, mode, scope, count, state FROM zk_held_locks ORDER BY name;
SELECT zk_unlock('session_scope.a'), zk_unlock_shared('session_scope.s');

-- the same when the statement itself fails after acquiring the lock
SELECT zk_lock('session_scope.a') / 0;
SELECT name, mode, scope, count, state FROM zk_held_locks;
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
SELECT name, mode, scope, count, state FROM zk_held_locks;

-- the lock ends with the connection
\c
SELECT count(*) FROM zk_held_locks;
SELECT zk_lock('session_scope.a') > 0 AS locked;
SELECT zk_unlock_all();
