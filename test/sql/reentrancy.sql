--
-- Requests of one session never conflict. They are counted for each name, mode and level:
-- n requests need n releases.
-- Covers properties 10, 11, 13 and 14.
--
-- Promise: 1.2
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate

-- n times, session level
SELECT bool_and(zk_lock('reentrancy.a') > 0) FROM generate_series(1, 3);
SELECT name, mode, level, hold_count FROM zk_held_locks;
SELECT zk_unlock('reentrancy.a');
SELECT zk_unlock('reentrancy.a');
SELECT name, hold_count FROM zk_held_locks;
SELECT zk_unlock('reentrancy.a');
SELECT count(*) FROM zk_held_locks;
SELECT zk_unlock('reentrancy.a');

-- non-blocking attempts are counted, too
SELECT zk_lock('reentrancy.a') > 0, zk_try_lock('reentrancy.a'), zk_try_lock('reentrancy.a', timeout => '1s');
SELECT name, hold_count FROM zk_held_locks;
SELECT zk_unlock('reentrancy.a'), zk_unlock('reentrancy.a'), zk_unlock('reentrancy.a');
SELECT count(*) FROM zk_held_locks;

-- shared
SELECT zk_lock_shared('reentrancy.a') = zk_lock_shared('reentrancy.a') AS same_token;
SELECT name, mode, hold_count FROM zk_held_locks;
SELECT zk_unlock_shared('reentrancy.a'), zk_unlock_shared('reentrancy.a');
SELECT zk_unlock_shared('reentrancy.a');

-- each mode has its own count
SELECT zk_lock('reentrancy.a') = zk_lock_shared('reentrancy.a') AS same_token;
SELECT zk_lock_shared('reentrancy.a') > 0 AS locked;
SELECT name, mode, level, hold_count FROM zk_held_locks ORDER BY mode;
-- pg_locks shows one lock for each mode
SELECT mode, granted, count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
GROUP BY mode, granted ORDER BY mode;
SELECT zk_unlock('reentrancy.a');
SELECT name, mode, level, hold_count FROM zk_held_locks ORDER BY mode;
SELECT zk_unlock('reentrancy.a');
SELECT zk_unlock_shared('reentrancy.a'), zk_unlock_shared('reentrancy.a');
SELECT count(*) FROM zk_held_locks;

-- each level has its own count
BEGIN;
SELECT zk_lock('reentrancy.a') = zk_xact_lock('reentrancy.a') AS same_token;
SELECT zk_xact_lock('reentrancy.a') > 0 AS locked;
SELECT name, mode, level, hold_count FROM zk_held_locks ORDER BY level;
SELECT mode, granted, count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
GROUP BY mode, granted ORDER BY mode;
SELECT zk_unlock('reentrancy.a');
SELECT zk_unlock('reentrancy.a');
SELECT name, mode, level, hold_count FROM zk_held_locks ORDER BY level;
COMMIT;
SELECT count(*) FROM zk_held_locks;

-- transaction level first, then session level: the session-level lock stays
BEGIN;
SELECT zk_xact_lock('reentrancy.a') = zk_lock('reentrancy.a') AS same_token;
COMMIT;
SELECT name, mode, level, hold_count FROM zk_held_locks ORDER BY level;
SELECT zk_unlock('reentrancy.a');
SELECT zk_unlock('reentrancy.a');

-- many requests
SELECT count(zk_lock('reentrancy.many')) FROM generate_series(1, 1000);
SELECT name, hold_count FROM zk_held_locks;
SELECT bool_and(zk_unlock('reentrancy.many')) FROM generate_series(1, 1000);
SELECT count(*) FROM zk_held_locks;
