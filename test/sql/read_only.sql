--
-- READ ONLY transactions can lock at both levels.
-- Covers property 31.
--
BEGIN TRANSACTION READ ONLY;
SELECT zk_lock('read_only.s') > 0, zk_lock_shared('read_only.ss') > 0,
       zk_xact_lock('read_only.x') > 0, zk_xact_lock_shared('read_only.xs') > 0;
SELECT zk_try_lock('read_only.s', timeout => '1s'), zk_try_lock_shared('read_only.ss'),
       zk_try_xact_lock('read_only.x', timeout => '1s'), zk_try_xact_lock_shared('read_only.xs');
SELECT name, scope, mode, count FROM zk_held_locks ORDER BY name;
SELECT zk_unlock('read_only.s'), zk_unlock_shared('read_only.ss');
SAVEPOINT one;
SELECT zk_xact_lock('read_only.y') > 0 AS locked;
ROLLBACK TO one;
COMMIT;
SELECT name, scope, mode, count FROM zk_held_locks ORDER BY name;
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
SELECT zk_xact_acquire('read_only.p', 2) > 0 AS acquired, zk_try_acquire('read_only.p', 2) AS session;
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT zk_release('read_only.p');
-- no wait: no warning about a stale snapshot
BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ;
SELECT 1 AS snapshot;
SELECT zk_xact_lock('read_only.x') > 0 AS locked;
SELECT zk_xact_lock('read_only.x') > 0 AS again;
SELECT zk_try_xact_lock('read_only.y', timeout => '1s') AS tried;
COMMIT;
