/*-------------------------------------------------------------------------
 *
 * transaction.h
 *		The hooks into PostgreSQL, and fencing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TRANSACTION_H
#define ZKLOCK_TRANSACTION_H

#include "backend/base/base.h"


/*
 * The hooks into PostgreSQL that release locks and report lost ones (lifecycle.c)
 */

/* Called once, from _PG_init(). */
extern void zklock_install_hooks(void);


/*
 * Fencing: an earlier holder cannot commit after a later one has fenced (fence.c)
 */

/*
 * Fences a lock that this session holds: makes sure that no later holder has fenced it in
 * this database, and that none can before this transaction ends.  Records the token of an
 * exclusive holder.  Returns the token; raises 55000 if the lock is not held, 40001 if a
 * greater token is recorded.  Waits, interruptibly, for transactions of other holders
 * that have fenced the lock.
 *
 * "function" is the SQL function that was called, a member of the extension.
 */
extern int64 zklock_fence(const ZklockName *name, Oid function);

/*
 * Removes the token recorded for a lock, if any; without a name, all tokens.  Waits like
 * zklock_fence(), or for all exclusive holders that have fenced.
 */
extern void zklock_fence_reset(const ZklockName *name, Oid function);

/*
 * Removes the tokens that were recorded up to "until" and before the oldest session of
 * this database started.  Returns the number of rows.
 */
extern int64 zklock_fences_vacuum(TimestampTz until, Oid function);

#endif							/* ZKLOCK_TRANSACTION_H */
