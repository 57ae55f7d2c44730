/*-------------------------------------------------------------------------
 *
 * semaphores.h
 *		Taking and giving back permits of semaphores.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORES_H
#define ZKLOCK_SEMAPHORES_H

#include "holds.h"

#define ZKLOCK_MAX_PERMITS 10000

/*
 * Takes one more permit of a semaphore of this size; returns its token, or 0
 * when the limit (in milliseconds, or ZKLOCK_NO_LIMIT) has passed.  Waits
 * interruptibly; throws the errors of sql-api's table, having given back what
 * it took.
 */
extern int64 zklock_acquire_permit(const ZklockName *name, int size,
								   ZklockScope scope, int64 limit_ms);

/*
 * Gives back one permit of session level; false, with a WARNING, when there is
 * none.  Doesn't wait.
 */
extern bool zklock_release_permit(const ZklockName *name);

#endif							/* ZKLOCK_SEMAPHORES_H */
