/*-------------------------------------------------------------------------
 *
 * settle.h
 *		Makes the ensemble and the local lock hold what is counted, and no more.
 *
 * No function here throws, waits or allocates.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SETTLE_H
#define ZKLOCK_SETTLE_H

#include "backend/base/holds.h"

/*
 * Reduces the local lock and the ensemble lock to what is counted; frees the entry if
 * nothing is counted.  Skips a pinned entry: the call that pinned it settles it.
 */
extern void zklock_settle(ZklockHold *hold);

/* Same, for all entries; releases in the ensemble are sent together. */
extern void zklock_settle_every(void);

/* Releases only the local lock, of a lost lock whose counts stay until that is reported. */
extern void zklock_release_locally(ZklockHold *hold);

/* Releases the transaction-level counts of this nest level and deeper. */
extern void zklock_release_levels(int level);

/* Passes the counts of a committed subtransaction of this nest level to its parent. */
extern void zklock_inherit_level(int level);

/* Removes a lost lock from the hold table, at every level. */
extern void zklock_lose(ZklockHold *hold);

#endif							/* ZKLOCK_SETTLE_H */
