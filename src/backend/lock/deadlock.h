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
#include "recipe/recipe.h"

/* One long wait in the ensemble; starts zeroed. */
typedef struct ZklockLongWait
{
	ZklWaitReport report;		/* what the report publishes */
	bool		may_requeue;	/* set by the caller at the start */
	MemoryContext scan_context; /* of the local waiters; NULL: not started */
	bool		scanned;
	bool		warned;			/* ... that the search is skipped */
	uint64		long_waits;		/* at the last scan */
} ZklockLongWait;

/*
 * Publishes a wait that has lasted for deadlock_timeout, and searches for a cycle.
 * Called whenever the wait is checked; lowers *check_again to the time of the next call.
 * "actions" are those of its lock request items.  Throws 40P01.  Returns true, if
 * "may_requeue" is set, when the caller is to queue again instead: it only keeps a place
 * in the queue for local waiters, and its failure would not break the cycle.
 */
extern bool zklock_search_deadlock(ZklockLongWait *long_wait, ZklRequest *request,
								   const ZklRequestInfo *info,
								   const ZklockAction *actions, int n,
								   int64 *check_again);

/* Ends the wait.  After an error, the caller's memory context frees what is left. */
extern void zklock_end_long_wait(ZklockLongWait *long_wait);

#endif							/* ZKLOCK_DEADLOCK_H */
