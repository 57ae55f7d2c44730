/*-------------------------------------------------------------------------
 *
 * queue_wait.h
 *		A call that waits in a queue of the ensemble.  Private to this folder.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_WAIT_H
#define ZKLOCK_QUEUE_WAIT_H

#include "backend/base/holds.h"
#include "backend/base/names.h"
#include "backend/session/call.h"
#include "backend/session/errors.h"
#include "recipe/recipe.h"


/*
 * Waits in a queue of the ensemble (queue_wait.c)
 */

/* The error context of a request. */
extern ZklockAction zklock_action_of(const ZklockHold *hold);

/*
 * Waits for the request for these holds, interruptibly, as long as zklock_call_end() allows; keeps
 * both in the call.  Returns OK; PENDING or BUSY on timeout, or PENDING if the caller must
 * requeue; SESSION_LOST, LOCK_LOST or OTHER_CAPACITY.  Then the caller takes what is granted and
 * ends the request.  In all other cases ends the request and throws.  A NULL request means
 * that memory was exhausted.
 */
extern ZklStatus zklock_await_request(ZklockCall *call, ZklSession *session, ZklRequest *request,
									  ZklockHold **holds);


/*
 * Requests permits of semaphores (semaphores.c)
 */

/*
 * Throws if this session holds permits of a semaphore of another capacity, or all permits
 * and would wait for one.
 */
extern void zklock_check_own_permits(const ZklockName *name, int capacity, int64 timeout_ms);

/* Requests the permit of the call, and waits.  Returns and throws like zklock_await_request(). */
extern ZklStatus zklock_request_permit(ZklockCall *call, ZklSession *session);


/*
 * Detects deadlocks across servers (deadlock.c)
 */

/*
 * Publishes a wait that has lasted for deadlock_timeout, and searches for a cycle.
 * Called whenever the wait is checked; lowers *check_again to the time of the next call.
 * Waits for answers, interruptibly, until the request is decided or its timeout has passed.
 * "display" is the name of what it waits for.  Throws 40P01.  Sets the call's "must_requeue", if its
 * "may_requeue" is set, when the caller is to queue again instead: it only keeps a place in the queue
 * for local waiters, and its failure would not break the cycle.
 */
extern void zklock_search_deadlock(ZklockCall *call, bool is_permit, const char *display,
								   int64 *check_again);

/* Ends the search, if it has begun, also after an error.  Neither throws nor waits. */
extern void zklock_end_search(ZklockQueueWait *wait);

#endif							/* ZKLOCK_QUEUE_WAIT_H */
