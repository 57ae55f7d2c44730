--
-- Errors: the SQLSTATE, the name of the lock in the message, and a hint. The wording is not
-- tested. Covers property 28 and the errors that one session can provoke.
--
\pset format unaligned
\pset tuples_only on
CREATE FUNCTION zklock_regress_outcome(statement text, lock text,
	OUT code text, OUT names_lock boolean, OUT has_hint boolean) LANGUAGE plpgsql AS $$
DECLARE
	message text;
	hint text;
BEGIN
	EXECUTE statement;
	code := '00000';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	names_lock := strpos(message, '"' || lock || '"') > 0;
	has_hint := hint <> '';
END $$;

-- null, empty, too long: the message has no name
SELECT code, has_hint FROM zklock_regress_outcome('SELECT zk_lock(NULL::text)', '');
SELECT code, has_hint FROM zklock_regress_outcome('SELECT zk_lock_many(ARRAY[NULL]::text[])', '');
SELECT code, has_hint FROM zklock_regress_outcome($$SELECT zk_lock('')$$, '');
SELECT code, has_hint FROM zklock_regress_outcome($$SELECT zk_lock(repeat('x', 513))$$, '');

-- a negative timeout
SELECT code, has_hint FROM zklock_regress_outcome($$SELECT zk_try_lock('errors.a', timeout => '-1s')$$, 'errors.a');
SELECT code, has_hint FROM zklock_regress_outcome($$SELECT zk_try_lock('1', timeout => '-1 day')$$, '1');
SELECT code, has_hint FROM zklock_regress_outcome($$SELECT zk_try_lock('1,2', '-1 month')$$, '1,2');
SELECT code, has_hint FROM zklock_regress_outcome($$SELECT zk_try_lock_many_shared(ARRAY['errors.a'], timeout => '-1ms')$$, 'errors.a');
SELECT code, has_hint FROM zklock_regress_outcome($$SELECT zk_try_xact_lock('errors.a', timeout => '-1 microsecond')$$, 'errors.a');
SELECT code, has_hint FROM zklock_regress_outcome($$SELECT zk_try_xact_lock_shared('errors.a', timeout => '1 month -31 days')$$, 'errors.a');
SELECT count(*) FROM zk_held_locks;

-- more locks than zklock.max_locks
\c -reuse-previous=on "options='-c zklock.max_locks=2'"
SELECT zk_lock('errors.1') > 0 AS first, zk_lock('2') > 0 AS second;
SELECT * FROM zklock_regress_outcome($$SELECT zk_lock('errors.3')$$, 'errors.3');
SELECT * FROM zklock_regress_outcome($$SELECT zk_lock_shared('3')$$, '3');
SELECT * FROM zklock_regress_outcome($$SELECT zk_try_lock('3,4')$$, '3,4');
SELECT zk_unlock_all();
\c -reuse-previous=on "options=''"

-- shared mode with node names that have none
\c -reuse-previous=on "options='-c zklock.node_names=curator_mutex'"
SELECT zk_lock('errors.1') > 0 AS exclusive;
SELECT * FROM zklock_regress_outcome($$SELECT zk_lock_shared('errors.2')$$, 'errors.2');
SELECT * FROM zklock_regress_outcome($$SELECT zk_xact_lock_shared('1,2')$$, '1,2');
SELECT * FROM zklock_regress_outcome($$SELECT zk_try_lock_shared('errors.2')$$, 'errors.2');
SELECT * FROM zklock_regress_outcome($$SELECT zk_lock_many_shared(ARRAY['errors.2'])$$, 'errors.2');
SELECT name, mode FROM zk_held_locks;
SELECT zk_unlock_all();
\c -reuse-previous=on "options=''"

-- an unreachable ensemble
\c -reuse-previous=on "options='-c zklock.connect_string=127.0.0.1:1'"
SET zklock.ensemble_timeout = '100ms';
SELECT * FROM zklock_regress_outcome($$SELECT zk_lock('errors.a')$$, 'errors.a');
SELECT * FROM zklock_regress_outcome($$SELECT zk_try_lock('errors.a')$$, 'errors.a');
SELECT * FROM zklock_regress_outcome($$SELECT zk_xact_lock('5')$$, '5');
SELECT count(*) FROM zk_held_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
-- calls that send no request succeed
SELECT zk_lock_many('{}'::text[]), zk_lock_token('errors.a') IS NULL AS no_token;
SELECT zk_unlock_all();
\c -reuse-previous=on "options=''"
RESET zklock.ensemble_timeout;
SELECT zk_lock('errors.a') > 0 AS back_again;
SELECT zk_unlock_all();

-- a transaction-level lock and PREPARE TRANSACTION
BEGIN;
SELECT zk_xact_lock('errors.a') > 0 AS locked;
\set VERBOSITY sqlstate
PREPARE TRANSACTION 'zklock_regress_errors';
\set VERBOSITY default
SELECT :'LAST_ERROR_MESSAGE' LIKE '%"errors.a"%' AS names_lock;

-- in an aborted transaction
\set VERBOSITY sqlstate
BEGIN;
SELECT zk_lock('errors.a') > 0 AS locked;
SELECT 1 / 0;
SELECT zk_lock('errors.b');
SELECT zk_unlock('errors.a');
SELECT * FROM zk_session();
ROLLBACK;
SELECT zk_unlock('errors.a');
\set VERBOSITY default

DROP FUNCTION zklock_regress_outcome;
-- the errors leave no lock
SELECT count(*) FROM zk_held_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
