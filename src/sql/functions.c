/*-------------------------------------------------------------------------
 *
 * functions.c
 *		The SQL functions: read the arguments, make one call, return the result.
 *
 * A key has one of four forms: text, bigint, two integers, or an array of text.
 * KEY_FORMS defines the four entry points of an operation, SINGLE_KEY_FORMS those
 * for a single lock.  The operation itself gets the names, whatever the form.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "backend/lock/locks.h"
#include "backend/lock/loss.h"
#include "backend/lock/name_set.h"
#include "backend/lock/release.h"
#include "backend/lock/revoke.h"
#include "backend/lock/revoker.h"
#include "backend/lock/semaphores.h"
#include "backend/transaction/fence.h"
#include "compat.h"
#include "sql/cluster_view.h"

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
	zklock_require_leader();
	for (int i = 0; i < PG_NARGS(); i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument %d must not be null", i + 1),
					 errhint("Pass a value that is not NULL. Unlike pg_advisory_lock(), zklock does not ignore NULL.")));
}

/*
 * The owner of an index or a materialized view writes code that runs in the session of a
 * role that maintains it.  Locks at session level are that role's.
 */
static void
require_own_code(void)
{
	if (InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot acquire or release session-level locks within security-restricted operation"),
				 errhint("Call the function outside of index expressions and materialized views, or use transaction-level locks.")));
}

static int
n_key_arguments(KeyForm form)
{
	return form == KEY_INT4 ? 2 : 1;
}

static void
read_names(FunctionCallInfo fcinfo, KeyForm form, ZklockNames *names)
{
	names->n = 1;
	names->array = NULL;
	names->iterator = NULL;
	names->passed = false;
	require_arguments(fcinfo);
	switch (form)
	{
		case KEY_TEXT:
			zklock_name_from_text(PG_GETARG_TEXT_PP(0), &names->room, &names->name);
			break;
		case KEY_INT8:
			zklock_name_from_int8(PG_GETARG_INT64(0), &names->room, &names->name);
			break;
		case KEY_INT4:
			zklock_name_from_int4(PG_GETARG_INT32(0), PG_GETARG_INT32(1),
								  &names->room, &names->name);
			break;
		case KEY_ARRAY:
			names->array = PG_GETARG_ARRAYTYPE_P(0);
			names->n = ArrayGetNItems(ARR_NDIM(names->array), ARR_DIMS(names->array));
			break;
	}
}

/* Reads the argument that is the time to wait, in milliseconds. */
static int64
read_wait(FunctionCallInfo fcinfo, int i)
{
	Interval   *wait = PG_GETARG_INTERVAL_P(i);
	double		ms;

	if (zklock_interval_is_endless(wait))
		return ZKLOCK_NO_TIMEOUT;
	ms = ((double) wait->month * DAYS_PER_MONTH + wait->day) * SECS_PER_DAY * 1000.0 +
		wait->time / 1000.0;
	if (ms < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("timeout must not be negative"),
				 errhint("Use zero for an attempt that does not wait, and a function without \"try\" to wait without limit.")));
	/* A positive time is at least one millisecond. */
	return (int64) ceil(Min(ms, 1e15));
}

static Datum
tokens_of(ZklockNames *names)
{
	Datum	   *tokens = palloc(sizeof(Datum) * (names->n + 1));
	bool	   *nulls = palloc(sizeof(bool) * (names->n + 1));
	int			n = 0;
	int			lower_bound = 1;
	const ZklockName *name;

	while ((name = zklock_names_next(names)) != NULL)
	{
		int64		token = zklock_token(name);

		tokens[n] = Int64GetDatum(token);
		nulls[n++] = token == 0;
	}
	return PointerGetDatum(construct_md_array(tokens, nulls, n > 0 ? 1 : 0,
											  &n, &lower_bound, INT8OID, 8,
											  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* Returns the token, or the tokens of an array. */
static Datum
token_result(FunctionCallInfo fcinfo, ZklockNames *names)
{
	int64		token;

	if (names->array)
		return tokens_of(names);
	token = zklock_token(&names->name);
	if (token == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}

static bool
acquire(ZklockNames *names, ZklMode mode, ZklockScope scope, int64 timeout_ms)
{
	ZklockAcquisition item = {&names->name, 1, mode, scope, timeout_ms};

	if (scope == ZKLOCK_SESSION)
		require_own_code();
	if (names->array)
		item.names = zklock_names_to_lock(names, mode, &item.n);
	return zklock_acquire(&item);
}

static Datum
lock(FunctionCallInfo fcinfo, KeyForm form, ZklMode mode, ZklockScope scope)
{
	ZklockNames names;

	read_names(fcinfo, form, &names);
	acquire(&names, mode, scope, ZKLOCK_NO_TIMEOUT);
	return token_result(fcinfo, &names);
}

static Datum
try_lock(FunctionCallInfo fcinfo, KeyForm form, ZklMode mode, ZklockScope scope)
{
	ZklockNames names;
	int64		timeout_ms;

	read_names(fcinfo, form, &names);
	timeout_ms = read_wait(fcinfo, n_key_arguments(form));
	PG_RETURN_BOOL(acquire(&names, mode, scope, timeout_ms));
}

static Datum
unlock(FunctionCallInfo fcinfo, KeyForm form, ZklMode mode)
{
	ZklockNames names;

	read_names(fcinfo, form, &names);
	require_own_code();
	zklock_check_loss();
	PG_RETURN_BOOL(zklock_release(&names, mode));
}

static Datum
lock_token(FunctionCallInfo fcinfo, KeyForm form)
{
	ZklockNames names;

	read_names(fcinfo, form, &names);
	return token_result(fcinfo, &names);
}

#define ENTRY(name, call) \
PG_FUNCTION_INFO_V1(name); \
Datum name(PG_FUNCTION_ARGS) { return call; }

#define SINGLE_KEY_FORMS(name, operation, ...) \
ENTRY(name ## _text, operation(fcinfo, KEY_TEXT, ## __VA_ARGS__)) \
ENTRY(name ## _int8, operation(fcinfo, KEY_INT8, ## __VA_ARGS__)) \
ENTRY(name ## _int4, operation(fcinfo, KEY_INT4, ## __VA_ARGS__))

#define KEY_FORMS(name, operation, ...) \
SINGLE_KEY_FORMS(name, operation, ## __VA_ARGS__) \
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

/*
 * A wait that does not hold back others, VACUUM for example, needs a new transaction
 * without a snapshot.  So the one around the CALL is committed first, as by COMMIT in a
 * procedure.  Raises an error if the caller might not expect that.
 */
static void
require_nothing_to_commit(FunctionCallInfo fcinfo)
{
	if (!fcinfo->context || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("zk_lock_wait() cannot run inside a transaction block"),
				 errdetail("The procedure waits outside of any transaction, because other sessions might have to wait for that transaction."),
				 errhint("Call it outside a transaction block and outside functions, or use zk_lock().")));
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		zklock_holds_in_transaction() != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("zk_lock_wait() cannot run in a transaction that has written data or holds transaction-level locks"),
				 errdetail("The procedure commits before it waits."),
				 errhint("COMMIT in the procedure before this call.")));
}

static Datum
lock_wait(FunctionCallInfo fcinfo, KeyForm form)
{
	ZklockNames names;
	int64		timeout_ms = ZKLOCK_NO_TIMEOUT;

	read_names(fcinfo, form, &names);
	if (PG_NARGS() > n_key_arguments(form))
		timeout_ms = read_wait(fcinfo, n_key_arguments(form));
	require_nothing_to_commit(fcinfo);
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();
	InvalidateCatalogSnapshotConditionally();
	if (!acquire(&names, ZKL_MODE_EXCLUSIVE, ZKLOCK_SESSION, timeout_ms))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock \"%s\" within the timeout",
						names.name.display),
				 errhint("See zk_locks for the holders.")));
	PG_RETURN_VOID();
}

SINGLE_KEY_FORMS(zklock_lock_wait, lock_wait)

PG_FUNCTION_INFO_V1(zklock_lock_wait_literal);

/* Takes the time to wait as text, for an untyped literal. */
Datum
zklock_lock_wait_literal(PG_FUNCTION_ARGS)
{
	require_arguments(fcinfo);
	fcinfo->args[1].value = DirectFunctionCall3(interval_in,
												CStringGetDatum(text_to_cstring(PG_GETARG_TEXT_PP(1))),
												ObjectIdGetDatum(InvalidOid),
												Int32GetDatum(-1));
	return lock_wait(fcinfo, KEY_TEXT);
}

PG_FUNCTION_INFO_V1(zklock_unlock_all);

Datum
zklock_unlock_all(PG_FUNCTION_ARGS)
{
	zklock_require_leader();
	require_own_code();
	zklock_check_loss();
	zklock_release_session();
	PG_RETURN_VOID();
}


/*
 * Semaphores: a name and a number of permits
 */

static int64
acquire_permit(FunctionCallInfo fcinfo, ZklockScope scope, int64 timeout_ms)
{
	ZklockNames names;
	int			capacity = PG_GETARG_INT32(1);

	read_names(fcinfo, KEY_TEXT, &names);
	if (scope == ZKLOCK_SESSION)
		require_own_code();
	if (capacity < 1 || capacity > ZKLOCK_MAX_PERMITS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("semaphore \"%s\" cannot have %d permits",
						names.name.display, capacity),
				 errhint("Use a number of permits from 1 to %d.", ZKLOCK_MAX_PERMITS)));
	return zklock_acquire_permit(&names.name, capacity, scope, timeout_ms);
}

static Datum
acquire_waiting(FunctionCallInfo fcinfo, ZklockScope scope)
{
	PG_RETURN_INT64(acquire_permit(fcinfo, scope, ZKLOCK_NO_TIMEOUT));
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
	ZklockNames names;

	read_names(fcinfo, KEY_TEXT, &names);
	require_own_code();
	zklock_check_loss();
	PG_RETURN_BOOL(zklock_release_permit(&names.name));
}


/*
 * Revocation, fencing, reading
 */

static Datum
request_release(FunctionCallInfo fcinfo, KeyForm form)
{
	ZklockNames names;

	read_names(fcinfo, form, &names);
	PG_RETURN_INT32(zklock_revoke(&names.name));
}

static Datum
is_release_requested(FunctionCallInfo fcinfo, KeyForm form)
{
	ZklockNames names;

	read_names(fcinfo, form, &names);
	PG_RETURN_BOOL(zklock_is_revoked(&names.name));
}

static Datum
fence(FunctionCallInfo fcinfo, KeyForm form)
{
	ZklockNames names;

	read_names(fcinfo, form, &names);
	PG_RETURN_INT64(zklock_fence(&names.name, fcinfo->flinfo->fn_oid));
}

static Datum
fence_reset(FunctionCallInfo fcinfo, KeyForm form)
{
	ZklockNames names;

	read_names(fcinfo, form, &names);
	zklock_fence_reset(&names.name, fcinfo->flinfo->fn_oid);
	PG_RETURN_VOID();
}

SINGLE_KEY_FORMS(zklock_revoke, request_release)
SINGLE_KEY_FORMS(zklock_revoked, is_release_requested)
SINGLE_KEY_FORMS(zklock_fence, fence)
SINGLE_KEY_FORMS(zklock_fence_reset, fence_reset)

PG_FUNCTION_INFO_V1(zklock_fence_reset_all);

Datum
zklock_fence_reset_all(PG_FUNCTION_ARGS)
{
	zklock_fences_forget(fcinfo->flinfo->fn_oid);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(zklock_fence_vacuum);

Datum
zklock_fence_vacuum(PG_FUNCTION_ARGS)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until;

	require_arguments(fcinfo);
	until = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_mi_interval,
													TimestampTzGetDatum(now),
													PG_GETARG_DATUM(0)));
	if (until > now)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("age must not be negative"),
				 errhint("Use an interval of zero or more.")));
	PG_RETURN_INT64(zklock_fences_vacuum(until, fcinfo->flinfo->fn_oid));
}

static Datum
locks_of(FunctionCallInfo fcinfo, KeyForm form)
{
	ZklockNames names;

	read_names(fcinfo, form, &names);
	zklock_show_locks_of(fcinfo, &names.name);
	return (Datum) 0;
}

SINGLE_KEY_FORMS(zklock_locks_of, locks_of)
