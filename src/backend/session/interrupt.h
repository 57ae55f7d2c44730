/*-------------------------------------------------------------------------
 *
 * interrupt.h
 *		What others ask of this backend, at any moment: cancels of its statement, the release of
 *		its locks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_INTERRUPT_H
#define ZKLOCK_INTERRUPT_H

#include "backend/base/names.h"
#include "recipe/recipe.h"


/*
 * Cancels of the running statement that zklock itself requests (cancel.c)
 */

typedef enum ZklockCancelReason
{
	ZKLOCK_CANCEL_LOSS,			/* a lock may be lost */
	ZKLOCK_CANCEL_TIMEOUT,		/* a timed attempt has reached its timeout */
	ZKLOCK_N_CANCEL_REASONS
} ZklockCancelReason;

/* What a loss may end now; cancel.c explains it. */
typedef enum ZklockPhase
{
	ZKLOCK_IDLE,				/* no statement runs that may be cancelled */
	ZKLOCK_RUNNING,				/* one does */
	ZKLOCK_RESTRICTED,			/* the transaction is being committed */
	ZKLOCK_MUTED				/* a command that cannot be undone has committed */
} ZklockPhase;

/* Prepares this backend for requests; does nothing when called again.  Throws 53000. */
extern void zklock_cancel_init(void);

/*
 * Cancels the running statement and the programs that it has started.  Called in any
 * thread, and by handlers of signals and timeouts.  The request stays until it is
 * settled, even if PostgreSQL drops the cancel because the session is idle.
 */
extern void zklock_cancel_request_io(ZklockCancelReason reason);

/* The same for a loss, for ZklSessionConfig. */
extern void zklock_on_loss_io(void);

extern bool zklock_cancel_is_requested(ZklockCancelReason reason);

/* Returns whether the cancel that is pending, or was raised last, came from nowhere else. */
extern bool zklock_cancel_is_ours(void);

/* Returns whether the timeout of an attempt has passed, and no cancel came from anywhere else. */
extern bool zklock_is_timeout(void);

/*
 * Settles a request: its reason is being handled.  Withdraws the pending cancel, unless one also
 * came from elsewhere, or a timeout is left; for a loss that is left, call zklock_cancel_retry().
 * Call this before examining the reason, so that a later request stays.  Never throws.
 */
extern void zklock_cancel_settle(ZklockCancelReason reason);

/* Same for a loss that nothing depends on any more, whose error may be on its way to a hook of ours. */
extern void zklock_cancel_withdraw_loss(void);

/* A loss may still be requested although a statement, or an attempt, has ended: tries again at once. */
extern void zklock_cancel_retry(void);

/*
 * A statement, also inside another one, an attempt with a timeout, or a question to the ensemble begins, or
 * such an attempt has ended: no error of a cancel is on its way.  A cancel from elsewhere that is not
 * pending has been handled.
 */
extern void zklock_cancel_begin(void);

/* Set by the hooks of hooks.c alone. */
extern ZklockPhase zklock_phase(void);
extern void zklock_set_phase(ZklockPhase phase);

/* Does a command run or commit that cannot be undone?  Async-signal-safe. */
extern bool zklock_is_irreversible(void);

/*
 * Called after each grant: watches the deadline of what this session holds, and requests a
 * cancel for the loss when it has passed.  NULL: called before the session is closed.
 */
extern void zklock_lease_watch(ZklSession *session);


/*
 * Requests by others to release a lock, and what the holder does (revocations.c)
 */

/* For ZklSessionConfig; called in any thread. */
extern void zklock_on_revoke_io(void);

/* Raises a NOTICE for requests for release since the last call. */
extern void zklock_report_revocations(void);

/* Returns whether release of this session's lock was requested.  No network. */
extern bool zklock_is_revoked(const ZklockName *name);

#endif							/* ZKLOCK_INTERRUPT_H */
