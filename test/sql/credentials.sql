--
-- zklock.auth_file and zklock.acl: access to the znodes; 42501 when the ensemble refuses it;
-- no secret in a message.
--
\set VERBOSITY sqlstate
COPY (SELECT 'digest alice:wonderland') TO PROGRAM 'umask 077; rm -f zklock_regress_alice; cat > zklock_regress_alice';
COPY (SELECT 'digest bob:builder') TO PROGRAM 'umask 077; rm -f zklock_regress_bob; cat > zklock_regress_bob';
COPY (SELECT 'digest open:house') TO PROGRAM 'umask 022; rm -f zklock_regress_open; cat > zklock_regress_open; chmod 644 zklock_regress_open';
COPY (SELECT 'wonderland') TO PROGRAM 'umask 077; rm -f zklock_regress_bad; cat > zklock_regress_bad';
SELECT set_config('zklock.root', '/zklock_regress_credentials', false);

-- acl = creator without credentials is an error
SET zklock.acl = creator;
SELECT zk_lock('credentials.nobody');

-- each session creates its own lock
SET zklock.auth_file = 'zklock_regress_alice';
SELECT zk_lock('credentials.alice') > 0 AS alice;
SELECT zk_unlock_all();
SET zklock.auth_file = 'zklock_regress_bob';
-- the parents are alice's
SELECT zk_lock('credentials.alice');
SELECT zk_lock('credentials.bob');
SELECT zk_try_lock('credentials.alice');
\set VERBOSITY default
SELECT :'LAST_ERROR_MESSAGE' LIKE '%"credentials.alice"%' AS names_lock;
\set VERBOSITY sqlstate
SELECT count(*) FROM zk_held_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SET zklock.auth_file = 'zklock_regress_alice';
SELECT zk_lock('credentials.alice') > 0 AS alice;
SELECT zk_unlock_all();

-- a file that others can read, an invalid file, a missing file
SET zklock.auth_file = 'zklock_regress_open';
SELECT zk_lock('credentials.alice') IS NULL;
SET zklock.auth_file = 'zklock_regress_bad';
SELECT zk_lock('credentials.alice') IS NULL;
SELECT :'LAST_ERROR_MESSAGE' LIKE '%wonderland%' AS tells;
SET zklock.auth_file = 'zklock_regress_none';
SELECT zk_lock('credentials.alice') IS NULL;
-- a pipe without a writer, and a line that is too long
COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; rm -f zklock_regress_pipe; umask 077; mkfifo zklock_regress_pipe';
SET zklock.auth_file = 'zklock_regress_pipe';
SELECT zk_lock('credentials.alice') IS NULL;
COPY (SELECT 'digest long:' || repeat('x', 2000)) TO PROGRAM 'umask 077; rm -f zklock_regress_long; cat > zklock_regress_long';
SET zklock.auth_file = 'zklock_regress_long';
SELECT zk_lock('credentials.alice') IS NULL;

RESET zklock.auth_file;
RESET zklock.acl;
RESET zklock.root;
SELECT zk_lock('credentials.alice') > 0 AS world;
SELECT zk_unlock_all();
COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; rm -f zklock_regress_alice zklock_regress_bob zklock_regress_open zklock_regress_bad zklock_regress_pipe zklock_regress_long';
