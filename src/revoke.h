/*-------------------------------------------------------------------------
 *
 * revoke.h
 *		Locks that others ask back, and what the holder does then.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REVOKE_H
#define ZKLOCK_REVOKE_H

#include <signal.h>

#include "names.h"

/* For ZklSessionConfig.  Does what zklock.on_revoke asks for, as far as a thread can. */
extern void zklock_on_revoke_io(void);

/* Was something asked back that has not been looked at? */
extern bool zklock_revocation_pending(void);

/*
 * When a statement begins: tells of what was asked back since this was last
 * asked, as zklock.on_revoke says; may throw 57014.
 */
extern void zklock_heed_revocation(void);

/* The same within a statement, or at its end: at most a notice. */
extern void zklock_tell_revocation(void);

/* Was the cancel of now asked for by zklock_on_revoke_io()?  If so, raises 57014 which says that. */
extern void zklock_raise_revoked(void);

/* Is one on its way that zklock_on_revoke_io() asked for? */
extern bool zklock_revocation_cancels(void);

/*
 * For an error that is being reported: if it is the cancel, or the end, that
 * zklock_on_revoke_io() asked for, makes it say so.  Does not throw.
 */
extern void zklock_rewrite_revoked(ErrorData *error);

/*
 * After a release: what is not held any more need not be told, and nothing be
 * cancelled for it.  What is held still may end the session.  Does not throw.
 */
extern void zklock_drop_revocation(void);

/* Between the two functions below; read by the client's threads. */
extern volatile sig_atomic_t zklock_committing;

/*
 * From here until the transaction has ended nothing may disturb it, neither a
 * revocation nor a loss: a cancel would not undo it but let it go on without its
 * standby.  Throws if one is on its way already.
 */
extern void zklock_begin_commit(void);

/* The transaction is over, either way.  Does not throw. */
extern void zklock_end_commit(void);

/* Has somebody asked this session to let go of the lock?  No network. */
extern bool zklock_is_revoked(const ZklockName *name);

#endif							/* ZKLOCK_REVOKE_H */
