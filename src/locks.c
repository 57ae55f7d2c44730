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
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "errors.h"
#include "identity.h"
#include "locks.h"
#include "loss.h"
#include "session.h"
#include "settings.h"
#include "syntax.h"
#include "wait.h"

/* A call of zklock_acquire() on its way. */
typedef struct Acquisition
{
	ZklockWish *wish;
	ZklockHold **holds;			/* distinct, in the order of the first tier */
	int			n;
	int64		started;
	bool		waited;
	bool		queued;			/* stood in a queue of the ensemble */
} Acquisition;

/* How long it may wait for others from now on, or ZKLOCK_NO_LIMIT. */
static int64
limit_left(const Acquisition *a)
{
	int64		spent;

	if (a->wish->limit_ms <= 0)
		return a->wish->limit_ms;
	spent = zklock_now() - a->started;
	return Max(a->wish->limit_ms - spent, 0);
}


/*
 * The second tier
 */

typedef struct RemoteWait
{
	Acquisition *a;
	ZklSession *session;
	ZklRequest *request;
	const char **displays;		/* of the request's locks */
	int64		started;
	int64		unanswered_since;	/* connection lost, and needs an answer; or 0 */
	uint64		n_answers;		/* of the ensemble, when last looked */
	bool		logged;
} RemoteWait;

/* As log_lock_waits does for the first tier; names the session in the way. */
static void
log_long_wait(RemoteWait *w, ZklRequestInfo *info, int64 now)
{
	if (!log_lock_waits || w->logged || now - w->started < DeadlockTimeout)
		return;
	w->logged = true;
	zklock_make_plain(info->blocker);	/* another program wrote this */
	ereport(LOG,
			(errmsg("process %d still waiting for zk lock \"%s\" after %lld ms",
					MyProcPid, w->displays[Max(info->culprit, 0)],
					(long long) (now - w->started)),
			 info->blocker[0] ? errdetail_log("In the way: %s", info->blocker) : 0));
}

/* In the queue of another server's session: how long yet? */
static bool
is_blocked_too_long(RemoteWait *w, ZklRequestInfo *info, int64 now,
					int64 *look_again)
{
	if (w->a->wish->limit_ms > 0)
	{
		if (limit_left(w->a) == 0)
			return true;
		*look_again = now + limit_left(w->a);
	}
	if (info->blocked)
	{
		log_long_wait(w, info, now);
		if (log_lock_waits && !w->logged)
			*look_again = Min(*look_again, w->started + DeadlockTimeout);
	}
	return false;
}

/*
 * A call that needs an answer to go on can't wait for ever for a connection to
 * come back.  One that comes and goes again without an answer is none.
 */
static void
check_connection(RemoteWait *w, const ZklRequestInfo *info, int64 now,
				 int64 *look_again)
{
	if (info->n_answers != w->n_answers)
		w->unanswered_since = 0;
	w->n_answers = info->n_answers;
	if (w->unanswered_since == 0)
	{
		if (zkl_session_state(w->session) == ZKL_SESSION_CONNECTED)
			return;
		w->unanswered_since = now;
	}
	*look_again = w->unanswered_since + zklock_connect_timeout;
	if (now >= *look_again)
		zklock_raise_connection_lost(w->displays[Max(info->culprit, 0)]);
}

/* One that has stood in the queue sits out an outage of any length. */
static bool
is_granted(void *arg, int64 *look_again)
{
	RemoteWait *w = arg;
	ZklRequestInfo info;
	int64		now = zklock_now();

	if (zkl_request_status(w->request) != ZKL_PENDING)
		return true;
	zkl_request_info(w->request, &info);
	if (info.was_blocked || w->a->queued)
		return is_blocked_too_long(w, &info, now, look_again);
	check_connection(w, &info, now, look_again);
	return false;
}

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
			hold->acquired_at = now;
		hold->lock = zkl_request_lock(request, granted++);
		hold->token = zkl_lock_token(hold->lock);
		hold->mode = a->wish->mode;
	}
}

/* Waits for the request; cleans it up in every case. */
static ZklStatus
wait_for_request(Acquisition *a, RemoteWait *w)
{
	ZklStatus	status;
	ZklRequestInfo info;
	const char *culprit;

	PG_TRY();
	{
		zklock_wait_for_lock(w->session, is_granted, w, w->started - a->started);
	}
	PG_CATCH();
	{
		zkl_request_end(w->request);
		PG_RE_THROW();
	}
	PG_END_TRY();

	status = zkl_request_status(w->request);
	zkl_request_info(w->request, &info);
	a->waited = a->waited || info.was_blocked;
	a->queued = a->queued || info.was_blocked;
	if (status == ZKL_OK)
		take_granted(a, w->request);
	zkl_request_end(w->request);
	culprit = w->displays[Max(info.culprit, 0)];
	switch (status)
	{
		case ZKL_OK:
		case ZKL_PENDING:
		case ZKL_BUSY:
		case ZKL_SESSION_LOST:
		case ZKL_LOCK_LOST:
			break;
		default:
			zklock_raise(status, culprit, info.raw_code);
	}
	return status;
}

/* Asks the ensemble for what is not covered by what the session holds. */
static ZklStatus
request_remote(Acquisition *a, ZklSession *session)
{
	ZklLockWish *wishes = palloc(sizeof(ZklLockWish) * a->n);
	RemoteWait	w = {.a = a, .session = session};
	const char *data = zklock_identity();
	int			n = 0;

	w.displays = palloc(sizeof(char *) * a->n);
	w.started = zklock_now();
	for (int i = 0; i < a->n; i++)
	{
		ZklockHold *hold = a->holds[i];

		if (hold->mode >= a->wish->mode)
			continue;
		w.displays[n] = hold->name.display;
		wishes[n].name = hold->name.encoded;
		wishes[n].mode = a->wish->mode;
		wishes[n].held = hold->lock;
		n++;
	}
	w.request = zkl_lock_request(session, wishes, n, a->wish->limit_ms == 0,
								 data, strlen(data));
	if (w.request == NULL)
		zklock_raise(ZKL_NO_MEMORY, w.displays[0], 0);
	return wait_for_request(a, &w);
}

/*
 * The session, connected.  A call that has not queued yet waits for it as long
 * as zklock.connect_timeout says; one that has, as long as it is willing to
 * wait for the lock: NULL when that has passed.
 */
static ZklSession *
reach_session(const Acquisition *a)
{
	const char *display = a->holds[0]->name.display;
	int64		limit = limit_left(a);

	if (!a->queued)
		return zklock_session_ready(display);
	return zklock_session_by(display, limit == ZKLOCK_NO_LIMIT ? ZKLOCK_NEVER
							 : zklock_now() + limit);
}

/* False when the limit has passed. */
static bool
acquire_remote(Acquisition *a)
{
	for (;;)
	{
		ZklSession *session = reach_session(a);
		ZklStatus	status;

		if (session == NULL)
			return false;
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

static bool
acquire_local(Acquisition *a)
{
	for (int i = 0; i < a->n; i++)
	{
		ZklockHold *hold = a->holds[i];
		ZklockModeCounts *counts = zklock_hold_counts(hold, a->wish->mode);
		int64		limit = limit_left(a);
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
											 limit, &a->waited);
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
static void
check_snapshot(const Acquisition *a)
{
	int			level = zklock_stale_snapshot == ZKLOCK_STALE_SNAPSHOT_ERROR
		? ERROR : WARNING;

	if (!a->waited || zklock_stale_snapshot == ZKLOCK_STALE_SNAPSHOT_OFF ||
		!IsolationUsesXactSnapshot() || !FirstSnapshotSet)
		return;
	ereport(level,
			(errcode(level == ERROR ? ERRCODE_T_R_SERIALIZATION_FAILURE : ERRCODE_WARNING),
			 errmsg("the snapshot of this transaction is older than its lock \"%s\"",
					a->holds[0]->name.display),
			 errdetail("The lock was waited for after the snapshot had been taken; what its former holder committed is not visible."),
			 errhint("Take the lock before the transaction, use READ COMMITTED, or set zklock.stale_snapshot.")));
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
		zklock_session_ready(a->holds[0]->name.display);
		zklock_check_loss();
	}
	if (!acquire_local(a))
		return false;
	if (!covered && !acquire_remote(a))
		return false;
	check_snapshot(a);
	return true;
}

bool
zklock_acquire(ZklockWish *wish)
{
	Acquisition a = {.wish = wish};
	volatile bool acquired = false;

	zklock_check_loss();
	if (wish->n == 0)
		return true;
	a.holds = palloc(sizeof(ZklockHold *) * wish->n);
	a.started = zklock_now();
	PG_TRY();
	{
		prepare_holds(&a);
		acquired = acquire_both(&a);
	}
	PG_CATCH();
	{
		settle_all(&a);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (acquired)
		for (int i = 0; i < a.n; i++)
			zklock_hold_add(a.holds[i], wish->mode, wish->scope,
							GetCurrentTransactionNestLevel());
	settle_all(&a);
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

/* The ensemble first, so that a local waiter finds its request on the way. */
void
zklock_settle(ZklockHold *hold)
{
	ZklMode		needed = zklock_hold_needed(hold);

	/* A call is at it, perhaps in a subtransaction of its own that has failed. */
	if (hold->pins > 0)
		return;
	if (hold->lock && needed < hold->mode)
	{
		zkl_lock_reduce(hold->lock, needed);
		hold->mode = needed;
		if (needed == ZKL_MODE_NONE)
			hold->lock = NULL;
	}
	if (hold->exclusive.local && needed != ZKL_MODE_EXCLUSIVE)
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

	for (int i = 0; i < n; i++)
	{
		ZklockHold *hold = zklock_hold_find(&names[i]);

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
	for (int i = 0; all && i < n; i++)
	{
		ZklockHold *hold = zklock_hold_find(&names[i]);

		zklock_hold_counts(hold, mode)->session--;
		zklock_settle(hold);
	}
	zklock_drop_notice();
	return all;
}

void
zklock_release_session(void)
{
	dlist_mutable_iter iter;

	if (zklock_holds_any())
		zklock_note_release();
	dlist_foreach_modify(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		zklock_hold_forget_session(hold);
		zklock_settle(hold);
	}
	zklock_drop_notice();
}

void
zklock_release_levels(int level)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		zklock_hold_forget_levels(hold, level);
		zklock_settle(hold);
	}
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
