/*-------------------------------------------------------------------------
 *
 * loss.h
 *		Locks that were lost, and the check at commit.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOSS_H
#define ZKLOCK_LOSS_H

#include <signal.h>

/* Set by the client's threads: something that is held may be lost. */
extern volatile sig_atomic_t zklock_loss_noticed;

/* For ZklSessionConfig.  Cancels the running statement. */
extern void zklock_on_loss_io(void);

/*
 * If locks of this session were lost since this was last asked, forgets them
 * and raises 40001, which names them; the transaction can't commit any more.
 * Closes a session that is over.  Otherwise does nothing; no network.
 */
extern void zklock_check_loss(void);

/*
 * For PG_CATCH: if the error is the cancel that zklock_on_loss_io() or
 * zklock_on_revoke_io() asked for, raises what zklock_check_loss() or
 * zklock_raise_revoked() says instead, in this memory context.
 */
extern void zklock_translate_cancel(MemoryContext context);

/*
 * The same for a cancel that is being reported: makes it say which locks are
 * lost, if any are.  Does not throw.
 */
extern void zklock_rewrite_cancel(ErrorData *cancel);

/* This transaction can't commit any more, whoever catches the error that says so. */
extern void zklock_doom(void);

/* After a release: what is not held any more need not be told.  Does not throw. */
extern void zklock_drop_notice(void);

/*
 * At PRE_COMMIT: raises 40001 unless all locks are held as surely as
 * zklock.commit_check asks.  May wait, interruptibly, for one round trip and
 * at most the session timeout.
 */
extern void zklock_check_commit(void);

/*
 * To be called before a lock is released inside a transaction: if it can't be
 * told whether it is still held, a transaction that writes must ask at commit.
 * Neither throws nor waits.
 */
extern void zklock_note_release(void);

/* The transaction is over, either way.  Neither throws nor waits. */
extern void zklock_forget_doom(void);

#endif							/* ZKLOCK_LOSS_H */
