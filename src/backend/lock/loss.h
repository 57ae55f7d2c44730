/*-------------------------------------------------------------------------
 *
 * loss.h
 *		Lost locks, and the commits that relied on them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOSS_H
#define ZKLOCK_LOSS_H

#include "backend/base/holds.h"


/*
 * Finds lost locks, and reports them (loss.c)
 */

/*
 * If locks were lost since the last call, removes them and raises 40001 with their names;
 * the transaction can no longer commit.  In a security-restricted operation, does not
 * remove them.  Closes a lost session.  Otherwise does nothing.  No network.
 */
extern void zklock_check_loss(void);

/*
 * Same, for a loss that has been noticed: the I/O thread has found it, or the timer at the end of
 * the lease has interrupted this backend.  Asks neither the session nor the clock.  Does nothing in
 * a command that cannot be undone: a later statement reports the loss, or the server log.
 */
extern void zklock_report_loss(void);

/*
 * For PG_CATCH.  If the error is, or results from, the cancel of a loss, raises that of
 * zklock_check_loss() instead, in this memory context.  Outside of a security-restricted
 * operation, so does one of a loss that restricted code got, and could not make forgotten.  Whether
 * the statement began in such an operation is passed, because only a rollback ends it.  In a nested
 * statement a cancel that also came from elsewhere stays one: a handler for 40001 must not catch it.
 */
extern void zklock_translate_cancel(MemoryContext context, bool is_nested, bool is_restricted);

/*
 * Makes sure that this transaction cannot commit, even if the error that the caller raises is
 * caught.  The list has the locks for the message.
 */
extern void zklock_fail_transaction(const ZklockNameList *list);

/* Same, if the caller raises none: COMMIT will, or the server's log will name the locks. */
extern void zklock_fail_later(const ZklockNameList *list);

/* Will the commit of this transaction be refused, because it relied on what was lost? */
extern bool zklock_has_failed(void);

/* Raises 40001 if so, for a commit. */
extern void zklock_raise_failure(void);

/* Marks the locks that are lost and not reported yet, and returns their names.  Does not throw. */
extern ZklockNameList zklock_mark_lost(void);

/*
 * At the end of a transaction: releases the local locks of lost locks, so that an idle
 * session does not block others until it reports the loss.  Does not throw.
 */
extern void zklock_release_lost_locally(void);

/* After a release: withdraws cancels for locks no longer held.  Does not throw. */
extern void zklock_withdraw_cancels(void);

/*
 * After a rollback, or a commit that could not be refused, before its locks are released: logs the
 * losses that no error has named.
 * Neither throws nor waits.
 */
extern void zklock_log_unreported_losses(bool aborted);

/* Another transaction begins, or DISCARD ALL has given up everything. */
extern void zklock_forget_failure(void);


/*
 * Refuses commits (commit_check.c)
 */

/*
 * At PRE_COMMIT and PRE_PREPARE: raises 40001 unless all locks are held as surely as
 * zklock.commit_check requires.  May wait, interruptibly, for one round trip and at most the
 * session timeout.  "is_nested": a procedure commits.
 */
extern void zklock_check_commit(bool is_nested);

/* Same, before a command whose commit may not be refused. */
extern void zklock_check_irreversible(void);

/*
 * Called before a lock is released inside a transaction, also by the rollback of a
 * subtransaction.  If it is lost, the transaction cannot commit.  If it is uncertain whether it
 * is still held, the transaction must ask the ensemble at commit; an error then names it.
 * Neither throws nor waits.
 */
extern void zklock_check_release(const ZklockHold *released);

/*
 * Asks the ensemble whether this session still holds this lock, and everything else, with a
 * request that is sent now.  Waits, interruptibly, like zklock_check_commit(), whatever
 * zklock.commit_check is.  Raises 40001 if not, or if there is no answer; then the
 * transaction cannot commit.
 */
extern void zklock_confirm_hold(const ZklockHold *hold);

/*
 * The transaction has ended; its locks are not released yet.  Logs the losses that no error has
 * named, and those that were detected too late to refuse the commit.  Neither throws nor waits.
 */
extern void zklock_end_transaction(bool aborted);

#endif							/* ZKLOCK_LOSS_H */
