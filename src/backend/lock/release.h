/*-------------------------------------------------------------------------
 *
 * release.h
 *		Releases session-level locks and permits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RELEASE_H
#define ZKLOCK_RELEASE_H

#include "backend/base/holds.h"

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

#endif							/* ZKLOCK_RELEASE_H */
