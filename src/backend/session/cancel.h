/*-------------------------------------------------------------------------
 *
 * cancel.h
 *		Cancels of the running statement that zklock itself requests.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CANCEL_H
#define ZKLOCK_CANCEL_H

#include "recipe/recipe.h"

typedef enum ZklockCancelReason
{
	ZKLOCK_CANCEL_LOSS,			/* a lock may be lost */
	ZKLOCK_CANCEL_REVOCATION,	/* release was requested; cancels under zklock.on_revoke = cancel */
	ZKLOCK_CANCEL_TIMEOUT,		/* a timed attempt has reached its timeout */
	ZKLOCK_N_CANCEL_REASONS
} ZklockCancelReason;

/* Prepares this backend for requests; does nothing when called again.  Throws 53000. */
extern void zklock_cancel_init(void);

/*
 * Cancels the running statement and the programs that it has started.  Called in any
 * thread, and by handlers of signals and timeouts.  The request stays until it is
 * settled, even if PostgreSQL drops the cancel because the session is idle.
 */
extern void zklock_cancel_request_io(ZklockCancelReason reason);

/* The same, for ZklSessionConfig. */
extern void zklock_on_loss_io(void);
extern void zklock_on_revoke_io(void);

extern bool zklock_cancel_is_requested(ZklockCancelReason reason);

/* Returns whether this is the only reason, and no cancel came from anywhere else. */
extern bool zklock_cancel_is_only(ZklockCancelReason reason);

/*
 * Settles a request: its reason is being handled.  If no other reason is left, withdraws
 * the pending cancel, unless a cancel also came from elsewhere.  Returns whether a cancel
 * was pending.  Call this before examining the reason, so that a later request stays.
 * Never throws.
 */
extern bool zklock_cancel_settle(ZklockCancelReason reason);

/*
 * While this is set, requests only cancel a wait for a heavyweight lock.  Set from the
 * commit check to the end of the transaction, because a cancel after the commit record
 * would end the wait for a synchronous standby early.
 */
extern void zklock_cancel_restrict(bool restricted);

/*
 * Does a command run or commit that cannot be undone?  No loss cancels it.  PostgreSQL marks
 * its transaction, and "mute" keeps the state until its last commit.  Async-signal-safe.
 */
extern bool zklock_is_irreversible(void);
extern void zklock_cancel_mute(bool on);

/*
 * Called at the start and the end of a statement, which may be nested; "outer" is what
 * the first one returned.  Outside of statements, requests only cancel a wait for a
 * heavyweight lock: a cancel between the client's message and its statement would fail
 * BEGIN, COMMIT or ROLLBACK.  The statement reports the request when it starts.
 */
extern int	zklock_cancel_enter(bool may_be_cancelled);
extern void zklock_cancel_leave(int outer);

/* Returns whether a statement is running that a request may end. */
extern bool zklock_cancel_in_statement(void);

/*
 * Called after each grant: watches the deadline of what this session holds, and requests a
 * cancel for the loss when it has passed.  NULL: called before the session is closed.
 */
extern void zklock_lease_watch(ZklSession *session);

#endif							/* ZKLOCK_CANCEL_H */
