/*-------------------------------------------------------------------------
 *
 * locks.h
 *		Acquires and releases locks, locally and in the ensemble.
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
	int64		limit_ms;		/* for other holders; or ZKLOCK_NO_LIMIT */
} ZklockAcquisition;

/*
 * Acquires all the locks or none.  Returns false on timeout.  Waits interruptibly; throws
 * the errors listed in doc/reference.md, after releasing what it acquired.
 */
extern bool zklock_acquire(ZklockAcquisition *item);

/* Returns the token of a lock that is held, or 0.  Neither throws nor waits. */
extern int64 zklock_token(const ZklockName *name);

/*
 * Releases one session-level count of each of these names, however often a name is
 * repeated.  If a name has no count in this mode, releases none and returns false, with a
 * WARNING for each such name.  Does not wait.
 */
extern bool zklock_release(ZklockNames *names, ZklMode mode);

/*
 * Called after a grant.  If the wait has made the transaction's snapshot stale, does what
 * zklock.stale_snapshot says.
 */
extern void zklock_check_snapshot(const ZklockTimeout *timeout,
								  const char *display);

/* The functions below neither throw nor wait nor allocate. */

/* Releases all session-level counts. */
extern void zklock_release_session(void);

/* Releases the transaction-level counts of this nest level and deeper. */
extern void zklock_release_levels(int level);

/* Passes the counts of a committed subtransaction of this nest level to its parent. */
extern void zklock_inherit_level(int level);

/*
 * Reduces the local lock and the ensemble lock to what is counted; frees the entry if
 * nothing is counted.  Skips a pinned entry: the call that pinned it settles it.
 */
extern void zklock_settle(ZklockHold *hold);

/* Removes a lost lock from the hold table, at every level. */
extern void zklock_lose(ZklockHold *hold);

/* Marks everything as not held, after the ZooKeeper session was closed. */
extern void zklock_forget_ensemble(void);

#endif							/* ZKLOCK_LOCKS_H */
