--
-- READ ONLY transactions can lock at both levels.
-- Covers property 31.
--
-- Promises: 3.6, 3.8
\pset format unaligned
\pset tuples_only on
BEGIN TRANSACTION READ ONLY;
SELECT zk_lock('read_only.s') > 0, zk_lock_shared('read_only.ss') > 0,
       zk_xact_lock('read_only.x') > 0, zk_xact_lock_shared('read_only.xs') > 0;
SELECT zk_try_lock('read_only.s', timeout => '1s'), zk_try_lock_shared('read_only.ss'),
       zk_try_xact_lock('read_only.x', timeout => '1s'), zk_try_xact_lock_shared('read_only.xs');
SELECT name, level, mode, hold_count FROM zk_held_locks ORDER BY name;
SELECT zk_unlock('read_only.s'), zk_unlock_shared('read_only.ss');
SAVEPOINT one;
SELECT zk_xact_lock('read_only.y') > 0 AS locked;
ROLLBACK TO one;
COMMIT;
SELECT name, level, mode, hold_count FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_all();
BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE;
SELECT zk_xact_lock('read_only.x') > 0 AS locked;
COMMIT;
-- a lock writes nothing: no transaction id is assigned
BEGIN;
SELECT zk_xact_lock('read_only.x') > 0 AS locked, zk_lock('read_only.s') > 0 AS session;
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT zk_unlock_all();
-- a permit writes nothing, either
BEGIN TRANSACTION READ ONLY;
SELECT zk_xact_acquire_permit('read_only.p', 2) AS acquired, zk_try_acquire_permit('read_only.p', 2) AS session;
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT zk_release_permit('read_only.p');
-- no wait: no warning about a stale snapshot
BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ;
SELECT 1 AS snapshot;
SELECT zk_xact_lock('read_only.x') > 0 AS locked;
SELECT zk_xact_lock('read_only.x') > 0 AS again;
SELECT zk_try_xact_lock('read_only.y', timeout => '1s') AS tried;
COMMIT;

\c -reuse-previous=on "options=''"
\set VERBOSITY default
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
SELECT name, level, hold_count, state FROM zk_held_locks;

-- session level only: allowed, acquired before or in the transaction, and the lock stays
BEGIN;
INSERT INTO zklock_regress_prepared VALUES (3);
SELECT zk_lock('prepare.b') > 0 AS locked;
PREPARE TRANSACTION 'zklock_regress';
SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'zklock_regress';
SELECT name, level, hold_count, state FROM zk_held_locks ORDER BY name;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT zk_unlock('prepare.a'), zk_unlock('prepare.b');
-- the lock can be released while the transaction is still prepared
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND (pid = pg_backend_pid() OR pid IS NULL);
SELECT zk_lock('prepare.b') > 0 AS locked;
ROLLBACK PREPARED 'zklock_regress';
SELECT name, level, hold_count, state FROM zk_held_locks;
SELECT zk_unlock_all();
SELECT * FROM zklock_regress_prepared;
DROP TABLE zklock_regress_prepared;

\c -reuse-previous=on "options=''"
\set VERBOSITY default
--
-- COMMIT and ROLLBACK inside procedures and DO release transaction-level locks and keep
-- session-level locks.
-- Covers property 30.
--
\set VERBOSITY terse
CREATE FUNCTION pg_temp.held() RETURNS text LANGUAGE sql AS
	$$ SELECT coalesce(string_agg(name || ' ' || level, ', ' ORDER BY name), 'nothing') FROM zk_held_locks $$;

DO $$
BEGIN
	PERFORM zk_xact_lock('procedures.x'), zk_lock('procedures.s');
	RAISE NOTICE 'before commit: %', pg_temp.held();
	COMMIT;
	RAISE NOTICE 'after commit: %', pg_temp.held();
	PERFORM zk_xact_lock('procedures.y');
	ROLLBACK;
	RAISE NOTICE 'after rollback: %', pg_temp.held();
	PERFORM zk_xact_lock('procedures.z');
	RAISE NOTICE 'at the end: %', pg_temp.held();
END $$;
SELECT pg_temp.held();
SELECT zk_unlock_all();

CREATE PROCEDURE zklock_regress_loop(rounds int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..rounds LOOP
		PERFORM zk_xact_lock('procedures.loop');
		ASSERT (SELECT hold_count FROM zk_held_locks) = 1;
		IF i % 2 = 0 THEN COMMIT; ELSE ROLLBACK; END IF;
		ASSERT (SELECT count(*) FROM zk_held_locks) = 0;
	END LOOP;
END $$;
CALL zklock_regress_loop(20);
SELECT pg_temp.held();

-- tokens increase from round to round
DO $$
DECLARE
	last bigint := 0;
	token bigint;
BEGIN
	FOR i IN 1..5 LOOP
		token := zk_xact_lock('procedures.loop');
		ASSERT token > last;
		last := token;
		COMMIT;
	END LOOP;
END $$;

-- COMMIT AND CHAIN, and a failed block before the commit
DO $$
BEGIN
	PERFORM zk_xact_lock('procedures.x');
	BEGIN
		PERFORM zk_xact_lock('procedures.y');
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		RAISE NOTICE 'caught: %', pg_temp.held();
	END;
	COMMIT AND CHAIN;
	RAISE NOTICE 'after commit and chain: %', pg_temp.held();
END $$;

-- an error after an inner commit
DO $$
BEGIN
	PERFORM zk_lock('procedures.s');
	COMMIT;
	PERFORM zk_xact_lock('procedures.x');
	RAISE EXCEPTION 'the end';
END $$;
SELECT pg_temp.held();
SELECT zk_unlock_all();

DROP PROCEDURE zklock_regress_loop;
