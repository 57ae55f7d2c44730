/*-------------------------------------------------------------------------
 *
 * find_deadlock.h
 *		Finds a deadlock in what a search has read from the ensemble.
 *
 * A search reads from its own wait on: the queues in which the session waits, the
 * reports of the sessions that block there, the queues of these, and so on.
 * zkl_snapshot_next() says what to read next; the caller reads it and adds the answer.
 * Nothing of this is read at one moment, so the result is only a suspicion until the
 * verdict's multi has checked it.
 *
 * What blocks whom:
 *	- A session that waits in a queue needs all conflicting nodes before its own to go.
 *	- A session that waits for a permit needs any one permit of the others.
 *	- A local waiter needs the reporting session to go.
 *	- A session without a report that is no local waiter can proceed.
 *	- A local waiter blocks others only with what its server reports that it holds: other nodes
 *	  of it are released, and only their delete is pending.
 *
 * A deadlock is a set of sessions that all stay blocked even if every session outside
 * the set proceeds (the AND-OR model).
 *
 * Pure functions: no I/O, no clock, any thread.  They allocate from a ZklScratch, and leave
 * with ZKL_LEFT_TOO_MUCH beyond a bound.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_FIND_DEADLOCK_H
#define ZKL_FIND_DEADLOCK_H

#include "report.h"

/* Bounds of a search; beyond them there is no result. */
#define ZKL_SEARCH_MAX_READS 1000
#define ZKL_SEARCH_MAX_BYTES 8000000	/* of names and data, added by the caller */
#define ZKL_SEARCH_MAX_EDGES 500000
#define ZKL_SEARCH_MAX_STEPS 20000000	/* nodes and holds looked at for each wait; edges for each round */
#define ZKL_VERDICT_MAX_CHECKS 999	/* of reports and nodes; and one setData */

/*
 * The wait-for graph
 */

/* The wait of a session that may be stuck: a name below <root>/waiting. */
typedef struct ZklVertex
{
	uint64_t	session;
	uint64_t	reporter;		/* a local waiter waits for this session; 0: not local */

	/* not local: the session's report, or NULL */
	ZklReport  *report;
	int64_t		czxid;
	int32_t		version;		/* the verdict notes here what it reads later */
	int32_t		bell;			/* ... and the version that its ring has made */

	const ZklLocalWaiter *waiter;	/* local: from the report of "reporter", or NULL */

	/* while the graph is built */
	bool		is_wanted;
	const struct ZklQueued *own_node;	/* its node at the place in work */
	bool		is_or_wait;		/* stuck only if all that it waits for are: any permit will do */
	bool		can_proceed;	/* whatever its edges say */
	struct ZklEdge *out;
	struct ZklEdge *in;

	/* while it is searched */
	bool		stuck;
	bool		is_reached;		/* "me" waits for it */
	bool		waits_for_me;
	int			n_blockers;		/* stuck until so many that it waits for can proceed */
	struct ZklEdge *best;		/* begins a shortest way to "me" */
	bool		in_result;		/* among the reports of the result */
} ZklVertex;

/* One waits for another.  A local waiter has an edge to each session that reports it. */
typedef struct ZklEdge
{
	ZklVertex  *from;
	ZklVertex  *to;
	const ZklLocalWaiter *waiter;	/* its wait, as "to" reports it; NULL: not local */
	const ZklWaitNode *node;	/* it waits with this node; NULL: a local waiter */
	const char *blocker;		/* ... for this one at the same place */
	bool		is_hold;		/* it waits for what "to" holds, not for its place */
	struct ZklEdge *next_out;
	struct ZklEdge *next_in;
} ZklEdge;

/* Returns the session whose report shows the wait. */
static inline ZklVertex *
zkl_reporter(const ZklEdge *edge)
{
	return edge->from->reporter ? edge->to : edge->from;
}


/*
 * The snapshot
 */

typedef struct ZklSnapshot ZklSnapshot;

/* Everything about it belongs to the scratch. */
extern ZklSnapshot *zkl_snapshot_new(ZklScratch *scratch, uint64_t me);

/* Adds the children of <root>/waiting; once, first. */
extern void zkl_snapshot_add_waiting(ZklSnapshot *snapshot,
									 const char *const *children, int n);

/*
 * Adds a report: the data of <root>/waiting/<session>, its czxid and version, and the
 * ephemeral owner of the node, who must be the session.  Also for the own report.
 */
extern void zkl_snapshot_add_report(ZklSnapshot *snapshot, uint64_t session,
									uint64_t owner, int64_t czxid, int32_t version,
									const char *data, int length);

/*
 * Adds the children of a queue, or of the parent of permits, that zkl_snapshot_next() has
 * asked for.  "key" is the hash of the name, as in ZklHeld.
 */
extern void zkl_snapshot_add_queue(ZklSnapshot *snapshot, ZklWaitPlace place, const char *name,
								   uint32_t key, const char *const *children, int n);

typedef enum ZklWantKind
{
	ZKL_WANT_NOTHING,			/* until an answer is added */
	ZKL_WANT_REPORT,			/* of the session */
	ZKL_WANT_QUEUE				/* the children of the place */
} ZklWantKind;

typedef struct ZklWant
{
	ZklWantKind kind;
	uint64_t	session;		/* REPORT */
	ZklWaitPlace place;			/* QUEUE; its path is that of zkl_place_path() */
	const char *name;
} ZklWant;

/*
 * Returns what else must be read, each once.  The caller takes all, reads them together,
 * adds the answers (a node that does not exist has none), and calls again, until
 * it returns ZKL_WANT_NOTHING at once.  The first want is the own report.
 */
extern ZklWant zkl_snapshot_next(ZklSnapshot *snapshot);


/*
 * The result
 */

typedef enum ZklFound
{
	ZKL_FOUND_NO_REPORT,		/* the own report does not exist */
	ZKL_FOUND_NOTHING,			/* "me" is in no deadlock */
	ZKL_FOUND_VICTIM,			/* "victim" must fail, after a verdict */
	ZKL_FOUND_PLACE				/* "victim" must give its place up, or fail if it cannot */
} ZklFound;

/*
 * The first n_cycle edges are the shortest cycle through "me": the session of each waits
 * for that of the next, the last for the first, which is "me".  The others are, for each permit
 * that one of its sessions waits for, the other owners of permits and what these wait for.
 * The verdict must confirm all edges with zkl_report_is_unchanged(), and both nodes of each.
 */
typedef struct ZklDeadlockFound
{
	ZklFound	kind;
	ZklVertex  *victim;
	int			n_cycle;
	ZklEdge   **edges;
	int			n_edges;
	ZklVertex **reports;		/* that show the edges; "me" first */
	int			n_reports;
} ZklDeadlockFound;

/*
 * Finds the deadlock that "me" is a member of.  All members that have read the same find
 * the same victim: the newest report (czxid) among the members that hold what another
 * member waits for.  A place in a queue and the mutex of a semaphore are no hold.
 */
extern ZklDeadlockFound zkl_snapshot_find_deadlock(ZklSnapshot *snapshot);

#endif							/* ZKL_FIND_DEADLOCK_H */
