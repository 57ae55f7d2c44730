/*-------------------------------------------------------------------------
 *
 * locks.h
 *		Acquires locks, locally and in the ensemble, and releases them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCKS_H
#define ZKLOCK_LOCKS_H

#include "backend/base/holds.h"

typedef struct ZklockAcquisition
{
	ZklockNames *names;			/* of locks */
	ZklockHold *permit;			/* or, instead, the pinned entry of a new permit */
	ZklMode		mode;
	ZklockScope scope;
	int64		timeout_ms;		/* for other holders; or ZKLOCK_NO_TIMEOUT */
	int64		token;			/* result: of the first lock, or the permit; or 0 */
} ZklockAcquisition;

/*
 * Acquires all the locks or none, or the permit; then the caller has called
 * zklock_check_loss().  Returns false on timeout.  Waits
 * interruptibly; throws the errors listed in doc/reference.md, after releasing what it
 * acquired.  Raises 53400 at the first name that exceeds what this session can hold in this
 * mode, without reading further.
 */
extern bool zklock_acquire(ZklockAcquisition *item);

/* Returns the token of a lock that is held, or 0.  Neither throws nor waits. */
extern int64 zklock_token(const ZklockName *name);

/*
 * Releases one session-level count of each of these names that has one in this mode,
 * however often the name is repeated.  Stores for each name, in their order, whether it has;
 * a WARNING for each that has not.  Does not wait.
 */
extern void zklock_release(ZklockNames *names, ZklMode mode, bool *released);

/* Releases all session-level counts.  Neither throws nor waits nor allocates. */
extern void zklock_release_session(void);

#endif							/* ZKLOCK_LOCKS_H */
