--
-- statement_timeout ends a wait for an unreachable ensemble, long before connect_timeout;
-- lock_timeout does not, because no lock is waited for. A lock call does not change the timers. Covers the part of properties
-- 20 and 21 that needs no other session.
--
\set VERBOSITY sqlstate
\c -reuse-previous=on "options='-c zklock.connect_string=127.0.0.1:1'"
SET zklock.connect_timeout = '60s';
SET statement_timeout = '200ms';
SELECT zk_lock('timeouts.a');
SELECT zk_try_lock('timeouts.a');
RESET statement_timeout;
SET zklock.connect_timeout = '400ms';
SET lock_timeout = '10ms';
SELECT zk_lock('timeouts.a');
RESET lock_timeout;
SELECT count(*) FROM zk_held_locks;
\c -reuse-previous=on "options=''"
RESET zklock.connect_timeout;

-- without contention no timer fires during the call or after it
SET lock_timeout = '3s';
SET statement_timeout = '10s';
SELECT zk_lock('timeouts.a') > 0 AS locked, zk_try_lock('timeouts.b', timeout => '1s') AS tried;
SELECT pg_sleep(3.2) IS NOT NULL AS slept;
SHOW lock_timeout;
SHOW statement_timeout;
RESET statement_timeout;
SELECT zk_unlock_all();
