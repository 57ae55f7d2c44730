/*-------------------------------------------------------------------------
 *
 * locks.h
 *		Taking and giving back locks, through both tiers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCKS_H
#define ZKLOCK_LOCKS_H

#include "holds.h"
#include "local_tier.h"

typedef struct ZklockWish
{
	const ZklockName *names;	/* distinct, in the order of zklock_names_distinct() */
	int			n;
	ZklMode		mode;
	ZklockScope scope;
	int64		limit_ms;		/* how long to wait for others; or ZKLOCK_NO_LIMIT */
} ZklockWish;

/*
 * Takes all the locks or none.  False when the limit has passed.  Waits
 * interruptibly; throws the errors of sql-api's table, having given back what
 * it took.
 */
extern bool zklock_acquire(ZklockWish *wish);

/* The token of a lock that is held, or 0.  Neither throws nor waits. */
extern int64 zklock_token(const ZklockName *name);

/*
 * Gives back one session-level count of each of these distinct names, or of
 * none: false, with a WARNING for each that has none in this mode.  Doesn't
 * wait.
 */
extern bool zklock_release(const ZklockName *names, int n, ZklMode mode);

/*
 * To be called when something was granted: if the wait for it has made the
 * transaction's snapshot stale, does what zklock.stale_snapshot says.
 */
extern void zklock_check_snapshot(const ZklockPatience *patience,
								  const char *display);

/* The functions below neither throw nor wait nor allocate. */

/* Gives back all session-level counts. */
extern void zklock_release_session(void);

/* Gives back the transaction-level counts of this nest level and above. */
extern void zklock_release_levels(int level);

/* A subtransaction of this nest level committed. */
extern void zklock_inherit_level(int level);

/*
 * Makes both tiers hold what is counted and no more; frees the entry when that
 * is nothing.  Leaves a pinned entry alone: its call will settle it.
 */
extern void zklock_settle(ZklockHold *hold);

/* A lock that is held was lost: forgets it, at every level. */
extern void zklock_lose(ZklockHold *hold);

/* The ZooKeeper session is closed, so nothing is held there any more. */
extern void zklock_forget_ensemble(void);

#endif							/* ZKLOCK_LOCKS_H */
