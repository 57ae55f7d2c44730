/*-------------------------------------------------------------------------
 *
 * shown.h
 *		The sessions and permits of the backends, which each shows to the others.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SHOWN_H
#define ZKLOCK_SHOWN_H

#include "backend/base/holds.h"
#include "recipe/recipe.h"

/* Called once, from _PG_init(), in the postmaster.  Also for the counters of stats.c. */
extern void zklock_install_shared_memory(void);

/*
 * Shows this backend's ZooKeeper session, with zklock_session_namespace().  Throws 58000 if another backend has the same
 * session.
 */
extern void zklock_show_session(ZklSession *session, uint64 namespace_hash);

/*
 * Hides the session and its permits, if they are shown.  Others may wait for the nodes of a
 * closed session until the ensemble removes them, but not for this backend.  Never throws.
 */
extern void zklock_hide_session(void);

/* Does this process of the server show this ZooKeeper session? */
extern bool zklock_has_session(int pid, int64 session_id);

/*
 * Shows that this backend has or requests the permit; called after zklock_show_session() and
 * before the node is created.  May throw 53200; hiding a permit neither throws nor waits.
 */
extern void zklock_show_permit(ZklockHold *hold);
extern void zklock_hide_permit(ZklockHold *hold);

/*
 * Returns how many of a semaphore's permits that others have, each given by its session id,
 * in ascending order, backends of this server have released.
 */
extern int	zklock_count_released_permits(uint64 semaphore, const uint64 *sessions, int n);

typedef struct ZklockShownSession
{
	int			pid;
	int64		session_id;
	uint64		namespace_hash; /* of ensemble and root */
} ZklockShownSession;

typedef struct ZklockShownPermit
{
	int			pid;
	uint64		semaphore;		/* zklock_name_hash() */
	int			count;
} ZklockShownPermit;

typedef struct ZklockShown
{
	ZklockShownSession *sessions;
	int			n_sessions;
	ZklockShownPermit *permits;
	int			n_permits;
} ZklockShown;

/* Copies all that the backends of this server show; palloc'd. */
extern void zklock_copy_shown(ZklockShown *copy);

#endif							/* ZKLOCK_SHOWN_H */
