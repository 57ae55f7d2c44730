/*-------------------------------------------------------------------------
 *
 * locks.c
 *		Acquires locks, locally and in the ensemble.
 *
 * A lock is acquired in PostgreSQL's lock manager first (local_lock.c), then in the
 * ensemble (src/recipe); a permit of a semaphore only there (semaphores.c).  The hold
 * table (holds.c) counts the locks only when all of them are acquired.  Until then an
 * error leaves the counts unchanged, and settling the entries releases what was acquired.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"

#include "backend/base/holds.h"
#include "backend/base/names.h"
#include "backend/base/settings.h"
#include "backend/local/local.h"
#include "backend/lock/lock.h"
#include "backend/lock/loss.h"
#include "backend/lock/queue_wait.h"
#include "backend/session/call.h"
#include "backend/session/errors.h"
#include "backend/session/interrupt.h"
#include "backend/session/session.h"
#include "backend/session/shared_memory.h"
#include "recipe/recipe.h"

/*
 * The ensemble lock
 */

/* Enters the granted locks in the hold table. */
static void
take_granted(ZklockCall *call, int n)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < n; i++)
		zklock_hold_granted(call->wait.holds[i], zkl_request_lock(call->wait.request, i),
							call->mode, now);
}

/* Requests these locks, which the session does not hold in this mode. */
static ZklRequest *
make_request(ZklockCall *call, ZklSession *session, ZklockHold *const *holds, int n)
{
	ZklLockItem *items = palloc(sizeof(ZklLockItem) * n);
	const char *data;
	ZklRequest *request = NULL;

	for (int i = 0; i < n; i++)
	{
		if (holds[i]->lock == NULL)
			zklock_fence_remember(holds[i]);
		items[i].name = holds[i]->name.encoded;
		items[i].mode = call->mode;
		items[i].held = holds[i]->lock;
		items[i].may_be_kept = zklock_keep_time > 0 && call->names->values == NULL;
	}
	if (items[0].may_be_kept && items[0].held == NULL)
		request = zkl_kept_request(session, items[0].name, items[0].mode, call->timeout_ms == 0);
	if (request)
	{
		holds[0]->fence.is_known = false;	/* its node is older than this call */
		return request;
	}
	data = zklock_identity();
	return zkl_lock_request(session, items, n, call->timeout_ms == 0, data, strlen(data));
}

/* Requests the locks that are not covered by what the session holds. */
static ZklStatus
request_locks(ZklockCall *call, ZklSession *session)
{
	ZklockHold **holds = palloc(sizeof(ZklockHold *) * call->n);
	ZklStatus	status;
	int			n = 0;

	for (int i = 0; i < call->n; i++)
		if (call->holds[i]->mode < call->mode)
			holds[n++] = call->holds[i];
	status = zklock_await_request(call, session, make_request(call, session, holds, n), holds);
	if (status == ZKL_OK)
		take_granted(call, n);
	zkl_request_end(call->wait.request);
	return status;
}

/*
 * Makes a request in the connected session, and after the loss of the session again in
 * another one.  Returns false on timeout.
 */
static bool
acquire_remote(ZklockCall *call)
{
	const ZklockAction action = zklock_action_of(call->holds[0]);

	/* The time that it took to connect leaves the answers to the request their own. */
	call->progress = call->progress_at = 0;
	for (;;)
	{
		ZklSession *session = zklock_session_ready(&action, call);
		ZklStatus	status;

		if (session == NULL)
			return false;
		zklock_publish_session(session, zklock_session_namespace());
		status = call->names == NULL ? zklock_request_permit(call, session) : request_locks(call, session);
		if (status == ZKL_OK)
		{
			zklock_lease_watch(session);
			zklock_after_grant();
		}
		if (status != ZKL_SESSION_LOST && status != ZKL_LOCK_LOST)
			return status == ZKL_OK;

		/* If no lock was lost, queue again in another session. */
		zklock_check_loss();
	}
}


/*
 * The local lock
 */

/*
 * Can the call go on without the local lock?  It can if the session holds the lock in the ensemble
 * already, in this mode or a stronger one; and if it holds it, but its local lock is gone:
 * pg_advisory_unlock_all() releases it.  Then its new owner waits for us in the ensemble, where
 * the deadlock detector cannot see it.
 */
static bool
can_do_without(const ZklockCall *call, const ZklockHold *hold)
{
	return hold->mode >= call->mode ||
		(hold->mode != ZKL_MODE_NONE && !zklock_local_is_held(hold->local_key));
}

/* Waits for the sessions of this server that hold the lock.  Returns false on timeout. */
static bool
try_and_wait(ZklockCall *call, const ZklockHold *hold)
{
	ZklockEnd	end;

	if (zklock_local_try(hold->local_key, call->mode, call->timeout_ms == 0))
		return true;
	if (call->timeout_ms == 0)
		return false;
	zklock_call_waits_for(call, hold->name.display);
	end = zklock_call_end(call, ZKLOCK_BLOCKED, 0);
	if (zkl_now_ms() < end.at && zklock_local_wait(hold->local_key, call->mode, end.at))
		return true;
	if (end.reason == ZKLOCK_END_LOCK_TIMEOUT)
		zklock_raise_lock_timeout();
	return false;
}

/* Returns false on timeout. */
static bool
acquire_local(ZklockCall *call, ZklockHold *hold)
{
	ZklockAction action = zklock_action_of(hold);
	ErrorContextCallback context = {error_context_stack, zklock_name_action, &action};
	ZklockModeCounts *counts = zklock_hold_counts(hold, call->mode);
	bool		is_optional;

	if (counts->local || hold->kind == ZKLOCK_SEMAPHORE)
		return true;
	if (!hold->exclusive.local && !hold->shared.local)
		hold->local_key = hold->key ^ zklock_session_namespace();
	is_optional = can_do_without(call, hold);
	error_context_stack = &context;
	counts->local = is_optional ? zklock_local_try(hold->local_key, call->mode, true)
		: try_and_wait(call, hold);
	error_context_stack = context.previous;
	return counts->local || is_optional;
}

static bool
acquire_all_local(ZklockCall *call)
{
	for (int i = 0; i < call->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!acquire_local(call, call->holds[i]))
			return false;
	}
	return true;
}


/*
 * Both
 */

static void
settle_all(ZklockCall *call)
{
	for (int i = 0; i < call->n; i++)
	{
		call->holds[i]->pins--;
		zklock_settle(call->holds[i]);
	}
}

static int
compare_holds(const void *a, const void *b)
{
	return strcmp((*(ZklockHold *const *) a)->name.encoded,
				  (*(ZklockHold *const *) b)->name.encoded);
}

/*
 * Finds or creates the entry of each distinct name of an array, and pins it.  The array may
 * name more locks than a session can hold: then this fails at the first one that is too much.
 */
static void
prepare_array(ZklockCall *call)
{
	static uint64 last_call = 0;
	int			room = zklock_max_locks - zklock_holds_count();

	last_call++;
	for (int i = 0; i < call->names->n; i++)
	{
		const ZklockName *name = zklock_names_get(call->names, i);
		ZklockHold *hold = zklock_hold_find(name);

		if (hold && hold->acquired == last_call)
			continue;
		if ((hold == NULL || hold->mode < call->mode) && --room < 0)
			zklock_raise(ZKL_TOO_MANY, &ZKLOCK_ACTION_LOCK(name->display), 0);
		hold = zklock_hold_prepare(name);
		hold->acquired = last_call;
		call->holds[call->n++] = hold;
	}
	qsort(call->holds, call->n, sizeof(ZklockHold *), compare_holds);
}

static void
prepare_holds(ZklockCall *call)
{
	if (call->names == NULL)
		return;
	if (call->names->values)
		prepare_array(call);
	else
	{
		call->holds[0] = zklock_hold_prepare(&call->names->name);
		call->n = 1;			/* only now: the line above may fail */
	}
}

/*
 * Called after a grant.  Reports a stale snapshot: it was taken before the lock was waited
 * for, so the data that this transaction reads next is older than the lock.  Nearly everything
 * that calls a function has taken one; a domain's CHECK in PL/pgSQL after COMMIT has not.
 */
static void
check_snapshot(const ZklockCall *call)
{
	int			level = zklock_stale_snapshot == ZKLOCK_STALE_SNAPSHOT_ERROR
		? ERROR : WARNING;

	if (call->waited_for == NULL || zklock_stale_snapshot == ZKLOCK_STALE_SNAPSHOT_OFF ||
		!IsolationUsesXactSnapshot() || !FirstSnapshotSet)
		return;
	ereport(level,
			(errcode(level == ERROR ? ERRCODE_T_R_SERIALIZATION_FAILURE : ERRCODE_WARNING),
			 errmsg("the snapshot of this transaction is older than its lock \"%s\"",
					call->waited_for),
			 errdetail("The transaction waited for the lock after it had taken its snapshot; changes committed by the previous holder are not visible."),
			 errhint("Acquire the lock before the transaction, use READ COMMITTED, or set zklock.stale_snapshot.")));
}

/*
 * Returns whether this call can leave its place in the ensemble's queue to the next local
 * waiter.  Not with several locks, because it would give up the others too.
 */
static bool
can_requeue(const ZklockCall *call)
{
	const ZklockHold *hold = call->holds[0];

	return call->n == 1 && !call->requeued && call->timeout_ms != 0 &&
		hold->mode == ZKL_MODE_NONE &&
		hold->exclusive.local != hold->shared.local;
}

/* After the end of the request: lets the next local waiter queue.  Only once per call. */
static void
requeue(ZklockCall *call)
{
	ZklockHold *hold = call->holds[0];

	ereport(DEBUG1,
			(errmsg_internal("requeuing behind local waiters for lock \"%s\"",
							 hold->name.display)));
	call->requeued = true;
	call->must_requeue = false;
	zklock_hold_counts(hold, call->mode)->local = false;
	zklock_local_release(hold->local_key, call->mode);
}

/* Returns false on timeout. */
static bool
acquire_one_by_one(ZklockCall *call, bool covered)
{
	for (;;)
	{
		if (!acquire_all_local(call))
			return false;
		call->may_requeue = can_requeue(call);
		if (covered || acquire_remote(call))
			return true;
		if (!call->must_requeue)
			return false;
		requeue(call);
	}
}

/*
 * Several locks: while this call waits for a local lock, its server reports that it holds the
 * others.  So it must not have their places in the ensemble, either.
 */
static void
leave_kept(const ZklockCall *call, ZklSession *session)
{
	for (int i = 0; session && i < call->n; i++)
		if (call->holds[i]->mode == ZKL_MODE_NONE)
			zkl_session_leave_kept_of(session, call->holds[i]->name.encoded);
}

/* Before the locks are counted: a cancel during this walk releases them. */
static void
store_tokens(ZklockNames *names)
{
	for (int i = 0; i < names->n; i++)
		names->tokens[i] = zklock_token(zklock_names_get(names, i));
}

/* Are all locks held already, in the ensemble and here?  Then they only have to be counted. */
static bool
are_held(const ZklockCall *call)
{
	for (int i = 0; i < call->n; i++)
		if (call->holds[i]->mode < call->mode || !zklock_hold_counts(call->holds[i], call->mode)->local)
			return false;
	return true;
}

/* Acquires all locks or none.  Returns false on timeout. */
static bool
acquire_both(ZklockCall *call)
{
	const ZklockAction action = zklock_action_of(call->holds[0]);
	ZklSession *session;
	bool		covered = true;

	call->started = zkl_now_ms();
	for (int i = 0; i < call->n; i++)
		covered = covered && call->holds[i]->mode >= call->mode;

	/* Connect first: no local wait while the ensemble is unreachable. */
	if (!covered)
	{
		zklock_session_ready(&action, call);
		if (zklock_holds_any())
			zklock_check_loss();
	}

	/* Also if no request is sent: a later downgrade would have no node name. */
	session = zklock_session_current();
	if (session && !zkl_session_has_mode(session, call->mode))
		zklock_raise(ZKL_NOT_SUPPORTED, &action, 0);
	if (call->n > 1)
		leave_kept(call, session);
	if (!acquire_one_by_one(call, covered))
		return false;
	check_snapshot(call);
	return true;
}

static bool
acquire(ZklockCall *call)
{
	volatile bool acquired = false;

	PG_TRY();
	{
		prepare_holds(call);
		acquired = are_held(call) || acquire_both(call);
		if (acquired && call->names && call->names->tokens)
			store_tokens(call->names);
	}
	PG_CATCH();
	{
		zklock_count_failed(call);
		settle_all(call);
		PG_RE_THROW();
	}
	PG_END_TRY();

	for (int i = 0; acquired && i < call->n; i++)
		zklock_hold_add(call->holds[i], call->mode, call->scope,
						GetCurrentTransactionNestLevel());
	settle_all(call);
	if (!acquired)
		zklock_count_gave_up(call);
	else if (call->n > 0)
	{
		zklock_count_acquired(call, call->n);
		zklock_warn_open_parents();
	}
	return acquired;
}

bool
zklock_acquire(ZklockNames *names, ZklMode mode, ZklockScope scope, int64 timeout_ms)
{
	ZklockHold *single;
	ZklockCall	call = {
		.names = names, .mode = mode, .scope = scope, .timeout_ms = timeout_ms, .holds = &single
	};

	zklock_report_loss();
	/* Of an array, no more entries are prepared than the session has or can have. */
	if (names->values)
		call.holds = palloc(sizeof(ZklockHold *) *
							(Min(names->n, zklock_max_locks + zklock_holds_entries()) + 1));
	return acquire(&call);
}

bool
zklock_acquire_permit(const ZklockName *name, int capacity, ZklockScope scope,
					  int64 timeout_ms)
{
	ZklockHold *permit;
	ZklockCall	call = {
		.mode = ZKL_MODE_EXCLUSIVE, .scope = scope, .timeout_ms = timeout_ms, .holds = &permit, .n = 1
	};

	zklock_report_loss();
	zklock_check_own_permits(name, capacity, timeout_ms);
	permit = zklock_hold_prepare_permit(name, capacity);
	return acquire(&call);
}

int64
zklock_token(const ZklockName *name)
{
	ZklockHold *hold = zklock_hold_find(name);

	return hold && hold->lock ? hold->token : 0;
}
