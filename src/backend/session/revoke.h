/*-------------------------------------------------------------------------
 *
 * revoke.h
 *		Requests by others to release a lock, and what the holder does.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REVOKE_H
#define ZKLOCK_REVOKE_H

#include "backend/base/names.h"

/*
 * At the start of a statement, or if a cancel ended one: reports requests for release since
 * the last call, as zklock.on_revoke specifies; may throw 57014.
 */
extern void zklock_process_revocation(bool is_cancelled);

/* Same, within a statement or at its end: raises a notice at most. */
extern void zklock_report_revocation(void);

/*
 * For an error that is being reported: if a request for release caused the cancel,
 * rewrites the error to name that reason.  Does not throw.
 */
extern void zklock_rewrite_revoked(ErrorData *error);

/*
 * After a release: drops reports and cancels for what is no longer held.  Does not throw.
 */
extern void zklock_drop_revocation(void);

/* Returns whether release of this session's lock was requested.  No network. */
extern bool zklock_is_revoked(const ZklockName *name);

#endif							/* ZKLOCK_REVOKE_H */
