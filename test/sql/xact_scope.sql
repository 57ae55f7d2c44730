--
-- Transaction-level locks end with the transaction, however it ends, and not before.
-- Covers properties 10, 11, 12 and 29.
--
-- Promise: 3.1
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate

-- commit, rollback, error
BEGIN;
SELECT zk_xact_lock('xact_scope.a') > 0 AS locked;
COMMIT;
SELECT count(*) FROM zk_held_locks;
BEGIN;
SELECT zk_xact_lock('xact_scope.a') > 0 AS locked;
ROLLBACK;
SELECT count(*) FROM zk_held_locks;
BEGIN;
SELECT zk_xact_lock('xact_scope.a') > 0 AS locked;
SELECT 1 / 0;
COMMIT;
SELECT count(*) FROM zk_held_locks;
SELECT zk_xact_lock('xact_scope.a') / 0;
SELECT count(*) FROM zk_held_locks;

-- an error at commit
CREATE TEMP TABLE late (a int UNIQUE DEFERRABLE INITIALLY DEFERRED);
BEGIN;
SELECT zk_xact_lock('xact_scope.a') > 0 AS locked, zk_lock('xact_scope.s') > 0 AS session;
INSERT INTO late VALUES (1), (1);
COMMIT;
SELECT name, level FROM zk_held_locks;
SELECT zk_unlock_all();

-- a deferred trigger still holds the lock, and can acquire others
CREATE FUNCTION pg_temp.at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_xact_lock('xact_scope.late');
	RAISE NOTICE 'at commit: %', (SELECT string_agg(name, ' ' ORDER BY name) FROM zk_held_locks);
	RETURN NULL;
END $$;
CREATE TEMP TABLE deferred (a int);
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION pg_temp.at_commit();
\set VERBOSITY terse
BEGIN;
SELECT zk_xact_lock('xact_scope.a') > 0 AS locked;
INSERT INTO deferred VALUES (1);
COMMIT;
\set VERBOSITY sqlstate
SELECT count(*) FROM zk_held_locks;

-- a transaction-level lock cannot be released before
BEGIN;
SELECT zk_xact_lock('xact_scope.a') > 0, zk_xact_lock_shared('xact_scope.s') > 0;
SELECT zk_unlock('xact_scope.a');
SELECT zk_unlock_shared('xact_scope.s');
SELECT zk_unlock_many(ARRAY['xact_scope.a']);
SELECT zk_unlock_all();
SELECT pg_advisory_unlock_all();
SELECT name, mode, level, hold_count, state FROM zk_held_locks ORDER BY name;
COMMIT;
SELECT count(*) FROM zk_held_locks;

-- zk_unlock_all() releases the session-level lock only
BEGIN;
SELECT zk_xact_lock('xact_scope.a') > 0 AS transaction, zk_lock('xact_scope.a') > 0 AS session,
       zk_lock('xact_scope.s') > 0 AS session2;
SELECT zk_unlock_all();
SELECT name, mode, level, hold_count, state FROM zk_held_locks ORDER BY name;
ROLLBACK;
SELECT count(*) FROM zk_held_locks;

-- COMMIT AND CHAIN starts a new transaction
BEGIN;
SELECT zk_xact_lock('xact_scope.a') > 0 AS locked;
COMMIT AND CHAIN;
SELECT count(*) FROM zk_held_locks;
SELECT zk_xact_lock('xact_scope.a') > 0 AS locked;
ROLLBACK AND CHAIN;
SELECT count(*) FROM zk_held_locks;
ROLLBACK;

-- a cursor WITH HOLD outlives the transaction, the lock does not
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT zk_xact_lock('xact_scope.a') > 0 AS locked;
COMMIT;
SELECT count(*) FROM zk_held_locks;
FETCH c;
CLOSE c;
