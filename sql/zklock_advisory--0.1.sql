\echo Use "CREATE EXTENSION zklock_advisory" to load this file. \quit

-- PostgreSQL's advisory lock functions under their own names, cluster-wide, for
-- programs that cannot be changed.  A lock is named after the database and the
-- key, so applications in databases of different names do not exclude each other.
--
-- The bodies are parsed now, in the search path set here: when they run they depend
-- on no search path.  CREATE SCHEMA fails if the schema already exists.

SELECT pg_catalog.set_config('search_path', pg_catalog.quote_ident(n.nspname), true)
FROM pg_catalog.pg_extension AS e JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
WHERE e.extname OPERATOR(pg_catalog.=) 'zklock';

CREATE SCHEMA zklock_advisory;

COMMENT ON SCHEMA zklock_advisory IS
	'cluster-wide functions with the names of PostgreSQL''s advisory lock functions; for search_path, before pg_catalog';

GRANT USAGE ON SCHEMA zklock_advisory TO PUBLIC;

CREATE FUNCTION zklock_advisory.pg_advisory_lock(bigint)
RETURNS void
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_lock(pg_catalog.format('advisory:%s:%s', pg_catalog.current_database(), $1));

COMMENT ON FUNCTION zklock_advisory.pg_advisory_lock(bigint) IS
	'pg_advisory_lock, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_advisory_lock(integer, integer)
RETURNS void
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_lock(pg_catalog.format('advisory:%s:%s,%s', pg_catalog.current_database(), $1, $2));

COMMENT ON FUNCTION zklock_advisory.pg_advisory_lock(integer, integer) IS
	'pg_advisory_lock, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_advisory_lock_shared(bigint)
RETURNS void
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_lock_shared(pg_catalog.format('advisory:%s:%s', pg_catalog.current_database(), $1));

COMMENT ON FUNCTION zklock_advisory.pg_advisory_lock_shared(bigint) IS
	'pg_advisory_lock_shared, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_advisory_lock_shared(integer, integer)
RETURNS void
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_lock_shared(pg_catalog.format('advisory:%s:%s,%s', pg_catalog.current_database(), $1, $2));

COMMENT ON FUNCTION zklock_advisory.pg_advisory_lock_shared(integer, integer) IS
	'pg_advisory_lock_shared, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_advisory_xact_lock(bigint)
RETURNS void
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_xact_lock(pg_catalog.format('advisory:%s:%s', pg_catalog.current_database(), $1));

COMMENT ON FUNCTION zklock_advisory.pg_advisory_xact_lock(bigint) IS
	'pg_advisory_xact_lock, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_advisory_xact_lock(integer, integer)
RETURNS void
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_xact_lock(pg_catalog.format('advisory:%s:%s,%s', pg_catalog.current_database(), $1, $2));

COMMENT ON FUNCTION zklock_advisory.pg_advisory_xact_lock(integer, integer) IS
	'pg_advisory_xact_lock, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_advisory_xact_lock_shared(bigint)
RETURNS void
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_xact_lock_shared(pg_catalog.format('advisory:%s:%s', pg_catalog.current_database(), $1));

COMMENT ON FUNCTION zklock_advisory.pg_advisory_xact_lock_shared(bigint) IS
	'pg_advisory_xact_lock_shared, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_advisory_xact_lock_shared(integer, integer)
RETURNS void
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_xact_lock_shared(pg_catalog.format('advisory:%s:%s,%s', pg_catalog.current_database(), $1, $2));

COMMENT ON FUNCTION zklock_advisory.pg_advisory_xact_lock_shared(integer, integer) IS
	'pg_advisory_xact_lock_shared, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_try_advisory_lock(bigint)
RETURNS boolean
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_try_lock(pg_catalog.format('advisory:%s:%s', pg_catalog.current_database(), $1), '0'::pg_catalog.interval);

COMMENT ON FUNCTION zklock_advisory.pg_try_advisory_lock(bigint) IS
	'pg_try_advisory_lock, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_try_advisory_lock(integer, integer)
RETURNS boolean
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_try_lock(pg_catalog.format('advisory:%s:%s,%s', pg_catalog.current_database(), $1, $2), '0'::pg_catalog.interval);

COMMENT ON FUNCTION zklock_advisory.pg_try_advisory_lock(integer, integer) IS
	'pg_try_advisory_lock, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_try_advisory_lock_shared(bigint)
RETURNS boolean
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_try_lock_shared(pg_catalog.format('advisory:%s:%s', pg_catalog.current_database(), $1), '0'::pg_catalog.interval);

COMMENT ON FUNCTION zklock_advisory.pg_try_advisory_lock_shared(bigint) IS
	'pg_try_advisory_lock_shared, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_try_advisory_lock_shared(integer, integer)
RETURNS boolean
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_try_lock_shared(pg_catalog.format('advisory:%s:%s,%s', pg_catalog.current_database(), $1, $2), '0'::pg_catalog.interval);

COMMENT ON FUNCTION zklock_advisory.pg_try_advisory_lock_shared(integer, integer) IS
	'pg_try_advisory_lock_shared, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_try_advisory_xact_lock(bigint)
RETURNS boolean
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_try_xact_lock(pg_catalog.format('advisory:%s:%s', pg_catalog.current_database(), $1), '0'::pg_catalog.interval);

COMMENT ON FUNCTION zklock_advisory.pg_try_advisory_xact_lock(bigint) IS
	'pg_try_advisory_xact_lock, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_try_advisory_xact_lock(integer, integer)
RETURNS boolean
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_try_xact_lock(pg_catalog.format('advisory:%s:%s,%s', pg_catalog.current_database(), $1, $2), '0'::pg_catalog.interval);

COMMENT ON FUNCTION zklock_advisory.pg_try_advisory_xact_lock(integer, integer) IS
	'pg_try_advisory_xact_lock, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_try_advisory_xact_lock_shared(bigint)
RETURNS boolean
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_try_xact_lock_shared(pg_catalog.format('advisory:%s:%s', pg_catalog.current_database(), $1), '0'::pg_catalog.interval);

COMMENT ON FUNCTION zklock_advisory.pg_try_advisory_xact_lock_shared(bigint) IS
	'pg_try_advisory_xact_lock_shared, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_try_advisory_xact_lock_shared(integer, integer)
RETURNS boolean
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_try_xact_lock_shared(pg_catalog.format('advisory:%s:%s,%s', pg_catalog.current_database(), $1, $2), '0'::pg_catalog.interval);

COMMENT ON FUNCTION zklock_advisory.pg_try_advisory_xact_lock_shared(integer, integer) IS
	'pg_try_advisory_xact_lock_shared, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_advisory_unlock(bigint)
RETURNS boolean
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_unlock(pg_catalog.format('advisory:%s:%s', pg_catalog.current_database(), $1));

COMMENT ON FUNCTION zklock_advisory.pg_advisory_unlock(bigint) IS
	'pg_advisory_unlock, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_advisory_unlock(integer, integer)
RETURNS boolean
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_unlock(pg_catalog.format('advisory:%s:%s,%s', pg_catalog.current_database(), $1, $2));

COMMENT ON FUNCTION zklock_advisory.pg_advisory_unlock(integer, integer) IS
	'pg_advisory_unlock, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_advisory_unlock_shared(bigint)
RETURNS boolean
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_unlock_shared(pg_catalog.format('advisory:%s:%s', pg_catalog.current_database(), $1));

COMMENT ON FUNCTION zklock_advisory.pg_advisory_unlock_shared(bigint) IS
	'pg_advisory_unlock_shared, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_advisory_unlock_shared(integer, integer)
RETURNS boolean
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_unlock_shared(pg_catalog.format('advisory:%s:%s,%s', pg_catalog.current_database(), $1, $2));

COMMENT ON FUNCTION zklock_advisory.pg_advisory_unlock_shared(integer, integer) IS
	'pg_advisory_unlock_shared, cluster-wide';

CREATE FUNCTION zklock_advisory.pg_advisory_unlock_all()
RETURNS void
LANGUAGE sql VOLATILE STRICT PARALLEL RESTRICTED
RETURN zk_unlock_all();

COMMENT ON FUNCTION zklock_advisory.pg_advisory_unlock_all() IS
	'pg_advisory_unlock_all, cluster-wide: releases all locks and permits of zklock that the session holds at session level';
