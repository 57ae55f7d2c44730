--
-- While a session holds a lock, a lock call with settings that differ from those of the
-- open ZooKeeper session is an error: with SET, and in functions with SET. Held locks can be
-- released with any settings.
--
SELECT zk_unlock_all();
SET client_min_messages = warning;
DROP ROLE IF EXISTS zklock_regress_caller;
RESET client_min_messages;
CREATE ROLE zklock_regress_caller;
CREATE FUNCTION lock_elsewhere(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.root = '/zklock_regress_definer' AS 'SELECT zk_lock(name) > 0';
CREATE FUNCTION lock_xact_elsewhere(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.root = '/zklock_regress_definer' AS 'SELECT zk_xact_lock(name) > 0';
CREATE FUNCTION unlock_elsewhere(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.root = '/zklock_regress_definer' AS 'SELECT zk_unlock(name)';
CREATE FUNCTION lock_at(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.connect_string = '127.0.0.1:1' AS 'SELECT zk_lock(name) > 0';
CREATE FUNCTION lock_as(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.auth_file = '/no/such/file' AS 'SELECT zk_lock(name) > 0';
CREATE FUNCTION lock_for_creator(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.acl = creator AS 'SELECT zk_lock(name) > 0';
CREATE FUNCTION lock_same(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.root = '/zklock' AS 'SELECT zk_lock(name) > 0';
GRANT CREATE, USAGE ON SCHEMA public TO zklock_regress_caller;
SET ROLE zklock_regress_caller;

-- a caller that holds a lock
SELECT zk_lock('definer_settings.a') > 0 AS locked;
SELECT lock_elsewhere('definer_settings.b');
SELECT lock_elsewhere('definer_settings.a');
SELECT lock_xact_elsewhere('definer_settings.b');
SELECT lock_at('definer_settings.b');
SELECT lock_as('definer_settings.b');
SELECT lock_for_creator('definer_settings.b');
SELECT lock_same('definer_settings.b');
SELECT unlock_elsewhere('definer_settings.b');
SELECT name FROM zk_held_locks;
SELECT zk_lock('definer_settings.a') > 0 AS locked;
SELECT zk_unlock_all();

-- a caller that holds nothing
SELECT lock_elsewhere('definer_settings.b');
SELECT name, scope FROM zk_held_locks;
\set VERBOSITY terse
SELECT zk_lock('definer_settings.b');
SELECT zk_try_lock('definer_settings.a');
SELECT zk_xact_lock_shared(ARRAY['definer_settings.b', 'definer_settings.c']);
SELECT zk_acquire('definer_settings.s', 2);
SELECT zk_fence('definer_settings.b');
RESET ROLE;
SELECT count(*) FROM zk_locks;
SELECT zk_revoke('definer_settings.b');
SET ROLE zklock_regress_caller;
\set VERBOSITY default
SELECT zk_lock_token('definer_settings.b') > 0 AS token, zk_revoked('definer_settings.b') AS revoked;
SELECT lock_elsewhere('definer_settings.b');
SELECT zk_unlock('definer_settings.b'), zk_unlock('definer_settings.b');
SELECT zk_lock('definer_settings.b') > 0 AS locked;
SELECT zk_unlock_all();

-- transaction-level locks end with the transaction
BEGIN;
SELECT lock_xact_elsewhere('definer_settings.b');
SAVEPOINT p;
SELECT zk_xact_lock('definer_settings.b');
ROLLBACK TO p;
COMMIT;
SELECT zk_lock('definer_settings.b') > 0 AS locked;
SELECT zk_unlock_all();

-- the same without a function
RESET ROLE;
SELECT zk_lock('definer_settings.a') > 0 AS locked;
SET zklock.root = '/zklock_regress_definer';
SELECT zk_lock('definer_settings.a');
SET zklock.root = '/zklock';
SELECT zk_lock('definer_settings.a') > 0 AS locked;
SET zklock.max_locks = 7;
SELECT zk_lock('definer_settings.a');
RESET zklock.max_locks;
BEGIN;
SET LOCAL zklock.node_names = kazoo;
SELECT zk_lock('definer_settings.b');
ROLLBACK;
SELECT zk_lock('definer_settings.b') > 0 AS locked;
-- settings that do not concern the ZooKeeper session
SET zklock.commit_check = always;
SET zklock.connect_timeout = '9s';
SELECT zk_lock('definer_settings.b') > 0 AS locked;
RESET ALL;
SELECT zk_unlock_all();
DROP FUNCTION lock_elsewhere, lock_xact_elsewhere, unlock_elsewhere, lock_at, lock_as, lock_for_creator, lock_same;
REVOKE CREATE, USAGE ON SCHEMA public FROM zklock_regress_caller;
DROP ROLE zklock_regress_caller;
