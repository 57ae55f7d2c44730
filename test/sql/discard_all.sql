--
-- DISCARD ALL releases session-level locks, other DISCARDs do not.
-- Covers property 35.
--
\set VERBOSITY sqlstate
SELECT zk_lock('discard.a') > 0, zk_lock('discard.a') > 0, zk_lock_shared('discard.a') > 0,
       zk_lock_shared('discard.s') > 0, zk_lock(1) > 0;
DISCARD PLANS;
DISCARD SEQUENCES;
DISCARD TEMP;
RESET ALL;
DEALLOCATE ALL;
SELECT name, mode, count FROM zk_held_locks ORDER BY name, mode;
DISCARD ALL;
SELECT count(*) FROM zk_held_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT zk_unlock('discard.a');

-- in a transaction it is refused and releases nothing
BEGIN;
SELECT zk_lock('discard.a') > 0 AS locked;
DISCARD ALL;
ROLLBACK;
SELECT name FROM zk_held_locks;
-- with nothing held it does nothing
DISCARD ALL;
DISCARD ALL;
SELECT count(*) FROM zk_held_locks;
-- the session to the ensemble may stay: the next lock works
SELECT zk_lock('discard.a') > 0 AS locked;
DISCARD ALL;
