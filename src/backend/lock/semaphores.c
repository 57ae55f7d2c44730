/*-------------------------------------------------------------------------
 *
 * semaphores.c
 *		Acquires and releases permits of semaphores.
 *
 * Every permit is an entry of its own in the hold table, so locks.c, lifecycle.c
 * and loss.c treat it like a lock.  It has no local lock to wait for, because
 * PostgreSQL's lock manager cannot count.  Shared memory shows that the permit is held
 * (shown.c), so that a non-blocking attempt can distinguish it from a released permit.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"

#include "backend/base/names.h"
#include "backend/base/settings.h"
#include "backend/lock/locks.h"
#include "backend/lock/loss.h"
#include "backend/lock/remote_wait.h"
#include "backend/lock/semaphores.h"
#include "backend/lock/settle.h"
#include "backend/session/backend_session.h"
#include "backend/session/callbacks.h"
#include "backend/session/lease_timer.h"
#include "backend/session/shown.h"
#include "backend/session/stats.h"
#include "backend/session/wait.h"

/* Between two attempts, until the deletes of released permits are answered. */
#define RETRY_MS 5

/* State of a call of zklock_acquire_permit(). */
typedef struct PermitAcquisition
{
	ZklockHold *hold;			/* of the permit; pinned */
	ZklockTimeout timeout;
} PermitAcquisition;


static void
raise_other_capacity(const char *display, int capacity, int requested)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("semaphore \"%s\" has %d permits, not %d", display, capacity, requested),
			 errhint("Use the same number of permits in all calls; the number can be changed after the semaphore has been unused for some minutes.")));
}

/*
 * Checks the permits that this session holds.  They determine the capacity.  If they are
 * all permits of the semaphore, no other session could end the wait.
 */
static void
check_own_permits(const ZklockName *name, int capacity, int64 timeout_ms)
{
	int			n = 0;
	ZklockHold *hold = NULL;

	while ((hold = zklock_hold_find_permit(name, hold)) != NULL)
	{
		if (hold->lock == NULL)
			continue;
		if (hold->capacity != capacity)
			raise_other_capacity(name->display, hold->capacity, capacity);
		n++;
	}
	if (n >= capacity && timeout_ms != 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				 errmsg("deadlock detected while waiting for semaphore \"%s\"",
						name->display),
				 capacity == 1
				 ? errdetail("This session holds its only permit.")
				 : errdetail("This session holds all of its %d permits.", capacity),
				 errhint("Release one first: a semaphore is not re-entrant.")));
}

/* The permits of others that refused an attempt. */
typedef struct Refusal
{
	int64	   *others;			/* their sessions, palloc'd; NULL: out of memory */
	int			n_others;
	int			n_excess;		/* so many must go */
} Refusal;

static void
note_refusal(ZklRequest *request, const ZklRequestInfo *info, Refusal *refusal)
{
	refusal->n_excess = info->n_excess;
	refusal->others = palloc_extended(sizeof(int64) * (info->n_others + 1), MCXT_ALLOC_NO_OOM);
	if (refusal->others)
		refusal->n_others = zkl_request_others(request, refusal->others, info->n_others);
}

/*
 * Returns whether backends of this server have released so many of the permits, whose nodes
 * will be deleted, that the attempt will find room.
 */
static bool
is_released(const PermitAcquisition *a, const Refusal *refusal)
{
	return refusal->others && refusal->n_excess <=
		zklock_count_released_permits(a->hold->key, refusal->others, refusal->n_others);
}

static bool
is_pause_over(void *arg, int64 *check_again)
{
	int64		end = *(int64 *) arg;

	*check_again = Min(*check_again, end);
	return zkl_now_ms() >= end;
}

/* Makes one request. */
static ZklStatus
request_once(PermitAcquisition *a, ZklSession *session, Refusal *refusal)
{
	ZklockAction action = ZKLOCK_ACTION_PERMIT(a->hold->name.display);
	const char *data = zklock_identity();
	ZklRequest *request;
	ZklRequestInfo info;
	ZklStatus	status;

	request = zkl_permit_request(session, a->hold->name.encoded, a->hold->capacity,
								 a->timeout.timeout_ms == 0, data, strlen(data));
	status = zklock_await_request(&a->timeout, session, request, &action);
	if (status == ZKL_OK)
	{
		zklock_hold_granted(a->hold, zkl_request_lock(request, 0),
							ZKL_MODE_EXCLUSIVE, GetCurrentTimestamp());
		zklock_lease_timer_start(session);
		zklock_callbacks.after_grant();
	}
	zkl_request_info(request, &info);
	if (status == ZKL_BUSY)
		note_refusal(request, &info, refusal);
	zkl_request_end(request);
	if (status == ZKL_OTHER_CAPACITY)
		raise_other_capacity(action.display, info.capacity, a->hold->capacity);
	return status;
}

/*
 * An attempt that was refused because of released permits is repeated until their nodes
 * are deleted.  The bound is for a backend whose connection is down.
 */
static ZklStatus
request_remote(void *arg, ZklSession *session)
{
	PermitAcquisition *a = arg;

	zklock_show_permit(a->hold);
	for (;;)
	{
		Refusal		refusal = {0};
		ZklStatus	status = request_once(a, session, &refusal);
		int64		next = zkl_now_ms() + RETRY_MS;

		if (status != ZKL_BUSY || !is_released(a, &refusal) ||
			next >= a->timeout.started + zklock_connect_timeout)
			return status;
		zklock_no_answer_due(&a->timeout);
		zklock_wait(session, is_pause_over, &next);
	}
}

int64
zklock_acquire_permit(const ZklockName *name, int capacity, ZklockScope scope,
					  int64 timeout_ms)
{
	PermitAcquisition a = {.timeout.timeout_ms = timeout_ms};
	volatile bool acquired = false;
	int64		token;

	zklock_check_loss();
	check_own_permits(name, capacity, timeout_ms);
	a.timeout.started = zkl_now_ms();
	a.hold = zklock_hold_prepare_permit(name, capacity);
	PG_TRY();
	{
		zklock_session_ready(&ZKLOCK_ACTION_PERMIT(name->display), &a.timeout);
		zklock_check_loss();
		acquired = zklock_acquire_remote(&a.timeout, &ZKLOCK_ACTION_PERMIT(name->display),
										 request_remote, &a);
		if (acquired)
			zklock_check_snapshot(&a.timeout, name->display);
	}
	PG_CATCH();
	{
		zklock_count_failed(&a.timeout);
		a.hold->pins--;
		zklock_settle(a.hold);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (acquired)
		zklock_hold_add(a.hold, ZKL_MODE_EXCLUSIVE, scope,
						GetCurrentTransactionNestLevel());
	token = acquired ? a.hold->token : 0;
	a.hold->pins--;
	zklock_settle(a.hold);
	zklock_count_outcome(&a.timeout, acquired ? 1 : 0);
	return token;
}

/* Returns the youngest session-level permit, or NULL. */
static ZklockHold *
find_session_permit(const ZklockName *name)
{
	ZklockHold *hold = NULL;

	while ((hold = zklock_hold_find_permit(name, hold)) != NULL)
		if (hold->exclusive.session > 0)
			return hold;
	return NULL;
}

bool
zklock_release_permit(const ZklockName *name)
{
	ZklockHold *hold = find_session_permit(name);

	if (hold == NULL)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("you don't own a permit of semaphore \"%s\" at session level",
						name->display),
				 errhint("See zk_held_locks for the permits of this session.")));
	else
	{
		zklock_note_release(&hold, 1);
		hold->exclusive.session--;
		zklock_settle(hold);
	}
	zklock_withdraw_requests();
	return hold != NULL;
}
