/*-------------------------------------------------------------------------
 *
 * loss.h
 *		Locks that were lost, and the check at commit.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOSS_H
#define ZKLOCK_LOSS_H

/*
 * If locks of this session were lost since this was last asked, forgets them
 * and raises 40001, which names them; the transaction can't commit any more.
 * Closes a session that is over.  Otherwise does nothing; no network.
 */
extern void zklock_check_loss(void);

/*
 * At PRE_COMMIT: raises 40001 unless all locks are held as surely as
 * zklock.commit_check asks.  May wait, interruptibly, for one round trip and
 * at most the session timeout.
 */
extern void zklock_check_commit(void);

/* The transaction is over, either way.  Neither throws nor waits. */
extern void zklock_forget_doom(void);

#endif							/* ZKLOCK_LOSS_H */
