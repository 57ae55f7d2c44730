--
-- DISCARD ALL releases session-level locks; other DISCARD commands do not.
-- Covers property 35.
--
\set VERBOSITY sqlstate
SELECT zk_lock('discard.a') > 0, zk_lock('discard.a') > 0, zk_lock_shared('discard.a') > 0,
       zk_lock_shared('discard.s') > 0, zk_lock('1') > 0;
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

-- in a transaction DISCARD ALL is refused and releases nothing
BEGIN;
SELECT zk_lock('discard.a') > 0 AS locked;
DISCARD ALL;
ROLLBACK;
SELECT name FROM zk_held_locks;
-- without locks DISCARD ALL does nothing
DISCARD ALL;
DISCARD ALL;
SELECT count(*) FROM zk_held_locks;
-- the next lock succeeds
SELECT zk_lock('discard.a') > 0 AS locked;
DISCARD ALL;
