--
-- A name is the same lock in every database, whatever the encoding. The local lock's tag in
-- pg_locks is a hash of the name in UTF-8, so it can be compared between sessions.
--
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate
SET client_min_messages = warning;
DROP DATABASE IF EXISTS zklock_regress_utf8;
DROP DATABASE IF EXISTS zklock_regress_latin1;
DROP DATABASE IF EXISTS zklock_regress_ascii;
DROP DATABASE IF EXISTS zklock_regress_win1252;
RESET client_min_messages;
CREATE DATABASE zklock_regress_win1252 TEMPLATE template0 ENCODING 'WIN1252' LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE zklock_regress_utf8 TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE zklock_regress_latin1 TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE zklock_regress_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C';
SELECT current_database() AS home \gset

\c zklock_regress_utf8
SET client_encoding = 'UTF8';
SET client_min_messages = warning;
CREATE EXTENSION zklock;
SELECT zk_lock('Zürich – Größe') > 0 AS locked;
SELECT classid AS utf8_class, objid AS utf8_obj FROM pg_locks
WHERE pid = pg_backend_pid() AND locktype = 'advisory' \gset
SELECT name = 'Zürich – Größe' AS as_given FROM zk_held_locks;
SELECT zk_unlock_all();
SELECT zk_lock('Zürich') > 0 AS locked;
SELECT classid AS short_class, objid AS short_obj FROM pg_locks
WHERE pid = pg_backend_pid() AND locktype = 'advisory' \gset
SELECT zk_unlock_all();

-- the limit counts bytes of UTF-8, not characters
SELECT zk_lock(repeat('ü', 256)) > 0 AS most;
SELECT zk_lock(repeat('ü', 256) || 'x');
SELECT zk_lock(repeat('😀', 128)) > 0 AS most;
SELECT zk_lock(repeat('😀', 129));
-- composed and decomposed characters are different names
SELECT zk_lock('é') <> zk_lock(U&'e\0301') AS different;
SELECT zk_unlock_all();

-- An error keeps its SQLSTATE if the client's encoding does not have the name: its message shows
-- the name of the znode then.
CREATE FUNCTION message_of(name text) RETURNS text LANGUAGE plpgsql AS
	$$ BEGIN PERFORM zk_fence(name); EXCEPTION WHEN OTHERS THEN RETURN SQLERRM; END $$;
SET client_encoding = 'LATIN1';
SELECT message_of(chr(8364)), message_of(chr(233)) = 'lock "' || chr(233) || '" is not held by this session' AS convertible;
SELECT zk_fence(chr(8364));
SELECT zk_acquire_permit(chr(8364), 0);
SELECT zk_unlock(chr(8364));
BEGIN;
SELECT zk_xact_lock(chr(8364)) > 0 AS locked;
SELECT name = chr(8364) AS as_given FROM zk_held_locks;
SELECT name = chr(8364) AS as_given FROM zk_locks WHERE pid = pg_backend_pid();
SELECT zk_fence(chr(8364)) > 0 AS fenced;
COMMIT;

\c zklock_regress_latin1
SET client_encoding = 'UTF8';
SET client_min_messages = warning;
CREATE EXTENSION zklock;
SELECT zk_lock('Zürich') > 0 AS locked;
SELECT classid = :short_class AND objid = :short_obj AS same_lock FROM pg_locks
WHERE pid = pg_backend_pid() AND locktype = 'advisory';
SELECT name = 'Zürich' AS as_given, octet_length(name) FROM zk_held_locks;
SELECT zk_unlock('Zürich');
-- 256 characters: 256 bytes in this database, 512 in UTF-8
SELECT zk_lock(repeat('ü', 256)) > 0 AS most;
SELECT zk_lock(repeat('ü', 256) || 'x');
SELECT zk_unlock_all();

\c zklock_regress_ascii
SET client_min_messages = warning;
CREATE EXTENSION zklock;
SELECT zk_lock('Zürich – Größe') > 0 AS locked;
SELECT classid = :utf8_class AND objid = :utf8_obj AS same_lock FROM pg_locks
WHERE pid = pg_backend_pid() AND locktype = 'advisory';
SELECT zk_unlock('Zürich – Größe');
-- unchecked bytes that are not UTF-8
SELECT zk_lock(E'Z\xfcrich');
SELECT zk_try_lock(E'\xc0\xaf'::text);
SELECT zk_lock_many(ARRAY['encoding.a', E'\xff']);
SELECT count(*) FROM zk_held_locks;

-- roles and databases whose names cannot be converted to UTF-8 can lock
\c zklock_regress_ascii
SET client_min_messages = warning;
DO $$ BEGIN EXECUTE format('CREATE ROLE %I', E'zklock_regress_\x81'); END $$;
CREATE TEMP VIEW who AS SELECT format('SET SESSION AUTHORIZATION %I', rolname) AS sql FROM pg_roles WHERE rolname ~ '^zklock_regress_.$';
DO $$ BEGIN EXECUTE (SELECT sql FROM who); END $$;
SELECT zk_lock('encoding.role') > 0 AS locked;
SELECT usename FROM zk_locks WHERE pid = pg_backend_pid();
\c zklock_regress_win1252
SET client_min_messages = warning;
CREATE EXTENSION zklock;
DO $$ BEGIN EXECUTE (SELECT format('SET SESSION AUTHORIZATION %I', rolname) FROM pg_roles WHERE rolname ~ '^zklock_regress_.$'); END $$;
SELECT zk_lock('encoding.role') > 0 AS locked;
SELECT usename, datname FROM zk_locks WHERE pid = pg_backend_pid();
\c zklock_regress_utf8
DO $$ BEGIN EXECUTE (SELECT format('SET SESSION AUTHORIZATION %I', rolname) FROM pg_roles WHERE rolname::bytea::text ~ '^.x7a6b6c6f636b5f726567726573735f81$'); END $$;
SELECT zk_lock('encoding.role') > 0 AS locked;
SELECT usename FROM zk_locks WHERE pid = pg_backend_pid();
\c zklock_regress_ascii
DO $$ BEGIN EXECUTE format('DROP ROLE %I', E'zklock_regress_\x81'); END $$;

\c :home
DROP DATABASE zklock_regress_win1252;
DROP DATABASE zklock_regress_utf8;
DROP DATABASE zklock_regress_latin1;
DROP DATABASE zklock_regress_ascii;
