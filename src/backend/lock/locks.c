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

#include "backend/local/local.h"
#include "backend/lock/lock.h"

/* State of a call of zklock_acquire(). */
typedef struct LockAcquisition
{
	ZklockNames *names;			/* NULL: a permit */
	ZklMode		mode;
	ZklockScope scope;
	ZklockHold **holds;			/* distinct, pinned, in the order of the local locks */
	int			n;
	ZklockTimeout timeout;
	bool		requeued;
} LockAcquisition;

static ZklockAction
action_of(const ZklockHold *hold)
{
	return hold->kind == ZKLOCK_SEMAPHORE ? ZKLOCK_ACTION_PERMIT(hold->name.display)
		: ZKLOCK_ACTION_LOCK(hold->name.display);
}


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

		if (hold->mode >= a->mode)
			continue;
		zklock_hold_granted(hold, zkl_request_lock(request, granted++),
							a->mode, now);
	}
}

/* Requests the locks that are not covered by what the session holds. */
static ZklStatus
request_locks(LockAcquisition *a, ZklSession *session)
{
	ZklLockItem *items = palloc(sizeof(ZklLockItem) * a->n);
	ZklockAction *actions = palloc(sizeof(ZklockAction) * a->n);
	const char *data;
	ZklRequest *request = NULL;
	ZklStatus	status;
	int			n = 0;

	for (int i = 0; i < a->n; i++)
	{
		ZklockHold *hold = a->holds[i];

		if (hold->mode >= a->mode)
			continue;
		actions[n] = ZKLOCK_ACTION_LOCK(hold->name.display);
		if (hold->lock == NULL)
			zklock_fence_note(hold);
		items[n].name = hold->name.encoded;
		items[n].mode = a->mode;
		items[n].held = hold->lock;
		items[n].may_be_kept = zklock_keep_time > 0 && a->names->values == NULL;
		n++;
	}
	if (items[0].may_be_kept && items[0].held == NULL)
		request = zkl_kept_request(session, items[0].name, items[0].mode,
								   a->timeout.timeout_ms == 0);
	if (request)
		a->holds[0]->fence.is_known = false;	/* its node is older than this call */
	else
	{
		data = zklock_identity();
		request = zkl_lock_request(session, items, n, a->timeout.timeout_ms == 0,
								   data, strlen(data));
	}
	status = zklock_await_request(&a->timeout, session, request, actions);
	if (status == ZKL_OK)
		take_granted(a, request);
	zkl_request_end(request);
	return status;
}

/*
 * Makes a request in the connected session, and after the loss of the session again in
 * another one.  Returns false on timeout.
 */
static bool
acquire_remote(LockAcquisition *a)
{
	const ZklockAction action = action_of(a->holds[0]);

	zklock_no_answer_due(&a->timeout);	/* during the wait for the local lock */
	for (;;)
	{
		ZklSession *session = zklock_reach_session(&a->timeout, &action);
		ZklStatus	status;

		if (session == NULL)
			return false;
		zklock_show_session(session, zklock_session_namespace());
		status = a->names == NULL ? zklock_request_permit(a->holds[0], &a->timeout, session)
			: request_locks(a, session);
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
 * Returns what is left of the timeout; if the call has waited already, also of lock_timeout,
 * which PostgreSQL would start from zero.
 */
static int64
local_timeout(const LockAcquisition *a, bool *is_lock_timeout)
{
	int64		left;

	*is_lock_timeout = false;
	if (a->timeout.waited_for == NULL)
		return zklock_timeout_left(&a->timeout);
	left = zklock_time_left(&a->timeout, is_lock_timeout);
	return *is_lock_timeout ? Max(left, 1) : left;
}

/* Returns false if the timeout has passed; if it is lock_timeout, throws. */
static bool
wait_local(LockAcquisition *a, ZklockHold *hold, int64 timeout_ms, bool is_lock_timeout)
{
	ZklockAction action = action_of(hold);
	ErrorContextCallback context = {error_context_stack, zklock_name_action, &action};
	bool		acquired;

	error_context_stack = &context;
	acquired = zklock_local_acquire(hold->local_key, hold->name.display, a->mode, timeout_ms,
									&a->timeout);
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
		ZklockModeCounts *counts = zklock_hold_counts(hold, a->mode);
		bool		is_lock_timeout;
		int64		timeout_ms = local_timeout(a, &is_lock_timeout);
		bool		optional;

		CHECK_FOR_INTERRUPTS();
		if (counts->local || hold->kind == ZKLOCK_SEMAPHORE)
			continue;
		if (!hold->exclusive.local && !hold->shared.local)
			hold->local_key = hold->key ^ zklock_session_namespace();
		optional = can_do_without(hold);
		is_lock_timeout &= !optional && hold->mode < a->mode;
		if (optional)
			timeout_ms = 0;
		else if (hold->mode >= a->mode)
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
prepare_array(LockAcquisition *a)
{
	static uint64 call = 0;
	int			room = zklock_max_locks - zklock_holds_count();

	call++;
	for (int i = 0; i < a->names->n; i++)
	{
		const ZklockName *name = zklock_names_get(a->names, i);
		ZklockHold *hold = zklock_hold_find(name);

		if (hold && hold->acquired == call)
			continue;
		if ((hold == NULL || hold->mode < a->mode) && --room < 0)
			zklock_raise(ZKL_TOO_MANY, &ZKLOCK_ACTION_LOCK(name->display), 0);
		hold = zklock_hold_prepare(name);
		hold->acquired = call;
		a->holds[a->n++] = hold;
	}
	qsort(a->holds, a->n, sizeof(ZklockHold *), compare_holds);
}

static void
prepare_holds(LockAcquisition *a)
{
	if (a->names == NULL)
		return;
	if (a->names->values)
		prepare_array(a);
	else
	{
		a->holds[0] = zklock_hold_prepare(&a->names->name);
		a->n = 1;				/* only now: the line above may fail */
	}
}

/*
 * Called after a grant.  Reports a stale snapshot: it was taken before the lock was waited
 * for, so the data that this transaction reads next is older than the lock.
 */
static void
check_snapshot(const ZklockTimeout *timeout)
{
	int			level = zklock_stale_snapshot == ZKLOCK_STALE_SNAPSHOT_ERROR
		? ERROR : WARNING;

	if (timeout->waited_for == NULL || zklock_stale_snapshot == ZKLOCK_STALE_SNAPSHOT_OFF ||
		!IsolationUsesXactSnapshot() || !FirstSnapshotSet)
		return;
	ereport(level,
			(errcode(level == ERROR ? ERRCODE_T_R_SERIALIZATION_FAILURE : ERRCODE_WARNING),
			 errmsg("the snapshot of this transaction is older than its lock \"%s\"",
					timeout->waited_for),
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

	return a->n == 1 && !a->requeued && a->timeout.timeout_ms != 0 &&
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
	a->timeout.must_requeue = false;
	zklock_hold_counts(hold, a->mode)->local = false;
	zklock_local_release(hold->local_key, a->mode);
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

/*
 * Several locks: while this call waits for a local lock, its server reports that it holds the
 * others.  So it must not have their places in the ensemble, either.
 */
static void
leave_kept(const LockAcquisition *a, ZklSession *session)
{
	for (int i = 0; session && i < a->n; i++)
		if (a->holds[i]->mode == ZKL_MODE_NONE)
			zkl_session_leave_kept_of(session, a->holds[i]->name.encoded);
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
are_held(const LockAcquisition *a)
{
	for (int i = 0; i < a->n; i++)
		if (a->holds[i]->mode < a->mode || !zklock_hold_counts(a->holds[i], a->mode)->local)
			return false;
	return true;
}

/* Acquires all locks or none.  Returns false on timeout. */
static bool
acquire_both(LockAcquisition *a)
{
	const ZklockAction action = action_of(a->holds[0]);
	ZklSession *session;
	bool		covered = true;

	a->timeout.started = a->timeout.lock_started = zkl_now_ms();
	for (int i = 0; i < a->n; i++)
		covered = covered && a->holds[i]->mode >= a->mode;

	/* Connect first: no local wait while the ensemble is unreachable. */
	if (!covered)
	{
		zklock_session_ready(&action, &a->timeout);
		if (zklock_holds_any())
			zklock_check_loss();
	}

	/* Also if no request is sent: a later downgrade would have no node name. */
	session = zklock_session_current();
	if (session && !zkl_session_has_mode(session, a->mode))
		zklock_raise(ZKL_NOT_SUPPORTED, &action, 0);
	if (a->n > 1)
		leave_kept(a, session);
	if (!acquire_one_by_one(a, covered))
		return false;
	check_snapshot(&a->timeout);
	return true;
}

static bool
acquire(LockAcquisition *a)
{
	volatile bool acquired = false;

	PG_TRY();
	{
		prepare_holds(a);
		acquired = are_held(a) || acquire_both(a);
		if (acquired && a->names && a->names->tokens)
			store_tokens(a->names);
	}
	PG_CATCH();
	{
		zklock_count_failed(&a->timeout);
		settle_all(a);
		PG_RE_THROW();
	}
	PG_END_TRY();

	for (int i = 0; acquired && i < a->n; i++)
		zklock_hold_add(a->holds[i], a->mode, a->scope,
						GetCurrentTransactionNestLevel());
	settle_all(a);
	if (!acquired)
		zklock_count_gave_up(&a->timeout);
	else if (a->n > 0)
	{
		zklock_count_acquired(&a->timeout, a->n);
		zklock_warn_open_parents();
	}
	return acquired;
}

bool
zklock_acquire(ZklockNames *names, ZklMode mode, ZklockScope scope, int64 timeout_ms)
{
	ZklockHold *single;
	LockAcquisition a = {
		.names = names, .mode = mode, .scope = scope, .timeout.timeout_ms = timeout_ms, .holds = &single
	};

	zklock_check_loss();
	/* Of an array, no more entries are prepared than the session has or can have. */
	if (names->values)
		a.holds = palloc(sizeof(ZklockHold *) *
						 (Min(names->n, zklock_max_locks + zklock_holds_entries()) + 1));
	return acquire(&a);
}

bool
zklock_acquire_permit(const ZklockName *name, int capacity, ZklockScope scope,
					  int64 timeout_ms)
{
	ZklockHold *permit;
	LockAcquisition a = {
		.mode = ZKL_MODE_EXCLUSIVE, .scope = scope, .timeout.timeout_ms = timeout_ms, .holds = &permit, .n = 1
	};

	zklock_check_loss();
	zklock_check_own_permits(name, capacity, timeout_ms);
	permit = zklock_hold_prepare_permit(name, capacity);
	return acquire(&a);
}

int64
zklock_token(const ZklockName *name)
{
	ZklockHold *hold = zklock_hold_find(name);

	return hold && hold->lock ? hold->token : 0;
}
