/*-------------------------------------------------------------------------
 *
 * wait.h
 *		The one loop in which a backend sleeps.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WAIT_H
#define ZKLOCK_WAIT_H

#include "recipe/recipe.h"

/* A time that is never reached. */
#define ZKLOCK_NEVER PG_INT64_MAX

/* No timeout of its own. */
#define ZKLOCK_NO_TIMEOUT (-1)

/* How long a call may wait for other holders, and the state of its wait. */
typedef struct ZklockTimeout
{
	int64		timeout_ms;		/* 0: not at all; or ZKLOCK_NO_TIMEOUT */
	int64		started;		/* zkl_now_ms() when the call began */
	bool		waited;			/* for another holder, locally or in the ensemble */
	bool		queued;			/* has waited in a queue of the ensemble */
	bool		may_requeue;	/* the call can leave its place and queue again */
	bool		must_requeue;	/* ... and must: the wait ended for this */
	uint64		progress;		/* how far the call has got with the ensemble */
	int64		progress_ms;	/* when; 0: no answer is due yet */
	int64		due_ms;			/* since when an answer is due */
} ZklockTimeout;

/* Returns what is left of the timeout, or ZKLOCK_NO_TIMEOUT. */
extern int64 zklock_timeout_left(const ZklockTimeout *timeout);

extern _Noreturn void zklock_raise_lock_timeout(void);

/*
 * Returns what is left of this and of lock_timeout, and whether it is lock_timeout that ends
 * first.  That applies, as in PostgreSQL, only while another session is known to block the call.
 */
extern int64 zklock_time_left(const ZklockTimeout *timeout, bool *is_lock_timeout);

/*
 * The rule for outages: a call that an answer is due to and that makes no progress for
 * zklock.connect_timeout fails.  Returns when that will be.  An attempt that has not queued
 * fails already at the end of its own timeout, but not within a second, which is for the
 * round trips.  "progress" is 0 without a session, otherwise above that of the request.
 */
extern int64 zklock_answer_by(ZklockTimeout *timeout, uint64 progress);

/* The call is known to wait for another holder: no answer is due. */
extern void zklock_no_answer_due(ZklockTimeout *timeout);

/* Wait events, shown in pg_stat_activity since PostgreSQL 17. */
typedef enum ZklockWaitEvent
{
	ZKLOCK_WAIT_ANSWER,
	ZKLOCK_WAIT_CONNECT,
	ZKLOCK_WAIT_LOCK,
	ZKLOCK_WAIT_COMMIT_CHECK
} ZklockWaitEvent;

/* Sets the wait event; called by a ZklockWaitIsDone.  The default is ZKLOCK_WAIT_ANSWER. */
extern void zklock_wait_is_for(ZklockWaitEvent event);

/*
 * Returns whether the wait is over.  If not, *check_again is the latest time for the next
 * call (zkl_now_ms()); a change of the session causes an earlier call.
 */
typedef bool (*ZklockWaitIsDone) (void *arg, int64 *check_again);

/*
 * Sleeps until the wait is over.  Throws when interrupted (cancel, termination, timeouts,
 * loss of the client); the caller cleans up.  Exits the process if the postmaster has
 * died.
 */
extern void zklock_wait(ZklSession *session, ZklockWaitIsDone is_done, void *arg);

/* Called before the session is closed. */
extern void zklock_drop_wait_set(void);

/* Called while a statement runs: notes when statement_timeout will end it. */
extern void zklock_note_statement_timeout(void);

/*
 * Returns when the statement_timeout of the statement would have ended it (zkl_now_ms()), or
 * ZKLOCK_NEVER.  For waits at commit: PostgreSQL disables the timeout just before.
 */
extern int64 zklock_statement_deadline(void);

#endif							/* ZKLOCK_WAIT_H */
