--
-- zklock.auth_file and zklock.acl: access to the znodes; 42501 when the ensemble refuses it;
-- no secret in a message.
--
-- Promise: 10.2
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate
COPY (SELECT 'digest alice:wonderland') TO PROGRAM 'umask 077; rm -f zklock_regress_alice; cat > zklock_regress_alice';
COPY (SELECT 'digest bob:builder') TO PROGRAM 'umask 077; rm -f zklock_regress_bob; cat > zklock_regress_bob';
COPY (SELECT 'digest open:house') TO PROGRAM 'umask 022; rm -f zklock_regress_open; cat > zklock_regress_open; chmod 644 zklock_regress_open';
COPY (SELECT 'wonderland') TO PROGRAM 'umask 077; rm -f zklock_regress_bad; cat > zklock_regress_bad';
\c -reuse-previous=on "options='-c zklock.root=/zklock_regress_credentials'"

-- acl = creator without credentials is an error
\c -reuse-previous=on "options='-c zklock.acl=creator -c zklock.root=/zklock_regress_credentials'"
SELECT zk_lock('credentials.nobody');

-- each session creates its own lock
\c -reuse-previous=on "options='-c zklock.acl=creator -c zklock.auth_file=zklock_regress_alice -c zklock.root=/zklock_regress_credentials'"
SELECT zk_lock('credentials.alice') > 0 AS alice;
SELECT zk_unlock_all();
\c -reuse-previous=on "options='-c zklock.acl=creator -c zklock.auth_file=zklock_regress_bob -c zklock.root=/zklock_regress_credentials'"
-- the parents are alice's
SELECT zk_lock('credentials.alice');
SELECT zk_lock('credentials.bob');
SELECT zk_try_lock('credentials.alice');
\set VERBOSITY default
SELECT :'LAST_ERROR_MESSAGE' LIKE '%"credentials.alice"%' AS names_lock;
\set VERBOSITY sqlstate
SELECT count(*) FROM zk_held_locks;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
\c -reuse-previous=on "options='-c zklock.acl=creator -c zklock.auth_file=zklock_regress_alice -c zklock.root=/zklock_regress_credentials'"
SELECT zk_lock('credentials.alice') > 0 AS alice;
SELECT zk_unlock_all();

-- a file that others can read, an invalid file, a missing file
\c -reuse-previous=on "options='-c zklock.acl=creator -c zklock.auth_file=zklock_regress_open -c zklock.root=/zklock_regress_credentials'"
SELECT zk_lock('credentials.alice') IS NULL;
\c -reuse-previous=on "options='-c zklock.acl=creator -c zklock.auth_file=zklock_regress_bad -c zklock.root=/zklock_regress_credentials'"
SELECT zk_lock('credentials.alice') IS NULL;
SELECT :'LAST_ERROR_MESSAGE' LIKE '%wonderland%' AS tells;
\c -reuse-previous=on "options='-c zklock.acl=creator -c zklock.auth_file=zklock_regress_none -c zklock.root=/zklock_regress_credentials'"
SELECT zk_lock('credentials.alice') IS NULL;
-- a pipe without a writer, and a line that is too long
COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; rm -f zklock_regress_pipe; umask 077; mkfifo zklock_regress_pipe';
\c -reuse-previous=on "options='-c zklock.acl=creator -c zklock.auth_file=zklock_regress_pipe -c zklock.root=/zklock_regress_credentials'"
SELECT zk_lock('credentials.alice') IS NULL;
COPY (SELECT 'digest long:' || repeat('x', 2000)) TO PROGRAM 'umask 077; rm -f zklock_regress_long; cat > zklock_regress_long';
\c -reuse-previous=on "options='-c zklock.acl=creator -c zklock.auth_file=zklock_regress_long -c zklock.root=/zklock_regress_credentials'"
SELECT zk_lock('credentials.alice') IS NULL;

\c -reuse-previous=on "options=''"
SELECT zk_lock('credentials.alice') > 0 AS world;
SELECT zk_unlock_all();
COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; rm -f zklock_regress_alice zklock_regress_bob zklock_regress_open zklock_regress_bad zklock_regress_pipe zklock_regress_long';
