--
-- With zklock.node_names = curator_mutex there is no shared mode: every shared function is
-- refused with 0A000, also while this session holds the lock.
--
\set VERBOSITY sqlstate
\c -reuse-previous=on "options='-c zklock.node_names=curator_mutex'"
SELECT zk_lock_shared('node_names');
SELECT zk_xact_lock_shared('node_names');
SELECT zk_try_lock_shared('node_names');
SELECT zk_try_xact_lock_shared('node_names', '1s');
SELECT zk_lock_all_shared(ARRAY['node_names', 'node_names.2']);
SELECT zk_lock('node_names') > 0 AS locked;
SELECT zk_lock_shared('node_names');
SELECT zk_xact_lock_shared('node_names');
SELECT zk_try_lock_shared('node_names');
SELECT zk_try_xact_lock_shared('node_names', '1s');
SELECT zk_lock_all_shared(ARRAY['node_names']);
SELECT name, mode, count FROM zk_held_locks;
SELECT zk_unlock('node_names');
SELECT count(*) FROM zk_held_locks;
-- another session has other node names
\set VERBOSITY default
\c -reuse-previous=on "options='-c zklock.node_names=curator'"
SELECT zk_lock_shared('node_names') > 0 AS shared;
SELECT zk_unlock_all();
