--
-- The extension cannot be dropped while this session holds locks, because the session could
-- not release them.
--
\set VERBOSITY sqlstate
SELECT zk_lock('drop.a') > 0 AS locked;
DROP EXTENSION zklock CASCADE;
DO $$ BEGIN DROP EXTENSION zklock CASCADE; END $$;
-- other extensions and other objects can be dropped
DROP EXTENSION IF EXISTS no_such_extension;
SELECT zk_unlock('drop.a');

-- with a transaction-level lock, and with a permit
BEGIN;
SELECT zk_xact_lock('drop.a') > 0 AS locked;
DROP EXTENSION zklock CASCADE;
ROLLBACK;
SELECT zk_acquire('drop.s', 1) > 0 AS acquired;
DROP EXTENSION zklock CASCADE;
SELECT zk_unlock_all();

-- DROP SCHEMA of the schema of the extension
BEGIN;
CREATE SCHEMA drop_schema;
ALTER EXTENSION zklock SET SCHEMA drop_schema;
SELECT drop_schema.zk_xact_lock('drop.a') > 0 AS locked;
SET LOCAL client_min_messages = warning;
DROP SCHEMA drop_schema CASCADE;
ROLLBACK;

-- without locks the extension is dropped
BEGIN;
SET LOCAL client_min_messages = warning;
DROP EXTENSION zklock CASCADE;
SELECT count(*) FROM pg_extension WHERE extname = 'zklock';
ROLLBACK;
SELECT zk_lock('drop.a') > 0 AS locked, zk_unlock('drop.a');
