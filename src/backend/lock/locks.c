/*-------------------------------------------------------------------------
 *
 * locks.c
 *		Acquires locks, locally and in the ensemble.
 *
 * A lock is acquired in PostgreSQL's lock manager first (local_lock.c), then in the
 * ensemble (src/recipe).  The hold table (holds.c) counts the locks only when all
 * of them are acquired.  Until then an error leaves the counts unchanged, and
 * settling the entries releases what was acquired.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "backend/base/names.h"
#include "backend/base/settings.h"
#include "backend/lock/locks.h"
#include "backend/lock/loss.h"
#include "backend/lock/remote_wait.h"
#include "backend/lock/settle.h"
#include "backend/session/backend_session.h"
#include "backend/session/callbacks.h"
#include "backend/session/lease_timer.h"
#include "backend/session/stats.h"
#include "backend/session/wait.h"

/* State of a call of zklock_acquire(). */
typedef struct LockAcquisition
{
	ZklockAcquisition *item;
	ZklockHold **holds;			/* distinct, in the order of the local locks */
	int			n;
	ZklockTimeout timeout;
	bool		requeued;
} LockAcquisition;


/*
 * The ensemble lock
 */

/* Enters the granted locks in the hold table. */
static void
take_granted(LockAcquisition *a, ZklRequest *request)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0, granted = 0; i < a->n; i++)
	{
		ZklockHold *hold = a->holds[i];

		if (hold->mode >= a->item->mode)
			continue;
		zklock_hold_granted(hold, zkl_request_lock(request, granted++),
							a->item->mode, now);
	}
	zklock_lease_timer_start(zklock_session_current());
	zklock_callbacks.after_grant();
}

/* Requests the locks that are not covered by what the session holds. */
static ZklStatus
request_remote(void *arg, ZklSession *session)
{
	LockAcquisition *a = arg;
	ZklLockItem *items = palloc(sizeof(ZklLockItem) * a->n);
	ZklockAction *actions = palloc(sizeof(ZklockAction) * a->n);
	const char *data = zklock_identity();
	ZklRequest *request;
	ZklStatus	status;
	int			n = 0;

	for (int i = 0; i < a->n; i++)
	{
		ZklockHold *hold = a->holds[i];

		if (hold->mode >= a->item->mode)
			continue;
		actions[n] = ZKLOCK_ACTION_LOCK(hold->name.display);
		items[n].name = hold->name.encoded;
		items[n].mode = a->item->mode;
		items[n].held = hold->lock;
		n++;
	}
	request = zkl_lock_request(session, items, n, a->item->timeout_ms == 0,
							   data, strlen(data));
	status = zklock_await_request(&a->timeout, session, request, actions);
	if (status == ZKL_OK)
		take_granted(a, request);
	zkl_request_end(request);
	return status;
}

/* Returns false on timeout. */
static bool
acquire_remote(LockAcquisition *a)
{
	return zklock_acquire_remote(&a->timeout, &ZKLOCK_ACTION_LOCK(a->holds[0]->name.display),
								 request_remote, a);
}


/*
 * The local lock
 */

/*
 * Returns whether this call can go on without the local lock.  After
 * pg_advisory_unlock_all() released the local lock of a lock that we hold, its new owner
 * waits for us in the ensemble, where the deadlock detector cannot see it.
 */
static bool
can_do_without(const ZklockHold *hold)
{
	return hold->mode != ZKL_MODE_NONE && !zklock_local_is_held(hold->local_key);
}

/*
 * Returns what is left of the timeout; after requeueing, also of lock_timeout, which
 * PostgreSQL would start from zero.
 */
static int64
local_timeout(const LockAcquisition *a, bool *is_lock_timeout)
{
	int64		timeout_ms = zklock_timeout_left(&a->timeout);
	int64		left = a->requeued ? zklock_lock_timeout_left(&a->timeout) : ZKLOCK_NO_TIMEOUT;

	*is_lock_timeout = left != ZKLOCK_NO_TIMEOUT &&
		(timeout_ms == ZKLOCK_NO_TIMEOUT || left < timeout_ms);
	return *is_lock_timeout ? Max(left, 1) : timeout_ms;
}

/* Returns false if the timeout has passed; if it is lock_timeout, throws. */
static bool
wait_local(LockAcquisition *a, ZklockHold *hold, int64 timeout_ms, bool is_lock_timeout)
{
	ZklockAction action = ZKLOCK_ACTION_LOCK(hold->name.display);
	ErrorContextCallback context = {error_context_stack, zklock_name_action, &action};
	bool		acquired;

	error_context_stack = &context;
	acquired = zklock_local_acquire(hold->local_key, a->item->mode, timeout_ms,
									&a->timeout.waited);
	if (!acquired && is_lock_timeout)
		zklock_raise_lock_timeout();
	error_context_stack = context.previous;
	return acquired;
}

static bool
acquire_local(LockAcquisition *a)
{
	for (int i = 0; i < a->n; i++)
	{
		ZklockHold *hold = a->holds[i];
		ZklockModeCounts *counts = zklock_hold_counts(hold, a->item->mode);
		bool		is_lock_timeout;
		int64		timeout_ms = local_timeout(a, &is_lock_timeout);
		bool		optional;

		CHECK_FOR_INTERRUPTS();
		if (counts->local)
			continue;
		if (!hold->exclusive.local && !hold->shared.local)
			hold->local_key = hold->key ^ zklock_session_namespace();
		optional = can_do_without(hold);
		if (optional)
			timeout_ms = 0;
		else if (hold->mode >= a->item->mode)
			timeout_ms = ZKLOCK_NO_TIMEOUT; /* held in a stronger mode: granted at once */
		counts->local = wait_local(a, hold, timeout_ms, is_lock_timeout);
		if (!counts->local && !optional)
			return false;
	}
	return true;
}


/*
 * Both
 */

static void
settle_all(LockAcquisition *a)
{
	for (int i = 0; i < a->n; i++)
	{
		a->holds[i]->pins--;
		zklock_settle(a->holds[i]);
	}
}

/* Finds or creates the entries of the names, and pins them. */
static void
prepare_holds(LockAcquisition *a)
{
	for (; a->n < a->item->n; a->n++)
	{
		CHECK_FOR_INTERRUPTS();
		a->holds[a->n] = zklock_hold_prepare(&a->item->names[a->n]);
	}
}

/*
 * Reports a stale snapshot: it was taken before the lock was waited for, so the data that
 * this transaction reads next is older than the lock.
 */
void
zklock_check_snapshot(const ZklockTimeout *timeout, const char *display)
{
	int			level = zklock_stale_snapshot == ZKLOCK_STALE_SNAPSHOT_ERROR
		? ERROR : WARNING;

	if (!timeout->waited || zklock_stale_snapshot == ZKLOCK_STALE_SNAPSHOT_OFF ||
		!IsolationUsesXactSnapshot() || !FirstSnapshotSet)
		return;
	ereport(level,
			(errcode(level == ERROR ? ERRCODE_T_R_SERIALIZATION_FAILURE : ERRCODE_WARNING),
			 errmsg("the snapshot of this transaction is older than its lock \"%s\"",
					display),
			 errdetail("The transaction waited for the lock after it had taken its snapshot; changes committed by the previous holder are not visible."),
			 errhint("Acquire the lock before the transaction, use READ COMMITTED, or set zklock.stale_snapshot.")));
}

/*
 * Returns whether this call can leave its place in the ensemble's queue to the next local
 * waiter.  Not with several locks, because it would give up the others too.
 */
static bool
can_requeue(const LockAcquisition *a)
{
	const ZklockHold *hold = a->holds[0];

	return a->n == 1 && !a->requeued && a->item->timeout_ms != 0 &&
		hold->mode == ZKL_MODE_NONE &&
		hold->exclusive.local != hold->shared.local;
}

/* After the end of the request: lets the next local waiter queue.  Only once per call. */
static void
requeue(LockAcquisition *a)
{
	ZklockHold *hold = a->holds[0];

	ereport(DEBUG1,
			(errmsg_internal("requeuing behind local waiters for lock \"%s\"",
							 hold->name.display)));
	a->requeued = true;
	zklock_hold_counts(hold, a->item->mode)->local = false;
	zklock_local_release(hold->local_key, a->item->mode);
}

/* Returns false on timeout. */
static bool
acquire_one_by_one(LockAcquisition *a, bool covered)
{
	for (;;)
	{
		if (!acquire_local(a))
			return false;
		a->timeout.may_requeue = can_requeue(a);
		if (covered || acquire_remote(a))
			return true;
		if (!a->timeout.must_requeue)
			return false;
		requeue(a);
	}
}

/* Acquires all locks or none.  Returns false on timeout. */
static bool
acquire_both(LockAcquisition *a)
{
	const ZklockAction action = ZKLOCK_ACTION_LOCK(a->holds[0]->name.display);
	ZklSession *session;
	bool		covered = true;

	for (int i = 0; i < a->n; i++)
		covered = covered && a->holds[i]->mode >= a->item->mode;

	/* Connect first: no local wait while the ensemble is unreachable. */
	if (!covered)
	{
		zklock_session_ready(&action, &a->timeout);
		zklock_check_loss();
	}

	/* Also if no request is sent: a later downgrade would have no node name. */
	session = zklock_session_current();
	if (session && !zkl_session_has_mode(session, a->item->mode))
		zklock_raise(ZKL_NOT_SUPPORTED, &action, 0);
	if (!acquire_one_by_one(a, covered))
		return false;
	zklock_check_snapshot(&a->timeout, a->holds[0]->name.display);
	return true;
}

bool
zklock_acquire(ZklockAcquisition *item)
{
	LockAcquisition a = {.item = item, .timeout.timeout_ms = item->timeout_ms};
	ZklockHold *single;
	volatile bool acquired = false;

	zklock_check_loss();
	if (item->n == 0)
		return true;
	a.holds = item->n == 1 ? &single : palloc(sizeof(ZklockHold *) * item->n);
	a.timeout.started = zkl_now_ms();
	PG_TRY();
	{
		prepare_holds(&a);
		acquired = acquire_both(&a);
	}
	PG_CATCH();
	{
		zklock_count_failed(&a.timeout);
		settle_all(&a);
		PG_RE_THROW();
	}
	PG_END_TRY();

	for (int i = 0; acquired && i < a.n; i++)
		zklock_hold_add(a.holds[i], item->mode, item->scope,
						GetCurrentTransactionNestLevel());
	settle_all(&a);
	zklock_count_outcome(&a.timeout, acquired ? a.n : 0);
	return acquired;
}

int64
zklock_token(const ZklockName *name)
{
	ZklockHold *hold = zklock_hold_find(name);

	return hold && hold->lock ? hold->token : 0;
}
