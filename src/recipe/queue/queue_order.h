/*-------------------------------------------------------------------------
 *
 * queue_order.h
 *		The order of a queue: a node's position in it, and who holds the lock.
 *
 * Pure functions: no I/O, no state, any thread; they allocate memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_QUEUE_ORDER_H
#define ZKL_QUEUE_ORDER_H

#include "node_names.h"

/*
 * Returns whether a comes before b.  Serial number arithmetic (RFC 1982) keeps the
 * order when the server's signed 32-bit counter wraps.  Nodes of equal number are
 * in the order of their names.
 */
extern bool zkl_is_before(int32_t a_number, const char *a_name,
						  int32_t b_number, const char *b_name);

typedef enum ZklPosition
{
	ZKL_POSITION_FIRST,			/* no predecessor: held */
	ZKL_POSITION_WAITS,			/* the predecessor must leave first */
	ZKL_POSITION_MOVE_UP,		/* upgrade: first move up to a waiting writer */
	ZKL_POSITION_GONE,			/* the node is not among the children */
	ZKL_POSITION_DEADLOCK,		/* upgrade: another sharer's upgrade comes before */
	ZKL_POSITION_NO_ANCHOR,		/* upgrade: the reader node that it builds on is not among the children */
	ZKL_POSITION_NO_MEMORY
} ZklPosition;

/*
 * Returns the position of mine[0].  The rest of "mine" are nodes that the session
 * holds below this lock; they never conflict.  Any other node of the session is a
 * pending delete and counts like a foreign one: while it exists, it keeps other
 * sessions from the lock, and so it does this one, except where list_elision.c grants the
 * next number.  An upgrade is a writer whose
 * session holds a reader node (see doc/design.md).  "other", which points into
 * "children", is set for WAITS to the predecessor, for MOVE_UP to the waiting
 * writer, and for DEADLOCK to the other sharer's upgrade.
 */
extern ZklPosition zkl_position(const char *const *children, int n_children,
								const char *const *mine, int n_mine,
								bool is_upgrade, const char **other);

/* A contender in a queue, of any session. */
typedef struct ZklQueued
{
	const char *name;
	ZklContender contender;
	uint32_t	distance;		/* of its number, as a sort key; set by zkl_sort_queue() */
	bool		granted;
	int			anchor;			/* upgrade: index of its session's reader; else -1 */
	int			index;			/* among the children, for zkl_order_queue() */
	void	   *item;			/* for the caller */
} ZklQueued;

/* Sorts a queue.  Meaningful only for numbers within 2^31 of each other. */
extern void zkl_sort_queue(ZklQueued *queue, int n);

/* The order of a sorted queue, for bsearch(). */
extern int	zkl_compare_queued(const void *a, const void *b);

/*
 * Sets "granted" and "anchor" in a sorted queue.  Agrees with zkl_position() for each
 * node, except for nodes of equal number: a reader next to a writer of its number
 * is that writer's downgrade, and both hold the lock.
 */
extern void zkl_grant_queue(ZklQueued *queue, int n);

#endif							/* ZKL_QUEUE_ORDER_H */
