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
 * Waits for the request under lock_timeout, interruptibly.  "actions" are those of its
 * lock request items.  Returns OK; PENDING or BUSY on timeout, or PENDING if the
 * caller must requeue; SESSION_LOST, LOCK_LOST or OTHER_CAPACITY.  Then the caller takes
 * what is granted and ends the request.  In all other cases ends the request and throws.
 * A NULL request means that memory was exhausted.
 */
extern ZklStatus zklock_await_request(ZklockTimeout *timeout, ZklSession *session,
									  ZklRequest *request,
									  const ZklockAction *actions);

/*
 * Returns the session, connected; or NULL if the call has queued and its timeout has passed.
 * Waits and throws like zklock_session_ready().
 */
extern ZklSession *zklock_reach_session(ZklockTimeout *timeout, const ZklockAction *action);

#endif							/* ZKLOCK_REMOTE_WAIT_H */
