--
-- PREPARE TRANSACTION is refused if the transaction holds a transaction-level lock.
-- Session-level locks stay with the session. Needs max_prepared_transactions > 0.
-- Covers properties 32 (refused), 33 and 34.
--
\set VERBOSITY sqlstate
CREATE TABLE zklock_regress_prepared (a int);

-- a transaction-level lock
BEGIN;
INSERT INTO zklock_regress_prepared VALUES (1);
SELECT zk_xact_lock('prepare.a') > 0 AS locked;
PREPARE TRANSACTION 'zklock_regress';
SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'zklock_regress';
SELECT count(*) FROM zklock_regress_prepared;
SELECT count(*) FROM zk_held_locks;

-- a shared lock, and a lock inherited from a savepoint
BEGIN;
SAVEPOINT one;
SELECT zk_xact_lock_shared('prepare.a') > 0 AS locked;
RELEASE one;
PREPARE TRANSACTION 'zklock_regress';
SELECT count(*) FROM zk_held_locks;

-- a lock that was rolled back does not matter
BEGIN;
INSERT INTO zklock_regress_prepared VALUES (2);
SAVEPOINT one;
SELECT zk_xact_lock('prepare.a') > 0 AS locked;
ROLLBACK TO one;
PREPARE TRANSACTION 'zklock_regress';
SELECT count(*) FROM zk_held_locks;
COMMIT PREPARED 'zklock_regress';
SELECT * FROM zklock_regress_prepared;

-- both levels on one lock: the transaction is aborted, the session-level lock stays
SELECT zk_lock('prepare.a') > 0 AS locked;
BEGIN;
SELECT zk_xact_lock('prepare.a') > 0 AS locked;
PREPARE TRANSACTION 'zklock_regress';
SELECT name, scope, count, state FROM zk_held_locks;

-- session level only: allowed, acquired before or in the transaction, and the lock stays
BEGIN;
INSERT INTO zklock_regress_prepared VALUES (3);
SELECT zk_lock('prepare.b') > 0 AS locked;
PREPARE TRANSACTION 'zklock_regress';
SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'zklock_regress';
SELECT name, scope, count, state FROM zk_held_locks ORDER BY name;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT zk_unlock('prepare.a'), zk_unlock('prepare.b');
-- the lock can be released while the transaction is still prepared
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND (pid = pg_backend_pid() OR pid IS NULL);
SELECT zk_lock('prepare.b') > 0 AS locked;
ROLLBACK PREPARED 'zklock_regress';
SELECT name, scope, count, state FROM zk_held_locks;
SELECT zk_unlock_all();
SELECT * FROM zklock_regress_prepared;
DROP TABLE zklock_regress_prepared;
