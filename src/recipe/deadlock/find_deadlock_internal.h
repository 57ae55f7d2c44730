/*-------------------------------------------------------------------------
 *
 * find_deadlock_internal.h
 *		What the files of the search share: the snapshot, and the wait-for graph in it.
 *
 *		find_deadlock_snapshot.c	collects the answers; what to read next
 *		find_deadlock_edges.c		who waits for whom
 *		find_deadlock.c				searches the graph; the result
 *
 * All memory belongs to the snapshot and is freed with it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_FIND_DEADLOCK_INTERNAL_H
#define ZKL_FIND_DEADLOCK_INTERNAL_H

#include "find_deadlock.h"
#include "recipe/queue/node.h"

#define MAX_PLACES 2048			/* a power of two above ZKL_SEARCH_MAX_READS */

/* The wait of a session that may be stuck: a name below <root>/waiting. */
typedef struct Vertex
{
	uint64_t	session;
	uint64_t	behind;			/* a local waiter waits for this session; 0: not local */

	/* not local: the session's report, or NULL */
	bool		is_wanted;
	ZklReport  *report;
	int64_t		czxid;
	int32_t		version;

	const ZklReportWaiter *waiter;	/* local: from the report of "behind", or NULL */

	const ZklQueued *here;		/* its node at the place in work */
	struct Edge *out;
	struct Edge *in;
	bool		any;			/* stuck only if all that it waits for are: any permit will do */
	bool		can_proceed;	/* whatever its edges say */

	/* of the search */
	bool		stuck;
	bool		ahead;			/* "me" waits for it */
	bool		waits_for_me;
	int			left;			/* stuck until so many that it waits for can proceed */
	const struct Edge *best;	/* begins a shortest way to "me" */
	int			index;			/* of its report in the result, from 1 */
} Vertex;

typedef struct Edge
{
	Vertex	   *from;
	Vertex	   *to;
	struct Edge *next_out;
	struct Edge *next_in;
	bool		is_hold;		/* it waits for what "to" holds, not for its place */
	const ZklReportNode *node;	/* as in ZklCycleEdge */
	const char *blocker;
} Edge;

/* A queue, or the parent of permits. */
typedef struct Place
{
	ZklWaitPlace place;
	const char *name;
	uint32_t	key;
	bool		is_read;
	ZklQueued  *nodes;			/* in order, with the granted ones marked; permits by name */
	int			n;
	int			seen;			/* so many nodes were looked at for reports to read */
	struct Wait *waits;
} Place;

/* A node with which a session waits, as it reports. */
typedef struct Wait
{
	struct Wait *next;			/* at the same place */
	Place	   *place;
	Vertex	   *vertex;
	const ZklReportNode *node;
	const ZklQueued *own;		/* this node; NULL if it is gone */
} Wait;

struct ZklSnapshot
{
	uint64_t	me;
	bool		no_memory;
	bool		too_much;
	size_t		bytes;
	int			steps;
	struct Block *blocks;
	Vertex	   *vertices;		/* ascending by "session" and "behind" */
	int			n;
	int			n_edges;
	Place	   *places[MAX_PLACES]; /* a hash table */
	ZklWant		wants[ZKL_SEARCH_MAX_READS];
	int			n_wants;
	int			n_taken;
};

/* Returns zeroed memory of the snapshot, or NULL and sets no_memory. */
extern void *zkl__snapshot_alloc(ZklSnapshot *s, size_t n, size_t size);

/* Returns false if the search is beyond its bounds, or out of memory. */
extern bool zkl__snapshot_goes_on(ZklSnapshot *s, int steps);

/* Returns the first vertex of a session at or after "behind", or NULL. */
extern Vertex *zkl__snapshot_vertex(const ZklSnapshot *s, uint64_t session, uint64_t behind);

/* Returns the next vertex of the same session, or NULL. */
extern Vertex *zkl__snapshot_next_vertex(const ZklSnapshot *s, Vertex *v);

/* Returns where the place is in the hash table, or would be. */
extern Place **zkl__snapshot_place(ZklSnapshot *s, ZklWaitPlace place, const char *name);

/* Returns a node of the place, or NULL. */
extern const ZklQueued *zkl__place_find(const Place *place, const char *child);

/* Adds all edges. */
extern void zkl__snapshot_add_edges(ZklSnapshot *s);

#endif							/* ZKL_FIND_DEADLOCK_INTERNAL_H */
