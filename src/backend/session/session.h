/*-------------------------------------------------------------------------
 *
 * session.h
 *		The ZooKeeper session of this backend (backend_session.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_H
#define ZKLOCK_SESSION_H

#include "backend/session/call.h"
#include "backend/session/errors.h"
#include "recipe/recipe.h"


/* Returns the session, in any state, or NULL.  Never throws or connects. */
extern ZklSession *zklock_session_current(void);

/*
 * Returns the session, connected.  Opens it if there is none.  Waits, interruptibly, until
 * zklock_call_end(): then returns NULL if the call's timeout has passed, otherwise throws; also
 * 08001, 08006, 28000, F0000.  If the session is lost and locks are held, returns it as it is,
 * for zklock_check_loss().
 */
extern ZklSession *zklock_session_ready(const ZklockAction *action, ZklockCall *call);

/* Returns whether the session is in a final state: expired, or credentials refused. */
extern bool zklock_session_is_lost(ZklSession *session);

/*
 * Returns a hash of ensemble and root.  Locks of one name in different namespaces are
 * different locks.
 */
extern uint64 zklock_session_namespace(void);

/*
 * Closes the session.  Blocks uninterruptibly for at most timeout_ms.  Its locks are
 * released; the caller removes them from the hold table.  Never throws.
 */
extern void zklock_session_close(int timeout_ms);

/*
 * Called after a grant.  Warns once per session if zklock.acl is "creator" and others can
 * change a znode above the locks.
 */
extern void zklock_warn_open_parents(void);

/*
 * Called at exit, after the sessions are closed: if a thread still runs, ends the process with this
 * code before any cleanup by exit().  The thread, of a session in an outage for example, may be
 * inside a library that exit() cleans up, such as OpenSSL.
 */
extern void zklock_skip_exit_cleanup(int code);

/* Called after the ensemble granted a lock or permit; set by hooks.c.  Does not throw. */
extern void (*zklock_after_grant) (void);

/* Enough for the I/O thread to end and for a connected server to answer. */
#define ZKLOCK_CLOSE_MS 2000

#endif							/* ZKLOCK_SESSION_H */
