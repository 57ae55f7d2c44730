/*-------------------------------------------------------------------------
 *
 * shared_memory.h
 *		The sessions and permits that backends publish to each other; counters for the view zk_stat
 *		(shared_memory.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SHARED_MEMORY_H
#define ZKLOCK_SHARED_MEMORY_H

#include "backend/base/holds.h"
#include "recipe/recipe.h"


/* Called once, from _PG_init(), in the postmaster. */
extern void zklock_install_shared_memory(void);

/*
 * Publishes this backend's ZooKeeper session, with zklock_session_namespace().  Throws 58000 if
 * another backend has the same session.
 */
extern void zklock_publish_session(ZklSession *session, uint64 namespace_hash);

/* When this memory was made: the start of the server, or its last crash. */
extern TimestampTz zklock_memory_made_at;

/*
 * Withdraws the session and its permits, if they are published.  Others may wait for the nodes of a
 * closed session until the ensemble removes them, but not for this backend.  Never throws.
 */
extern void zklock_withdraw_session(void);

/* Does this process of the server publish this ZooKeeper session? */
extern bool zklock_has_session(int pid, int64 session_id);

/*
 * Publishes that this backend has or requests the permit; called after zklock_publish_session() and
 * before the node is created.  May throw 53400; withdrawing a permit neither throws nor waits.
 */
extern void zklock_publish_permit(ZklockHold *hold);
extern void zklock_withdraw_permit(ZklockHold *hold);

/*
 * Where this backend's session publishes the number of its pending deletes; set to 0.
 */
extern uint32 *zklock_publish_pending_deletes(void);

/*
 * Returns whether a node of this session, for the lock or semaphore that this backend waits for, can be a pending
 * delete: the session has some, or it has ended.  0 is no session.  The namespace is that of this backend.
 */
extern bool zklock_may_have_released(int64 session_id, uint64 namespace_hash);

typedef struct ZklockPublishedSession
{
	int			pid;
	int64		session_id;
	uint64		namespace_hash; /* of ensemble and root */
} ZklockPublishedSession;

typedef struct ZklockPublishedPermit
{
	int			pid;
	uint64		semaphore;		/* zklock_name_hash() */
	int			count;
} ZklockPublishedPermit;

typedef struct ZklockPublished
{
	ZklockPublishedSession *sessions;
	int			n_sessions;
	ZklockPublishedPermit *permits;
	int			n_permits;
} ZklockPublished;

/* Copies all that the backends of this server publish; palloc'd. */
extern void zklock_copy_published(ZklockPublished *copy);

/* Counters */

typedef enum ZklockStat
{
	ZKLOCK_STAT_ACQUISITIONS,
	ZKLOCK_STAT_WAITS,
	ZKLOCK_STAT_WAIT_MS,
	ZKLOCK_STAT_TIMEOUTS,
	ZKLOCK_STAT_CANCELS,
	ZKLOCK_STAT_DEADLOCKS,
	ZKLOCK_STAT_SESSIONS_OPENED,
	ZKLOCK_STAT_SESSIONS_LOST,
	ZKLOCK_STAT_LOCKS_LOST,
	ZKLOCK_STAT_COMMITS_REFUSED,
	ZKLOCK_STAT_REVOCATIONS,
	ZKLOCK_N_STATS
} ZklockStat;

/* Neither throws nor waits nor allocates. */
extern void zklock_count(ZklockStat stat, int64 n);

#endif							/* ZKLOCK_SHARED_MEMORY_H */
