/*-------------------------------------------------------------------------
 *
 * find_deadlock_internal.h
 *		What the files of the search share: the snapshot.
 *
 *		find_deadlock.c				searches the graph; the result
 *		find_deadlock_edges.c		who waits for whom
 *		find_deadlock_snapshot.c	collects the answers; what to read next
 *
 * A file calls only files below it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_FIND_DEADLOCK_INTERNAL_H
#define ZKL_FIND_DEADLOCK_INTERNAL_H

#include "find_deadlock.h"
#include "recipe/queue/queue_order.h"

#define MAX_PLACES 2048			/* a power of two above ZKL_SEARCH_MAX_READS */

/* A queue, or the parent of permits. */
typedef struct Place
{
	ZklWaitPlace place;
	const char *name;
	uint32_t	key;
	ZklQueued  *nodes;			/* in order, with the granted ones marked; NULL: not read */
	int			n;
	int			seen;			/* so many nodes were looked at for reports to read */
	struct Wait *waits;
} Place;

/* A node with which a session waits, as it reports. */
typedef struct Wait
{
	struct Wait *next;			/* at the same place */
	Place	   *place;
	ZklVertex  *vertex;
	const ZklWaitNode *node;
	const ZklQueued *own;		/* this node; NULL if it is not read, or gone */
} Wait;

struct ZklSnapshot
{
	ZklScratch *scratch;
	uint64_t	me;
	size_t		bytes;
	int			steps;
	ZklVertex  *vertices;		/* ascending by "session" and "reporter" */
	int			n;
	int			n_edges;
	Place	   *places[MAX_PLACES]; /* a hash table */
	ZklWant		wants[ZKL_SEARCH_MAX_READS];
	int			n_wants;
	int			n_taken;

	/* while the graph is searched */
	ZklVertex  *my_vertex;
	ZklVertex **queue;			/* vertices to visit, each once */
	int			tail;
	ZklDeadlockFound found;
};

/* Counts steps; leaves beyond the bound. */
extern void zkl__snapshot_count(ZklSnapshot *s, int steps);

/* Returns the first vertex of a session, which is that of its own report, if any; or NULL. */
extern ZklVertex *zkl__snapshot_vertex(const ZklSnapshot *s, uint64_t session);

/* Returns the next vertex of the same session, or NULL; counts a step. */
extern ZklVertex *zkl__snapshot_next_vertex(ZklSnapshot *s, ZklVertex *v);

/* Adds all edges. */
extern void zkl__snapshot_add_edges(ZklSnapshot *s);

#endif							/* ZKL_FIND_DEADLOCK_INTERNAL_H */
