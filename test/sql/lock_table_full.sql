--
-- When the server's lock table is full, a lock call fails with 53200, and changes nothing.
-- Covers property 36.
--
\set VERBOSITY sqlstate
SELECT zk_lock('full.before') > 0 AS locked;
SELECT pg_advisory_lock(i, 1) IS NULL FROM generate_series(1, 10000000) AS i OFFSET 10000000;
-- a few slots may have become free meanwhile
SELECT zk_lock('full.' || i) IS NULL FROM generate_series(1, 900) AS i OFFSET 1000;
SELECT zk_lock('full.one_more');
SELECT zk_try_lock('full.one_more');
SELECT zk_xact_lock('full.one_more');
SELECT zk_lock_all(ARRAY['full.one_more', 'full.two_more']);
SELECT count(*) FROM zk_held_locks WHERE name LIKE '%more';
-- the locks held before are still held
SELECT zk_lock('full.before') = zk_lock_token('full.before') AS held;
SELECT pg_advisory_unlock_all();
SELECT zk_lock('full.one_more') > 0 AS locked;
SELECT name, count, state FROM zk_held_locks WHERE name IN ('full.before', 'full.one_more') ORDER BY name;
SELECT zk_unlock_all();
SELECT count(*) FROM zk_held_locks;
