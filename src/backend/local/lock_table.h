/*-------------------------------------------------------------------------
 *
 * lock_table.h
 *		Shows a backend's session and permits in PostgreSQL's lock table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_TABLE_H
#define ZKLOCK_LOCK_TABLE_H

#include "storage/lock.h"

#include "backend/base/holds.h"
#include "recipe/recipe.h"

/*
 * Shows this backend's ZooKeeper session to the backends of its server, which may find it
 * waiting in the lock manager.  May throw, like any lock acquisition.
 */
extern void zklock_show_session(ZklSession *session);

/*
 * Hides the session.  Others may wait for the nodes of a closed session until the
 * ensemble removes them, but not for this backend.
 */
extern void zklock_hide_session(void);

/* Does this process of the server show this ZooKeeper session?  May throw. */
extern bool zklock_has_session(int pid, int64 session_id);

/*
 * Returns whether a backend of this server has the session, and with the same ensemble
 * and root as this backend, so that both acquire the same local locks.  May throw.
 */
extern bool zklock_is_session_shown(int64 session_id);

/*
 * Shows that the session has or requests one more permit of the entry's semaphore; called
 * before the node is created.  May throw; hiding a permit does not.
 */
extern void zklock_show_permit(ZklockHold *hold, ZklSession *session);
extern void zklock_hide_permit(ZklockHold *hold);

/*
 * Returns how many of these permits of a semaphore, each given by its session id, in
 * ascending order, backends of this server have released; at most "enough".  May throw.
 */
extern int	zklock_count_released_permits(uint64 semaphore, const int64 *sessions,
										  int n, int enough);

/* Returns whether this lock shows a backend's session, and which one. */
extern bool zklock_session_in_tag(const LOCKTAG *tag, int64 *session_id);

/*
 * Returns whether this lock shows what a backend holds.  "namespace_hash" is the first
 * field of the lock that shows the backend's session.
 */
extern bool zklock_held_in_tag(const LOCKTAG *tag, LOCKMASK mask, uint32 namespace_hash,
							   ZklHeld *held);

#endif							/* ZKLOCK_LOCK_TABLE_H */
