/*-------------------------------------------------------------------------
 *
 * local_tier.h
 *		The first tier of a lock: PostgreSQL's own lock manager.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCAL_TIER_H
#define ZKLOCK_LOCAL_TIER_H

#include "storage/lock.h"

#include "remote_wait.h"

/* Is it held here, in any mode?  Others may have taken it away. */
extern bool zklock_local_is_held(uint64 key);

/*
 * Takes the lock among the sessions of this server.  Waits at most limit_ms
 * (0: not at all), interruptibly and under lock_timeout and deadlock
 * detection; false when the limit has passed.  *waited is set when it waited.
 * Throws what waiting for a heavyweight lock throws.  In a parallel query it
 * waits without limit or not at all: a limit needs a subtransaction.
 */
extern bool zklock_local_acquire(uint64 key, ZklMode mode, int64 limit_ms,
								 bool *waited);

/* Neither throws nor waits; silent when somebody took the lock away. */
extern void zklock_local_release(uint64 key, ZklMode mode);

/* Is this a lock of the first tier, and of which key? */
extern bool zklock_local_key(const LOCKTAG *tag, uint64 *key);

#endif							/* ZKLOCK_LOCAL_TIER_H */
