/*-------------------------------------------------------------------------
 *
 * graph.h
 *		The wait-for graph: is a session part of a deadlock, and with which others?
 *
 * A waiter for a lock needs each of its blockers to release; a waiter for a
 * permit needs any one of several holders to release one.  In the literature
 * this is the AND-OR model (Knapp, "Deadlock Detection in Distributed
 * Databases", ACM Computing Surveys 19(4), 1987).  A cycle is therefore not yet
 * a deadlock: a deadlock is a set of sessions that all stay blocked even if every
 * session outside the set proceeds.
 *
 * Pure functions: no I/O, no state, any thread.  They allocate.  A round takes
 * n log n time for n participants that the node sets name.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_GRAPH_H
#define ZKL_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

/*
 * One condition of a waiter: it can proceed only after one of the sessions in
 * any_of has proceeded and released what it holds (OR).  A waiter with several
 * node sets needs all of them met (AND); a session without any can proceed.
 */
typedef struct ZklNodeSet
{
	uint64_t	waiter;
	const uint64_t *any_of;
	int			n;				/* of any_of; 0: already met */
	bool		only_for_place; /* waits only for the other's place in a queue */
	int			source;			/* for the caller's use */
} ZklNodeSet;

/* The sessions that a search is confined to; all others count as able to proceed. */
typedef struct ZklCircle
{
	const uint64_t *ids;		/* ascending; NULL: no limit */
	int			n;
} ZklCircle;

/*
 * Bounds of a search, because other programs determine the graph: rounds of
 * narrowing, and rounds times the size of the graph (participants, node sets,
 * and members of node sets).
 */
#define ZKL_GRAPH_MAX_ROUNDS 64
#define ZKL_GRAPH_MAX_WORK 4000000

/* The graph exceeds these bounds. */
#define ZKL_GRAPH_UNSEARCHED (-2)

extern bool zkl_is_in_circle(ZklCircle circle, uint64_t id);

/*
 * Finds the deadlock that "me" is a member of.  Its members cannot proceed
 * whatever all other sessions do, and each of them waits for each other one,
 * directly or through members.  A session that merely waits for a member is not a
 * member.  Returns the number of members, 0 if there is no deadlock, -1 if memory
 * is exhausted, or ZKL_GRAPH_UNSEARCHED; *members, malloc'd, is ascending.
 */
extern int	zkl_find_deadlock(const ZklNodeSet *node_sets, int n_node_sets, uint64_t me,
							  ZklCircle within, uint64_t **members);

/*
 * Finds the same deadlock, and in it a shortest cycle from "me" back to "me".  *path,
 * malloc'd, holds indexes of node sets: the waiter of each is in any_of of the node set
 * before it.  Returns the length, or -1 if there is none or it is not known.
 */
extern int	zkl_find_cycle(const ZklNodeSet *node_sets, int n_node_sets, uint64_t me,
						   ZklCircle within, int **path);

#endif							/* ZKL_GRAPH_H */
