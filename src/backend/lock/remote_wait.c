/*-------------------------------------------------------------------------
 *
 * remote_wait.c
 *		Waits in a queue of the ensemble.
 *
 * Decides when a call gives up: its own timeout has passed, or it makes no progress.  Logs
 * long waits.  The sleeping itself is in wait.c, and the counting of what is held in locks.c
 * and semaphores.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "backend/base/syntax.h"
#include "backend/lock/lock.h"

typedef struct RemoteWait
{
	ZklockLongWait wait;
	const ZklockAction *actions;	/* of its lock request items */
	int64		started;
	const char *logged;			/* what is awaited, in the server log; or NULL */
} RemoteWait;

static const char *
awaited_text(const ZklRequestInfo *info, const char *display)
{
	return psprintf(info->is_permit ? "a permit of semaphore \"%s\"" : "zk lock \"%s\"", display);
}

/* Like log_lock_waits for the local lock; names the blocker. */
static void
log_long_wait(RemoteWait *w, ZklRequestInfo *info, int64 now)
{
	if (!log_lock_waits || w->logged || now - w->started < DeadlockTimeout)
		return;
	w->logged = awaited_text(info, w->actions[Max(info->culprit, 0)].display);
	zklock_make_plain(info->blocker);	/* written by any program */
	ereport(LOG,
			(errmsg("process %d still waiting for %s after %lld ms",
					MyProcPid, w->logged, (long long) (now - w->started)),
			 info->blocker[0] ? errdetail_log("Blocked by: %s", info->blocker) : 0));
}

/* Checks a wait in the queue; returns true on timeout, or if the call must requeue. */
static bool
is_blocked_too_long(RemoteWait *w, ZklRequestInfo *info, int64 now,
					int64 *check_again)
{
	bool		is_lock_timeout;
	int64		left = zklock_time_left(w->wait.timeout, &is_lock_timeout);

	if (left == 0 && is_lock_timeout)
		zklock_raise_lock_timeout();
	if (left == 0 && w->wait.timeout->timeout_ms > 0)
		return true;
	if (left > 0)
		*check_again = Min(*check_again, now + left);
	if (info->blocked)
	{
		log_long_wait(w, info, now);
		if (now < w->started + DeadlockTimeout)
			*check_again = Min(*check_again, w->started + DeadlockTimeout);
		else if (zklock_deadlock_detection && w->wait.timeout->timeout_ms != 0 &&
				 zklock_search_deadlock(&w->wait, info->is_permit,
										w->actions[Max(info->culprit, 0)].display, check_again))
			w->wait.timeout->must_requeue = true;
	}
	return w->wait.timeout->must_requeue;
}

/* How long a non-blocking attempt waits for what is not a pending delete of this server. */
#define ZKLOCK_ATTEMPT_MS 1000

/* Before a non-blocking attempt looks again whether it waits for a pending delete. */
#define FIRST_LOOK_MS 100

/*
 * Returns whether a non-blocking attempt has waited too long: for a pending delete of this
 * server, whose backend may have no connection; for the answer of a session that keeps the
 * lock; or for a session that holds a semaphore's mutex.  If the own connection is down, an
 * answer is due instead.
 *
 * The session that the attempt waits for may hold the lock, if it has lost only its local lock:
 * pg_advisory_unlock_all().  Then it may have no pending delete, and the attempt does not wait.
 */
static bool
has_timed_out(const RemoteWait *w, const ZklRequestInfo *info, int64 now, int64 *check_again)
{
	bool		is_released = zklock_may_have_released((int64) info->released_by,
													   zklock_session_namespace());
	int64		bound = w->started + (is_released ? zklock_ensemble_timeout
									  : Min(ZKLOCK_ATTEMPT_MS, zklock_ensemble_timeout));

	if (!info->blocked || zkl_session_state(w->wait.session) != ZKL_SESSION_CONNECTED)
		return false;
	if (is_released)
		*check_again = Min(*check_again, now + Max(now - w->started, FIRST_LOOK_MS));
	else if (info->released_by != 0)
		zkl_request_look_again(w->wait.request);
	*check_again = Min(*check_again, bound);
	return now >= bound;
}

/* A non-blocking attempt never waits for a holder. */
static void
note_wait(const RemoteWait *w, const ZklRequestInfo *info)
{
	ZklockTimeout *timeout = w->wait.timeout;

	if (!info->was_blocked || (timeout->timeout_ms == 0 && !info->is_permit))
		return;
	zklock_note_wait(timeout, w->actions[Max(info->culprit, 0)].display);
	timeout->queued = true;
}

/*
 * None is due while the request is known to wait for another holder, nor while the
 * connection of a call that has queued is lost: it waits through an outage of any length.
 * A non-blocking attempt waits for nobody: an outage must end it.
 */
static bool
is_answer_due(const RemoteWait *w, const ZklRequestInfo *info)
{
	bool		connected = zkl_session_state(w->wait.session) == ZKL_SESSION_CONNECTED;

	if (w->wait.timeout->timeout_ms == 0)
		return !info->blocked || !connected;
	return !info->blocked && (!w->wait.timeout->queued || connected);
}

/* Throws if an answer is overdue. */
static void
check_progress(RemoteWait *w, const ZklRequestInfo *info, int64 *check_again)
{
	int64		answer_by;

	if (!is_answer_due(w, info))
	{
		zklock_no_answer_due(w->wait.timeout);
		return;
	}
	answer_by = zklock_answer_by(w->wait.timeout, info->progress + 1);
	if (zkl_now_ms() >= answer_by)
		zklock_fail(&w->actions[Max(info->culprit, 0)],
					zklock_no_answer(w->wait.session, answer_by - w->wait.timeout->progress_ms));
	*check_again = Min(*check_again, answer_by);
}

/* Ends the wait. */
static bool
is_granted(void *arg, int64 *check_again)
{
	RemoteWait *w = arg;
	ZklRequestInfo info;
	int64		now = zkl_now_ms();
	ZklStatus	status;

	status = zkl_request_status(w->wait.request);
	if (status == ZKL_OK && w->logged)
		ereport(LOG,
				(errmsg("process %d acquired %s after %lld ms",
						MyProcPid, w->logged, (long long) (now - w->started))));
	if (status != ZKL_PENDING)
		return true;
	zkl_request_info(w->wait.request, &info);
	note_wait(w, &info);
	if (info.blocked)
		zklock_wait_is_for(ZKLOCK_WAIT_LOCK);
	if (w->wait.timeout->timeout_ms == 0 && has_timed_out(w, &info, now, check_again))
		return true;
	if (w->wait.timeout->queued && is_blocked_too_long(w, &info, now, check_again))
		return true;
	check_progress(w, &info, check_again);
	return false;
}

/* zklock's own errors name the lock. */
static void
name_awaited(void *arg)
{
	RemoteWait *w = arg;
	ZklRequestInfo info;

	if (geterrcode() != ERRCODE_QUERY_CANCELED && geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
		return;
	zkl_request_info(w->wait.request, &info);
	zklock_name_action(unconstify(ZklockAction *, &w->actions[Max(info.culprit, 0)]));
}

/* After the wait, also after an error. */
static void
finish(RemoteWait *w, ZklRequestInfo *info)
{
	zkl_request_info(w->wait.request, info);
	note_wait(w, info);
	zklock_end_long_wait(&w->wait);
}

ZklStatus
zklock_await_request(ZklockTimeout *timeout, ZklSession *session,
					 ZklRequest *request, const ZklockAction *actions)
{
	RemoteWait	w = {
		.wait = {.session = session, .request = request, .timeout = timeout},
		.actions = actions
	};
	ErrorContextCallback context = {error_context_stack, name_awaited, &w};
	ZklStatus	status;
	ZklRequestInfo info;

	timeout->must_requeue = false;
	if (request == NULL)
		zklock_raise(ZKL_NO_MEMORY, &actions[0], 0);
	if (zkl_request_status(request) == ZKL_OK)	/* a kept lock is granted at once */
		return ZKL_OK;
	w.started = zkl_now_ms();
	PG_TRY();
	{
		error_context_stack = &context;
		zklock_wait(session, is_granted, &w);
	}
	PG_CATCH();
	{
		finish(&w, &info);
		zkl_request_end(request);
		PG_RE_THROW();
	}
	PG_END_TRY();
	error_context_stack = context.previous;

	status = zkl_request_status(request);
	finish(&w, &info);
	timeout->must_requeue = timeout->must_requeue && status == ZKL_PENDING;
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
			if (status == ZKL_DEADLOCK)
				zklock_raise_upgrade_deadlock(&actions[Max(info.culprit, 0)], info.blocker);
			zklock_raise(status, &actions[Max(info.culprit, 0)], info.raw_code);
	}
}

ZklSession *
zklock_reach_session(ZklockTimeout *timeout, const ZklockAction *action)
{
	bool		is_lock_timeout;
	int64		left = zklock_time_left(timeout, &is_lock_timeout);
	ZklSession *session;

	if (!timeout->queued)
		return zklock_session_ready(action, timeout);
	session = zklock_session_by(action, left == ZKLOCK_NO_TIMEOUT ? ZKLOCK_NEVER
								: zkl_now_ms() + left);
	if (session == NULL && is_lock_timeout)
		zklock_raise_lock_timeout();
	return session;
}
