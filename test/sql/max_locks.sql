--
-- zklock.max_locks limits the nodes of a session. A call beyond the limit fails with 53400,
-- and changes nothing.
--
\set VERBOSITY sqlstate
\c -reuse-previous=on "options='-c zklock.max_locks=3'"
SELECT zk_lock('max_locks.1') > 0, zk_lock_shared('max_locks.2') > 0, zk_lock('3') > 0;
SELECT zk_lock('max_locks.4');
SELECT zk_xact_lock('max_locks.4');
SELECT zk_try_lock('max_locks.4');
-- re-entry and downgrade need no node of their own
SELECT zk_lock('max_locks.1') > 0 AS again, zk_lock_shared('max_locks.1') > 0 AS shared;
SELECT zk_unlock('max_locks.1'), zk_unlock('max_locks.1');
-- an upgrade needs a node
SELECT zk_lock('max_locks.2');
SELECT name, mode, count, state FROM zk_held_locks ORDER BY name;
-- all or nothing: the first name alone would be within the limit
SELECT zk_unlock('3');
SELECT zk_lock_all(ARRAY['max_locks.3', 'max_locks.4']);
SELECT name FROM zk_held_locks ORDER BY name;
SELECT zk_lock('max_locks.3') > 0 AS fits;
SELECT zk_unlock_all();
