/*-------------------------------------------------------------------------
 *
 * deadlock.h
 *		Detects deadlocks across servers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_H
#define ZKLOCK_DEADLOCK_H

#include "backend/session/errors.h"
#include "backend/session/wait.h"

/* One wait in the ensemble; starts zeroed. */
typedef struct ZklockLongWait
{
	/* set by the caller at the start */
	ZklSession *session;
	ZklRequest *request;
	ZklockTimeout *timeout;

	/* while the detector works */
	ZklDetector *detector;		/* NULL: the wait is not long yet */
	ZklBatch   *awaited;		/* by the current step; NULL: it pauses */
	int64		pause_until;	/* ... until then, or, 0, until it is woken */

	/* what was last seen of the server */
	MemoryContext scan_context; /* of the local waiters */
	uint64		long_waits;		/* at the last scan; 0: none */
	ZklLocalWaiter *local_waiters;
	int			n_local_waiters;
	bool		warned;			/* ... that a deadlock may stay hidden */
} ZklockLongWait;

/*
 * Publishes a wait that has lasted for deadlock_timeout, and searches for a cycle.
 * Called whenever the wait is checked; lowers *check_again to the time of the next call.
 * Waits for answers, interruptibly, until the request is decided or its time is over.
 * "display" is the name of what it waits for.  Throws 40P01.  Returns true, if the
 * timeout's "may_requeue" is set, when the caller is to queue again instead: it only keeps
 * a place in the queue for local waiters, and its failure would not break the cycle.
 */
extern bool zklock_search_deadlock(ZklockLongWait *long_wait, bool is_permit,
								   const char *display, int64 *check_again);

/* Ends the wait, also after an error.  Neither throws nor waits. */
extern void zklock_end_long_wait(ZklockLongWait *long_wait);

#endif							/* ZKLOCK_DEADLOCK_H */
