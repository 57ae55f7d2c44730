/*-------------------------------------------------------------------------
 *
 * functions.c
 *		The SQL functions: read the arguments, make one call, return the result.
 *
 * A function takes one name, or an array of names; the operation itself gets the names.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "replication/logicalworker.h"
#include "replication/walsender.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "backend/base/holds.h"
#include "backend/base/names.h"
#include "backend/base/settings.h"
#include "backend/local/local.h"
#include "backend/lock/lock.h"
#include "backend/lock/loss.h"
#include "backend/session/call.h"
#include "backend/session/interrupt.h"
#include "recipe/recipe.h"
#include "sql/views.h"
#include "compat.h"

static void
require_argument(FunctionCallInfo fcinfo, int i)
{
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

/*
 * Autovacuum evaluates the expressions of indexes and statistics, in a worker that belongs to
 * no role and in which nobody waits for an answer: it could hold other programs up for hours.
 */
static void
require_no_autovacuum(void)
{
	if (MyBackendType == B_AUTOVAC_WORKER)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot acquire zk locks in an autovacuum worker"),
				 errhint("Do not acquire locks in the expressions of indexes and statistics.")));
}

static void
require_session_level(void)
{
	if (!zklock_session_locks)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("session-level locks are disabled"),
				 errdetail("zklock.session_locks is off."),
				 errhint("Use a function for transaction-level locks, for example zk_xact_lock().")));
	/* Their commands are not statements, so a loss could not end them. */
	if (am_walsender || IsLogicalWorker())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("session-level locks are not available in replication connections and apply workers"),
				 errhint("Use a transaction-level lock, or hold the lock in another session.")));
	require_own_code();
}

/* Reads the first argument: one name, or an array of names. */
typedef void (*NameReader) (FunctionCallInfo fcinfo, ZklockNames *names);

static void
read_name(FunctionCallInfo fcinfo, ZklockNames *names)
{
	zklock_require_leader();
	require_argument(fcinfo, 0);
	names->n = 1;
	names->values = NULL;
	names->tokens = NULL;
	zklock_name_from_text(PG_GETARG_TEXT_PP(0), &names->room, &names->name);
}

static void
read_names(FunctionCallInfo fcinfo, ZklockNames *names)
{
	zklock_require_leader();
	require_argument(fcinfo, 0);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), TEXTOID, -1, false, TYPALIGN_INT,
					  &names->values, &names->nulls, &names->n);
	names->tokens = NULL;
}

/*
 * Reads the argument that is the timeout, in milliseconds.  One that PostgreSQL's timers cannot
 * have, of 24.8 days, is none: with 17 and later also 'infinity'.
 */
static int64
read_timeout(FunctionCallInfo fcinfo, int i)
{
	Interval   *timeout;
	double		ms;

	require_argument(fcinfo, i);
	timeout = PG_GETARG_INTERVAL_P(i);
	ms = ((double) timeout->month * DAYS_PER_MONTH + timeout->day) * SECS_PER_DAY * 1000.0 +
		timeout->time / 1000.0;
	if (ms < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("timeout must not be negative"),
				 errhint("Use zero for an attempt that does not wait, and a function without \"try\" to wait without limit.")));
	/* A positive time is at least one millisecond. */
	return ms > INT_MAX ? ZKLOCK_NO_TIMEOUT : (int64) ceil(ms);
}

static Datum
token_of(const ZklockName *name, bool *is_null)
{
	int64		token = zklock_token(name);

	*is_null = token == 0;
	return Int64GetDatum(token);
}

static Datum
tokens_of(ZklockNames *names)
{
	Datum	   *tokens = palloc(sizeof(Datum) * (names->n + 1));
	bool	   *nulls = palloc(sizeof(bool) * (names->n + 1));
	int			lower_bound = 1;

	for (int i = 0; i < names->n; i++)
	{
		tokens[i] = Int64GetDatum(names->tokens[i]);
		nulls[i] = names->tokens[i] == 0;
	}
	return PointerGetDatum(construct_md_array(tokens, nulls, names->n > 0 ? 1 : 0,
											  &names->n, &lower_bound, INT8OID, 8,
											  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static bool
acquire(ZklockNames *names, ZklMode mode, ZklockScope scope, int64 timeout_ms)
{
	require_no_autovacuum();
	if (scope == ZKLOCK_SESSION)
		require_session_level();
	return zklock_acquire(names, mode, scope, timeout_ms);
}

static Datum
lock(FunctionCallInfo fcinfo, NameReader read, ZklMode mode, ZklockScope scope)
{
	ZklockNames names;

	read(fcinfo, &names);
	if (names.values)
		names.tokens = palloc(sizeof(int64) * (names.n + 1));
	acquire(&names, mode, scope, ZKLOCK_NO_TIMEOUT);
	return names.values ? tokens_of(&names) : token_of(&names.name, &fcinfo->isnull);
}

static Datum
try_lock(FunctionCallInfo fcinfo, NameReader read, ZklMode mode, ZklockScope scope)
{
	ZklockNames names;

	read(fcinfo, &names);
	PG_RETURN_BOOL(acquire(&names, mode, scope, read_timeout(fcinfo, 1)));
}

/*
 * Releases the names; stores for each, in their order, whether it was held.  Whatever
 * zklock.session_locks says: a session may have acquired locks before.
 */
static void
release(ZklockNames *names, ZklMode mode, bool *released)
{
	require_own_code();
	zklock_report_loss();
	zklock_release(names, mode, released);
}

static Datum
unlock(ZklockNames *names, ZklMode mode)
{
	bool		released;

	release(names, mode, &released);
	PG_RETURN_BOOL(released);
}

static Datum
unlock_many(FunctionCallInfo fcinfo, ZklMode mode)
{
	ZklockNames names;
	bool	   *released;
	Datum	   *values;

	read_names(fcinfo, &names);
	released = palloc(sizeof(bool) * (names.n + 1));
	values = palloc(sizeof(Datum) * (names.n + 1));
	release(&names, mode, released);
	for (int i = 0; i < names.n; i++)
		values[i] = BoolGetDatum(released[i]);
	PG_RETURN_ARRAYTYPE_P(construct_array(values, names.n, BOOLOID, 1, true, TYPALIGN_CHAR));
}

static Datum
release_permit(const ZklockName *name)
{
	require_own_code();
	zklock_report_loss();
	PG_RETURN_BOOL(zklock_release_permit(name));
}

#define ENTRY(name, call) \
PG_FUNCTION_INFO_V1(name); \
Datum name(PG_FUNCTION_ARGS) { return call; }

/* A function whose first argument is a name; "result" uses "names". */
#define NAME_ENTRY(function, result) \
PG_FUNCTION_INFO_V1(function); \
Datum function(PG_FUNCTION_ARGS) \
{ \
	ZklockNames names; \
	read_name(fcinfo, &names); \
	return result; \
}

/* The entry points of an operation for one name and for several. */
#define LOCK_FUNCTIONS(operation, level, scope) \
ENTRY(zk_ ## level ## lock, operation(fcinfo, read_name, ZKL_MODE_EXCLUSIVE, scope)) \
ENTRY(zk_ ## level ## lock_shared, operation(fcinfo, read_name, ZKL_MODE_SHARED, scope)) \
ENTRY(zk_ ## level ## lock_many, operation(fcinfo, read_names, ZKL_MODE_EXCLUSIVE, scope)) \
ENTRY(zk_ ## level ## lock_many_shared, operation(fcinfo, read_names, ZKL_MODE_SHARED, scope))

LOCK_FUNCTIONS(lock,, ZKLOCK_SESSION)
LOCK_FUNCTIONS(lock, xact_, ZKLOCK_TRANSACTION)
LOCK_FUNCTIONS(try_lock, try_, ZKLOCK_SESSION)
LOCK_FUNCTIONS(try_lock, try_xact_, ZKLOCK_TRANSACTION)
NAME_ENTRY(zk_unlock, unlock(&names, ZKL_MODE_EXCLUSIVE))
NAME_ENTRY(zk_unlock_shared, unlock(&names, ZKL_MODE_SHARED))
ENTRY(zk_unlock_many, unlock_many(fcinfo, ZKL_MODE_EXCLUSIVE))
ENTRY(zk_unlock_many_shared, unlock_many(fcinfo, ZKL_MODE_SHARED))

NAME_ENTRY(zk_lock_token, token_of(&names.name, &fcinfo->isnull))
NAME_ENTRY(zk_release_permit, release_permit(&names.name))
NAME_ENTRY(zk_revoke, Int32GetDatum(zklock_revoke(&names.name)))
NAME_ENTRY(zk_revoked, BoolGetDatum(zklock_is_revoked(&names.name)))
NAME_ENTRY(zk_fence, Int64GetDatum(zklock_fence(&names.name)))
NAME_ENTRY(zk_locks_of, zklock_show_locks(fcinfo, &names.name))
ENTRY(zklock_locks, zklock_show_locks(fcinfo, NULL))

static void
refuse_wait(const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			 errmsg("zk_lock_wait() must be the first command of its transaction"),
			 errdetail_internal("%s", reason),
			 errhint("COMMIT or ROLLBACK in the procedure before this call.")));
}

/*
 * A wait that does not hold back others, VACUUM for example, needs a transaction without a
 * snapshot.  PostgreSQL has taken one for the CALL; it makes another one for the next command
 * of a procedure, as after COMMIT.  Nothing is committed here, so nothing is lost if the
 * transaction has done something that is not refused, such as NOTIFY.
 */
static void
drop_snapshot(FunctionCallInfo fcinfo)
{
	const ZklockHold *hold = zklock_holds_in_transaction();
	const char *lock;

	if (!fcinfo->context || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("zk_lock_wait() cannot run inside a transaction block"),
				 errdetail("The procedure waits without a snapshot and without locks of its transaction, because other sessions might have to wait for these."),
				 errhint("Call it outside a transaction block and outside functions, or use zk_lock().")));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("zk_lock_wait() cannot run in isolation level %s",
						IsolationIsSerializable() ? "SERIALIZABLE" : "REPEATABLE READ"),
				 errdetail("The procedure waits without a snapshot, but this transaction needs its snapshot until it ends."),
				 errhint("Use READ COMMITTED: set default_transaction_isolation.")));
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		refuse_wait("The transaction has a transaction ID, which it gets when it writes.");
	if (hold)
		refuse_wait(psprintf("The transaction holds lock \"%s\".", zklock_hold_display(hold)));
	lock = zklock_transaction_lock();
	if (lock)
		refuse_wait(psprintf("The transaction holds %s.", lock));
	ForgetPortalSnapshots();
	InvalidateCatalogSnapshot();
	if (TransactionIdIsValid(MyProc->xmin))
		refuse_wait("The transaction needs a snapshot, for example for an open cursor.");
}

PG_FUNCTION_INFO_V1(zk_lock_wait);

/* A timeout that is NULL, the default, is no limit. */
Datum
zk_lock_wait(PG_FUNCTION_ARGS)
{
	ZklockNames names;
	int64		timeout_ms;

	read_name(fcinfo, &names);
	timeout_ms = PG_ARGISNULL(1) ? ZKLOCK_NO_TIMEOUT : read_timeout(fcinfo, 1);
	drop_snapshot(fcinfo);
	if (!acquire(&names, ZKL_MODE_EXCLUSIVE, ZKLOCK_SESSION, timeout_ms))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock \"%s\" within the timeout",
						names.name.display),
				 errhint("See zk_locks for the holders.")));
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(zk_unlock_everything);

/* It only releases, and poolers and drivers call it for each session. */
Datum
zk_unlock_everything(PG_FUNCTION_ARGS)
{
	zklock_require_leader();
	require_own_code();
	zklock_report_loss();
	zklock_release_session();
	PG_RETURN_VOID();
}


/*
 * Semaphores: a name and a number of permits
 */

static bool
acquire_permit(FunctionCallInfo fcinfo, const ZklockName *name, ZklockScope scope,
			   int64 timeout_ms)
{
	int			capacity;

	require_argument(fcinfo, 1);
	capacity = PG_GETARG_INT32(1);
	require_no_autovacuum();
	if (scope == ZKLOCK_SESSION)
		require_session_level();
	if (capacity < 1 || capacity > ZKLOCK_MAX_PERMITS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("semaphore \"%s\" cannot have %d permits", name->display, capacity),
				 errhint("Use a number of permits from 1 to %d.", ZKLOCK_MAX_PERMITS)));
	return zklock_acquire_permit(name, capacity, scope, timeout_ms);
}

/* The entry points of semaphores, for a wait without limit and for one with a timeout. */
#define PERMIT_ENTRIES(level, scope) \
NAME_ENTRY(zk_ ## level ## acquire_permit, \
		   (acquire_permit(fcinfo, &names.name, scope, ZKLOCK_NO_TIMEOUT), (Datum) 0)) \
NAME_ENTRY(zk_try_ ## level ## acquire_permit, \
		   BoolGetDatum(acquire_permit(fcinfo, &names.name, scope, read_timeout(fcinfo, 2))))

PERMIT_ENTRIES(, ZKLOCK_SESSION)
PERMIT_ENTRIES(xact_, ZKLOCK_TRANSACTION)
