--
-- The ways to write the timeout of an attempt.
--
\set VERBOSITY sqlstate
-- as a named argument, or with its type
SELECT zk_try_lock('try_wait.a', timeout => '1s') AS name,
       zk_try_lock_all(ARRAY['try_wait.b'], timeout => '1s') AS names;
SELECT zk_try_lock('try_wait.a', interval '1s') AS name,
       zk_try_lock_all(ARRAY['try_wait.b'], interval '1s') AS names;
-- with three arguments, or with a typed name
SELECT zk_try_lock('try_wait.a'::text, '1s') AS name,
       zk_try_lock_all(ARRAY['try_wait.b'], '1s') AS names;
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
