\echo Use "ALTER EXTENSION zklock UPDATE" to load this file. \quit

-- Objects keep their identity where PostgreSQL allows it: renamed functions keep their privileges,
-- and the views and functions of users that depend on zk_locks or zk_held_locks remain.  An object
-- of a user that depends on one of the dropped ones makes the update fail.


-- fences have no table

DROP FUNCTION zk_fence_reset(text);
DROP FUNCTION zk_fence_reset();
DROP FUNCTION zk_fence_vacuum(interval);
ALTER EXTENSION zklock DROP TABLE zklock_fences;
DROP TABLE zklock_fences;
DROP FUNCTION zklock_fences_keep();

COMMENT ON FUNCTION zk_fence(text) IS
	'fence off earlier holders of a cluster-wide lock that this session holds: their transactions that fence it, too, commit before this call or not at all; an error if a later holder has fenced it; returns the fencing token';



-- several names, as one

ALTER FUNCTION zk_lock_all(text[]) RENAME TO zk_lock_many;
ALTER FUNCTION zk_lock_all_shared(text[]) RENAME TO zk_lock_many_shared;
ALTER FUNCTION zk_xact_lock_all(text[]) RENAME TO zk_xact_lock_many;
ALTER FUNCTION zk_xact_lock_all_shared(text[]) RENAME TO zk_xact_lock_many_shared;
ALTER FUNCTION zk_try_lock_all(text[], interval) RENAME TO zk_try_lock_many;
ALTER FUNCTION zk_try_lock_all_shared(text[], interval) RENAME TO zk_try_lock_many_shared;
ALTER FUNCTION zk_try_xact_lock_all(text[], interval) RENAME TO zk_try_xact_lock_many;
ALTER FUNCTION zk_try_xact_lock_all_shared(text[], interval) RENAME TO zk_try_xact_lock_many_shared;
ALTER FUNCTION zk_unlock_all(text[]) RENAME TO zk_unlock_many;
ALTER FUNCTION zk_unlock_all_shared(text[]) RENAME TO zk_unlock_many_shared;

CREATE OR REPLACE FUNCTION zk_lock_many(names text[])
RETURNS bigint[]
AS 'MODULE_PATHNAME', 'zk_lock_many'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

CREATE OR REPLACE FUNCTION zk_lock_many_shared(names text[])
RETURNS bigint[]
AS 'MODULE_PATHNAME', 'zk_lock_many_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

CREATE OR REPLACE FUNCTION zk_xact_lock_many(names text[])
RETURNS bigint[]
AS 'MODULE_PATHNAME', 'zk_xact_lock_many'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

CREATE OR REPLACE FUNCTION zk_xact_lock_many_shared(names text[])
RETURNS bigint[]
AS 'MODULE_PATHNAME', 'zk_xact_lock_many_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

CREATE OR REPLACE FUNCTION zk_try_lock_many(names text[], timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_lock_many'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

CREATE OR REPLACE FUNCTION zk_try_lock_many_shared(names text[], timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_lock_many_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

CREATE OR REPLACE FUNCTION zk_try_xact_lock_many(names text[], timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_xact_lock_many'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

CREATE OR REPLACE FUNCTION zk_try_xact_lock_many_shared(names text[], timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_xact_lock_many_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

CREATE OR REPLACE FUNCTION zk_unlock_many(names text[])
RETURNS boolean[]
AS 'MODULE_PATHNAME', 'zk_unlock_many'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

CREATE OR REPLACE FUNCTION zk_unlock_many_shared(names text[])
RETURNS boolean[]
AS 'MODULE_PATHNAME', 'zk_unlock_many_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;


-- permits

ALTER FUNCTION zk_release(text) RENAME TO zk_release_permit;
CREATE OR REPLACE FUNCTION zk_release_permit(name text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_release_permit'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

-- other results and names of arguments
DROP FUNCTION zk_acquire(text, integer);
DROP FUNCTION zk_xact_acquire(text, integer);
DROP FUNCTION zk_try_acquire(text, integer, interval);
DROP FUNCTION zk_try_xact_acquire(text, integer, interval);

CREATE FUNCTION zk_acquire_permit(name text, permits integer)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_acquire_permit'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_acquire_permit(text, integer) IS
	'obtain one more permit of a cluster-wide semaphore, waiting if necessary; held until released or the session ends';

CREATE FUNCTION zk_xact_acquire_permit(name text, permits integer)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_xact_acquire_permit'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_xact_acquire_permit(text, integer) IS
	'obtain one more permit of a cluster-wide semaphore, waiting if necessary; held until the transaction ends';

CREATE FUNCTION zk_try_acquire_permit(name text, permits integer, timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_acquire_permit'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_acquire_permit(text, integer, interval) IS
	'obtain one more permit of a cluster-wide semaphore if it is available within the timeout; held until released or the session ends';

CREATE FUNCTION zk_try_xact_acquire_permit(name text, permits integer, timeout interval DEFAULT '0')
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_xact_acquire_permit'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000;

COMMENT ON FUNCTION zk_try_xact_acquire_permit(text, integer, interval) IS
	'obtain one more permit of a cluster-wide semaphore if it is available within the timeout; held until the transaction ends';


-- views and the functions beside them

ALTER FUNCTION zklock_server() RENAME TO zk_server;

ALTER FUNCTION zklock_held_locks() RENAME TO zklock_held_locks_before;
ALTER VIEW zk_held_locks RENAME COLUMN scope TO level;
ALTER VIEW zk_held_locks RENAME COLUMN count TO hold_count;

CREATE FUNCTION zklock_held_locks(
	OUT kind text, OUT name text, OUT mode text, OUT level text,
	OUT hold_count bigint, OUT token bigint, OUT acquired_at timestamptz,
	OUT state text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_held_locks'
LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 10;

COMMENT ON FUNCTION zklock_held_locks() IS
	'rows of the view zk_held_locks';

CREATE OR REPLACE VIEW zk_held_locks AS
	SELECT kind, name, mode, level, pg_catalog.sum(hold_count)::bigint AS hold_count,
		pg_catalog.min(token) AS token, pg_catalog.min(acquired_at) AS acquired_at, state
	FROM zklock_held_locks()
	GROUP BY kind, name, mode, level, state;

DROP FUNCTION zklock_held_locks_before();

ALTER FUNCTION zklock_locks() RENAME TO zklock_locks_before;
ALTER VIEW zk_locks RENAME COLUMN since TO requested_at;

CREATE FUNCTION zklock_locks(
	OUT kind text, OUT name text, OUT mode text, OUT granted boolean,
	OUT kept boolean, OUT queue_position integer, OUT token bigint, OUT server text,
	OUT pid integer, OUT datname text, OUT usename text,
	OUT application_name text, OUT client text, OUT session_id text,
	OUT requested_at timestamptz, OUT znode text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_locks'
LANGUAGE C VOLATILE PARALLEL RESTRICTED COST 1000 ROWS 100;

COMMENT ON FUNCTION zklock_locks() IS
	'rows of the view zk_locks';

CREATE OR REPLACE VIEW zk_locks AS
	SELECT kind, name, mode, granted, kept, queue_position, token, server, pid,
		datname, usename, application_name, client, session_id, requested_at, znode
	FROM zklock_locks();

DROP FUNCTION zklock_locks_before();

-- A waiter stands below the first session that blocks it: the first one before it in the queue, and
-- for a reader the first writer; never its own session.  What a waiting session of zklock holds
-- stands beside its wait, because a backend that waits releases nothing.  Sessions of other
-- programs have threads, of which one can wait while another one releases.  Not reached from above,
-- and so at the end: what belongs to the cycle of a deadlock, or is very deep.
CREATE VIEW zk_lock_tree AS
	WITH RECURSIVE seen AS MATERIALIZED (
		SELECT l.name, l.mode, l.granted, l.server, l.pid, l.application_name, l.client, l.requested_at,
			pg_catalog.concat(l.kind, CASE l.kind WHEN 'lock' THEN pg_catalog.regexp_replace(l.znode, '[^/]*$', '')
				ELSE l.name END) AS queue,
			coalesce(l.session_id, l.znode) AS session,
			CASE WHEN l.pid IS NOT NULL THEN pg_catalog.concat(l.server, '/', l.pid)
				ELSE pg_catalog.concat(l.client, ' ', coalesce(l.session_id, l.znode)) END AS label,
			pg_catalog.row_number() OVER (ORDER BY l.name, l.kind, l.granted DESC, l.queue_position, l.token, l.znode) AS id
		FROM zk_locks AS l),
	queues AS (
		SELECT f.queue, f.first, pg_catalog.min(f.id) AS first_id,
			pg_catalog.min(f.id) FILTER (WHERE f.session <> f.first) AS other_id,
			f.writer, pg_catalog.min(f.id) FILTER (WHERE f.mode <> 'shared') AS writer_id,
			pg_catalog.min(f.id) FILTER (WHERE f.mode <> 'shared' AND f.session <> f.writer) AS other_writer_id,
			pg_catalog.min(f.session) FILTER (WHERE NOT f.granted) AS min_waiter,
			pg_catalog.max(f.session) FILTER (WHERE NOT f.granted) AS max_waiter,
			pg_catalog.min(f.session) FILTER (WHERE NOT f.granted AND f.mode <> 'shared') AS min_waiting_writer,
			pg_catalog.max(f.session) FILTER (WHERE NOT f.granted AND f.mode <> 'shared') AS max_waiting_writer
		FROM (
			SELECT s.queue, s.id, s.session, s.mode, s.granted,
				pg_catalog.first_value(s.session) OVER (PARTITION BY s.queue ORDER BY s.id) AS first,
				pg_catalog.first_value(s.session) OVER (PARTITION BY s.queue ORDER BY s.mode = 'shared', s.id) AS writer
			FROM seen AS s) AS f
		GROUP BY f.queue, f.first, f.writer),
	waits AS MATERIALIZED (
		SELECT w.id, w.session, w.client,
			CASE WHEN w.mode <> 'shared' THEN CASE WHEN q.first <> w.session THEN q.first_id ELSE q.other_id END
				ELSE CASE WHEN q.writer <> w.session THEN q.writer_id ELSE q.other_writer_id END END AS blocker
		FROM seen AS w JOIN queues AS q ON q.queue = w.queue
		WHERE NOT w.granted),
	parents AS MATERIALIZED (
		SELECT w.id, true AS waits, CASE WHEN w.blocker < w.id THEN w.blocker END AS parent FROM waits AS w
		UNION ALL
		SELECT h.id, false, own.id
		FROM seen AS h JOIN queues AS q ON q.queue = h.queue LEFT JOIN (
			SELECT w.session, pg_catalog.min(w.id) AS id
			FROM waits AS w WHERE w.client = 'zklock' GROUP BY w.session) AS own ON own.session = h.session
		WHERE h.granted AND CASE WHEN h.mode <> 'shared' THEN q.min_waiter <> h.session OR q.max_waiter <> h.session
			ELSE q.min_waiting_writer <> h.session OR q.max_waiting_writer <> h.session END),
	paths AS (
		SELECT p.id, 0 AS depth, ARRAY[p.id] AS path FROM parents AS p WHERE p.parent IS NULL
		UNION ALL
		SELECT p.id, CASE WHEN p.waits THEN t.depth + 1 ELSE t.depth END, pg_catalog.array_append(t.path, p.id)
		FROM paths AS t JOIN parents AS p ON p.parent = t.id
		WHERE t.depth < 100)
	SELECT pg_catalog.concat(pg_catalog.repeat('  ', t.depth), s.label) AS tree, s.name, s.mode, s.granted,
		b.label AS waits_for, s.server, s.pid, s.application_name, s.requested_at
	FROM parents AS p JOIN seen AS s ON s.id = p.id
		LEFT JOIN paths AS t ON t.id = p.id
		LEFT JOIN seen AS b ON b.id = p.parent AND p.waits
	ORDER BY t.path, p.id;

COMMENT ON VIEW zk_lock_tree IS
	'waiters, each below a session that blocks it, and the holders that block them; reads the ensemble as zk_locks does';
COMMENT ON COLUMN zk_lock_tree.tree IS 'server and process id of the session, or client and ZooKeeper session of another program; indented below the session that blocks it';
COMMENT ON COLUMN zk_lock_tree.name IS 'lock or semaphore';
COMMENT ON COLUMN zk_lock_tree.mode IS 'exclusive, shared or permit';
COMMENT ON COLUMN zk_lock_tree.granted IS 'true for a holder, false for a waiter';
COMMENT ON COLUMN zk_lock_tree.waits_for IS 'the session that blocks this waiter; of several the first one';
COMMENT ON COLUMN zk_lock_tree.server IS 'as in zk_locks';
COMMENT ON COLUMN zk_lock_tree.pid IS 'as in zk_locks';
COMMENT ON COLUMN zk_lock_tree.application_name IS 'as in zk_locks';
COMMENT ON COLUMN zk_lock_tree.requested_at IS 'as in zk_locks';

GRANT SELECT ON zk_lock_tree TO PUBLIC;

-- a backend is identified by its ZooKeeper session

CREATE FUNCTION zklock_backend_session(pid integer)
RETURNS text
AS 'MODULE_PATHNAME', 'zklock_backend_session'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zklock_backend_session(integer) IS
	'ZooKeeper session of a backend of this server as shown in zk_locks.session_id, null if it has none; for zk_blocking()';

CREATE OR REPLACE FUNCTION zk_blocking(pid integer)
RETURNS TABLE (server text, pid integer, name text, mode text, granted boolean)
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
COST 1000 ROWS 10
BEGIN ATOMIC
	WITH seen AS MATERIALIZED (
		SELECT l.kind, l.name, l.mode, l.granted, l.queue_position, l.server,
			l.pid, l.session_id,
			CASE l.kind WHEN 'lock' THEN pg_catalog.regexp_replace(l.znode, '[^/]*$', '') END AS parent
		FROM zk_locks AS l)
	SELECT b.server, b.pid, b.name, b.mode, b.granted
	FROM seen AS w JOIN seen AS b ON b.kind = w.kind AND b.name = w.name
		AND b.parent IS NOT DISTINCT FROM w.parent
	WHERE w.session_id = (SELECT zklock_backend_session($1)) AND NOT w.granted
		AND b.session_id IS DISTINCT FROM w.session_id
		AND (b.granted OR b.queue_position < w.queue_position)
		AND (b.mode <> 'shared' OR w.mode <> 'shared')
	ORDER BY b.name, b.granted DESC, b.queue_position, b.server, b.pid;
END;

-- one record, not a set
DROP FUNCTION zk_session();

CREATE FUNCTION zk_session(
	OUT session_id text, OUT state text, OUT server text,
	OUT session_timeout interval, OUT lease_remaining interval,
	OUT connected_at timestamptz, OUT locks integer)
RETURNS record
AS 'MODULE_PATHNAME', 'zklock_session_info'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION zk_session() IS
	'the ZooKeeper session of this backend, one row: state is closed, connecting, connected, suspended, expired or auth_failed; never connects';

-- fewer columns
DROP VIEW zk_stat;
DROP FUNCTION zklock_stat();

CREATE FUNCTION zklock_stat(
	OUT acquisitions bigint, OUT waits bigint,
	OUT wait_time double precision, OUT timeouts bigint, OUT cancels bigint,
	OUT deadlocks bigint, OUT sessions_opened bigint,
	OUT sessions_lost bigint, OUT locks_lost bigint,
	OUT commits_refused bigint, OUT revocations bigint,
	OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zklock_stat'
LANGUAGE C VOLATILE PARALLEL RESTRICTED
ROWS 1;

COMMENT ON FUNCTION zklock_stat() IS 'the row of the view zk_stat';

CREATE VIEW zk_stat AS
	SELECT acquisitions, waits, wait_time, timeouts, cancels, deadlocks, sessions_opened, sessions_lost,
		locks_lost, commits_refused, revocations, stats_reset
	FROM zklock_stat();

COMMENT ON VIEW zk_stat IS
	'counters of cluster-wide locks of this server, one row; does not contact the ensemble';
COMMENT ON COLUMN zk_stat.acquisitions IS
	'locks and permits obtained, including locks that were already held';
COMMENT ON COLUMN zk_stat.waits IS 'calls that waited for other holders, on this server or another';
COMMENT ON COLUMN zk_stat.wait_time IS 'total duration of these calls in milliseconds, successful or not';
COMMENT ON COLUMN zk_stat.timeouts IS 'waits ended by lock_timeout or by the timeout of a timed attempt';
COMMENT ON COLUMN zk_stat.cancels IS 'calls ended by a cancel or by statement_timeout';
COMMENT ON COLUMN zk_stat.deadlocks IS 'calls ended because of a deadlock';
COMMENT ON COLUMN zk_stat.sessions_opened IS 'ZooKeeper sessions that were established';
COMMENT ON COLUMN zk_stat.sessions_lost IS 'ZooKeeper sessions that expired or were refused later';
COMMENT ON COLUMN zk_stat.locks_lost IS 'locks and permits that were lost while they were held';
COMMENT ON COLUMN zk_stat.commits_refused IS 'transactions not committed because a lock was lost or could not be confirmed';
COMMENT ON COLUMN zk_stat.revocations IS 'times that the release of a lock held here was requested';
COMMENT ON COLUMN zk_stat.stats_reset IS 'time of the last reset of the counters';

GRANT SELECT ON zk_stat TO PUBLIC;


-- what has only another comment

COMMENT ON PROCEDURE zk_lock_wait(text, interval) IS
	'obtain cluster-wide exclusive lock, waiting if needed without a snapshot and without locks of the transaction, which must not hold any; held until unlocked or the session ends; an error if not obtained within the timeout; not in a transaction block';
