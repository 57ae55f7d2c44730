/*-------------------------------------------------------------------------
 *
 * wait.h
 *		The only loop that sleeps.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WAIT_H
#define ZKLOCK_WAIT_H

#include "recipe/recipe.h"

/* A time that never comes. */
#define ZKLOCK_NEVER PG_INT64_MAX

/* Milliseconds on a monotonic clock. */
extern int64 zklock_now(void);

/*
 * Is the wait over?  If not, *look_again says when to ask again at the latest
 * (zklock_now); a change of the session makes it asked earlier.
 */
typedef bool (*ZklockWaitOver) (void *arg, int64 *look_again);

/*
 * Sleeps until the wait is over.  Throws when interrupted: cancel, terminate,
 * timeouts, loss of the client; the caller cleans up.  Ends the process when
 * the postmaster is gone.
 */
extern void zklock_wait(ZklSession *session, ZklockWaitOver over, void *arg);

/* To be called before the session that was waited for is closed. */
extern void zklock_drop_wait_set(void);

/*
 * The same under lock_timeout, of which "spent_ms" have passed already.
 */
extern void zklock_wait_for_lock(ZklSession *session, ZklockWaitOver over,
								 void *arg, int64 spent_ms);

/*
 * The same under statement_timeout, over which PostgreSQL ceases to watch just
 * before it commits.
 */
extern void zklock_wait_at_commit(ZklSession *session, ZklockWaitOver over, void *arg);

/* Writes the client library's log lines to the server log. */
extern void zklock_drain_client_log(void);

#endif							/* ZKLOCK_WAIT_H */
