--
-- Every function for one name and for several, without other sessions.
-- Covers properties 13, 29 and 41.
--
-- Promise: 1.2
\pset format unaligned
\pset tuples_only on

-- waiting functions, session level: a token, held, released
SELECT zk_lock('basic.name') > 0 AS name,
       zk_lock_many(ARRAY['basic.a', 'basic.b']) IS NOT NULL AS names;
SELECT kind, name, mode, level, hold_count, state FROM zk_held_locks ORDER BY name;
SELECT zk_unlock('basic.name') AS name,
       zk_unlock_many(ARRAY['basic.a', 'basic.b']) AS names;
SELECT count(*) FROM zk_held_locks;

SELECT zk_lock_shared('basic.name') > 0 AS name,
       zk_lock_many_shared(ARRAY['basic.a', 'basic.b']) IS NOT NULL AS names;
SELECT kind, name, mode, level, hold_count, state FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_shared('basic.name') AS name,
       zk_unlock_many_shared(ARRAY['basic.a', 'basic.b']) AS names;
SELECT count(*) FROM zk_held_locks;

-- attempts, session level
SELECT zk_try_lock('basic.name') AS name,
       zk_try_lock_many(ARRAY['basic.a', 'basic.b']) AS names;
SELECT kind, name, mode, level, hold_count, state FROM zk_held_locks ORDER BY name;
SELECT zk_unlock('basic.name') AS name,
       zk_unlock_many(ARRAY['basic.a', 'basic.b']) AS names;

SELECT zk_try_lock_shared('basic.name') AS name,
       zk_try_lock_many_shared(ARRAY['basic.a', 'basic.b']) AS names;
SELECT kind, name, mode, level, hold_count, state FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_shared('basic.name') AS name,
       zk_unlock_many_shared(ARRAY['basic.a', 'basic.b']) AS names;
SELECT count(*) FROM zk_held_locks;

-- waiting functions, transaction level
BEGIN;
SELECT zk_xact_lock('basic.name') > 0 AS name,
       zk_xact_lock_many(ARRAY['basic.a', 'basic.b']) IS NOT NULL AS names;
SELECT kind, name, mode, level, hold_count, state FROM zk_held_locks ORDER BY name;
COMMIT;
SELECT count(*) FROM zk_held_locks;
BEGIN;
SELECT zk_xact_lock_shared('basic.name') > 0 AS name,
       zk_xact_lock_many_shared(ARRAY['basic.a', 'basic.b']) IS NOT NULL AS names;
SELECT kind, name, mode, level, hold_count, state FROM zk_held_locks ORDER BY name;
COMMIT;
SELECT count(*) FROM zk_held_locks;

-- attempts, transaction level
BEGIN;
SELECT zk_try_xact_lock('basic.name') AS name,
       zk_try_xact_lock_many(ARRAY['basic.a', 'basic.b']) AS names;
SELECT kind, name, mode, level, hold_count, state FROM zk_held_locks ORDER BY name;
COMMIT;
SELECT count(*) FROM zk_held_locks;
BEGIN;
SELECT zk_try_xact_lock_shared('basic.name') AS name,
       zk_try_xact_lock_many_shared(ARRAY['basic.a', 'basic.b']) AS names;
SELECT kind, name, mode, level, hold_count, state FROM zk_held_locks ORDER BY name;
COMMIT;
SELECT count(*) FROM zk_held_locks;

-- zk_lock_token: the token while the lock is held, null before and after
SELECT zk_lock_token('basic.name') AS name,
       zk_lock_token('basic.a') AS a;
SELECT zk_lock('basic.name') = zk_lock_token('basic.name') AS name,
       zk_lock_many(ARRAY['basic.a', 'basic.b']) = ARRAY[zk_lock_token('basic.a'), zk_lock_token('basic.b')] AS names;

-- zk_unlock_all
SELECT zk_unlock_all();
SELECT count(*) FROM zk_held_locks;
SELECT zk_lock_token('basic.name') AS name,
       zk_lock_token('basic.a') AS a;

-- without a transaction block, a transaction-level lock ends with the statement
SELECT zk_xact_lock('basic.statement') > 0 AS locked,
       (SELECT count(*) FROM zk_held_locks) <= 1 AS sane;
SELECT count(*) FROM zk_held_locks;

-- one call for each row, and only for the rows of an inner LIMIT
SELECT count(zk_lock(id::text)) FROM
  (SELECT id FROM generate_series(1, 10) AS id WHERE id > 4 ORDER BY id LIMIT 3) AS picked;
SELECT name FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_all();
