/*-------------------------------------------------------------------------
 *
 * queue_wait.c
 *		Waits in a queue of the ensemble.
 *
 * Tells call.c what the call waits for, logs long waits, and starts the search for deadlocks.  The
 * sleeping itself is in wait.c, and the counting of what is held in locks.c and semaphores.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "backend/base/holds.h"
#include "backend/base/settings.h"
#include "backend/base/syntax.h"
#include "backend/lock/queue_wait.h"
#include "backend/session/call.h"
#include "backend/session/errors.h"
#include "backend/session/session.h"
#include "backend/session/shared_memory.h"
#include "backend/session/wait.h"
#include "recipe/recipe.h"

ZklockAction
zklock_action_of(const ZklockHold *hold)
{
	return hold->kind == ZKLOCK_SEMAPHORE ? ZKLOCK_ACTION_PERMIT(hold->name.display)
		: ZKLOCK_ACTION_LOCK(hold->name.display);
}

/* Returns what has failed, or is awaited. */
static const ZklockHold *
culprit(const ZklockCall *call, const ZklRequestInfo *info)
{
	return call->wait.holds[Max(info->culprit, 0)];
}

/* Like log_lock_waits for the local lock; names the blocker. */
static void
log_long_wait(ZklockCall *call, ZklRequestInfo *info)
{
	ZklockQueueWait *w = &call->wait;

	if (!log_lock_waits || w->logged)
		return;
	w->logged = psprintf(info->is_permit ? "a permit of semaphore \"%s\"" : "zk lock \"%s\"",
						 culprit(call, info)->name.display);
	zklock_make_plain(info->blocker);	/* written by any program */
	ereport(LOG,
			(errmsg("process %d still waiting for %s after %lld ms",
					MyProcPid, w->logged, (long long) (zkl_now_ms() - w->started)),
			 info->blocker[0] ? errdetail_log("Blocked by: %s", info->blocker) : 0));
}

static void
log_long_wait_end(const ZklockQueueWait *w)
{
	if (w->logged)
		ereport(LOG,
				(errmsg("process %d acquired %s after %lld ms",
						MyProcPid, w->logged, (long long) (zkl_now_ms() - w->started))));
}

/* Searches for a deadlock, when the call has been blocked for deadlock_timeout. */
static void
watch_long_wait(ZklockCall *call, ZklRequestInfo *info, int64 *check_again)
{
	int64		long_at = call->wait.started + DeadlockTimeout;

	if (zkl_now_ms() < long_at)
	{
		*check_again = Min(*check_again, long_at);
		return;
	}
	log_long_wait(call, info);
	if (zklock_deadlock_detection && call->timeout_ms != 0)
		zklock_search_deadlock(call, info->is_permit, culprit(call, info)->name.display, check_again);
}

/* How long a non-blocking attempt waits for what is not a pending delete of this server. */
#define ZKLOCK_ATTEMPT_MS 1000

/* Before a non-blocking attempt looks again whether it waits for a pending delete. */
#define FIRST_LOOK_MS 100

/*
 * Sets how long a non-blocking attempt may be blocked: by a pending delete of this server, whose
 * backend may have no connection; by the answer of a session that keeps the lock; or by a
 * session that holds a semaphore's mutex.
 *
 * The session that the attempt waits for may hold the lock, if it has lost only its local lock:
 * pg_advisory_unlock_all().  Then it may have no pending delete, and the attempt does not wait.
 */
static void
limit_attempt(ZklockCall *call, const ZklRequestInfo *info, int64 *check_again)
{
	ZklockQueueWait *w = &call->wait;
	int64		now = zkl_now_ms();

	if (zklock_may_have_released((int64) info->released_by, zklock_session_namespace()))
	{
		w->attempt_ms = zklock_ensemble_timeout;
		*check_again = Min(*check_again, now + Max(now - w->started, FIRST_LOOK_MS));
		return;
	}
	w->attempt_ms = Min(ZKLOCK_ATTEMPT_MS, zklock_ensemble_timeout);
	if (info->released_by != 0)
		zkl_request_look_again(w->request);
}

/* A non-blocking attempt at a lock never waits for a holder. */
static void
update_queued(ZklockCall *call, const ZklRequestInfo *info)
{
	if (!info->was_blocked || (call->timeout_ms == 0 && !info->is_permit))
		return;
	zklock_call_waits_for(call, culprit(call, info)->name.display);
	call->queued = true;
}

static ZklockSituation
situation_of(const ZklockCall *call, const ZklRequestInfo *info)
{
	if (!info->blocked && !call->queued)
		return ZKLOCK_ASKING;
	if (zkl_session_state(call->wait.session) != ZKL_SESSION_CONNECTED)
		return ZKLOCK_CUT_OFF;
	return info->blocked ? ZKLOCK_BLOCKED : ZKLOCK_ASKING_AGAIN;
}

/* Throws, unless the call returns false. */
static void
raise_end(ZklockCall *call, const ZklRequestInfo *info, ZklockEnd end)
{
	ZklockAction action;

	if (end.reason == ZKLOCK_END_LOCK_TIMEOUT)
		zklock_raise_lock_timeout();
	if (end.reason == ZKLOCK_END_TIMEOUT)
		return;
	action = zklock_action_of(culprit(call, info));
	zklock_fail(&action, zklock_no_answer(call->wait.session, end.at - call->progress_at));
}

/* Ends the wait. */
static bool
is_over(void *arg, int64 *check_again)
{
	ZklockCall *call = arg;
	ZklRequestInfo info;
	ZklockSituation situation;
	ZklockEnd	end;
	ZklStatus	status = zkl_request_status(call->wait.request);

	if (status == ZKL_OK)
		log_long_wait_end(&call->wait);
	if (status != ZKL_PENDING)
		return true;
	zkl_request_info(call->wait.request, &info);
	update_queued(call, &info);
	if (info.blocked)
		zklock_wait_is_for(ZKLOCK_WAIT_LOCK);
	situation = situation_of(call, &info);
	if (situation == ZKLOCK_BLOCKED && call->timeout_ms == 0)
		limit_attempt(call, &info, check_again);
	end = zklock_call_end(call, situation, info.progress + 1);
	*check_again = Min(*check_again, end.at);
	if (zkl_now_ms() >= end.at)
	{
		raise_end(call, &info, end);
		return true;
	}
	if (info.blocked && call->queued)
		watch_long_wait(call, &info, check_again);
	return call->must_requeue;
}

/* zklock's own errors name the lock. */
static void
name_awaited(void *arg)
{
	ZklockCall *call = arg;
	ZklockAction action;
	ZklRequestInfo info;

	if (geterrcode() != ERRCODE_QUERY_CANCELED && geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
		return;
	zkl_request_info(call->wait.request, &info);
	action = zklock_action_of(culprit(call, &info));
	zklock_name_action(&action);
}

/* After the wait, also after an error. */
static void
finish(ZklockCall *call, ZklRequestInfo *info)
{
	zkl_request_info(call->wait.request, info);
	update_queued(call, info);
	zklock_end_search(&call->wait);
}

ZklStatus
zklock_await_request(ZklockCall *call, ZklSession *session, ZklRequest *request,
					 ZklockHold **holds)
{
	ErrorContextCallback context = {error_context_stack, name_awaited, call};
	ZklockAction action = zklock_action_of(holds[0]);
	ZklStatus	status;
	ZklRequestInfo info;

	call->must_requeue = false;
	call->wait = (ZklockQueueWait)
	{
		.session = session,.request = request,.holds = holds
	};
	if (request == NULL)
		zklock_raise(ZKL_NO_MEMORY, &action, 0);
	if (zkl_request_status(request) == ZKL_OK)	/* a kept lock is granted at once */
		return ZKL_OK;
	call->wait.started = zkl_now_ms();
	PG_TRY();
	{
		error_context_stack = &context;
		zklock_wait(session, is_over, call);
	}
	PG_CATCH();
	{
		finish(call, &info);
		zkl_request_end(request);
		PG_RE_THROW();
	}
	PG_END_TRY();
	error_context_stack = context.previous;

	status = zkl_request_status(request);
	finish(call, &info);
	call->must_requeue = call->must_requeue && status == ZKL_PENDING;
	switch (status)
	{
		case ZKL_OK:
		case ZKL_PENDING:
		case ZKL_BUSY:
		case ZKL_SESSION_LOST:
		case ZKL_LOCK_LOST:
		case ZKL_OTHER_CAPACITY:
			return status;
		default:
			zkl_request_end(request);
			action = zklock_action_of(culprit(call, &info));
			if (status == ZKL_DEADLOCK)
				zklock_raise_upgrade_deadlock(&action, info.blocker);
			zklock_raise(status, &action, info.raw_code);
	}
}
