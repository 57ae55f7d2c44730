/*-------------------------------------------------------------------------
 *
 * remote_wait.h
 *		Waits in a queue of the ensemble.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REMOTE_WAIT_H
#define ZKLOCK_REMOTE_WAIT_H

#include "backend/session/errors.h"
#include "recipe/recipe.h"

/* No timeout of its own. */
#define ZKLOCK_NO_LIMIT (-1)

/* How long a call may wait for other holders, and the state of its wait. */
typedef struct ZklockTimeout
{
	int64		limit_ms;		/* 0: not at all; or ZKLOCK_NO_LIMIT */
	int64		started;		/* zklock_now() when the call began */
	uint64		semaphore;		/* hash of the semaphore's name, or 0 */
	bool		waited;			/* for another holder, locally or in the ensemble */
	bool		queued;			/* has waited in a queue of the ensemble */
	bool		may_requeue;	/* the call can leave its place and queue again */
	bool		must_requeue;	/* ... and must: the wait ended for this */
} ZklockTimeout;

/* Returns what is left of the limit, or ZKLOCK_NO_LIMIT. */
extern int64 zklock_timeout_left(const ZklockTimeout *timeout);

/*
 * Returns the session, connected.  A call that has not queued yet waits up to
 * zklock.connect_timeout, and throws.  A call that has queued waits up to its limit for
 * the lock, and gets NULL after that.
 */
extern ZklSession *zklock_reach_session(const ZklockTimeout *timeout,
										const ZklockAction *action);

/* Outage of the connection during a call that needs answers; starts zeroed. */
typedef struct ZklockOutage
{
	int64		unanswered_since;	/* since the connection was lost, without an answer; or 0 */
	uint64		n_answers;		/* of the ensemble, at the last check */
} ZklockOutage;

/*
 * Returns whether the connection has been lost for zklock.connect_timeout; a connection
 * that comes back and is lost without an answer does not count.  If not, *check_again is
 * the time of the next check.  "n_answers" counts the session's answers so far.
 */
extern bool zklock_outage_is_over_limit(ZklockOutage *outage, ZklSession *session,
										uint64 n_answers, int64 now, int64 *check_again);

/*
 * Waits for the request under lock_timeout, interruptibly.  "actions" are those of its
 * "n" lock request items.  Returns OK; PENDING or BUSY on timeout, or PENDING if the
 * caller must requeue; SESSION_LOST, LOCK_LOST or OTHER_CAPACITY.  Then the caller takes
 * what is granted and ends the request.  In all other cases ends the request and throws.
 * A NULL request means that memory was exhausted.
 */
extern ZklStatus zklock_await_request(ZklockTimeout *timeout, ZklSession *session,
									  ZklRequest *request,
									  const ZklockAction *actions, int n);

#endif							/* ZKLOCK_REMOTE_WAIT_H */
