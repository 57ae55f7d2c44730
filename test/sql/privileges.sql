--
-- An ordinary role may use every lock function and view, but may not change the superuser's
-- settings.
-- Covers property 37.
--
\pset format unaligned
\pset tuples_only on
SELECT state FROM zk_session();
SET client_min_messages = warning;
DROP ROLE IF EXISTS zklock_regress_user;
RESET client_min_messages;
CREATE ROLE zklock_regress_user;
SET SESSION AUTHORIZATION zklock_regress_user;

-- functions
SELECT zk_lock('privileges.a') > 0, zk_lock_shared('privileges.s') > 0, zk_try_lock('privileges.t'),
       zk_try_lock_shared('privileges.ts'), zk_xact_lock('privileges.x') > 0, zk_xact_lock_shared('privileges.xs') > 0,
       zk_try_xact_lock('privileges.tx'), zk_try_xact_lock_shared('privileges.txs');
SELECT zk_lock_token('privileges.a') > 0 AS token;
SELECT zk_unlock('privileges.a'), zk_unlock_shared('privileges.s');
SELECT name, mode, level, hold_count, state FROM zk_held_locks ORDER BY name;
SELECT state, locks FROM zk_session();
SELECT zk_unlock_all();

-- settings of a user
SET zklock.ensemble_timeout = '5s';
SET zklock.stale_snapshot = error;
RESET zklock.ensemble_timeout;
RESET zklock.stale_snapshot;
-- settings of a superuser
SET zklock.connect_string = 'evil:2181';
SET zklock.root = '/';
SET zklock.session_timeout = '1s';
SET zklock.node_names = kazoo;
SET zklock.commit_check = off;
SET zklock.deadlock_detection = off;
SET zklock.max_locks = 7143;
SET zklock.acl = creator;
SET zklock.auth_file = '/etc/passwd';
SET zklock.client_log_level = error;
ALTER ROLE zklock_regress_user SET zklock.commit_check = off;
-- an ordinary role may not see the name of the credentials file
\set VERBOSITY sqlstate
SHOW zklock.auth_file;
\set VERBOSITY default
SELECT count(*) FROM pg_settings WHERE name = 'zklock.auth_file';
-- an ordinary role may see the other settings
SELECT current_setting('zklock.node_names'), current_setting('zklock.commit_check');

RESET SESSION AUTHORIZATION;
-- PostgreSQL 15 can grant SET on a setting
GRANT SET ON PARAMETER zklock.commit_check TO zklock_regress_user;
SET SESSION AUTHORIZATION zklock_regress_user;
SET zklock.commit_check = always;
RESET zklock.commit_check;
RESET SESSION AUTHORIZATION;
REVOKE SET ON PARAMETER zklock.commit_check FROM zklock_regress_user;

-- a lock belongs to the session, whatever its current user
SELECT zk_lock('privileges.a') > 0 AS locked;
SET ROLE zklock_regress_user;
SELECT name FROM zk_held_locks;
SELECT zk_lock('privileges.a') > 0 AS locked;
SELECT zk_unlock('privileges.a'), zk_unlock('privileges.a');
RESET ROLE;

-- no explicit grants: EXECUTE for PUBLIC is the default
SELECT proname FROM pg_proc WHERE proname ~ '^zk_(try_|xact_|lock|unlock|session)' AND proacl IS NOT NULL;
-- PUBLIC can only read the views
SELECT has_table_privilege('zklock_regress_user', 'zk_held_locks', p) AS may, p AS what
FROM unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE}'::text[]) AS p;
SELECT has_table_privilege('zklock_regress_user', 'zk_locks', p) AS may, p AS what
FROM unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE}'::text[]) AS p;
-- zk_revoke needs the privileges of pg_signal_backend
SET ROLE zklock_regress_user;
SELECT count(*) FROM zk_locks WHERE name = 'privileges.none';
\set VERBOSITY sqlstate
SELECT zk_revoke('privileges.none');
\set VERBOSITY default
RESET ROLE;
GRANT pg_signal_backend TO zklock_regress_user;
SET ROLE zklock_regress_user;
SELECT zk_revoke('privileges.none');
RESET ROLE;
DROP ROLE zklock_regress_user;
