--
-- The extension cannot be dropped while this session holds locks: they could not be
-- released.
--
\set VERBOSITY sqlstate
SELECT zk_lock('drop.a') > 0 AS locked;
DROP EXTENSION zklock CASCADE;
DO $$ BEGIN DROP EXTENSION zklock CASCADE; END $$;
-- other extensions, and dropping something else, are free
DROP EXTENSION IF EXISTS no_such_extension;
SELECT zk_unlock('drop.a');

-- at transaction level, and with a permit
BEGIN;
SELECT zk_xact_lock('drop.a') > 0 AS locked;
DROP EXTENSION zklock CASCADE;
ROLLBACK;
SELECT zk_acquire('drop.s', 1) > 0 AS acquired;
DROP EXTENSION zklock CASCADE;
SELECT zk_unlock_all();

-- with its schema
BEGIN;
CREATE SCHEMA drop_schema;
ALTER EXTENSION zklock SET SCHEMA drop_schema;
SELECT drop_schema.zk_xact_lock('drop.a') > 0 AS locked;
SET LOCAL client_min_messages = warning;
DROP SCHEMA drop_schema CASCADE;
ROLLBACK;

-- with nothing held it is dropped
BEGIN;
SET LOCAL client_min_messages = warning;
DROP EXTENSION zklock CASCADE;
SELECT count(*) FROM pg_extension WHERE extname = 'zklock';
ROLLBACK;
SELECT zk_lock('drop.a') > 0 AS locked, zk_unlock('drop.a');
