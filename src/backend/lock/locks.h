/*-------------------------------------------------------------------------
 *
 * locks.h
 *		Acquires locks, locally and in the ensemble.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCKS_H
#define ZKLOCK_LOCKS_H

#include "backend/base/holds.h"
#include "backend/local/local_lock.h"

typedef struct ZklockAcquisition
{
	const ZklockName *names;	/* distinct, in the order of zklock_names_to_lock() */
	int			n;
	ZklMode		mode;
	ZklockScope scope;
	int64		timeout_ms;		/* for other holders; or ZKLOCK_NO_TIMEOUT */
} ZklockAcquisition;

/*
 * Acquires all the locks or none.  Returns false on timeout.  Waits interruptibly; throws
 * the errors listed in doc/reference.md, after releasing what it acquired.
 */
extern bool zklock_acquire(ZklockAcquisition *item);

/* Returns the token of a lock that is held, or 0.  Neither throws nor waits. */
extern int64 zklock_token(const ZklockName *name);

/*
 * Called after a grant.  If the wait has made the transaction's snapshot stale, reacts as
 * zklock.stale_snapshot specifies.
 */
extern void zklock_check_snapshot(const ZklockTimeout *timeout,
								  const char *display);

#endif							/* ZKLOCK_LOCKS_H */
