--
-- Transaction-level locks and savepoints: taken after a savepoint, released by
-- rolling back to it, inherited by releasing it.
-- Covers properties 6, 7, 8 and 9.
--
\set VERBOSITY sqlstate
CREATE TEMP VIEW held AS SELECT name, mode, scope, count FROM zk_held_locks;

-- rollback to: what was taken after it goes, what was taken before stays
BEGIN;
SELECT zk_xact_lock('savepoints.before') > 0 AS locked;
SAVEPOINT one;
SELECT zk_xact_lock('savepoints.after') > 0 AS locked, zk_xact_lock_shared('savepoints.shared') > 0 AS shared;
SELECT zk_lock('savepoints.session') > 0 AS session;
SELECT * FROM held ORDER BY name;
ROLLBACK TO one;
SELECT * FROM held ORDER BY name;
-- the savepoint is still there
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

-- release: inherited
BEGIN;
SAVEPOINT one;
SELECT zk_xact_lock('savepoints.a') > 0 AS locked;
RELEASE one;
SELECT * FROM held;
COMMIT;
SELECT * FROM held;

-- release, then rollback to the one around it
BEGIN;
SAVEPOINT one;
SAVEPOINT two;
SELECT zk_xact_lock('savepoints.a') > 0 AS locked;
RELEASE two;
SELECT * FROM held;
ROLLBACK TO one;
SELECT * FROM held;
COMMIT;

-- the outer level has it already: stays with the outer level
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

-- several levels at once: rolling back the outer takes the inner with it
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

-- and releasing the outer keeps the inner
BEGIN;
SAVEPOINT one;
SAVEPOINT two;
SAVEPOINT three;
SELECT zk_xact_lock('savepoints.3') > 0 AS locked;
RELEASE one;
SELECT * FROM held;
COMMIT;
SELECT * FROM held;

-- savepoints of one name
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

-- session and transaction: only the transaction's share goes
BEGIN;
SELECT zk_lock('savepoints.a') > 0 AS locked;
SAVEPOINT one;
SELECT zk_xact_lock('savepoints.a') > 0 AS locked;
ROLLBACK TO one;
SELECT * FROM held;
COMMIT;
SELECT zk_unlock('savepoints.a');

-- an upgrade that is rolled back leaves what was shared before
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

-- PL/pgSQL: a block that fails, and one that does not
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

-- blocks in blocks, caught outside
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

-- the error of a lock function is caught like any other
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

-- deep
DO $$
DECLARE
	nested text := 'NULL;';
BEGIN
	FOR i IN 1..50 LOOP
		nested := format('BEGIN PERFORM zk_xact_lock(%L); %s EXCEPTION WHEN no_data_found THEN NULL; END;',
						 'savepoints.' || i % 7, nested);
	END LOOP;
	nested := format('BEGIN %s ASSERT (SELECT sum(count) FROM zk_held_locks) = 50; PERFORM 1 / 0; '
					 'EXCEPTION WHEN division_by_zero THEN NULL; END;', nested);
	EXECUTE format('DO $d$ BEGIN %s %s END $d$', nested,
				   'ASSERT (SELECT count(*) FROM zk_held_locks) = 0;');
END $$;
SELECT * FROM held;
