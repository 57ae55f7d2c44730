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
 * Releases one session-level count of each of these names, however often a name is
 * repeated.  If a name has no count in this mode, releases none and returns false, with a
 * WARNING for each such name.  Does not wait.
 */
extern bool zklock_release(ZklockNames *names, ZklMode mode);

/* Releases all session-level counts.  Neither throws nor waits nor allocates. */
extern void zklock_release_session(void);

#endif							/* ZKLOCK_RELEASE_H */
