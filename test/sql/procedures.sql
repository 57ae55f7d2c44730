--
-- COMMIT and ROLLBACK inside procedures and DO release transaction-level locks and keep
-- session-level locks.
-- Covers property 30.
--
\set VERBOSITY terse
CREATE FUNCTION pg_temp.held() RETURNS text LANGUAGE sql AS
	$$ SELECT coalesce(string_agg(name || ' ' || scope, ', ' ORDER BY name), 'nothing') FROM zk_held_locks $$;

DO $$
BEGIN
	PERFORM zk_xact_lock('procedures.x'), zk_lock('procedures.s');
	RAISE NOTICE 'before commit: %', pg_temp.held();
	COMMIT;
	RAISE NOTICE 'after commit: %', pg_temp.held();
	PERFORM zk_xact_lock('procedures.y');
	ROLLBACK;
	RAISE NOTICE 'after rollback: %', pg_temp.held();
	PERFORM zk_xact_lock('procedures.z');
	RAISE NOTICE 'at the end: %', pg_temp.held();
END $$;
SELECT pg_temp.held();
SELECT zk_unlock_all();

CREATE PROCEDURE zklock_regress_loop(rounds int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..rounds LOOP
		PERFORM zk_xact_lock('procedures.loop');
		ASSERT (SELECT count FROM zk_held_locks) = 1;
		IF i % 2 = 0 THEN COMMIT; ELSE ROLLBACK; END IF;
		ASSERT (SELECT count(*) FROM zk_held_locks) = 0;
	END LOOP;
END $$;
CALL zklock_regress_loop(20);
SELECT pg_temp.held();

-- tokens increase from round to round
DO $$
DECLARE
	last bigint := 0;
	token bigint;
BEGIN
	FOR i IN 1..5 LOOP
		token := zk_xact_lock('procedures.loop');
		ASSERT token > last;
		last := token;
		COMMIT;
	END LOOP;
END $$;

-- COMMIT AND CHAIN, and a failed block before the commit
DO $$
BEGIN
	PERFORM zk_xact_lock('procedures.x');
	BEGIN
		PERFORM zk_xact_lock('procedures.y');
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		RAISE NOTICE 'caught: %', pg_temp.held();
	END;
	COMMIT AND CHAIN;
	RAISE NOTICE 'after commit and chain: %', pg_temp.held();
END $$;

-- an error after an inner commit
DO $$
BEGIN
	PERFORM zk_lock('procedures.s');
	COMMIT;
	PERFORM zk_xact_lock('procedures.x');
	RAISE EXCEPTION 'the end';
END $$;
SELECT pg_temp.held();
SELECT zk_unlock_all();

DROP PROCEDURE zklock_regress_loop;
