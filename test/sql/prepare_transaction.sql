--
-- PREPARE TRANSACTION is refused with a transaction-level lock; session-level
-- locks stay with the session.  Needs max_prepared_transactions > 0.
-- Covers properties 32 (refused), 33 and 34.
--
\set VERBOSITY sqlstate
CREATE TABLE zklock_regress_prepared (a int);

-- transaction level
BEGIN;
INSERT INTO zklock_regress_prepared VALUES (1);
SELECT zk_xact_lock('prepare.a') > 0 AS locked;
PREPARE TRANSACTION 'zklock_regress';
SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'zklock_regress';
SELECT count(*) FROM zklock_regress_prepared;
SELECT count(*) FROM zk_held_locks;

-- shared is the same, and so is one inherited from a savepoint
BEGIN;
SAVEPOINT one;
SELECT zk_xact_lock_shared('prepare.a') > 0 AS locked;
RELEASE one;
PREPARE TRANSACTION 'zklock_regress';
SELECT count(*) FROM zk_held_locks;

-- one that was rolled back again is no hindrance
BEGIN;
INSERT INTO zklock_regress_prepared VALUES (2);
SAVEPOINT one;
SELECT zk_xact_lock('prepare.a') > 0 AS locked;
ROLLBACK TO one;
PREPARE TRANSACTION 'zklock_regress';
SELECT count(*) FROM zk_held_locks;
COMMIT PREPARED 'zklock_regress';
SELECT * FROM zklock_regress_prepared;

-- both levels on one lock: the transaction is gone, the session's share stays
SELECT zk_lock('prepare.a') > 0 AS locked;
BEGIN;
SELECT zk_xact_lock('prepare.a') > 0 AS locked;
PREPARE TRANSACTION 'zklock_regress';
SELECT name, scope, count, state FROM zk_held_locks;

-- session level only: allowed, taken before it or in it, and stays
BEGIN;
INSERT INTO zklock_regress_prepared VALUES (3);
SELECT zk_lock('prepare.b') > 0 AS locked;
PREPARE TRANSACTION 'zklock_regress';
SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'zklock_regress';
SELECT name, scope, count, state FROM zk_held_locks ORDER BY name;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT zk_unlock('prepare.a'), zk_unlock('prepare.b');
-- released although the transaction is still prepared
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND (pid = pg_backend_pid() OR pid IS NULL);
SELECT zk_lock('prepare.b') > 0 AS locked;
ROLLBACK PREPARED 'zklock_regress';
SELECT name, scope, count, state FROM zk_held_locks;
SELECT zk_unlock_all();
SELECT * FROM zklock_regress_prepared;
DROP TABLE zklock_regress_prepared;
