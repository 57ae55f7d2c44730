/*-------------------------------------------------------------------------
 *
 * semaphores.h
 *		Acquires and releases permits of semaphores.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORES_H
#define ZKLOCK_SEMAPHORES_H

#include "backend/base/holds.h"
#include "backend/session/wait.h"

#define ZKLOCK_MAX_PERMITS 10000

/*
 * Acquires one more permit of a semaphore with "capacity" permits.  Returns its token, or 0
 * on timeout (timeout_ms is in milliseconds, or ZKLOCK_NO_TIMEOUT).  Waits interruptibly;
 * throws the errors listed in doc/reference.md, after releasing what it acquired.
 */
extern int64 zklock_acquire_permit(const ZklockName *name, int capacity,
								   ZklockScope scope, int64 timeout_ms);

/*
 * For zklock_acquire(): requests the permit, and waits.  Returns and throws like
 * zklock_await_request().
 */
extern ZklStatus zklock_request_permit(ZklockHold *permit, ZklockTimeout *timeout,
									   ZklSession *session);

/*
 * Releases one session-level permit.  Returns false, with a WARNING, if there is none.
 * Does not wait.
 */
extern bool zklock_release_permit(const ZklockName *name);

#endif							/* ZKLOCK_SEMAPHORES_H */
