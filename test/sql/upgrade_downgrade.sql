--
-- Upgrade and downgrade in one session: the token stays.
-- Covers property 14.
--
-- Promises: 1.3, 1.4
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate
CREATE TEMP VIEW held AS SELECT name, mode, level, hold_count FROM zk_held_locks;

-- an upgrade, and a downgrade
SELECT zk_lock_shared('upgrade.a') AS token \gset
SELECT acquired_at AS since FROM zk_held_locks \gset
SELECT zk_lock('upgrade.a') = :token AS same_token;
SELECT bool_and(acquired_at = :'since') AS since_the_beginning FROM zk_held_locks;
SELECT * FROM held ORDER BY mode;
SELECT zk_unlock('upgrade.a');
SELECT * FROM held;
SELECT zk_lock_token('upgrade.a') = :token AS same_token;
SELECT zk_unlock_shared('upgrade.a');

-- an upgrade, then the shared lock is released first
SELECT zk_lock_shared('upgrade.a') AS token \gset
SELECT zk_lock('upgrade.a') = :token AS same_token;
SELECT zk_unlock_shared('upgrade.a');
SELECT * FROM held;
SELECT zk_lock_token('upgrade.a') = :token AS same_token;
SELECT zk_unlock('upgrade.a');
SELECT * FROM held;

-- a downgrade, and an upgrade
SELECT zk_lock('upgrade.a') AS token \gset
SELECT zk_lock_shared('upgrade.a') = :token AS same_token;
SELECT zk_unlock('upgrade.a');
SELECT * FROM held;
SELECT zk_lock_token('upgrade.a') = :token AS same_token;
SELECT zk_lock('upgrade.a') = :token AS same_token;
SELECT * FROM held ORDER BY mode;
SELECT zk_unlock_all();
SELECT * FROM held;

-- by non-blocking attempts
SELECT zk_try_lock_shared('upgrade.a'), zk_try_lock('upgrade.a'), zk_try_lock_shared('upgrade.a');
SELECT * FROM held ORDER BY mode;
SELECT zk_unlock_all();

-- many upgrades and downgrades
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

-- across levels: the session holds it shared, the transaction exclusive
SELECT zk_lock_shared('upgrade.a') AS token \gset
BEGIN;
SELECT zk_xact_lock('upgrade.a') = :token AS same_token;
SELECT * FROM held ORDER BY mode;
COMMIT;
SELECT * FROM held;
SELECT zk_lock_token('upgrade.a') = :token AS same_token;
SELECT mode FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT zk_unlock_shared('upgrade.a');

-- across levels: the session holds it exclusive, the transaction shared, which stays
BEGIN;
SELECT zk_lock('upgrade.a') = zk_xact_lock_shared('upgrade.a') AS same_token;
SELECT zk_unlock('upgrade.a');
SELECT * FROM held;
COMMIT;
SELECT * FROM held;

-- an exclusive request after the release of the shared lock is a new lock
SELECT zk_lock_shared('upgrade.a') AS token \gset
SELECT zk_unlock_shared('upgrade.a');
SELECT zk_lock('upgrade.a') > :token AS new_token;
SELECT zk_unlock('upgrade.a');
