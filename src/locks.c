/*-------------------------------------------------------------------------
 *
 * locks.c
 *		Taking and giving back locks, through both tiers.
 *
 * A lock is taken in PostgreSQL's lock manager first (local_tier.c), then in
 * the ensemble (src/recipe).  What was taken is counted in the hold table
 * (holds.c) only when all of it is there; until then an error leaves the
 * counts as they were, and settling the entries gives back the rest.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "identity.h"
#include "lock_table.h"
#include "locks.h"
#include "loss.h"
#include "remote_wait.h"
#include "session.h"
#include "settings.h"
#include "stats.h"
#include "wait.h"

/* A call of zklock_acquire() on its way. */
typedef struct Acquisition
{
	ZklockWish *wish;
	ZklockHold **holds;			/* distinct, in the order of the first tier */
	int			n;
	ZklockPatience patience;
	bool		stepped_back;
} Acquisition;


/*
 * The second tier
 */

/* Books what the request was granted. */
static void
take_granted(Acquisition *a, ZklRequest *request)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0, granted = 0; i < a->n; i++)
	{
		ZklockHold *hold = a->holds[i];

		if (hold->mode >= a->wish->mode)
			continue;
		if (hold->lock == NULL)
		{
			hold->acquired_at = now;
			hold->revocations_told = 0;
		}
		hold->lock = zkl_request_lock(request, granted++);
		hold->token = zkl_lock_token(hold->lock);
		hold->mode = a->wish->mode;
	}
}

/* Asks the ensemble for what is not covered by what the session holds. */
static ZklStatus
request_remote(Acquisition *a, ZklSession *session)
{
	ZklLockWish *wishes = palloc(sizeof(ZklLockWish) * a->n);
	ZklockPurpose *purposes = palloc(sizeof(ZklockPurpose) * a->n);
	const char *data = zklock_identity();
	ZklRequest *request;
	ZklStatus	status;
	int			n = 0;

	for (int i = 0; i < a->n; i++)
	{
		ZklockHold *hold = a->holds[i];

		if (hold->mode >= a->wish->mode)
			continue;
		purposes[n] = ZKLOCK_PURPOSE_LOCK(hold->name.display);
		wishes[n].name = hold->name.encoded;
		wishes[n].mode = a->wish->mode;
		wishes[n].held = hold->lock;
		n++;
	}
	request = zkl_lock_request(session, wishes, n, a->wish->limit_ms == 0,
							   data, strlen(data));
	status = zklock_await_request(&a->patience, session, request, purposes, n);
	if (status == ZKL_OK)
		take_granted(a, request);
	zkl_request_end(request);
	return status;
}

/* False when the limit has passed. */
static bool
acquire_remote(Acquisition *a)
{
	for (;;)
	{
		ZklSession *session = zklock_reach_session(&a->patience, &ZKLOCK_PURPOSE_LOCK(a->holds[0]->name.display));
		ZklStatus	status;

		if (session == NULL)
			return false;
		zklock_show_session(session);
		status = request_remote(a, session);
		if (status != ZKL_SESSION_LOST && status != ZKL_LOCK_LOST)
			return status == ZKL_OK;

		/* If nothing that was held is lost, queue anew in another session. */
		zklock_check_loss();
	}
}


/*
 * The first tier
 */

/*
 * May this call go on without the first tier?  When pg_advisory_unlock_all()
 * took it away from a lock that we hold, whoever has it now waits for us in the
 * ensemble, which the deadlock detector can't see.  And a parallel query can't
 * wait here with a limit; then it waits in the ensemble.
 */
static bool
can_do_without(const ZklockHold *hold, int64 limit)
{
	if (hold->mode != ZKL_MODE_NONE && !zklock_local_is_held(hold->local_key))
		return true;
	return limit > 0 && IsInParallelMode();
}

/*
 * What is left of the limit; or of lock_timeout, whose clock PostgreSQL would set
 * anew, for who has stepped back.
 */
static int64
local_limit(const Acquisition *a, bool *is_lock_timeout)
{
	int64		limit = zklock_patience_left(&a->patience);
	int64		left;

	*is_lock_timeout = false;
	if (!a->stepped_back || LockTimeout <= 0)
		return limit;
	left = Max(LockTimeout - (zklock_now() - a->patience.started), 1);
	if (limit != ZKLOCK_NO_LIMIT && limit <= left)
		return limit;
	*is_lock_timeout = true;
	return left;
}

static bool
acquire_local(Acquisition *a)
{
	for (int i = 0; i < a->n; i++)
	{
		ZklockHold *hold = a->holds[i];
		ZklockModeCounts *counts = zklock_hold_counts(hold, a->wish->mode);
		bool		is_lock_timeout;
		int64		limit = local_limit(a, &is_lock_timeout);
		bool		optional;

		if (counts->local)
			continue;
		if (!hold->exclusive.local && !hold->shared.local)
			hold->local_key = hold->name.hash ^ zklock_session_place();
		optional = can_do_without(hold, limit);
		if (optional)
			limit = 0;
		else if (hold->mode >= a->wish->mode)
			limit = ZKLOCK_NO_LIMIT;	/* ours in a stronger mode: granted at once */
		counts->local = zklock_local_acquire(hold->local_key, a->wish->mode,
											 limit, &a->patience.waited);
		if (!counts->local && is_lock_timeout)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("canceling statement due to lock timeout")));
		if (!counts->local && !optional)
			return false;
	}
	return true;
}


/*
 * Both
 */

static void
settle_all(Acquisition *a)
{
	for (int i = 0; i < a->n; i++)
	{
		a->holds[i]->pins--;
		zklock_settle(a->holds[i]);
	}
}

/* The entries of the names, pinned. */
static void
prepare_holds(Acquisition *a)
{
	for (; a->n < a->wish->n; a->n++)
		a->holds[a->n] = zklock_hold_prepare(&a->wish->names[a->n], a->wish->mode);
}

/*
 * The data that this transaction reads next is older than the lock: its
 * snapshot was taken before the lock was waited for.
 */
void
zklock_check_snapshot(const ZklockPatience *patience, const char *display)
{
	int			level = zklock_stale_snapshot == ZKLOCK_STALE_SNAPSHOT_ERROR
		? ERROR : WARNING;

	if (!patience->waited || zklock_stale_snapshot == ZKLOCK_STALE_SNAPSHOT_OFF ||
		!IsolationUsesXactSnapshot() || !FirstSnapshotSet)
		return;
	ereport(level,
			(errcode(level == ERROR ? ERRCODE_T_R_SERIALIZATION_FAILURE : ERRCODE_WARNING),
			 errmsg("the snapshot of this transaction is older than its lock \"%s\"",
					display),
			 errdetail("The lock was waited for after the snapshot had been taken; what its former holder committed is not visible."),
			 errhint("Take the lock before the transaction, use READ COMMITTED, or set zklock.stale_snapshot.")));
}

/*
 * Could this call let go of its place in the ensemble's queue to whoever stands
 * in line behind it?  One of several locks is not worth giving up the others;
 * to queue anew with a limit takes a subtransaction.
 */
static bool
can_step_back(const Acquisition *a)
{
	const ZklockHold *hold = a->holds[0];

	return a->n == 1 && !a->stepped_back && a->wish->limit_ms != 0 &&
		!IsInParallelMode() && hold->mode == ZKL_MODE_NONE &&
		hold->exclusive.local != hold->shared.local;
}

/* The request is ended: lets the next one in line up.  Once, so that it ends. */
static void
step_back(Acquisition *a)
{
	ZklockHold *hold = a->holds[0];

	ereport(DEBUG1,
			(errmsg_internal("lets others of this server go first for lock \"%s\"",
							 hold->name.display)));
	a->stepped_back = true;
	zklock_hold_counts(hold, a->wish->mode)->local = false;
	zklock_local_release(hold->local_key, a->wish->mode);
}

/* False when the limit has passed. */
static bool
acquire_in_turn(Acquisition *a, bool covered)
{
	for (;;)
	{
		if (!acquire_local(a))
			return false;
		a->patience.may_step_back = can_step_back(a);
		if (covered || acquire_remote(a))
			return true;
		if (!a->patience.steps_back)
			return false;
		step_back(a);
	}
}

/* All or nothing; false when the limit has passed. */
static bool
acquire_both(Acquisition *a)
{
	bool		covered = true;

	for (int i = 0; i < a->n; i++)
		covered = covered && a->holds[i]->mode >= a->wish->mode;

	/* Connecting first: nobody shall wait here for an ensemble that is away. */
	if (!covered)
	{
		zklock_session_ready(&ZKLOCK_PURPOSE_LOCK(a->holds[0]->name.display));
		zklock_check_loss();
	}
	if (!acquire_in_turn(a, covered))
		return false;
	zklock_check_snapshot(&a->patience, a->holds[0]->name.display);
	return true;
}

bool
zklock_acquire(ZklockWish *wish)
{
	Acquisition a = {.wish = wish, .patience.limit_ms = wish->limit_ms};
	ZklockHold *single;
	volatile bool acquired = false;

	zklock_check_loss();
	if (wish->n == 0)
		return true;
	a.holds = wish->n == 1 ? &single : palloc(sizeof(ZklockHold *) * wish->n);
	a.patience.started = zklock_now();
	PG_TRY();
	{
		prepare_holds(&a);
		acquired = acquire_both(&a);
	}
	PG_CATCH();
	{
		zklock_count_failed(&a.patience);
		settle_all(&a);
		PG_RE_THROW();
	}
	PG_END_TRY();

	for (int i = 0; acquired && i < a.n; i++)
		zklock_hold_add(a.holds[i], wish->mode, wish->scope,
						GetCurrentTransactionNestLevel());
	settle_all(&a);
	if (acquired)
		zklock_count_acquired(&a.patience, a.n);
	else
		zklock_count_gave_up(&a.patience);
	return acquired;
}

int64
zklock_token(const ZklockName *name)
{
	ZklockHold *hold = zklock_hold_find(name);

	return hold && hold->lock ? hold->token : 0;
}


/*
 * Giving back
 */

static void
settle_remote(ZklockHold *hold)
{
	ZklMode		needed;

	/* A call is at it, perhaps in a subtransaction of its own that has failed. */
	if (hold->pins > 0 || hold->lock == NULL)
		return;
	needed = zklock_hold_needed(hold);
	if (needed >= hold->mode)
		return;
	zkl_lock_reduce(hold->lock, needed);
	hold->mode = needed;
	if (needed == ZKL_MODE_NONE)
		hold->lock = NULL;
}

static void
settle_local(ZklockHold *hold)
{
	if (hold->pins > 0)
		return;
	if (hold->exclusive.local && zklock_hold_needed(hold) != ZKL_MODE_EXCLUSIVE)
	{
		hold->exclusive.local = false;
		zklock_local_release(hold->local_key, ZKL_MODE_EXCLUSIVE);
	}
	if (hold->shared.local && hold->shared.session == 0 && hold->shared.n_levels == 0)
	{
		hold->shared.local = false;
		zklock_local_release(hold->local_key, ZKL_MODE_SHARED);
	}
	zklock_hold_free_if_unused(hold);
}

/* The ensemble first, so that a local waiter finds its request on the way. */
void
zklock_settle(ZklockHold *hold)
{
	settle_remote(hold);
	settle_local(hold);
}

/* The same for all; what goes from the ensemble goes together. */
static void
settle_every(void)
{
	ZklSession *session = zklock_session_current();
	dlist_iter	iter;
	dlist_mutable_iter next;

	if (session)
		zkl_releases_begin(session);
	dlist_foreach(iter, &zklock_holds)
		settle_remote(dlist_container(ZklockHold, link, iter.cur));
	if (session)
		zkl_releases_end(session);
	dlist_foreach_modify(next, &zklock_holds)
		settle_local(dlist_container(ZklockHold, link, next.cur));
}

void
zklock_lose(ZklockHold *hold)
{
	zklock_hold_forget_levels(hold, 0);
	zklock_hold_forget_session(hold);
	zkl_lock_reduce(hold->lock, ZKL_MODE_NONE);
	hold->lock = NULL;
	hold->mode = ZKL_MODE_NONE;
	zklock_settle(hold);
}

bool
zklock_release(const ZklockName *names, int n, ZklMode mode)
{
	bool		all = true;
	ZklockHold *hold = NULL;

	for (int i = 0; i < n; i++)
	{
		hold = zklock_hold_find(&names[i]);
		if (hold && zklock_hold_counts(hold, mode)->session > 0)
			continue;
		all = false;
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("you don't own %s lock \"%s\" at session level",
						mode == ZKL_MODE_EXCLUSIVE ? "exclusive" : "shared",
						names[i].display),
				 errhint("zk_held_locks shows the locks of this session.")));
	}
	if (all)
		zklock_note_release();
	if (all && n == 1)
	{
		zklock_hold_counts(hold, mode)->session--;
		zklock_settle(hold);
	}
	else if (all)
	{
		for (int i = 0; i < n; i++)
			zklock_hold_counts(zklock_hold_find(&names[i]), mode)->session--;
		settle_every();
	}
	zklock_drop_notice();
	return all;
}

void
zklock_release_session(void)
{
	dlist_iter	iter;

	if (zklock_holds_any())
		zklock_note_release();
	dlist_foreach(iter, &zklock_holds)
		zklock_hold_forget_session(dlist_container(ZklockHold, link, iter.cur));
	settle_every();
	zklock_drop_notice();
}

void
zklock_release_levels(int level)
{
	dlist_iter	iter;

	if (dlist_is_empty(&zklock_holds))
		return;
	dlist_foreach(iter, &zklock_holds)
		zklock_hold_forget_levels(dlist_container(ZklockHold, link, iter.cur), level);
	settle_every();
}

void
zklock_inherit_level(int level)
{
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
		zklock_hold_inherit(dlist_container(ZklockHold, link, iter.cur), level);
}

void
zklock_forget_ensemble(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		hold->lock = NULL;
		hold->mode = ZKL_MODE_NONE;
	}
}
