/*-------------------------------------------------------------------------
 *
 * loss.h
 *		Reports lost locks, and refuses commits that relied on them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOSS_H
#define ZKLOCK_LOSS_H

#include "backend/base/holds.h"

/*
 * If locks were lost since the last call, removes them and raises 40001 with their names;
 * the transaction can no longer commit.  Closes a lost session.  Otherwise does
 * nothing.  No network.
 */
extern void zklock_check_loss(void);

/*
 * For PG_CATCH.  If the error is, or results from, the cancel of a loss or of a request
 * for release, raises the error of zklock_check_loss() or
 * zklock_process_revocation() instead, in this memory context.
 */
extern void zklock_translate_cancel(MemoryContext context);

/*
 * Same, for the error of a cancel that is being reported: rewrites it to name the lost
 * locks, if any.  Does not throw.
 */
extern void zklock_rewrite_cancel(ErrorData *cancel);

/* At the end of a (sub)transaction: removes the locks that such a rewritten error named. */
extern void zklock_forget_reported(void);

/*
 * Makes sure that this transaction cannot commit, even if the error is caught.  The list
 * has the locks for the message.
 */
extern void zklock_fail_transaction(const ZklockNameList *list);

/*
 * At the end of a transaction: releases the local locks of lost locks, so that an idle
 * session does not block others until it reports the loss.  Does not throw.
 */
extern void zklock_release_lost_locally(void);

/* After a release: withdraws cancels for locks no longer held.  Does not throw. */
extern void zklock_withdraw_requests(void);

/*
 * At PRE_COMMIT and PRE_PREPARE: raises 40001 unless all locks are held as surely as
 * zklock.commit_check requires; not if "can_fail" is false.  May wait, interruptibly, for
 * one round trip and at most the session timeout.  Restricts requests for a cancel until
 * zklock_end_transaction().
 */
extern void zklock_check_commit(bool can_fail);

/* Same, before a command whose commit may not be refused, without the restriction. */
extern void zklock_check_irreversible(void);

/*
 * After the commit or prepare: logs and counts the locks that were lost since the check,
 * too late to refuse the commit.  Neither throws nor waits.
 */
extern void zklock_note_late_loss(void);

/*
 * Called before a lock is released inside a transaction.  If it is uncertain whether it is
 * still held, the transaction must ask the ensemble at commit; an error then names it.
 * Neither throws nor waits.
 */
extern void zklock_note_release(const ZklockHold *released);

/* Can zklock_check_commit() refuse this commit?  Neither throws nor waits. */
extern bool zklock_relies_on_locks(void);

/* The transaction has ended.  Neither throws nor waits. */
extern void zklock_end_transaction(bool aborted);

#endif							/* ZKLOCK_LOSS_H */
