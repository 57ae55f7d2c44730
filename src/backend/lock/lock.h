/*-------------------------------------------------------------------------
 *
 * lock.h
 *		Acquires, releases and fences locks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_H
#define ZKLOCK_LOCK_H

#include "backend/base/holds.h"
#include "backend/base/names.h"
#include "recipe/recipe.h"


/*
 * Acquires locks, locally and in the ensemble (locks.c)
 */

/*
 * Acquires all the locks or none.  Returns false on timeout (timeout_ms is in milliseconds, or
 * ZKLOCK_NO_TIMEOUT).  Waits interruptibly; throws the errors listed in doc/reference.md, after
 * releasing what it acquired.  Raises 53400 at the first name that exceeds what this session
 * can hold in this mode, without reading further.
 */
extern bool zklock_acquire(ZklockNames *names, ZklMode mode, ZklockScope scope, int64 timeout_ms);

#define ZKLOCK_MAX_PERMITS 10000

/*
 * Acquires one more permit of a semaphore with "capacity" permits.  Returns false on
 * timeout.  Waits interruptibly; throws the errors listed in doc/reference.md, after
 * releasing what it acquired.
 */
extern bool zklock_acquire_permit(const ZklockName *name, int capacity,
								  ZklockScope scope, int64 timeout_ms);

/* Returns the token of a lock that is held, or 0.  Neither throws nor waits. */
extern int64 zklock_token(const ZklockName *name);


/*
 * Releases locks and permits of the session, and of transactions that end (release.c)
 */

/*
 * Releases the transaction-level counts of this nest level and deeper; see zklock_check_release()
 * for those of a subtransaction: what it has read under a lock is not undone.  Neither throws
 * nor waits.
 */
extern void zklock_release_levels(int level);

/*
 * Releases one session-level count of each of these names that has one in this mode,
 * however often the name is repeated.  Stores for each name, in their order, whether it has;
 * a WARNING for each that has not.  Does not wait.
 */
extern void zklock_release(ZklockNames *names, ZklMode mode, bool *released);

/* Releases all session-level counts.  Neither throws nor waits nor allocates. */
extern void zklock_release_session(void);

/*
 * Releases one session-level permit.  Returns false, with a WARNING, if there is none.
 * Does not wait.
 */
extern bool zklock_release_permit(const ZklockName *name);


/*
 * Makes the ensemble and the local lock hold what is counted, and no more (settle.c).  No
 * function here throws, waits or allocates.
 */

/*
 * Reduces the local lock and the ensemble lock to what is counted; frees the entry if
 * nothing is counted.  Skips a pinned entry: the call that pinned it settles it.
 */
extern void zklock_settle(ZklockHold *hold);

/* Same, for all entries; releases in the ensemble are sent together. */
extern void zklock_settle_every(void);

/* Releases only the local lock, of a lost lock whose counts stay until that is reported. */
extern void zklock_release_locally(ZklockHold *hold);

/* Passes the counts of a committed subtransaction of this nest level to its parent. */
extern void zklock_inherit_level(int level);

/* Is the hold lost, and not reported yet? */
extern bool zklock_is_lost(const ZklockHold *hold);

/* Removes a lost lock from the hold table, at every level. */
extern void zklock_lose(ZklockHold *hold);


/*
 * Requests the release of a lock from its holders (revoke.c)
 */

/*
 * Requests release from all holders of the lock; returns their number.  Waits and throws like
 * zklock_read_ensemble().  Throws 42501 if the ensemble or the role's rights do not allow some
 * of the requests.
 */
extern int	zklock_revoke(const ZklockName *name);


/*
 * Fencing: an earlier holder cannot commit after a conflicting later one has fenced (fence.c)
 */

/* Called once, from _PG_init(), in the postmaster. */
extern void zklock_install_fences(void);

/*
 * Called before the create of the lock's node is submitted: notes who has fenced.  If the node is
 * an older one, the caller clears "is_known" of the mark.  May run out of memory.
 */
extern void zklock_fence_remember(ZklockHold *hold);

/*
 * Fences a lock that this session holds, in the mode in which it holds it: makes sure that no
 * conflicting later holder has fenced it in this database, and that none can before this
 * transaction ends.  Returns the token; raises 55000 if the lock is not held, 40001 if the
 * ensemble has to be asked and does not confirm the hold, 25006 during recovery.  Waits,
 * interruptibly, for transactions of conflicting holders that have fenced the lock.
 */
extern int64 zklock_fence(const ZklockName *name);

#endif							/* ZKLOCK_LOCK_H */
