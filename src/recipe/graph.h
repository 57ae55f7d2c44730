/*-------------------------------------------------------------------------
 *
 * graph.h
 *		Who waits for whom, and whether that is a deadlock.
 *
 * Pure functions: no I/O, no state, any thread.  They allocate.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_GRAPH_H
#define ZKL_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What one waiter needs before it can go on: that any one of these gets on
 * with its work and lets go.  A waiter with several needs must have them all
 * met; a participant without any can go on by itself.
 */
typedef struct ZklNeed
{
	uint64_t	waiter;
	const uint64_t *any_of;
	int			n;				/* 0: met already */
	bool		in_line;		/* behind the only one of them; see zkl_stuck_without() */
	int			source;			/* the caller's */
} ZklNeed;

/* Where the search is confined to; everybody else is taken to be able to go on. */
typedef struct ZklCircle
{
	const uint64_t *ids;		/* NULL: everybody */
	int			n;
} ZklCircle;

/*
 * The deadlock that "me" takes part in: those who can't go on whatever all
 * others do, each of whom waits, perhaps through others of them, for each.  Who
 * merely waits for such is not among them.  Returns how many they are, 0 when
 * there is none, -1 when memory is exhausted; *members, malloc'd, is in
 * ascending order.
 */
extern int	zkl_find_deadlock(const ZklNeed *needs, int n_needs, uint64_t me,
							  ZklCircle within, uint64_t **members);

/*
 * If this one gave way, how many of the other members still could not go on?
 * Who stands in line behind it would take its place, and need what it needs now.
 * -1 when memory is exhausted.
 */
extern int	zkl_stuck_without(const ZklNeed *needs, int n_needs, uint64_t victim,
							  ZklCircle members);

/*
 * A shortest way from "me" through members of its deadlock back to "me", as
 * indexes of needs, malloc'd: the waiter of each is one of any_of of the need
 * before it.  Returns its length, or -1.
 */
extern int	zkl_find_cycle(const ZklNeed *needs, int n_needs, uint64_t me,
						   ZklCircle members, int **path);

#endif							/* ZKL_GRAPH_H */
