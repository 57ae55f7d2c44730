/*-------------------------------------------------------------------------
 *
 * shared_memory.h
 *		The sessions and permits that backends show each other; counters for the view zk_stat.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SHARED_MEMORY_H
#define ZKLOCK_SHARED_MEMORY_H

#include "backend/base/holds.h"
#include "backend/session/wait.h"
#include "recipe/recipe.h"

/* Called once, from _PG_init(), in the postmaster. */
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
extern int	zklock_count_released_permits(uint64 semaphore, const int64 *sessions, int n);

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
	ZKLOCK_STAT_ROUND_TRIPS,
	ZKLOCK_STAT_LOCK_TABLE_READS,
	ZKLOCK_N_STATS
} ZklockStat;

/* The functions below neither throw nor wait nor allocate. */

extern void zklock_count(ZklockStat stat, int64 n);

/* A call acquired "n" locks or permits. */
extern void zklock_count_acquired(const ZklockTimeout *timeout, int n);

/* A call reached its timeout. */
extern void zklock_count_gave_up(const ZklockTimeout *timeout);

/* A call failed; called in PG_CATCH, before the error is flushed. */
extern void zklock_count_failed(const ZklockTimeout *timeout);

/*
 * Counts the answers of the ensemble in a session that has just been opened.  NULL: in
 * none; called before the session is closed.
 */
extern void zklock_count_answers_of(ZklSession *session);

/* Counts the answers that this session has received since the last call. */
extern void zklock_count_round_trips(void);

#endif							/* ZKLOCK_SHARED_MEMORY_H */
