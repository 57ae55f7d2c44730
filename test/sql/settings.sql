--
-- The settings: names, defaults, contexts, valid and invalid values.
--
-- Promise: 11.6
\pset format unaligned
\pset tuples_only on
SELECT name, boot_val, unit, context, vartype, enumvals
FROM pg_settings WHERE name LIKE 'zklock.%' AND name NOT LIKE 'zklock.tls%' ORDER BY name;
-- those that are fixed for the life of a session
CREATE FUNCTION pg_temp.is_fixed(setting text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config(setting, current_setting(setting), true);
	RETURN false;
EXCEPTION WHEN cant_change_runtime_param THEN
	RETURN true;
END $$;
SELECT name FROM pg_settings
WHERE name LIKE 'zklock.%' AND name NOT LIKE 'zklock.tls%' AND pg_temp.is_fixed(name) ORDER BY name;
-- each setting has a description
SELECT name FROM pg_settings WHERE name LIKE 'zklock.%' AND coalesce(short_desc, '') = '';

-- valid values; those of a ZooKeeper session are fixed, so they are for later sessions
ALTER DATABASE :"DBNAME" SET zklock.connect_string = 'zk1:2181';
ALTER DATABASE :"DBNAME" SET zklock.connect_string = 'zk1:2181,zk2:2182,10.0.0.3:65535';
ALTER DATABASE :"DBNAME" SET zklock.connect_string = 'zk1:2181,zk2:2182/chroot/deep';
ALTER DATABASE :"DBNAME" SET zklock.connect_string = '[::1]:2181';
ALTER DATABASE :"DBNAME" SET zklock.connect_string = '';
ALTER DATABASE :"DBNAME" SET zklock.root = '/a';
ALTER DATABASE :"DBNAME" SET zklock.root = '/a/b.c/d-e';
ALTER DATABASE :"DBNAME" SET zklock.root = '/a b';
ALTER DATABASE :"DBNAME" SET zklock.session_timeout = '4s';
ALTER DATABASE :"DBNAME" SET zklock.session_timeout = 4000;
SET zklock.ensemble_timeout = '1min';
SHOW zklock.ensemble_timeout;
RESET zklock.ensemble_timeout;
ALTER DATABASE :"DBNAME" SET zklock.node_names = curator_mutex;
ALTER DATABASE :"DBNAME" SET zklock.node_names = kazoo;
ALTER DATABASE :"DBNAME" SET zklock.node_names = 'Curator';
SET zklock.commit_check = always;
SET zklock.commit_check = off;
SET zklock.commit_check = lease;
SET zklock.stale_snapshot = off;
SET zklock.stale_snapshot = error;
SET zklock.stale_snapshot = warning;
SET zklock.deadlock_detection = off;
SET zklock.deadlock_detection = on;
ALTER DATABASE :"DBNAME" SET zklock.max_locks = 1;
ALTER DATABASE :"DBNAME" SET zklock.acl = creator;
ALTER DATABASE :"DBNAME" SET zklock.acl = world;
ALTER DATABASE :"DBNAME" SET zklock.auth_file = '/some/where';
SET zklock.client_log_level = error;
ALTER DATABASE :"DBNAME" RESET zklock.acl;
ALTER DATABASE :"DBNAME" RESET zklock.auth_file;
ALTER DATABASE :"DBNAME" RESET zklock.connect_string;
ALTER DATABASE :"DBNAME" RESET zklock.max_locks;
ALTER DATABASE :"DBNAME" RESET zklock.node_names;
ALTER DATABASE :"DBNAME" RESET zklock.root;
ALTER DATABASE :"DBNAME" RESET zklock.session_timeout;
RESET ALL;

-- invalid values are refused with the expected form
SET zklock.connect_string = 'zk1';
SET zklock.connect_string = 'zk1:';
SET zklock.connect_string = ':2181';
SET zklock.connect_string = 'zk1:2181,';
SET zklock.connect_string = 'zk1:2181,,zk2:2181';
SET zklock.connect_string = 'zk1:2181, zk2:2181';
SET zklock.connect_string = 'zk1:65536';
SET zklock.connect_string = 'zk1:2181/';
SET zklock.connect_string = 'zk1:2181/a//b';
SET zklock.connect_string = 'zk1:2181/a/../b';
SET zklock.connect_string = 'zk1:0';
SET zklock.connect_string = 'zk1:02181';
SET zklock.root = '';
SET zklock.root = 'zklock';
SET zklock.root = '/';
SET zklock.root = '/zklock/';
SET zklock.root = '/zk//lock';
SET zklock.root = '/./lock';
SET zklock.root = '/zk/..';
SET zklock.root = E'/zk\nlock';
\set VERBOSITY sqlstate
SELECT set_config('zklock.root', '/' || repeat('x', 1024), false);
SET zklock.session_timeout = 0;
SET zklock.session_timeout = '-1s';
SET zklock.session_timeout = 'soon';
SET zklock.ensemble_timeout = 0;
SET zklock.max_locks = 0;
SET zklock.max_locks = 7144;
SET zklock.max_locks = many;
\set VERBOSITY default
SET zklock.node_names = zookeeper;
SET zklock.commit_check = maybe;
SET zklock.stale_snapshot = panic;
SET zklock.deadlock_detection = maybe;
SET zklock.acl = anyone;
SET zklock.client_log_level = panic;
SET zklock.no_such_setting = 1;
-- valid values are refused as well
SET zklock.connect_string = 'zk1:2181';
SET LOCAL zklock.root = '/a';
SELECT set_config('zklock.session_timeout', '4s', false);
SET zklock.node_names = kazoo;
SET zklock.max_locks = 7;
SET zklock.acl = creator;
SET zklock.auth_file = '/some/where';
-- the refused values have changed nothing
SELECT name FROM pg_settings WHERE name LIKE 'zklock.%' AND setting IS DISTINCT FROM reset_val;
SELECT zk_lock('settings.a') > 0 AS locked;
SELECT zk_unlock_all();

-- each setting of node_names, with both modes if it has both
\c -reuse-previous=on "options='-c zklock.node_names=kazoo'"
SELECT zk_lock_shared('settings.a') = zk_lock('settings.a') AS upgraded;
SELECT zk_unlock_all();
\c -reuse-previous=on "options='-c zklock.node_names=curator_mutex'"
SELECT zk_lock('settings.a') > 0 AS locked;
SELECT zk_unlock_all();
\c -reuse-previous=on "options='-c zklock.node_names=curator'"
SELECT zk_lock_shared('settings.a') = zk_lock('settings.a') AS upgraded;
SELECT zk_unlock_all();

-- each value of commit_check
SET zklock.commit_check = always;
BEGIN;
SELECT zk_xact_lock('settings.a') > 0 AS locked, zk_lock('settings.b') > 0 AS session;
COMMIT;
SET zklock.commit_check = off;
BEGIN;
SELECT zk_xact_lock('settings.a') > 0 AS locked;
COMMIT;
RESET zklock.commit_check;
SELECT name FROM zk_held_locks;
SELECT zk_unlock_all();

\c -reuse-previous=on "options=''"
\set VERBOSITY default
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
