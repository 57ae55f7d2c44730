/*-------------------------------------------------------------------------
 *
 * find_deadlock.c
 *		Searches the wait-for graph for a deadlock of "me", and chooses the victim.
 *
 * reduce() is the graph reduction of Holt ("Some Deadlock Properties of Computer
 * Systems", ACM Computing Surveys 4(3), 1972): it removes the sessions that can
 * proceed, then those that waited only for removed ones, and so on.  What remains is
 * deadlocked, or waits for a deadlock; narrow() keeps the strongly connected part around
 * "me".
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "find_deadlock_internal.h"

/*
 * Which sessions cannot proceed
 */

/* Clears "stuck" of vertices that wait only for some that are not stuck, until no further one does. */
static void
reduce(ZklSnapshot *s)
{
	s->tail = 0;
	for (ZklVertex *v = s->vertices; v < s->vertices + s->n; v++)
	{
		v->n_blockers = 0;
		for (const ZklEdge *edge = v->out; edge && (v->n_blockers == 0 || !v->is_or_wait); edge = edge->next_out)
			v->n_blockers++;
		if (!v->stuck)
			s->queue[s->tail++] = v;
	}
	for (int head = 0; head < s->tail; head++)
		for (const ZklEdge *edge = s->queue[head]->in; edge; edge = edge->next_in)
			if (--edge->from->n_blockers == 0 && edge->from->stuck)
			{
				edge->from->stuck = false;
				s->queue[s->tail++] = edge->from;
			}
}

/* Marks all stuck vertices that "me" waits for; "me" itself only if it is on a cycle. */
static void
search_forward(ZklSnapshot *s)
{
	s->tail = 0;
	s->queue[s->tail++] = s->my_vertex;
	for (int head = 0; head < s->tail; head++)
		for (const ZklEdge *edge = s->queue[head]->out; edge; edge = edge->next_out)
			if (edge->to->stuck && !edge->to->is_reached)
			{
				edge->to->is_reached = true;
				if (edge->to != s->my_vertex)
					s->queue[s->tail++] = edge->to;
			}
}

/*
 * Marks all stuck vertices that wait for "me", nearest first, each with the edge that begins
 * a shortest way; for "me" that is the edge of a shortest cycle.
 */
static void
search_backward(ZklSnapshot *s)
{
	s->tail = 0;
	s->queue[s->tail++] = s->my_vertex;
	for (int head = 0; head < s->tail; head++)
		for (ZklEdge *edge = s->queue[head]->in; edge; edge = edge->next_in)
			if (edge->from->stuck && !edge->from->waits_for_me)
			{
				edge->from->waits_for_me = true;
				edge->from->best = edge;
				if (edge->from != s->my_vertex)
					s->queue[s->tail++] = edge->from;
			}
}

/*
 * Narrows "stuck" to what waits for "me", what "me" waits for, and what cannot proceed
 * even if all others could.  Waits for permits need more than one round: a session outside
 * of this part counts as able to proceed, which can free members of it, and so on.  Real
 * waits take a few rounds.
 */
static ZklFound
narrow(ZklSnapshot *s)
{
	for (ZklVertex *v = s->vertices; v < s->vertices + s->n; v++)
		v->stuck = v->out && !v->can_proceed;
	for (;;)
	{
		bool		changed = false;

		zkl__snapshot_count(s, s->n + s->n_edges);
		reduce(s);
		if (!s->my_vertex->stuck)
			return ZKL_FOUND_NOTHING;
		for (ZklVertex *v = s->vertices; v < s->vertices + s->n; v++)
			v->is_reached = v->waits_for_me = false;
		search_forward(s);
		search_backward(s);
		for (ZklVertex *v = s->vertices; v < s->vertices + s->n; v++)
			if (v->stuck && !(v->is_reached && v->waits_for_me))
			{
				v->stuck = false;
				changed = true;
			}
		if (!changed)
			return ZKL_FOUND_VICTIM;
	}
}


/*
 * The victim
 */

/*
 * Why other members wait for a member, the best victim first.  The failure of a holder
 * frees a waiter; that of another session only lets the next one take its place.
 */
typedef enum Rank
{
	RANK_HOLDER,
	RANK_LOCAL_PLACE,			/* only its place, for a local waiter: it can requeue */
	RANK_PLACE
} Rank;

static Rank
rank_of(const ZklVertex *v)
{
	Rank		rank = RANK_PLACE;

	for (const ZklEdge *edge = v->in; edge; edge = edge->next_in)
		if (edge->from->stuck && edge->is_hold)
			return RANK_HOLDER;
		else if (edge->from->stuck && edge->node == NULL)
			rank = RANK_LOCAL_PLACE;
	return rank;
}

/* Chooses the reporting member of the best rank whose report is the newest. */
static void
choose_victim(ZklSnapshot *s)
{
	ZklVertex  *victim = NULL;
	Rank		best = RANK_PLACE;

	for (ZklVertex *v = s->vertices; v < s->vertices + s->n; v++)
	{
		Rank		rank;

		if (!v->stuck || v->reporter)
			continue;
		rank = rank_of(v);
		if (victim == NULL || rank < best ||
			(rank == best && v->czxid > victim->czxid))
		{
			victim = v;
			best = rank;
		}
	}
	s->found.victim = victim;
	s->found.kind = best == RANK_HOLDER ? ZKL_FOUND_VICTIM : ZKL_FOUND_PLACE;
}


/*
 * What a verdict must check
 */

/* Adds an edge to the result, and the report that shows it. */
static void
list_edge(ZklSnapshot *s, ZklEdge *edge)
{
	ZklVertex  *reporter = zkl_reporter(edge);

	s->found.edges[s->found.n_edges++] = edge;
	if (!reporter->in_result)
		s->found.reports[s->found.n_reports++] = reporter;
	reporter->in_result = true;
}

/* Follows the shortest way to "me", up to a vertex that was visited. */
static void
follow_to_me(ZklSnapshot *s, ZklVertex *v)
{
	for (; v->is_reached; v = v->best->to)
	{
		v->is_reached = false;
		s->queue[s->tail++] = v;
		list_edge(s, v->best);
	}
}

/*
 * Lists the shortest cycle, then the other owners of permits that its members wait for, and
 * what these wait for.  All of them are marked as reached before; the mark of what is listed is cleared.
 */
static void
list_edges(ZklSnapshot *s)
{
	s->tail = 0;
	follow_to_me(s, s->my_vertex);
	s->found.n_cycle = s->found.n_edges;
	for (int head = 0; head < s->tail; head++)
		for (ZklEdge *edge = s->queue[head]->out; s->queue[head]->is_or_wait && edge; edge = edge->next_out)
			if (edge != s->queue[head]->best)
			{
				list_edge(s, edge);
				follow_to_me(s, edge->to);
			}
}

ZklDeadlockFound
zkl_snapshot_find_deadlock(ZklSnapshot *s)
{
	size_t		n = (size_t) s->n;

	s->my_vertex = zkl__snapshot_vertex(s, s->me);
	if (s->my_vertex == NULL || s->my_vertex->report == NULL)
		return s->found;
	zkl__snapshot_add_edges(s);
	s->queue = zkl__scratch(s->scratch, n, sizeof(ZklVertex *));
	s->found.reports = zkl__scratch(s->scratch, n, sizeof(ZklVertex *));
	s->found.edges = zkl__scratch(s->scratch, (size_t) s->n_edges, sizeof(ZklEdge *));
	s->found.kind = narrow(s);
	if (s->found.kind == ZKL_FOUND_NOTHING)
		return s->found;
	choose_victim(s);
	list_edges(s);
	if (s->found.n_reports - 1 + 2 * s->found.n_edges > ZKL_VERDICT_MAX_CHECKS)
		zkl__scratch_leave(s->scratch, ZKL_LEFT_TOO_MUCH);
	return s->found;
}
