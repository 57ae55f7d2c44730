/*-------------------------------------------------------------------------
 *
 * remote_wait.c
 *		Waiting in a queue of the ensemble.
 *
 * When a call gives up: its own limit, a connection that does not come back;
 * and what a long wait tells in the server log.  The sleeping itself is in
 * wait.c.  Nothing is counted as held here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "deadlock.h"
#include "errors.h"
#include "remote_wait.h"
#include "session.h"
#include "settings.h"
#include "syntax.h"
#include "wait.h"

int64
zklock_patience_left(const ZklockPatience *patience)
{
	int64		spent;

	if (patience->limit_ms <= 0)
		return patience->limit_ms;
	spent = zklock_now() - patience->started;
	return Max(patience->limit_ms - spent, 0);
}

ZklSession *
zklock_reach_session(const ZklockPatience *patience, const ZklockPurpose *purpose)
{
	int64		left = zklock_patience_left(patience);

	if (!patience->queued)
		return zklock_session_ready(purpose);
	return zklock_session_by(purpose, left == ZKLOCK_NO_LIMIT ? ZKLOCK_NEVER
							 : zklock_now() + left);
}

typedef struct RemoteWait
{
	ZklockPatience *patience;
	ZklSession *session;
	ZklRequest *request;
	const ZklockPurpose *purposes;	/* of the request's wishes */
	int			n;
	ZklockVigil vigil;
	int64		started;
	ZklockContact contact;
	bool		logged;
} RemoteWait;

/* As log_lock_waits does for the first tier; names the session in the way. */
static void
log_long_wait(RemoteWait *w, ZklRequestInfo *info, int64 now)
{
	const char *display = w->purposes[Max(info->culprit, 0)].display;

	if (!log_lock_waits || w->logged || now - w->started < DeadlockTimeout)
		return;
	w->logged = true;
	zklock_make_plain(info->blocker);	/* another program wrote this */
	ereport(LOG,
			(info->is_permit
			 ? errmsg("process %d still waiting for a permit of semaphore \"%s\" after %lld ms",
					  MyProcPid, display, (long long) (now - w->started))
			 : errmsg("process %d still waiting for zk lock \"%s\" after %lld ms",
					  MyProcPid, display, (long long) (now - w->started)),
			 info->blocker[0] ? errdetail_log("In the way: %s", info->blocker) : 0));
}

/* In the queue of another server's session: how long yet? */
static bool
is_blocked_too_long(RemoteWait *w, ZklRequestInfo *info, int64 now,
					int64 *look_again)
{
	if (w->patience->limit_ms > 0)
	{
		if (zklock_patience_left(w->patience) == 0)
			return true;
		*look_again = now + zklock_patience_left(w->patience);
	}
	if (info->blocked)
	{
		log_long_wait(w, info, now);
		if (now < w->started + DeadlockTimeout)
			*look_again = Min(*look_again, w->started + DeadlockTimeout);
		else if (zklock_deadlock_detection &&
				 zklock_look_for_deadlock(&w->vigil, w->request, info, w->purposes,
										  w->n, look_again))
			w->patience->steps_back = true;
	}
	return w->patience->steps_back;
}

bool
zklock_contact_is_lost(ZklockContact *contact, ZklSession *session,
					   uint64 n_answers, int64 now, int64 *look_again)
{
	if (n_answers != contact->n_answers)
		contact->unanswered_since = 0;
	contact->n_answers = n_answers;
	if (contact->unanswered_since == 0)
	{
		if (zkl_session_state(session) == ZKL_SESSION_CONNECTED)
			return false;
		contact->unanswered_since = now;
	}
	*look_again = contact->unanswered_since + zklock_connect_timeout;
	return now >= *look_again;
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
	if (info.was_blocked || w->patience->queued)
		return is_blocked_too_long(w, &info, now, look_again);
	/* A call that needs an answer to go on can't wait for ever. */
	if (zklock_contact_is_lost(&w->contact, w->session, info.n_answers, now,
							   look_again))
		zklock_fail(&w->purposes[Max(info.culprit, 0)], zklock_connection_lost());
	return false;
}

static void
note_wait(ZklockPatience *patience, const ZklRequestInfo *info)
{
	patience->waited = patience->waited || info->was_blocked;
	patience->queued = patience->queued || info->was_blocked;
}

ZklStatus
zklock_await_request(ZklockPatience *patience, ZklSession *session,
					 ZklRequest *request, const ZklockPurpose *purposes, int n)
{
	RemoteWait	w = {
		.patience = patience,
		.session = session,
		.request = request,
		.purposes = purposes,
		.n = n,
		.vigil.may_step_back = patience->may_step_back,
		.started = zklock_now()
	};
	ZklStatus	status;
	ZklRequestInfo info;

	patience->steps_back = false;
	if (request == NULL)
		zklock_raise(ZKL_NO_MEMORY, &purposes[0], 0);
	PG_TRY();
	{
		zklock_wait_for_lock(session, is_granted, &w, w.started - patience->started);
	}
	PG_CATCH();
	{
		zkl_request_info(request, &info);
		note_wait(patience, &info);
		zkl_request_end(request);
		PG_RE_THROW();
	}
	PG_END_TRY();

	zklock_end_vigil(&w.vigil);
	status = zkl_request_status(request);
	zkl_request_info(request, &info);
	note_wait(patience, &info);
	patience->steps_back = patience->steps_back && status == ZKL_PENDING;
	switch (status)
	{
		case ZKL_OK:
		case ZKL_PENDING:
		case ZKL_BUSY:
		case ZKL_SESSION_LOST:
		case ZKL_LOCK_LOST:
		case ZKL_OTHER_SIZE:
			return status;
		default:
			zkl_request_end(request);
			zklock_raise(status, &purposes[Max(info.culprit, 0)], info.raw_code);
	}
}
