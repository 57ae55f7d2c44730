-- The behaviour of the lock functions in one session.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS zklock;

BEGIN;
SELECT plan(37);

-- holding
SELECT is(zk_lock_token('pgtap.a'), NULL, 'a lock that is not held has no token');
SELECT cmp_ok(zk_lock('pgtap.a'), '>', 0::bigint, 'zk_lock returns a token');
SELECT results_eq('SELECT kind, name, mode, level, hold_count, state FROM zk_held_locks',
	$$ VALUES ('lock', 'pgtap.a', 'exclusive', 'session', 1::bigint, 'held') $$, 'zk_held_locks shows the lock');
SELECT is(zk_lock_token('pgtap.a'), (SELECT token FROM zk_held_locks), 'zk_lock_token and zk_held_locks agree');
SELECT is(zk_lock('pgtap.a'), zk_lock_token('pgtap.a'), 're-entry returns the same token');
SELECT is((SELECT hold_count FROM zk_held_locks), 2::bigint, 're-entry is counted');
SELECT ok(zk_unlock('pgtap.a'), 'the first release is true');
SELECT ok(zk_unlock('pgtap.a'), 'the second release is true');
SELECT is_empty('SELECT * FROM zk_held_locks', 'two requests need two releases');
SELECT ok(NOT zk_unlock('pgtap.a'), 'a third release is false');

-- attempts
SELECT ok(zk_try_lock('pgtap.a'), 'a free lock is acquired by a non-blocking attempt');
SELECT ok(zk_try_lock_shared('pgtap.a', timeout => '1s'), 'a session acquires its own lock in the other mode');
SELECT results_eq('SELECT mode, hold_count FROM zk_held_locks ORDER BY mode',
	$$ VALUES ('exclusive', 1::bigint), ('shared', 1) $$, 'each mode is counted by itself');
SELECT ok(NOT zk_unlock_shared('pgtap.b'), 'another name is another lock');
SELECT lives_ok('SELECT zk_unlock_all()', 'zk_unlock_all releases');
SELECT is_empty('SELECT * FROM zk_held_locks', 'the release of everything leaves no lock');
SELECT lives_ok('SELECT zk_unlock_all()', 'zk_unlock_all succeeds if nothing is held');

-- tokens
CREATE TEMP TABLE token AS SELECT zk_lock('pgtap.a') AS first;
SELECT zk_unlock('pgtap.a') \g /dev/null
SELECT cmp_ok(zk_lock('pgtap.a'), '>', (SELECT first FROM token), 'a later holder has a greater token');
SELECT is(zk_lock_shared('pgtap.a'), zk_lock_token('pgtap.a'), 'a downgrade keeps the token');
SELECT zk_unlock('pgtap.a') \g /dev/null
SELECT is(zk_lock('pgtap.a'), zk_lock_token('pgtap.a'), 'an upgrade keeps the token');
SELECT zk_unlock_all() \g /dev/null
SELECT is(zk_lock_many(ARRAY['pgtap.b', 'pgtap.a']), ARRAY[zk_lock_token('pgtap.b'), zk_lock_token('pgtap.a')],
	'tokens of an array come in the order of the argument');
SELECT zk_unlock_all() \g /dev/null

-- scope
SELECT cmp_ok(zk_xact_lock('pgtap.x'), '>', 0::bigint, 'zk_xact_lock returns a token');
SELECT is((SELECT level FROM zk_held_locks), 'transaction', 'its lock has transaction level');
SELECT ok(NOT zk_unlock('pgtap.x'), 'a transaction-level lock cannot be unlocked');
SELECT lives_ok('SELECT zk_unlock_all()', 'zk_unlock_all succeeds with a transaction-level lock');
SELECT is((SELECT count(*) FROM zk_held_locks), 1::bigint, 'the lock is still held');
SAVEPOINT one;
SELECT is(zk_lock('7,8') > 0 AND zk_xact_lock('7') > 0, true, 'locks are acquired after a savepoint');
CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT 1;
ROLLBACK TO one;
SELECT set_eq('SELECT name, level FROM zk_held_locks', $$ VALUES ('pgtap.x', 'transaction'), ('7,8', 'session') $$,
	'ROLLBACK TO releases the transaction-level lock after the savepoint, and nothing else');
SELECT ok(zk_unlock('7,8'), 'the session-level lock can be unlocked');

-- names of digits
SELECT is(zk_lock('1,2') > 0 AND zk_lock('4294967298') > 0 AND zk_lock('#1,2') > 0, true, 'names of the same digits are locked');
SELECT is((SELECT count(DISTINCT token) FROM zk_held_locks WHERE level = 'session'), 3::bigint, 'three names are three locks');
SELECT zk_unlock_all() \g /dev/null

-- zk_session
SELECT is((SELECT state FROM zk_session()), 'connected', 'zk_session shows the state connected');
SELECT matches((SELECT session_id FROM zk_session()), '^0x[0-9a-f]+$', 'a session that holds locks has an id');
SELECT ok((SELECT lease_remaining <= session_timeout / 3 FROM zk_session()), 'its lease is at most a third of its timeout');
SELECT is((SELECT count(*) FROM zk_session()), 1::bigint, 'zk_session() has one row');

-- pg_locks
SELECT is((SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted),
	(SELECT count(*) FROM zk_held_locks), 'pg_locks shows each lock');
SELECT isnt(zk_lock_token('pgtap.x'), NULL, 'the first lock is still held');

SELECT * FROM finish();
ROLLBACK;
