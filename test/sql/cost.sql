--
-- The planner evaluates other conditions before a function that locks: only the rows that
-- satisfy all of them are locked.
--
\pset format unaligned
\pset tuples_only on
CREATE TEMP TABLE cost_t AS SELECT i AS id, CASE i WHEN 7 THEN 'X' ELSE 'other' END AS name FROM generate_series(1, 20) AS i;
CREATE FUNCTION pg_temp.cost_is_x(name text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RETURN lower(name) = 'x'; END $$;

SELECT id FROM cost_t WHERE zk_try_lock(id::text) AND lower(name) = 'x';
SELECT name FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_all();
-- also conditions with a function of default cost
SELECT id FROM cost_t WHERE zk_try_lock_shared('cost.' || id) AND pg_temp.cost_is_x(name);
SELECT name FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_all();
-- several names, with a timeout, at transaction level
BEGIN;
SELECT id FROM cost_t WHERE zk_try_xact_lock('1,' || id) AND lower(name) = 'x';
SELECT id FROM cost_t WHERE zk_try_xact_lock('cost.' || id, '1s') AND lower(name) = 'x';
SELECT id FROM cost_t WHERE zk_xact_lock_many_shared(ARRAY['cost.a' || id]) IS NOT NULL AND lower(name) = 'x';
SELECT id FROM cost_t WHERE zk_try_xact_acquire_permit('cost.' || id, 2) AND lower(name) = 'x';
SELECT kind, name FROM zk_held_locks ORDER BY kind, name;
COMMIT;
-- a release
SELECT zk_lock(i::text) > 0 AS locked FROM generate_series(6, 8) AS i;
SELECT id FROM cost_t WHERE zk_unlock(id::text) AND lower(name) = 'x';
SELECT name FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_all();
