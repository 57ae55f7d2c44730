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

/*
 * Acquires all the locks or none.  Returns false on timeout (timeout_ms is in milliseconds, or
 * ZKLOCK_NO_TIMEOUT).  Waits interruptibly; throws the errors listed in doc/reference.md, after
 * releasing what it acquired.  Raises 53400 at the first name that exceeds what this session
 * can hold in this mode, without reading further.
 */
extern bool zklock_acquire(ZklockNames *names, ZklMode mode, ZklockScope scope, int64 timeout_ms);

/*
 * Acquires one more permit of a semaphore with "capacity" permits.  Returns its token, or 0
 * on timeout.  Waits interruptibly; throws the errors listed in doc/reference.md, after
 * releasing what it acquired.
 */
extern int64 zklock_acquire_permit(const ZklockName *name, int capacity,
								   ZklockScope scope, int64 timeout_ms);

/* Returns the token of a lock that is held, or 0.  Neither throws nor waits. */
extern int64 zklock_token(const ZklockName *name);

#endif							/* ZKLOCK_LOCKS_H */
