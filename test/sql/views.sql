--
-- zk_session() and zk_held_locks, which never connect, and zk_locks, which reads the
-- ensemble.
--
\pset format unaligned
\pset tuples_only on

-- a new backend has no ZooKeeper session, and the views do not open one
\c
SELECT * FROM zk_session();
SELECT * FROM zk_held_locks;
SELECT zk_lock_token('views.a') IS NULL AS no_token, zk_lock_many('{}'::text[]) = '{}' AS nothing;
SELECT zk_unlock_all();
SELECT state FROM zk_session();

-- the first lock opens the ZooKeeper session
SELECT zk_lock('views.a') > 0 AS locked;
SELECT session_id ~ '^0x[0-9a-f]+$' AS session_id, state, server ~ ':[0-9]+$' AS server,
       session_timeout BETWEEN interval '100ms' AND interval '1 hour' AS session_timeout,
       lease_remaining BETWEEN interval '0' AND session_timeout / 3 AS lease,
       connected_at BETWEEN now() - interval '1 minute' AND clock_timestamp() + interval '1 second' AS connected_at,
       locks
FROM zk_session();
SELECT session_id AS id FROM zk_session() \gset
SELECT zk_lock_shared('views.b') > 0 AS locked;
SELECT locks FROM zk_session();
SELECT zk_lock('views.b') > 0 AS upgraded;

-- one row for each mode and scope
BEGIN;
SELECT zk_xact_lock('views.b') > 0, zk_xact_lock_shared('views.b') > 0, zk_lock('views.a') > 0, zk_xact_lock('1,2') > 0;
SELECT kind, name, mode, level, hold_count, token = zk_lock_token(name) AS token,
       acquired_at BETWEEN now() - interval '1 minute' AND clock_timestamp() AS acquired_at, state
FROM zk_held_locks ORDER BY name, mode, level;
-- re-entry does not change acquired_at
SELECT max(acquired_at) AS acquired_at FROM zk_held_locks WHERE name = 'views.a' \gset
SELECT zk_lock('views.a') > 0 AS again;
SELECT bool_and(acquired_at = :'acquired_at') AS unchanged FROM zk_held_locks WHERE name = 'views.a';
COMMIT;

-- the ZooKeeper session stays open after the last release, and is used again
SELECT zk_unlock_all();
SELECT state, session_id = :'id' AS same_session FROM zk_session();
SELECT zk_lock('views.a') > 0 AS locked;
SELECT state, session_id = :'id' AS same_session FROM zk_session();
SELECT zk_unlock_all();
SELECT kind FROM zk_held_locks;

-- zk_locks agrees with zk_held_locks about this session
SELECT zk_lock('views.a') > 0, zk_lock_shared('views.b') > 0, zk_lock('1,2') > 0;
SELECT l.kind, l.name, l.mode, l.granted, l.kept, l.queue_position, l.token = h.token AS token, l.server ~ ':[0-9]+$' AS server,
       l.pid = pg_backend_pid() AS pid, l.datname = current_database() AS datname, l.usename = session_user AS usename,
       l.application_name = current_setting('application_name') AS application_name, l.client,
       l.session_id = (SELECT session_id FROM zk_session()) AS session_id,
       l.requested_at BETWEEN now() - interval '1 minute' AND now() + interval '1 minute' AS requested_at,
       l.znode ~ '^/zklock/locks/[^/]+/_c_' AS znode
FROM zk_locks AS l LEFT JOIN zk_held_locks AS h USING (name, mode)
WHERE l.pid = pg_backend_pid() ORDER BY l.name COLLATE "C";
-- zk_locks_of returns the same rows for one name
SELECT name, mode, granted FROM zk_locks_of('views.a');
SELECT name, mode, granted, znode LIKE '/zklock/locks/1\%2C2/%' AS znode FROM zk_locks_of('1,2');
SELECT count(*) AS of_another FROM zk_locks_of('#1,2');
SELECT zk_acquire_permit('views.a', 2);
SELECT kind, name, mode, granted FROM zk_locks_of('views.a') ORDER BY kind;
SELECT count(*) AS differences FROM (
	(SELECT * FROM zk_locks WHERE name = 'views.a' EXCEPT SELECT * FROM zk_locks_of('views.a'))
	UNION ALL (SELECT * FROM zk_locks_of('views.a') EXCEPT SELECT * FROM zk_locks WHERE name = 'views.a')) AS d;
SELECT zk_release_permit('views.a');
-- a semaphore whose name is encoded in its znode
SELECT zk_acquire_permit('views-__lock__', 1);
SELECT kind, name, granted FROM zk_locks_of('views-__lock__');
SELECT zk_release_permit('views-__lock__');
SELECT count(*) AS of_none FROM zk_locks_of('views.none');
SELECT * FROM zk_locks_of(NULL::text);
SELECT * FROM zk_locks_of('');
-- its rows have the type of the view, which the owner of the view can change
BEGIN;
CREATE OR REPLACE VIEW zk_locks AS SELECT *, 'x' AS added FROM zklock_locks();
SELECT (zk_locks_of('views.a')).added;
ROLLBACK;
-- zk_revoke of a lock that no other session holds
SELECT zk_revoke('views.none');
SELECT zk_unlock_all();

-- an unreachable ensemble
\c -reuse-previous=on "options='-c zklock.connect_string=127.0.0.1:1'"
SET zklock.ensemble_timeout = '100ms';
\set VERBOSITY sqlstate
SELECT zk_lock('views.a');
\set VERBOSITY default
SELECT session_id, state, session_timeout, lease_remaining, connected_at, locks FROM zk_session();
-- zk_locks fails: an empty result would mean that no lock is held
\set VERBOSITY terse
SELECT * FROM zk_locks;
SELECT * FROM zk_locks_of('views.a');
\set VERBOSITY sqlstate
BEGIN;
SELECT count(*) FROM zk_locks;
ROLLBACK;
SELECT * FROM zk_blocking(pg_backend_pid());
SELECT zk_revoke('views.a');
\set VERBOSITY default
-- views that do not read the ensemble succeed
SELECT state FROM zk_session();
SELECT name FROM zk_held_locks;
SELECT count(*) FROM zk_stat;
