/*-------------------------------------------------------------------------
 *
 * release.h
 *		Releases locks and permits, locally and in the ensemble.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RELEASE_H
#define ZKLOCK_RELEASE_H

#include "backend/base/holds.h"

/*
 * Releases one session-level count of each of these names, however often a name is
 * repeated.  If a name has no count in this mode, releases none and returns false, with a
 * WARNING for each such name.  Does not wait.
 */
extern bool zklock_release(ZklockNames *names, ZklMode mode);

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

#endif							/* ZKLOCK_RELEASE_H */
