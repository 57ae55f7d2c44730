/*-------------------------------------------------------------------------
 *
 * release.h
 *		Releases session-level locks: one count of some names, or all counts.
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

#endif							/* ZKLOCK_RELEASE_H */
