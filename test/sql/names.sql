--
-- Valid names, and the three distinct key spaces. Covers property 3 (deliberately
-- different: NULL is an error).
--
\set VERBOSITY sqlstate

-- null is refused by every function in every form
SELECT zk_lock(NULL::text);
SELECT zk_lock(NULL::bigint);
SELECT zk_lock(NULL::integer, 1);
SELECT zk_lock('1', NULL::integer);
SELECT zk_lock(NULL::text[]);
SELECT zk_lock_shared(NULL::text);
SELECT zk_xact_lock(NULL::text);
SELECT zk_xact_lock_shared(NULL::text);
SELECT zk_try_lock(NULL::text);
SELECT zk_try_lock('names.a'::text, NULL::interval);
SELECT zk_try_lock_shared(NULL::bigint);
SELECT zk_try_xact_lock('1', NULL::integer);
SELECT zk_try_xact_lock_shared(NULL::text[]);
SELECT zk_unlock(NULL::text);
SELECT zk_unlock_shared(NULL::bigint);
SELECT zk_lock_token(NULL::text);

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
SELECT name FROM zk_held_locks WHERE count <> 1;
SELECT count(*) AS n, bool_and(zk_lock(name) = zk_lock_token(name)) AS found_again FROM strange;
SELECT name FROM zk_held_locks WHERE count <> 2;
SELECT bool_and(zk_unlock(name) AND zk_unlock(name)) AS released FROM strange;
SELECT count(*) FROM zk_held_locks;

-- key spaces: the same digits are different locks
SELECT zk_lock('1,2') > 0 AS integers, zk_lock('4294967298') > 0 AS bigint,
       zk_lock('#1,2') > 0 AS text1, zk_lock('1,2') > 0 AS text2, zk_lock('#4294967298') > 0 AS text3,
       zk_lock('4294967298') > 0 AS text4, zk_lock('%231,2') > 0 AS text5;
SELECT count(*) AS n, count(DISTINCT token) AS different FROM zk_held_locks;
SELECT zk_unlock('1,2') AS integers, zk_unlock('1,2') AS again;
SELECT zk_unlock('4294967298') AS bigint, zk_unlock('4294967298') AS again;
SELECT zk_unlock('#1,2') AS text1, zk_unlock('1,2') AS text2, zk_unlock('#4294967298') AS text3,
       zk_unlock('4294967298') AS text4, zk_unlock('%231,2') AS text5;
SELECT count(*) FROM zk_held_locks;

SELECT zk_lock('0,-1') <> zk_lock('-1') AS different;
SELECT zk_lock('-1,-1') <> zk_lock('-1') AS different;
SELECT zk_lock('1,2') <> zk_lock('2,1') AS different;
SELECT zk_lock('0') <> zk_lock('0,0') AS different;
SELECT zk_lock('11,1') <> zk_lock('1,11') AS different;
SELECT zk_unlock_all();

-- the smallest and the largest integers
SELECT zk_lock('9223372036854775807') > 0 AS most, zk_lock('-9223372036854775808') > 0 AS least,
       zk_lock('2147483647,-2147483648') > 0 AS both;
SELECT name FROM zk_held_locks ORDER BY name;
SELECT zk_unlock('9223372036854775807') AS most, zk_unlock('-9223372036854775808') AS least,
       zk_unlock('2147483647,-2147483648') AS both;

-- other types of the same category, and columns, resolve to the right function
SELECT zk_lock(7::smallint) = zk_lock('7') AND zk_lock('7') = zk_lock('7') AS same;
SELECT zk_lock('names.v'::varchar(20)) = zk_lock('names.v'::name) AS same;
SELECT zk_unlock_all();
SELECT zk_lock(1.5);
