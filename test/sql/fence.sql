--
-- Fencing: the holder's token is recorded in the holder's transaction, and a smaller token is
-- refused. A later holder is simulated by writing its token.
--
\set VERBOSITY sqlstate
CREATE TEMP VIEW fences AS SELECT lock, token - zk_lock_token('fence.a') AS newer, fenced_by = session_user AS by_me
	FROM zklock_fences WHERE lock COLLATE "C" ~ '^fence' ORDER BY lock;

-- not held: 55000; NULL and invalid names as for locks
SELECT zk_fence('fence.a');
SELECT zk_fence(NULL);
SELECT zk_fence('');
SELECT zk_fence_reset(NULL);

-- returns the token, and records it once
SELECT zk_lock('fence.a') AS token \gset
SELECT zk_fence('fence.a') = :token AS same;
SELECT * FROM fences;
SELECT xmin AS written FROM zklock_fences WHERE lock = 'fence.a' \gset
SELECT zk_fence('fence.a') = zk_fence('fence.a') AS again;
SELECT xmin = :written AS not_written_again FROM zklock_fences WHERE lock = 'fence.a';
SELECT zk_unlock('fence.a');
SELECT zk_fence('fence.a');

-- a later hold has a greater token; also twice in one statement
SELECT zk_lock('fence.a') > :token AS later;
SELECT zk_fence('fence.a') > :token AS later;
SELECT * FROM fences;
DO $$ BEGIN PERFORM zk_fence_reset('fence.a'), zk_fence('fence.a'), zk_unlock('fence.a'), zk_lock('fence.a'), zk_fence('fence.a'); END $$;
SELECT * FROM fences;

-- the record is rolled back with the transaction, and with the savepoint
BEGIN;
SELECT zk_fence_reset('fence.a');
SELECT zk_fence('fence.a') > 0 AS fenced;
ROLLBACK;
SELECT * FROM fences;
SELECT zk_fence_reset('fence.a');
BEGIN;
SAVEPOINT one;
SELECT zk_fence('fence.a') > 0 AS fenced;
ROLLBACK TO one;
COMMIT;
SELECT * FROM fences;

-- refused if a greater token is recorded, in every isolation level
SELECT zk_fence('fence.a') > 0 AS fenced;
UPDATE zklock_fences SET token = token + 1 WHERE lock = 'fence.a';
\set VERBOSITY terse
SELECT zk_fence('fence.a');
\set VERBOSITY sqlstate
BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT zk_fence('fence.a'); ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT zk_fence('fence.a'); ROLLBACK;
SELECT * FROM fences;
-- a transaction that catches the error cannot commit
CREATE TABLE zklock_regress_fence (v text);
BEGIN;
INSERT INTO zklock_regress_fence VALUES ('before');
SAVEPOINT one;
SELECT zk_fence('fence.a');
ROLLBACK TO one;
COMMIT;
DO $$
BEGIN
	INSERT INTO zklock_regress_fence VALUES ('caught');
	PERFORM zk_fence('fence.a');
EXCEPTION WHEN serialization_failure THEN
	RAISE NOTICE 'caught';
END $$;
SELECT * FROM zklock_regress_fence;

-- zk_fence_reset, also of names that were not fenced
SELECT zk_fence_reset('fence.a');
SELECT zk_fence('fence.a') > 0 AS fenced;
SELECT zk_fence_reset('fence.a'), zk_fence_reset('fence.a'), zk_fence_reset('fence.nobody');
SELECT * FROM fences;
SELECT zk_unlock_all();
-- not all names
INSERT INTO zklock_fences VALUES ('fence.null', 1, now(), 'x');
SELECT zk_fence_reset(NULL);
SELECT zk_fence_reset((SELECT name FROM zk_held_locks));
SELECT count(*) FROM zklock_fences WHERE lock = 'fence.null';
SELECT zk_fence_reset('fence.null');

-- sharers check their token and do not record it, so they write nothing
BEGIN READ ONLY;
SELECT zk_xact_lock_shared('fence.a') = zk_fence('fence.a') AS same;
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT * FROM fences;
SELECT zk_lock_shared('fence.a') > 0 AS shared;
INSERT INTO zklock_fences VALUES ('fence.a', zk_lock_token('fence.a'), now(), 'x');
SELECT zk_fence('fence.a') > 0 AS not_older;
UPDATE zklock_fences SET token = token + 1 WHERE lock = 'fence.a';
SELECT zk_fence('fence.a');
SELECT zk_unlock_all();

-- an upgraded lock is exclusive, a downgraded one shared
SELECT zk_fence_reset('fence.a');
SELECT zk_lock_shared('fence.a') = zk_fence('fence.a') AS shared;
SELECT * FROM fences;
SELECT zk_lock('fence.a') = zk_fence('fence.a') AS upgraded;
SELECT * FROM fences;
SELECT zk_unlock('fence.a'), zk_fence('fence.a') > 0 AS downgraded;
SELECT zk_unlock_all();

-- a READ ONLY transaction cannot record a token
BEGIN READ ONLY; SELECT zk_xact_lock('fence.a') > 0 AS locked; SELECT zk_fence('fence.a'); ROLLBACK;
BEGIN READ ONLY; SELECT zk_fence_reset('fence.a'); ROLLBACK;

-- names are recorded as given, not as encoded in znodes
SELECT zk_lock('fence./%é'), zk_fence('fence./%é') \g /dev/null
SELECT lock FROM zklock_fences WHERE lock COLLATE "C" ~ '^fence\.%';
SELECT zk_fence_reset('fence./%é');
SELECT zk_lock(repeat('é', 256)) = zk_fence(repeat('é', 256)) AS longest;
SELECT zk_fence_reset(repeat('é', 256));
SELECT zk_unlock_all();
-- hints name the lock as it was given
\set VERBOSITY default
SELECT zk_fence('fence.it''s');
\set VERBOSITY sqlstate

-- after PREPARE TRANSACTION the record belongs to the prepared transaction
SELECT zk_lock('fence.a') > 0 AS locked;
BEGIN;
SELECT zk_fence('fence.a') > 0 AS fenced;
PREPARE TRANSACTION 'zklock_regress_fence';
SET lock_timeout = '10ms';
SELECT zk_fence('fence.a');
SELECT zk_fence_reset('fence.a');
RESET lock_timeout;
COMMIT PREPARED 'zklock_regress_fence';
SELECT * FROM fences;

-- ordinary roles need and have no privileges on the table; their search path, tables and
-- operators do not affect zk_fence
SET client_min_messages = warning;
DROP ROLE IF EXISTS zklock_regress_fencer;
RESET client_min_messages;
CREATE ROLE zklock_regress_fencer;
CREATE SCHEMA zklock_regress_hijack AUTHORIZATION zklock_regress_fencer;
SELECT zk_fence_reset('fence.a');
SET SESSION AUTHORIZATION zklock_regress_fencer;
CREATE TABLE zklock_regress_hijack.zklock_fences (lock int, token text);
CREATE FUNCTION zklock_regress_hijack.never(text, text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE ''hijacked''; END';
CREATE OPERATOR zklock_regress_hijack.= (LEFTARG = text, RIGHTARG = text, FUNCTION = zklock_regress_hijack.never);
SET search_path = zklock_regress_hijack, public, pg_catalog;
SELECT zk_fence('fence.a') > 0 AS fenced;
SELECT zk_fence('fence.a') > 0 AS fenced;
SELECT count(*) FROM zklock_regress_hijack.zklock_fences;
RESET search_path;
SELECT * FROM zklock_fences;
INSERT INTO zklock_fences VALUES ('fence.a', 1, now(), 'x');
DELETE FROM zklock_fences;
TRUNCATE zklock_fences;
SELECT zk_fence_reset('fence.a');
SELECT zk_fence_reset();
SELECT zk_fence_vacuum('1 year');
RESET SESSION AUTHORIZATION;
SELECT * FROM (SELECT lock, fenced_by FROM zklock_fences) AS f WHERE lock = 'fence.a';
-- EXECUTE on zk_fence can be revoked
REVOKE EXECUTE ON FUNCTION zk_fence(text) FROM PUBLIC;
SET SESSION AUTHORIZATION zklock_regress_fencer;
SELECT zk_fence('fence.a');
RESET SESSION AUTHORIZATION;
GRANT EXECUTE ON FUNCTION zk_fence(text) TO PUBLIC;
-- a role with EXECUTE needs no privileges on the table
GRANT EXECUTE ON FUNCTION zk_fence_reset(text) TO zklock_regress_fencer;
SET ROLE zklock_regress_fencer;
SELECT zk_fence_reset('fence.a');
-- fenced_by is the session user, not the role of SET ROLE
SELECT zk_fence('fence.a') > 0 AS fenced;
RESET ROLE;
SELECT * FROM fences;
REVOKE EXECUTE ON FUNCTION zk_fence_reset(text) FROM zklock_regress_fencer;
DROP SCHEMA zklock_regress_hijack CASCADE;
DROP ROLE zklock_regress_fencer;

-- no write decreases or removes a recorded token: an INSERT keeps the greater one, other writes fail
SELECT zk_fence_reset('fence.a');
INSERT INTO zklock_fences VALUES ('fence.w', 140, 'epoch', 'one'), ('fence.w', 144, 'epoch', 'two'), ('fence.w', 142, 'epoch', 'three');
SELECT lock, token, fenced_by FROM zklock_fences WHERE lock COLLATE "C" ~ '^fence';
INSERT INTO zklock_fences VALUES ('fence.w', 143, now(), 'four') ON CONFLICT (lock) DO UPDATE SET token = 1;
INSERT INTO zklock_fences VALUES ('fence.w', 145, 'epoch', 'five') RETURNING token;
UPDATE zklock_fences SET fenced_by = 'six' WHERE lock = 'fence.w';
UPDATE zklock_fences SET token = 150 WHERE lock = 'fence.w';
UPDATE zklock_fences SET token = 149 WHERE lock = 'fence.w';
UPDATE zklock_fences SET lock = 'fence.v', token = 151 WHERE lock = 'fence.w';
DELETE FROM zklock_fences WHERE lock = 'fence.w';
\set VERBOSITY default
TRUNCATE zklock_fences;
\set VERBOSITY sqlstate
SELECT lock, token, fenced_by FROM zklock_fences WHERE lock COLLATE "C" ~ '^fence';
INSERT INTO zklock_fences VALUES (NULL, 1, now(), 'x');
INSERT INTO zklock_fences VALUES ('fence.v', NULL, now(), 'x');
INSERT INTO zklock_fences VALUES ('fence.w', 152, NULL, 'x');
INSERT INTO zklock_fences VALUES ('fence.w', 152, now(), NULL);
UPDATE zklock_fences SET token = NULL WHERE lock = 'fence.w';
-- an apply worker of logical replication skips such changes
SET session_replication_role = replica;
INSERT INTO zklock_fences VALUES ('fence.w', 140, now(), 'late');
UPDATE zklock_fences SET token = 140 WHERE lock = 'fence.w';
UPDATE zklock_fences SET lock = 'fence.v' WHERE lock = 'fence.w';
DELETE FROM zklock_fences WHERE lock = 'fence.w';
TRUNCATE zklock_fences;
RESET session_replication_role;
SELECT lock, token, fenced_by FROM zklock_fences WHERE lock COLLATE "C" ~ '^fence';
-- no write sets an earlier time
INSERT INTO zklock_fences VALUES ('fence.t', 1, '2200-01-01', 'x');
INSERT INTO zklock_fences VALUES ('fence.t', 2, '-infinity', 'x');
UPDATE zklock_fences SET token = 3, fenced_at = '-infinity' WHERE lock = 'fence.t';
UPDATE zklock_fences SET fenced_at = NULL WHERE lock = 'fence.t';
SELECT token, fenced_at = '2200-01-01' AS same_time FROM zklock_fences WHERE lock = 'fence.t';
SET session_replication_role = replica;
INSERT INTO zklock_fences VALUES ('fence.t', 4, '-infinity', 'x');
UPDATE zklock_fences SET token = 5, fenced_at = '-infinity' WHERE lock = 'fence.t';
RESET session_replication_role;
SELECT token, fenced_at = '2200-01-01' AS same_time FROM zklock_fences WHERE lock = 'fence.t';
INSERT INTO zklock_fences VALUES ('fence.t', 6, '2200-01-02', 'x');
SELECT token, fenced_at = '2200-01-02' AS later_time FROM zklock_fences WHERE lock = 'fence.t';
SELECT zk_fence_reset('fence.t');
-- the trigger function works on this table only
CREATE TABLE zklock_regress_other (lock int, token int);
CREATE TRIGGER keep BEFORE INSERT ON zklock_regress_other FOR EACH ROW EXECUTE FUNCTION zklock_fences_keep();
INSERT INTO zklock_regress_other VALUES (1, 1);
DROP TABLE zklock_regress_other;
-- a row inserted and fenced by one statement
SELECT zk_lock('fence.v') > 0 AS locked;
WITH i AS (INSERT INTO zklock_fences VALUES ('fence.v', 1, now(), 'x') RETURNING token) SELECT zk_fence('fence.v') > i.token FROM i;
SELECT zk_unlock('fence.v');

-- zk_fence_vacuum removes rows older than the given age and than every session of this database
\c
\set VERBOSITY sqlstate
SELECT zk_fence_vacuum(NULL), 1;
SELECT zk_fence_vacuum('-1 s');
BEGIN READ ONLY; SELECT zk_fence_vacuum('0'); ROLLBACK;
SELECT zk_fence_vacuum('100 years');
SELECT lock FROM zklock_fences WHERE lock COLLATE "C" ~ '^fence' ORDER BY lock;
INSERT INTO zklock_fences VALUES ('fence.u', 1, now(), 'during a session');
BEGIN;
SELECT zk_fence_vacuum('1 day') > 0 AS removed;
SELECT lock FROM zklock_fences WHERE lock COLLATE "C" ~ '^fence' ORDER BY lock;
ROLLBACK;
SELECT lock FROM zklock_fences WHERE lock COLLATE "C" ~ '^fence' ORDER BY lock;
SELECT zk_fence_vacuum('0') > 0 AS removed;
SELECT lock FROM zklock_fences WHERE lock COLLATE "C" ~ '^fence' AND fenced_at < now() - interval '1 day';
SELECT lock FROM zklock_fences WHERE lock = 'fence.u';
-- zk_fence_reset() of all fences
BEGIN READ ONLY; SELECT zk_fence_reset(); ROLLBACK;
BEGIN;
INSERT INTO zklock_fences VALUES ('fence.z', 1, 'infinity', 'x');
SELECT zk_fence_reset();
SELECT count(*) FROM zklock_fences;
ROLLBACK;
SELECT zk_fence_reset('fence.u'), zk_fence_reset('fence.v'), zk_fence_reset('fence.w');
SELECT zk_lock('fence.a') > 0 AS locked;

-- moved, dropped and created again in one session
BEGIN;
CREATE SCHEMA zklock_regress_other;
ALTER EXTENSION zklock SET SCHEMA zklock_regress_other;
SELECT zklock_regress_other.zk_fence('fence.a') > 0 AS fenced;
SELECT count(*) FROM zklock_regress_other.zklock_fences WHERE lock = 'fence.a';
-- another table of the same name is not used
ALTER TABLE zklock_regress_other.zklock_fences SET SCHEMA public;
CREATE TABLE zklock_regress_other.zklock_fences (lock int);
SAVEPOINT one;
SELECT zklock_regress_other.zk_fence('fence.a');
ROLLBACK TO one;
SELECT zklock_regress_other.zk_unlock_all();
DROP EXTENSION zklock;
DROP TABLE zklock_regress_other.zklock_fences;
CREATE EXTENSION zklock SCHEMA zklock_regress_other;
SELECT zklock_regress_other.zk_lock('fence.a') > 0 AS locked;
SELECT count(*) FROM zklock_regress_other.zklock_fences;
SELECT zklock_regress_other.zk_fence('fence.a') > 0 AS fenced;
SELECT count(*) FROM zklock_regress_other.zklock_fences;
ROLLBACK;

SELECT zk_fence_reset('fence.a');
SELECT zk_unlock_all();
SELECT count(*) FROM zklock_fences WHERE lock COLLATE "C" ~ '^fence';
DROP TABLE zklock_regress_fence;
