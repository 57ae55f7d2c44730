--
-- The settings: names, defaults, contexts, valid and invalid values.
--
SELECT state FROM zk_session();

SELECT name, boot_val, unit, context, vartype, enumvals
FROM pg_settings WHERE name LIKE 'zklock.%' AND name NOT LIKE 'zklock.tls%' ORDER BY name;
-- each setting has a description
SELECT name FROM pg_settings WHERE name LIKE 'zklock.%' AND coalesce(short_desc, '') = '';

-- valid values
SET zklock.connect_string = 'zk1:2181';
SET zklock.connect_string = 'zk1:2181,zk2:2182,10.0.0.3:65535';
SET zklock.connect_string = 'zk1:2181,zk2:2182/chroot/deep';
SET zklock.connect_string = '[::1]:2181';
SET zklock.connect_string = '';
RESET zklock.connect_string;
SET zklock.root = '/a';
SET zklock.root = '/a/b.c/d-e';
SET zklock.root = '/a b';
RESET zklock.root;
SET zklock.session_timeout = '4s';
SHOW zklock.session_timeout;
SET zklock.session_timeout = 4000;
SHOW zklock.session_timeout;
RESET zklock.session_timeout;
SET zklock.connect_timeout = '1min';
SHOW zklock.connect_timeout;
RESET zklock.connect_timeout;
SET zklock.node_names = curator_mutex;
SET zklock.node_names = kazoo;
SET zklock.node_names = 'Curator';
SHOW zklock.node_names;
SET zklock.commit_check = always;
SET zklock.commit_check = off;
SET zklock.commit_check = lease;
SET zklock.on_revoke = ignore;
SET zklock.on_revoke = cancel;
SET zklock.on_revoke = notice;
SET zklock.stale_snapshot = off;
SET zklock.stale_snapshot = error;
SET zklock.stale_snapshot = warning;
SET zklock.deadlock_detection = off;
SET zklock.deadlock_detection = on;
SET zklock.max_locks = 1;
SET zklock.acl = creator;
SET zklock.acl = world;
SET zklock.auth_file = '/some/where';
SET zklock.log_min_messages = error;
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
RESET zklock.connect_string;
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
SET zklock.connect_timeout = 0;
SET zklock.max_locks = 0;
SET zklock.max_locks = many;
\set VERBOSITY default
SET zklock.node_names = zookeeper;
SET zklock.commit_check = maybe;
SET zklock.on_revoke = panic;
SET zklock.stale_snapshot = panic;
SET zklock.deadlock_detection = maybe;
SET zklock.acl = anyone;
SET zklock.log_min_messages = panic;
SET zklock.no_such_setting = 1;
-- the refused values have changed nothing
SELECT name FROM pg_settings WHERE name LIKE 'zklock.%' AND setting IS DISTINCT FROM reset_val;
SELECT zk_lock('settings.a') > 0 AS locked;
SELECT zk_unlock_all();

-- the connect string can change between locks; while a lock is held it is an error
SELECT zk_lock('settings.a') > 0 AS locked;
SELECT session_id AS before FROM zk_session() \gset
SET zklock.root = '/zklock_regress_settings';
SELECT zk_lock('settings.b') > 0 AS locked;
SELECT session_id = :'before' AS same_session FROM zk_session();
SELECT zk_unlock_all();
SELECT zk_lock('settings.b') > 0 AS locked;
SELECT session_id = :'before' AS same_session FROM zk_session();
SELECT zk_unlock_all();
RESET zklock.root;

-- each setting of node_names, with both modes if it has both
SET zklock.node_names = kazoo;
SELECT zk_lock_shared('settings.a') = zk_lock('settings.a') AS upgraded;
SELECT zk_unlock_all();
SET zklock.node_names = curator_mutex;
SELECT zk_lock('settings.a') > 0 AS locked;
SELECT zk_unlock_all();
SET zklock.node_names = curator;
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
