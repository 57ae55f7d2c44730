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
#include "backend/session/wait.h"

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
