--
-- The settings of a ZooKeeper session are fixed when a session starts: SET and the SET clause of
-- a function are refused, for superusers too, so a function cannot lock in another place than
-- its caller.
--
\set VERBOSITY sqlstate
-- already when the function is created, because its body is checked with its settings
CREATE FUNCTION lock_elsewhere(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.root = '/zklock_regress_definer' AS 'SELECT zk_lock(name) > 0';
SET check_function_bodies = off;
CREATE FUNCTION lock_elsewhere(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.root = '/zklock_regress_definer' AS 'SELECT zk_lock(name) > 0';
CREATE FUNCTION lock_at(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.connect_string = '127.0.0.1:1' AS 'SELECT zk_lock(name) > 0';
CREATE FUNCTION lock_as(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.auth_file = '/no/such/file' AS 'SELECT zk_lock(name) > 0';
CREATE FUNCTION lock_for_creator(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.acl = creator AS 'SELECT zk_lock(name) > 0';
CREATE FUNCTION lock_same(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.root = '/zklock' AS 'SELECT zk_lock(name) > 0';
CREATE FUNCTION lock_checked(name text) RETURNS boolean LANGUAGE sql SECURITY DEFINER
	SET zklock.commit_check = always AS 'SELECT zk_lock(name) > 0';
SET client_min_messages = warning;
DROP ROLE IF EXISTS zklock_regress_caller;
RESET client_min_messages;
CREATE ROLE zklock_regress_caller;
SET ROLE zklock_regress_caller;
SELECT lock_elsewhere('definer_settings.a');
SELECT lock_at('definer_settings.a');
SELECT lock_as('definer_settings.a');
SELECT lock_for_creator('definer_settings.a');
SELECT lock_same('definer_settings.a');
-- a setting that is not fixed
SELECT lock_checked('definer_settings.a');
-- also while the session holds a lock
SELECT lock_elsewhere('definer_settings.b');
SELECT name FROM zk_held_locks;
SELECT zk_unlock_all();
RESET ROLE;
-- the same without a function, and in a transaction
SET zklock.root = '/zklock_regress_definer';
SET zklock.root = '/zklock';
BEGIN;
SET LOCAL zklock.node_names = kazoo;
ROLLBACK;
-- RESET is no change
RESET zklock.root;
RESET ALL;
DISCARD ALL;
SHOW zklock.root;
-- DETAIL and HINT say why
\set VERBOSITY default
SET zklock.max_locks = 7;
DROP FUNCTION lock_elsewhere, lock_at, lock_as, lock_for_creator, lock_same, lock_checked;
DROP ROLE zklock_regress_caller;
