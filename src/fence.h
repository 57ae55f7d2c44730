/*-------------------------------------------------------------------------
 *
 * fence.h
 *		Fencing: an earlier holder can't commit after a later one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FENCE_H
#define ZKLOCK_FENCE_H

#include "names.h"

/*
 * For a lock that this session holds: makes sure that no later holder has
 * fenced it in this database, and that none will before this transaction is
 * over.  An exclusive holder's token is recorded.  Returns the token; raises
 * 55000 when the lock is not held, 40001 when a greater token is recorded.
 * Waits, interruptibly, for other holders' transactions that have fenced it.
 *
 * "function" is the SQL function that is called, a member of the extension.
 */
extern int64 zklock_fence(const ZklockName *name, Oid function);

/* Forgets what was recorded, if anything; waits for the same transactions. */
extern void zklock_fence_reset(const ZklockName *name, Oid function);

#endif							/* ZKLOCK_FENCE_H */
