/*-------------------------------------------------------------------------
 *
 * session.h
 *		The ZooKeeper session of this backend.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_H
#define ZKLOCK_SESSION_H

#include "errors.h"
#include "recipe/recipe.h"

/* The session, in any state, or NULL.  Never throws or connects. */
extern ZklSession *zklock_session_current(void);

/*
 * The session, connected.  Opens it when there is none, and anew when the
 * settings changed and nothing is held.  Waits up to zklock.connect_timeout,
 * under lock_timeout and interruptibly; throws 08001, 08006, 28000, F0000.
 * When the session is over and locks were lost with it, it is returned as it is,
 * for zklock_check_loss().
 */
extern ZklSession *zklock_session_ready(const ZklockPurpose *purpose);

/*
 * The same until a time (zklock_now) is reached: then NULL instead of an error.
 * With NULL as purpose, for those who do not lock: not under lock_timeout, and NULL
 * also when the credentials are refused, with the session closed.
 */
extern ZklSession *zklock_session_by(const ZklockPurpose *purpose, int64 deadline);

/* It is in a final state: expired, lost, or refused. */
extern bool zklock_session_is_over(ZklSession *session);

/* A server and we did not agree on TLS, in the present session or the last one. */
extern bool zklock_session_failed_at_tls(void);

/*
 * A hash of where the session's locks are, ensemble and root: locks of one
 * name in different places are different locks.
 */
extern uint64 zklock_session_place(void);

/*
 * Closes the session, waiting for at most timeout_ms, uninterruptibly.  Its
 * locks are gone; the caller forgets them.  Never throws.
 */
extern void zklock_session_close(int timeout_ms);

/* Time enough for threads to end and a connected server to answer. */
#define ZKLOCK_CLOSE_MS 2000

#endif							/* ZKLOCK_SESSION_H */
