--
-- Valid names, which are text and nothing else. Covers property 3 (deliberately
-- different: NULL is an error).
--
-- Promise: 10.1
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate

-- null is refused by every function
SELECT zk_lock(NULL);
SELECT zk_lock_many(NULL);
SELECT zk_lock_shared(NULL);
SELECT zk_xact_lock(NULL);
SELECT zk_xact_lock_shared(NULL);
SELECT zk_try_lock(NULL);
SELECT zk_try_lock('names.a', NULL);
SELECT zk_try_lock_shared(NULL);
SELECT zk_try_xact_lock_many(NULL);
SELECT zk_try_xact_lock_many_shared(ARRAY['names.a'], NULL);
SELECT zk_unlock(NULL);
SELECT zk_unlock_shared(NULL);
SELECT zk_unlock_many(NULL);
SELECT zk_lock_token(NULL);

-- 1 to 512 bytes
SELECT zk_lock('');
SELECT zk_try_lock(''::text);
SELECT zk_unlock('');
SELECT zk_lock_token('');
SELECT zk_lock('x') > 0 AS one, zk_lock(repeat('x', 512)) > 0 AS most;
SELECT zk_lock(repeat('x', 513));
SELECT zk_unlock(repeat('x', 513));
-- a name whose bytes are all encoded
SELECT zk_lock(repeat('/', 512)) > 0 AS most;
SELECT zk_lock(repeat('/', 513));
SELECT name = repeat('/', 512) AS slashes, length(name) FROM zk_held_locks ORDER BY name;
SELECT zk_unlock_all();

-- any characters; each name is a different lock
CREATE TEMP TABLE strange (name text);
INSERT INTO strange VALUES
	('.'), ('..'), ('...'), ('./.'), ('../..'), ('/'), ('//'), ('/x'), ('x/'), ('x/y'), ('x%2Fy'), ('x%2fy'),
	('%'), ('%%'), ('%2E'), ('%2E%2E'), (' '), ('  '), (E'\t'), (E'\n'), (E'\r\n'), (E'\x01'), (E'\x7f'),
	('"'), (''''), ('\'), ('$1'), ('%s%n%d'), ('#'), ('#1'), ('#1,2'), ('#-1'), ('names.A'), ('names.a'), ('names.a '),
	(' names.a'), ('zookeeper'), ('locks'), ('-lock-0000000001'), ('_c_x-lock-0000000001'), ('__READ__0000000001'),
	('{}'), ('null'), ('NULL'), ('=+-~@:_'), ('*'), ('?');
SELECT count(*) AS n, count(zk_lock(name)) AS locked FROM strange;
SELECT count(DISTINCT h.name) AS distinct_names, count(DISTINCT h.token) AS distinct_tokens,
       count(s.name) AS as_given
FROM zk_held_locks AS h LEFT JOIN strange AS s USING (name);
SELECT name FROM zk_held_locks WHERE hold_count <> 1;
SELECT count(*) AS n, bool_and(zk_lock(name) = zk_lock_token(name)) AS found_again FROM strange;
SELECT name FROM zk_held_locks WHERE hold_count <> 2;
SELECT bool_and(zk_unlock(name) AND zk_unlock(name)) AS released FROM strange;
SELECT count(*) FROM zk_held_locks;

-- each name has one local lock of its own, whatever name was used before: a prefix, the same length, a long one
CREATE FUNCTION pg_temp.local_lock(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found text;
BEGIN
	PERFORM zk_lock(name);
	SELECT string_agg(classid || '.' || objid, ' ') INTO found FROM pg_locks
		WHERE locktype = 'advisory' AND pid = pg_backend_pid();
	PERFORM zk_unlock(name);
	RETURN found;
END $$;
CREATE TEMP TABLE used AS
	SELECT name FROM unnest(ARRAY[1, 2, 8, 9, 63, 64, 65, 66, 512]) length, repeat('x', length) AS name
	UNION ALL SELECT left(name, -1) || 'y' FROM unnest(ARRAY[1, 2, 9, 64, 65]) length, repeat('x', length) AS name;
CREATE TEMP TABLE seen AS
	SELECT v.* FROM used AS a, used AS b, LATERAL (VALUES
		(a.name, pg_temp.local_lock(a.name)), (b.name, pg_temp.local_lock(b.name))) AS v (name, lock);
SELECT count(DISTINCT name) AS names, count(DISTINCT lock) AS locks, count(DISTINCT (name, lock)) AS pairs FROM seen;

-- a key is text: a driver's parameter without a type is a name, and so is an untyped literal
PREPARE by_name AS SELECT zk_lock($1) = zk_lock_token($2) AS same;
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'by_name';
EXECUTE by_name('42', '42');
PREPARE by_names AS SELECT zk_lock_many($1) IS NOT NULL AS locked;
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'by_names';
EXECUTE by_names('{42,names.b}');
PREPARE with_timeout AS SELECT zk_try_lock($1, $2) AS locked;
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'with_timeout';
EXECUTE with_timeout('42', '5s');
SELECT name, hold_count FROM zk_held_locks ORDER BY name;
DEALLOCATE ALL;
SELECT zk_unlock_all();
SELECT zk_lock('names.v'::varchar(20)) = zk_lock('names.v'::name) AS same;
SELECT zk_unlock_all();

-- a function takes a name or names, never either, and no other type
SELECT zk_lock(7);
SELECT zk_lock(7, 0);
SELECT zk_try_lock(7);
SELECT zk_lock(1.5);
SELECT zk_lock(ARRAY['a']);
SELECT zk_try_lock(ARRAY['a'], '5s');
SELECT zk_unlock(ARRAY['a']);
SELECT zk_lock_many('a'::text);
SELECT zk_lock_token(7);
SELECT zk_fence(7);
SELECT zk_revoke(7);
CALL zk_lock_wait(7);
SELECT count(*) FROM zk_held_locks;

\c -reuse-previous=on "options=''"
\set VERBOSITY default
--
-- With zklock.node_names = curator_mutex there is no shared mode: every shared function is
-- refused with 0A000, also while this session holds the lock.
--
\set VERBOSITY sqlstate
\c -reuse-previous=on "options='-c zklock.node_names=curator_mutex'"
SELECT zk_lock_shared('node_names');
SELECT zk_xact_lock_shared('node_names');
SELECT zk_try_lock_shared('node_names');
SELECT zk_try_xact_lock_shared('node_names', '1s');
SELECT zk_lock_many_shared(ARRAY['node_names', 'node_names.2']);
SELECT zk_lock('node_names') > 0 AS locked;
SELECT zk_lock_shared('node_names');
SELECT zk_xact_lock_shared('node_names');
SELECT zk_try_lock_shared('node_names');
SELECT zk_try_xact_lock_shared('node_names', '1s');
SELECT zk_lock_many_shared(ARRAY['node_names']);
SELECT name, mode, hold_count FROM zk_held_locks;
SELECT zk_unlock('node_names');
SELECT count(*) FROM zk_held_locks;
-- another session has other node names
\set VERBOSITY default
\c -reuse-previous=on "options='-c zklock.node_names=curator'"
SELECT zk_lock_shared('node_names') > 0 AS shared;
SELECT zk_unlock_all();
