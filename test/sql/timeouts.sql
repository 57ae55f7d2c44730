--
-- statement_timeout ends a wait for an unreachable ensemble, long before ensemble_timeout;
-- lock_timeout does not, because no lock is waited for. A lock call does not change the timers. Covers the part of properties
-- 20 and 21 that needs no other session.
--
-- Promise: 4.1
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate
\c -reuse-previous=on "options='-c zklock.connect_string=127.0.0.1:1'"
SET zklock.ensemble_timeout = '60s';
SET statement_timeout = '200ms';
SELECT zk_lock('timeouts.a');
SELECT zk_try_lock('timeouts.a');
RESET statement_timeout;
SET zklock.ensemble_timeout = '400ms';
SET lock_timeout = '10ms';
SELECT zk_lock('timeouts.a');
RESET lock_timeout;
SELECT count(*) FROM zk_held_locks;
\c -reuse-previous=on "options=''"
RESET zklock.ensemble_timeout;

-- without contention no timer fires during the call or after it
SET lock_timeout = '3s';
SET statement_timeout = '10s';
SELECT zk_lock('timeouts.a') > 0 AS locked, zk_try_lock('timeouts.b', timeout => '1s') AS tried;
SELECT pg_sleep(3.2) IS NOT NULL AS slept;
SHOW lock_timeout;
SHOW statement_timeout;
RESET statement_timeout;
SELECT zk_unlock_all();

\c -reuse-previous=on "options=''"
\set VERBOSITY default
--
-- The ways to write the timeout of an attempt.
--
\set VERBOSITY sqlstate
-- as a named argument, or with its type
SELECT zk_try_lock('try_wait.a', timeout => '1s') AS name,
       zk_try_lock_many(ARRAY['try_wait.b'], timeout => '1s') AS names;
SELECT zk_try_lock('try_wait.a', interval '1s') AS name,
       zk_try_lock_many(ARRAY['try_wait.b'], interval '1s') AS names;
-- with three arguments, or with a typed name
SELECT zk_try_lock('try_wait.a'::text, '1s') AS name,
       zk_try_lock_many(ARRAY['try_wait.b'], '1s') AS names;
-- two untyped literals are a name and a timeout
SELECT zk_try_lock('try_wait.a', '1s');
SELECT zk_try_lock_shared('try_wait.a', '1s');
SELECT zk_try_xact_lock('try_wait.a', '1s');
SELECT zk_try_xact_lock_shared('try_wait.a', '1s');
SELECT zk_unlock_all();

-- the shortest and the longest timeouts
SELECT zk_try_lock('try_wait.a', timeout => '0') AS zero, zk_try_lock('try_wait.b', timeout => '1 microsecond') AS least,
       zk_try_lock('try_wait.c', timeout => '178000000 years') AS most,
       zk_try_lock('try_wait.d', timeout => '1 month -29 days') AS a_day;
SELECT zk_unlock_all();
SELECT count(*) FROM zk_held_locks;
