/*-------------------------------------------------------------------------
 *
 * wait.h
 *		The one loop in which a backend sleeps (wait.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WAIT_H
#define ZKLOCK_WAIT_H

#include "recipe/recipe.h"


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
extern void zklock_keep_statement_deadline(void);

/*
 * Returns when the statement_timeout of the statement would have ended it (zkl_now_ms()), or
 * ZKLOCK_NEVER.  For waits at commit: PostgreSQL disables the timeout just before.
 */
extern int64 zklock_statement_deadline(void);

#endif							/* ZKLOCK_WAIT_H */
