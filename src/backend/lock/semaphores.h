/*-------------------------------------------------------------------------
 *
 * semaphores.h
 *		Requests permits of semaphores.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORES_H
#define ZKLOCK_SEMAPHORES_H

#include "backend/base/holds.h"
#include "backend/session/wait.h"

#define ZKLOCK_MAX_PERMITS 10000

/*
 * Throws if this session holds permits of a semaphore of another capacity, or all permits
 * and would wait for one.
 */
extern void zklock_check_own_permits(const ZklockName *name, int capacity, int64 timeout_ms);

/* Requests the permit, and waits.  Returns and throws like zklock_await_request(). */
extern ZklStatus zklock_request_permit(ZklockHold *permit, ZklockTimeout *timeout,
									   ZklSession *session);

#endif							/* ZKLOCK_SEMAPHORES_H */
