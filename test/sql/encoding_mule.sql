--
-- PostgreSQL cannot convert MULE_INTERNAL to UTF-8: only names in ASCII are accepted. PostgreSQL
-- 19 does not have this encoding.
--
\pset format unaligned
\pset tuples_only on
SELECT current_setting('server_version_num')::int >= 190000 AS skip_test \gset
\if :skip_test
\quit
\endif
\set VERBOSITY sqlstate
SET client_min_messages = warning;
DROP DATABASE IF EXISTS zklock_regress_mule;
RESET client_min_messages;
CREATE DATABASE zklock_regress_mule TEMPLATE template0 ENCODING 'MULE_INTERNAL' LC_COLLATE 'C' LC_CTYPE 'C';
SELECT current_database() AS home \gset
\c zklock_regress_mule
SET client_min_messages = warning;
CREATE EXTENSION zklock;
SELECT zk_lock('Zuerich, 100 %') > 0 AS locked;
SELECT name, datname FROM zk_locks WHERE pid = pg_backend_pid();
SELECT name FROM zk_held_locks;
SELECT zk_unlock('Zuerich, 100 %');
SELECT zk_lock(E'Z\x81\xfcrich');
\c :home
DROP DATABASE zklock_regress_mule;
