/*-------------------------------------------------------------------------
 *
 * functions.c
 *		The SQL functions: arguments in, one call, result out.
 *
 * Every function exists for four forms of key: text, bigint, two integers, and
 * an array of text.  KEY_FORMS makes the four entry points of one operation;
 * the operation itself sees a list of names and whether it was an array.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "cluster.h"
#include "compat.h"
#include "fence.h"
#include "locks.h"
#include "loss.h"
#include "names.h"
#include "revoke.h"
#include "semaphores.h"

/* The key of a call, whatever its form.  Points into itself: not to be copied. */
typedef struct Key
{
	const ZklockName *names;
	int			n;
	bool		is_array;
	int			n_args;			/* arguments that it takes up */
	ZklockName	single;
	ZklockNameRoom room;
} Key;

typedef enum KeyForm
{
	KEY_TEXT,
	KEY_INT8,
	KEY_INT4,
	KEY_ARRAY
} KeyForm;

static void
require_arguments(FunctionCallInfo fcinfo)
{
	for (int i = 0; i < PG_NARGS(); i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument %d must not be null", i + 1),
					 errhint("Unlike pg_advisory_lock(), zklock refuses NULL instead of locking nothing.")));
}

static void
read_key(FunctionCallInfo fcinfo, KeyForm form, Key *key)
{
	key->names = &key->single;
	key->n = 1;
	key->is_array = form == KEY_ARRAY;
	key->n_args = form == KEY_INT4 ? 2 : 1;
	require_arguments(fcinfo);
	switch (form)
	{
		case KEY_TEXT:
			zklock_name_from_text(PG_GETARG_TEXT_PP(0), &key->room, &key->single);
			break;
		case KEY_INT8:
			zklock_name_from_int8(PG_GETARG_INT64(0), &key->room, &key->single);
			break;
		case KEY_INT4:
			zklock_name_from_int4(PG_GETARG_INT32(0), PG_GETARG_INT32(1), &key->room,
								  &key->single);
			break;
		case KEY_ARRAY:
			key->names = zklock_names_from_array(PG_GETARG_ARRAYTYPE_P(0), &key->n);
			break;
	}
}

/* An argument that says how long to wait, in milliseconds. */
static int64
read_wait(FunctionCallInfo fcinfo, int i)
{
	Interval   *wait = PG_GETARG_INTERVAL_P(i);
	double		ms;

	if (zklock_interval_is_endless(wait))
		return ZKLOCK_NO_LIMIT;
	ms = ((double) wait->month * DAYS_PER_MONTH + wait->day) * SECS_PER_DAY * 1000.0 +
		wait->time / 1000.0;
	if (ms < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time to wait must not be negative"),
				 errhint("Use zero to not wait at all, and a function without \"try\" to wait without limit.")));
	/* What is more than nothing is at least a millisecond. */
	return (int64) ceil(Min(ms, 1e15));
}

static Datum
tokens_of(const Key *key)
{
	Datum	   *tokens;
	bool	   *nulls;
	int			n = key->n;
	int			lower_bound = 1;

	tokens = palloc(sizeof(Datum) * (key->n + 1));
	nulls = palloc(sizeof(bool) * (key->n + 1));
	for (int i = 0; i < key->n; i++)
	{
		int64		token = zklock_token(&key->names[i]);

		tokens[i] = Int64GetDatum(token);
		nulls[i] = token == 0;
	}
	return PointerGetDatum(construct_md_array(tokens, nulls, n > 0 ? 1 : 0,
											  &n, &lower_bound, INT8OID, 8,
											  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* The token, or those of an array. */
static Datum
token_result(FunctionCallInfo fcinfo, const Key *key)
{
	int64		token;

	if (key->is_array)
		return tokens_of(key);
	token = zklock_token(key->names);
	if (token == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}

static bool
acquire(const Key *key, ZklMode mode, ZklockScope scope, int64 limit_ms)
{
	int			n = key->n;
	const ZklockName *names = zklock_names_distinct(key->names, &n);
	ZklockWish	wish = {names, n, mode, scope, limit_ms};

	return zklock_acquire(&wish);
}

static Datum
lock(FunctionCallInfo fcinfo, KeyForm form, ZklMode mode, ZklockScope scope)
{
	Key			key;

	read_key(fcinfo, form, &key);
	acquire(&key, mode, scope, ZKLOCK_NO_LIMIT);
	return token_result(fcinfo, &key);
}

static Datum
try_lock(FunctionCallInfo fcinfo, KeyForm form, ZklMode mode, ZklockScope scope)
{
	Key			key;

	read_key(fcinfo, form, &key);
	PG_RETURN_BOOL(acquire(&key, mode, scope, read_wait(fcinfo, key.n_args)));
}

static Datum
unlock(FunctionCallInfo fcinfo, KeyForm form, ZklMode mode)
{
	Key			key;
	int			n;
	const ZklockName *names;

	read_key(fcinfo, form, &key);
	n = key.n;
	names = zklock_names_distinct(key.names, &n);
	zklock_check_loss();
	PG_RETURN_BOOL(zklock_release(names, n, mode));
}

static Datum
lock_token(FunctionCallInfo fcinfo, KeyForm form)
{
	Key			key;

	read_key(fcinfo, form, &key);
	return token_result(fcinfo, &key);
}

#define ENTRY(name, call) \
PG_FUNCTION_INFO_V1(name); \
Datum name(PG_FUNCTION_ARGS) { return call; }

#define KEY_FORMS(name, operation, ...) \
ENTRY(name ## _text, operation(fcinfo, KEY_TEXT, ## __VA_ARGS__)) \
ENTRY(name ## _int8, operation(fcinfo, KEY_INT8, ## __VA_ARGS__)) \
ENTRY(name ## _int4, operation(fcinfo, KEY_INT4, ## __VA_ARGS__)) \
ENTRY(name ## _array, operation(fcinfo, KEY_ARRAY, ## __VA_ARGS__))

KEY_FORMS(zklock_lock, lock, ZKL_MODE_EXCLUSIVE, ZKLOCK_SESSION)
KEY_FORMS(zklock_lock_shared, lock, ZKL_MODE_SHARED, ZKLOCK_SESSION)
KEY_FORMS(zklock_xact_lock, lock, ZKL_MODE_EXCLUSIVE, ZKLOCK_TRANSACTION)
KEY_FORMS(zklock_xact_lock_shared, lock, ZKL_MODE_SHARED, ZKLOCK_TRANSACTION)
KEY_FORMS(zklock_try_lock, try_lock, ZKL_MODE_EXCLUSIVE, ZKLOCK_SESSION)
KEY_FORMS(zklock_try_lock_shared, try_lock, ZKL_MODE_SHARED, ZKLOCK_SESSION)
KEY_FORMS(zklock_try_xact_lock, try_lock, ZKL_MODE_EXCLUSIVE, ZKLOCK_TRANSACTION)
KEY_FORMS(zklock_try_xact_lock_shared, try_lock, ZKL_MODE_SHARED, ZKLOCK_TRANSACTION)
KEY_FORMS(zklock_unlock, unlock, ZKL_MODE_EXCLUSIVE)
KEY_FORMS(zklock_unlock_shared, unlock, ZKL_MODE_SHARED)
KEY_FORMS(zklock_lock_token, lock_token)

PG_FUNCTION_INFO_V1(zklock_revoked_text);

Datum
zklock_revoked_text(PG_FUNCTION_ARGS)
{
	Key			key;

	read_key(fcinfo, KEY_TEXT, &key);
	PG_RETURN_BOOL(zklock_is_revoked(key.names));
}

/*
 * A wait that holds nothing back needs a transaction of its own, without a
 * snapshot; so the one around the CALL is committed first, as COMMIT in a
 * procedure does.  That may not take anybody by surprise.
 */
static void
require_nothing_to_commit(FunctionCallInfo fcinfo)
{
	if (!fcinfo->context || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("zk_lock_wait() cannot run inside a transaction block"),
				 errdetail("It waits without a transaction that others would have to wait for."),
				 errhint("Call it outside a transaction block and outside functions, or use zk_lock().")));
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		zklock_holds_in_transaction() != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("zk_lock_wait() cannot run in a transaction that has written or has locks of its own"),
				 errdetail("It commits before it waits."),
				 errhint("COMMIT in the procedure before this call.")));
}

PG_FUNCTION_INFO_V1(zklock_lock_wait_text);

Datum
zklock_lock_wait_text(PG_FUNCTION_ARGS)
{
	Key			key;
	int64		limit_ms;

	read_key(fcinfo, KEY_TEXT, &key);
	limit_ms = PG_NARGS() > 1 ? read_wait(fcinfo, key.n_args) : ZKLOCK_NO_LIMIT;
	require_nothing_to_commit(fcinfo);
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();
	InvalidateCatalogSnapshotConditionally();
	if (!acquire(&key, ZKL_MODE_EXCLUSIVE, ZKLOCK_SESSION, limit_ms))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock \"%s\" within the time to wait",
						key.names->display),
				 errhint("zk_locks shows who holds it.")));
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(zklock_unlock_all);

Datum
zklock_unlock_all(PG_FUNCTION_ARGS)
{
	zklock_check_loss();
	zklock_release_session();
	PG_RETURN_VOID();
}


/*
 * Semaphores: a name and a number of permits
 */

static int64
acquire_permit(FunctionCallInfo fcinfo, ZklockScope scope, int64 limit_ms)
{
	Key			key;
	int			size = PG_GETARG_INT32(1);

	read_key(fcinfo, KEY_TEXT, &key);
	if (size < 1 || size > ZKLOCK_MAX_PERMITS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("semaphore \"%s\" cannot have %d permits",
						key.names->display, size),
				 errhint("A semaphore has 1 to %d permits.", ZKLOCK_MAX_PERMITS)));
	return zklock_acquire_permit(key.names, size, scope, limit_ms);
}

static Datum
acquire_waiting(FunctionCallInfo fcinfo, ZklockScope scope)
{
	PG_RETURN_INT64(acquire_permit(fcinfo, scope, ZKLOCK_NO_LIMIT));
}

static Datum
try_acquire(FunctionCallInfo fcinfo, ZklockScope scope)
{
	require_arguments(fcinfo);
	PG_RETURN_BOOL(acquire_permit(fcinfo, scope, read_wait(fcinfo, 2)) != 0);
}

ENTRY(zklock_acquire_session, acquire_waiting(fcinfo, ZKLOCK_SESSION))
ENTRY(zklock_acquire_xact, acquire_waiting(fcinfo, ZKLOCK_TRANSACTION))
ENTRY(zklock_try_acquire_session, try_acquire(fcinfo, ZKLOCK_SESSION))
ENTRY(zklock_try_acquire_xact, try_acquire(fcinfo, ZKLOCK_TRANSACTION))

PG_FUNCTION_INFO_V1(zklock_release_text);

Datum
zklock_release_text(PG_FUNCTION_ARGS)
{
	Key			key;

	read_key(fcinfo, KEY_TEXT, &key);
	zklock_check_loss();
	PG_RETURN_BOOL(zklock_release_permit(key.names));
}

PG_FUNCTION_INFO_V1(zklock_revoke_text);

Datum
zklock_revoke_text(PG_FUNCTION_ARGS)
{
	Key			key;

	read_key(fcinfo, KEY_TEXT, &key);
	PG_RETURN_INT32(zklock_revoke(key.names));
}

PG_FUNCTION_INFO_V1(zklock_fence_text);

Datum
zklock_fence_text(PG_FUNCTION_ARGS)
{
	Key			key;

	read_key(fcinfo, KEY_TEXT, &key);
	PG_RETURN_INT64(zklock_fence(key.names, fcinfo->flinfo->fn_oid));
}

PG_FUNCTION_INFO_V1(zklock_fence_reset_text);

Datum
zklock_fence_reset_text(PG_FUNCTION_ARGS)
{
	Key			key;

	read_key(fcinfo, KEY_TEXT, &key);
	zklock_fence_reset(key.names, fcinfo->flinfo->fn_oid);
	PG_RETURN_VOID();
}
