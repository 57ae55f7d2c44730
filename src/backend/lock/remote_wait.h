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
extern bool zklock_outage_exceeds_timeout(ZklockOutage *outage, ZklSession *session,
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

/*
 * Makes a request in the connected session, and after the loss of the session again in
 * another one.  "request" waits for its request with zklock_await_request() and returns
 * the status.  Returns false on timeout.  A call that has not queued yet waits up to
 * zklock.connect_timeout for a connection, and throws; later up to its own timeout.
 */
extern bool zklock_acquire_remote(ZklockTimeout *timeout, const ZklockAction *action,
								  ZklStatus (*request) (void *arg, ZklSession *session),
								  void *arg);

/* Counts the end of a call that has acquired "n" locks or permits; 0: it has timed out. */
extern void zklock_count_outcome(const ZklockTimeout *timeout, int n);

#endif							/* ZKLOCK_REMOTE_WAIT_H */
