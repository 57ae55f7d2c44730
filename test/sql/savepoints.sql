--
-- Transaction-level locks and savepoints: a lock acquired after a savepoint is released by
-- ROLLBACK TO, and inherited by RELEASE SAVEPOINT.
-- Covers properties 6, 7, 8 and 9.
--
-- Promise: 3.1
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate
CREATE TEMP VIEW held AS SELECT name, mode, level, hold_count FROM zk_held_locks;

-- ROLLBACK TO releases the locks acquired after the savepoint and keeps the others
BEGIN;
SELECT zk_xact_lock('savepoints.before') > 0 AS locked;
SAVEPOINT one;
SELECT zk_xact_lock('savepoints.after') > 0 AS locked, zk_xact_lock_shared('savepoints.shared') > 0 AS shared;
SELECT zk_lock('savepoints.session') > 0 AS session;
SELECT * FROM held ORDER BY name;
ROLLBACK TO one;
SELECT * FROM held ORDER BY name;
-- the savepoint still exists
SELECT zk_xact_lock('savepoints.after') > 0 AS locked;
ROLLBACK TO one;
SELECT * FROM held ORDER BY name;
COMMIT;
SELECT * FROM held ORDER BY name;
SELECT zk_unlock_all();

-- after an error
BEGIN;
SAVEPOINT one;
SELECT zk_xact_lock('savepoints.after') > 0 AS locked;
SELECT 1 / 0;
ROLLBACK TO one;
SELECT * FROM held;
COMMIT;

-- RELEASE SAVEPOINT: the lock is inherited
BEGIN;
SAVEPOINT one;
SELECT zk_xact_lock('savepoints.a') > 0 AS locked;
RELEASE one;
SELECT * FROM held;
COMMIT;
SELECT * FROM held;

-- RELEASE SAVEPOINT, then ROLLBACK TO the outer savepoint
BEGIN;
SAVEPOINT one;
SAVEPOINT two;
SELECT zk_xact_lock('savepoints.a') > 0 AS locked;
RELEASE two;
SELECT * FROM held;
ROLLBACK TO one;
SELECT * FROM held;
COMMIT;

-- a lock already held at the outer level stays there
BEGIN;
SELECT zk_xact_lock('savepoints.a') > 0 AS locked;
SAVEPOINT one;
SELECT zk_xact_lock('savepoints.a') > 0 AS locked;
SELECT * FROM held;
ROLLBACK TO one;
SELECT * FROM held;
SAVEPOINT two;
SELECT zk_xact_lock('savepoints.a') > 0 AS locked;
RELEASE two;
SELECT * FROM held;
ROLLBACK TO one;
SELECT * FROM held;
ROLLBACK;
SELECT * FROM held;

-- several levels at once: ROLLBACK TO the outer savepoint releases the inner locks, too
BEGIN;
SELECT zk_xact_lock('savepoints.0') > 0 AS locked;
SAVEPOINT one;
SELECT zk_xact_lock('savepoints.1') > 0 AS locked;
SAVEPOINT two;
SELECT zk_xact_lock('savepoints.2') > 0 AS locked, zk_xact_lock('savepoints.0') > 0 AS again;
SAVEPOINT three;
SELECT zk_xact_lock('savepoints.3') > 0 AS locked, zk_xact_lock('savepoints.1') > 0 AS again;
SELECT * FROM held ORDER BY name;
ROLLBACK TO two;
SELECT * FROM held ORDER BY name;
ROLLBACK TO one;
SELECT * FROM held ORDER BY name;
COMMIT;

-- releasing the outer savepoint keeps the inner locks
BEGIN;
SAVEPOINT one;
SAVEPOINT two;
SAVEPOINT three;
SELECT zk_xact_lock('savepoints.3') > 0 AS locked;
RELEASE one;
SELECT * FROM held;
COMMIT;
SELECT * FROM held;

-- savepoints with the same name
BEGIN;
SAVEPOINT s;
SELECT zk_xact_lock('savepoints.1') > 0 AS locked;
SAVEPOINT s;
SELECT zk_xact_lock('savepoints.2') > 0 AS locked;
ROLLBACK TO s;
SELECT * FROM held;
RELEASE s;
ROLLBACK TO s;
SELECT * FROM held;
COMMIT;

-- both levels: only the transaction-level lock is released
BEGIN;
SELECT zk_lock('savepoints.a') > 0 AS locked;
SAVEPOINT one;
SELECT zk_xact_lock('savepoints.a') > 0 AS locked;
ROLLBACK TO one;
SELECT * FROM held;
COMMIT;
SELECT zk_unlock('savepoints.a');

-- rolling back an upgrade leaves the shared lock
BEGIN;
SELECT zk_xact_lock_shared('savepoints.a') > 0 AS locked;
SAVEPOINT one;
SELECT zk_xact_lock('savepoints.a') > 0 AS locked;
SELECT * FROM held ORDER BY mode;
ROLLBACK TO one;
SELECT * FROM held;
SELECT mode FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
COMMIT;
SELECT * FROM held;

-- PL/pgSQL: a block that fails, and a block that succeeds
DO $$
BEGIN
	PERFORM zk_xact_lock('savepoints.outer');
	BEGIN
		PERFORM zk_xact_lock('savepoints.fails'), zk_lock('savepoints.session');
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		RAISE WARNING USING MESSAGE = 'failed', ERRCODE = '01000';
	END;
	BEGIN
		PERFORM zk_xact_lock('savepoints.works');
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	ASSERT (SELECT array_agg(name ORDER BY name) FROM zk_held_locks) =
		'{savepoints.outer,savepoints.session,savepoints.works}';
END $$;
SELECT * FROM held;
SELECT zk_unlock_all();

-- nested blocks, with the handler in the outer block
DO $$
BEGIN
	BEGIN
		PERFORM zk_xact_lock('savepoints.1');
		BEGIN
			PERFORM zk_xact_lock('savepoints.2');
		EXCEPTION WHEN no_data_found THEN
			NULL;
		END;
		ASSERT (SELECT count(*) FROM zk_held_locks) = 2;
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	ASSERT (SELECT count(*) FROM zk_held_locks) = 0;
END $$;

-- the error of a lock function can be caught like any other
DO $$
BEGIN
	PERFORM zk_xact_lock('savepoints.kept');
	BEGIN
		PERFORM zk_xact_lock('savepoints.gone'), zk_xact_lock(''::text);
	EXCEPTION WHEN invalid_parameter_value THEN
		NULL;
	END;
	ASSERT (SELECT array_agg(name) FROM zk_held_locks) = '{savepoints.kept}';
END $$;
SELECT * FROM held;

-- many levels
DO $$
DECLARE
	nested text := 'NULL;';
BEGIN
	FOR i IN 1..50 LOOP
		nested := format('BEGIN PERFORM zk_xact_lock(%L); %s EXCEPTION WHEN no_data_found THEN NULL; END;',
						 'savepoints.' || i % 7, nested);
	END LOOP;
	nested := format('BEGIN %s ASSERT (SELECT sum(hold_count) FROM zk_held_locks) = 50; PERFORM 1 / 0; '
					 'EXCEPTION WHEN division_by_zero THEN NULL; END;', nested);
	EXECUTE format('DO $d$ BEGIN %s %s END $d$', nested,
				   'ASSERT (SELECT count(*) FROM zk_held_locks) = 0;');
END $$;
SELECT * FROM held;
