--
-- From shared to exclusive and back, in one session: the token stays.
-- Covers property 14.
--
\set VERBOSITY sqlstate
CREATE TEMP VIEW held AS SELECT name, mode, scope, count FROM zk_held_locks;

-- upgrade, and back
SELECT zk_lock_shared('upgrade.a') AS token \gset
SELECT acquired_at AS since FROM zk_held_locks \gset
SELECT zk_lock('upgrade.a') = :token AS same_token;
SELECT bool_and(acquired_at = :'since') AS since_the_beginning FROM zk_held_locks;
SELECT * FROM held ORDER BY mode;
SELECT zk_unlock('upgrade.a');
SELECT * FROM held;
SELECT zk_lock_token('upgrade.a') = :token AS same_token;
SELECT zk_unlock_shared('upgrade.a');

-- upgrade, then give up the shared hold first
SELECT zk_lock_shared('upgrade.a') AS token \gset
SELECT zk_lock('upgrade.a') = :token AS same_token;
SELECT zk_unlock_shared('upgrade.a');
SELECT * FROM held;
SELECT zk_lock_token('upgrade.a') = :token AS same_token;
SELECT zk_unlock('upgrade.a');
SELECT * FROM held;

-- downgrade, and up again
SELECT zk_lock('upgrade.a') AS token \gset
SELECT zk_lock_shared('upgrade.a') = :token AS same_token;
SELECT zk_unlock('upgrade.a');
SELECT * FROM held;
SELECT zk_lock_token('upgrade.a') = :token AS same_token;
SELECT zk_lock('upgrade.a') = :token AS same_token;
SELECT * FROM held ORDER BY mode;
SELECT zk_unlock_all();
SELECT * FROM held;

-- by trying
SELECT zk_try_lock_shared('upgrade.a'), zk_try_lock('upgrade.a'), zk_try_lock_shared('upgrade.a');
SELECT * FROM held ORDER BY mode;
SELECT zk_unlock_all();

-- up and down many times
DO $$
DECLARE
	token bigint := zk_lock_shared('upgrade.a');
BEGIN
	FOR i IN 1..20 LOOP
		ASSERT zk_lock('upgrade.a') = token;
		ASSERT zk_unlock('upgrade.a');
	END LOOP;
END $$;
SELECT * FROM held;
SELECT zk_unlock_all();

-- across levels: the session shares, the transaction is exclusive
SELECT zk_lock_shared('upgrade.a') AS token \gset
BEGIN;
SELECT zk_xact_lock('upgrade.a') = :token AS same_token;
SELECT * FROM held ORDER BY mode;
COMMIT;
SELECT * FROM held;
SELECT zk_lock_token('upgrade.a') = :token AS same_token;
SELECT mode FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT zk_unlock_shared('upgrade.a');

-- the session is exclusive, the transaction shares and keeps it
BEGIN;
SELECT zk_lock('upgrade.a') = zk_xact_lock_shared('upgrade.a') AS same_token;
SELECT zk_unlock('upgrade.a');
SELECT * FROM held;
COMMIT;
SELECT * FROM held;

-- an upgrade of what is gone in the meantime is a new lock
SELECT zk_lock_shared('upgrade.a') AS token \gset
SELECT zk_unlock_shared('upgrade.a');
SELECT zk_lock('upgrade.a') > :token AS new_token;
SELECT zk_unlock('upgrade.a');
