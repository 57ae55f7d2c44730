/*-------------------------------------------------------------------------
 *
 * call.c
 *		When a call gives up.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/proc.h"

#include "backend/base/settings.h"
#include "backend/session/call.h"
#include "backend/session/shared_memory.h"
#include "recipe/recipe.h"

/* How long a timed attempt waits for its first answers, however short its timeout is. */
#define MIN_ANSWER_MS 1000

/* What can end a wait: a set of these. */
enum
{
	TIMEOUT = 1,				/* the call's own */
	LOCK_TIMEOUT = 2,			/* PostgreSQL's setting; from the first wait for another session on */
	ATTEMPT = 4,				/* a non-blocking attempt is blocked: the caller sets for how long */
	ANSWER = 8,					/* zklock.ensemble_timeout without an answer that brings it further */
	SOON = 16					/* ... or the own timeout, but not within a second */
};

/*
 * While a call is blocked, no answer is due; nor after it was blocked, while the connection is
 * down: it waits through an outage of any length.  A non-blocking attempt waits for no other
 * session, so an outage must end it.
 */
static const int ends[][ZKLOCK_N_SITUATIONS] =
{
	/* non-blocking */
	{
		[ZKLOCK_ASKING] = ANSWER,
		[ZKLOCK_BLOCKED] = ATTEMPT,
		[ZKLOCK_ASKING_AGAIN] = ANSWER,
		[ZKLOCK_CUT_OFF] = ANSWER
	},
	/* with a timeout */
	{
		[ZKLOCK_ASKING] = ANSWER | SOON,
		[ZKLOCK_BLOCKED] = TIMEOUT | LOCK_TIMEOUT,
		[ZKLOCK_ASKING_AGAIN] = TIMEOUT | LOCK_TIMEOUT | ANSWER,
		[ZKLOCK_CUT_OFF] = TIMEOUT | LOCK_TIMEOUT
	},
	/* without limit */
	{
		[ZKLOCK_ASKING] = ANSWER,
		[ZKLOCK_BLOCKED] = LOCK_TIMEOUT,
		[ZKLOCK_ASKING_AGAIN] = LOCK_TIMEOUT | ANSWER,
		[ZKLOCK_CUT_OFF] = LOCK_TIMEOUT
	}
};

static int
set_of_ends(const ZklockCall *call, ZklockSituation situation)
{
	int			kind = call->timeout_ms == 0 ? 0 : call->timeout_ms > 0 ? 1 : 2;

	return ends[kind][situation];
}

static void
end_by(ZklockEnd *end, int64 at, ZklockEndReason reason)
{
	if (at < end->at)
		*end = (ZklockEnd)
	{
		.at = at,.reason = reason
	};
}

static void
update_progress(ZklockCall *call, bool is_due, uint64 progress)
{
	int64		now;

	if (!is_due)
		call->progress = call->progress_at = 0;
	else if (call->progress_at == 0 || progress > call->progress)
	{
		now = zkl_now_ms();
		if (call->progress_at == 0)
			call->due_since = now;
		call->progress = progress;
		call->progress_at = now;
	}
}

ZklockEnd
zklock_call_end(ZklockCall *call, ZklockSituation situation, uint64 progress)
{
	int			set = set_of_ends(call, situation);
	ZklockEnd	end = {.at = ZKLOCK_NEVER};

	update_progress(call, set & ANSWER, progress);
	/* Times are cut to whole milliseconds; the wait must not end early because of that. */
	if (set & TIMEOUT)
		end_by(&end, call->started + call->timeout_ms + 1, ZKLOCK_END_TIMEOUT);
	if (set & ATTEMPT)
		end_by(&end, call->wait.started + call->wait.attempt_ms, ZKLOCK_END_TIMEOUT);
	if ((set & LOCK_TIMEOUT) && LockTimeout > 0)
		end_by(&end, call->waits_since + LockTimeout, ZKLOCK_END_LOCK_TIMEOUT);
	if (set & ANSWER)
		end_by(&end, call->progress_at + zklock_ensemble_timeout, ZKLOCK_END_NO_ANSWER);
	if (set & SOON)
		end_by(&end, Max(call->started + call->timeout_ms, call->due_since + MIN_ANSWER_MS),
			   ZKLOCK_END_NO_ANSWER);
	return end;
}

void
zklock_call_waits_for(ZklockCall *call, const char *display)
{
	if (call->waited_for == NULL)
		call->waits_since = zkl_now_ms();
	call->waited_for = display;
}

void
zklock_raise_lock_timeout(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("canceling statement due to lock timeout")));
}


/*
 * Counters
 */

static void
count_wait(const ZklockCall *call)
{
	if (call->waited_for == NULL)
		return;
	zklock_count(ZKLOCK_STAT_WAITS, 1);
	zklock_count(ZKLOCK_STAT_WAIT_MS, zkl_now_ms() - call->started);
}

void
zklock_count_acquired(const ZklockCall *call, int n)
{
	zklock_count(ZKLOCK_STAT_ACQUISITIONS, n);
	count_wait(call);
}

void
zklock_count_gave_up(const ZklockCall *call)
{
	if (call->waited_for)
		zklock_count(ZKLOCK_STAT_TIMEOUTS, 1);
	count_wait(call);
}

void
zklock_count_failed(const ZklockCall *call)
{
	int			sqlstate = geterrcode();

	count_wait(call);
	if (sqlstate == ERRCODE_LOCK_NOT_AVAILABLE)
		zklock_count(ZKLOCK_STAT_TIMEOUTS, 1);
	else if (sqlstate == ERRCODE_QUERY_CANCELED)
		zklock_count(ZKLOCK_STAT_CANCELS, 1);
	else if (sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED)
		zklock_count(ZKLOCK_STAT_DEADLOCKS, 1);
}
