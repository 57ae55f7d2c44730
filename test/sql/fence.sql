--
-- Fencing in one session: errors, tokens, the lock in pg_locks. Promise: 6.1; t/lock/fence has earlier and
-- later holders.
--
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate
CREATE TEMP VIEW fences AS SELECT mode, granted FROM pg_locks
	WHERE locktype = 'advisory' AND objsubid = 23110
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- not held: 55000; NULL and invalid names as for locks
SELECT zk_fence('fence.a');
SELECT zk_fence(NULL);
SELECT zk_fence('');

-- returns the token
SELECT zk_lock('fence.a') AS token \gset
SELECT zk_fence('fence.a') = :token AS same;
SELECT zk_fence('fence.a') = zk_fence('fence.a') AS again;
SELECT zk_unlock('fence.a');
SELECT zk_fence('fence.a');
-- a later hold has a greater token; also twice in one statement
SELECT zk_lock('fence.a') > :token AS later;
SELECT zk_fence('fence.a') > :token AS later;
DO $$ BEGIN PERFORM zk_fence('fence.a'), zk_unlock('fence.a'), zk_lock('fence.a'), zk_fence('fence.a'); END $$;

-- the fence holds a lock in pg_locks to the end of the transaction, not of the savepoint
SELECT * FROM fences;
BEGIN;
SAVEPOINT one;
SELECT zk_fence('fence.a') > 0 AS fenced;
ROLLBACK TO one;
SELECT * FROM fences;
COMMIT;
SELECT * FROM fences;
BEGIN;
DO $$
BEGIN
	PERFORM zk_fence('fence.a');
	RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
	RAISE NOTICE 'caught';
END $$;
SELECT * FROM fences;
SELECT zk_unlock('fence.a'), pg_advisory_unlock_all();
SELECT * FROM fences;
ROLLBACK;
SELECT * FROM fences;
-- with COMMIT in a procedure, or AND CHAIN, the next transaction has to fence again
SELECT zk_lock('fence.a') > 0 AS locked;
\set VERBOSITY terse
DO $$
BEGIN
	PERFORM zk_fence('fence.a');
	RAISE NOTICE 'locks: %', (SELECT count(*) FROM fences);
	COMMIT;
	RAISE NOTICE 'locks: %', (SELECT count(*) FROM fences);
END $$;
\set VERBOSITY sqlstate
BEGIN;
SELECT zk_fence('fence.a') > 0 AS fenced;
COMMIT AND CHAIN;
SELECT * FROM fences;
ROLLBACK;
SELECT zk_unlock_all();

-- the mode in which the lock is held at the time of the call; works in READ ONLY transactions,
-- and assigns no transaction ID
BEGIN READ ONLY;
SELECT zk_xact_lock_shared('fence.a') = zk_fence('fence.a') AS shared;
SELECT * FROM fences;
SELECT zk_xact_lock('fence.a') = zk_fence('fence.a') AS upgraded;
SELECT * FROM fences ORDER BY mode;
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT zk_lock('fence.a') = zk_lock_shared('fence.a') AS locked, zk_unlock('fence.a') AS downgraded;
BEGIN;
SELECT zk_fence('fence.a') > 0 AS downgraded;
SELECT * FROM fences;
COMMIT;
SELECT zk_unlock_all();

-- several names at once, and any name
BEGIN;
SELECT cardinality(zk_lock_many('{fence.a,fence.b,fence.c}'));
SELECT count(zk_fence(name)) FROM unnest('{fence.a,fence.b,fence.c}'::text[]) AS name;
SELECT mode, count(*) FROM fences GROUP BY mode;
COMMIT;
SELECT zk_lock('fence./%é') = zk_fence('fence./%é') AS special;
SELECT zk_lock(repeat('é', 256)) = zk_fence(repeat('é', 256)) AS longest;
SELECT zk_unlock_all();
-- a permit is not a lock
SELECT zk_acquire_permit('fence.a', 1);
SELECT zk_fence('fence.a');
SELECT zk_release_permit('fence.a');
-- hints name the lock as it was given
\set VERBOSITY default
SELECT zk_fence('fence.it''s');
\set VERBOSITY sqlstate

-- after PREPARE TRANSACTION the lock belongs to the prepared transaction
SELECT zk_lock('fence.a') > 0 AS locked;
BEGIN;
SELECT zk_fence('fence.a') > 0 AS fenced;
PREPARE TRANSACTION 'zklock_regress_fence';
SELECT * FROM fences;
SET lock_timeout = '10ms';
SELECT zk_fence('fence.a');
RESET lock_timeout;
COMMIT PREPARED 'zklock_regress_fence';
SELECT zk_fence('fence.a') > 0 AS fenced;

-- roles need EXECUTE, which PUBLIC has, and nothing else
SET client_min_messages = warning;
DROP ROLE IF EXISTS zklock_regress_fencer;
RESET client_min_messages;
CREATE ROLE zklock_regress_fencer;
SET ROLE zklock_regress_fencer;
SELECT zk_fence('fence.a') > 0 AS fenced;
RESET ROLE;
REVOKE EXECUTE ON FUNCTION zk_fence(text) FROM PUBLIC;
SET ROLE zklock_regress_fencer;
SELECT zk_fence('fence.a');
RESET ROLE;
GRANT EXECUTE ON FUNCTION zk_fence(text) TO PUBLIC;
DROP ROLE zklock_regress_fencer;

-- moved, dropped and created again in one session
BEGIN;
CREATE SCHEMA zklock_regress_other;
ALTER EXTENSION zklock SET SCHEMA zklock_regress_other;
SELECT zklock_regress_other.zk_fence('fence.a') > 0 AS fenced;
DROP EXTENSION zklock;
CREATE EXTENSION zklock SCHEMA zklock_regress_other;
SELECT zklock_regress_other.zk_fence('fence.a') > 0 AS fenced;
ROLLBACK;
SELECT zk_unlock_all();
