/*-------------------------------------------------------------------------
 *
 * graph.c
 *		Who waits for whom, and whether that is a deadlock.
 *
 * Locks make a waiter wait for each of several others, permits of a semaphore
 * for any of several, so a cycle alone is no deadlock: who can go on is found
 * first, and what is left can't.  The graphs are small (those who have waited
 * for long), so everything here is a loop that runs until nothing changes.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

/* The needs with participants as indexes into "ids". */
typedef struct Graph
{
	const ZklNeed *needs;
	int			n_needs;
	uint64_t   *ids;			/* ascending */
	int			n;
	int		   *waiters;		/* of each need */
	int		   *starts;			/* of each need's any_of in "others" */
	int		   *others;
	bool	   *stuck;			/* of each participant */
	bool	   *ahead;			/* reached from the start */
	bool	   *behind;			/* reaches the start */
	int			gone;			/* who has given way, or -1 */
} Graph;

static int
compare_ids(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

/* The participant's index, or -1. */
static int
index_of(const uint64_t *ids, int n, uint64_t id)
{
	const uint64_t *found = n > 0 ? bsearch(&id, ids, (size_t) n, sizeof(id),
											compare_ids) : NULL;

	return found ? (int) (found - ids) : -1;
}

static void
graph_free(Graph *g)
{
	free(g->ids);
	free(g->waiters);
	free(g->starts);
	free(g->others);
	free(g->stuck);
	free(g->ahead);
	free(g->behind);
}

static void
collect_ids(Graph *g)
{
	int			n = 0;
	int			unique = 0;

	for (int i = 0; i < g->n_needs; i++)
	{
		g->ids[n++] = g->needs[i].waiter;
		for (int j = 0; j < g->needs[i].n; j++)
			g->ids[n++] = g->needs[i].any_of[j];
	}
	qsort(g->ids, (size_t) n, sizeof(uint64_t), compare_ids);
	for (int i = 0; i < n; i++)
		if (i == 0 || g->ids[i] != g->ids[i - 1])
			g->ids[unique++] = g->ids[i];
	g->n = unique;
}

static bool
graph_init(Graph *g, const ZklNeed *needs, int n_needs)
{
	size_t		n_all = 1;
	int			n_others = 0;

	memset(g, 0, sizeof(*g));
	g->needs = needs;
	g->n_needs = n_needs;
	g->gone = -1;
	for (int i = 0; i < n_needs; i++)
		n_all += 1 + (size_t) needs[i].n;
	g->ids = calloc(n_all, sizeof(uint64_t));
	g->waiters = calloc((size_t) n_needs + 1, sizeof(int));
	g->starts = calloc((size_t) n_needs + 1, sizeof(int));
	g->others = calloc(n_all, sizeof(int));
	g->stuck = calloc(n_all, sizeof(bool));
	g->ahead = calloc(n_all, sizeof(bool));
	g->behind = calloc(n_all, sizeof(bool));
	if (!g->ids || !g->waiters || !g->starts || !g->others ||
		!g->stuck || !g->ahead || !g->behind)
	{
		graph_free(g);
		return false;
	}
	collect_ids(g);
	for (int i = 0; i < n_needs; i++)
	{
		g->waiters[i] = index_of(g->ids, g->n, needs[i].waiter);
		g->starts[i] = n_others;
		for (int j = 0; j < needs[i].n; j++)
			g->others[n_others++] = index_of(g->ids, g->n, needs[i].any_of[j]);
	}
	return true;
}

/*
 * Can nobody meet this need?  Of who has given way, its place is left, with its
 * needs: it keeps back those in line, and nobody else.
 */
static bool
is_dead(const Graph *g, int need)
{
	for (int j = 0; j < g->needs[need].n; j++)
	{
		int			other = g->others[g->starts[need] + j];

		if (!g->stuck[other] || (other == g->gone && !g->needs[need].in_line))
			return false;
	}
	return g->needs[need].n > 0;
}

/*
 * Of those marked as stuck, unmarks all who can go on, until nobody more can.
 * "behind" is free for use here.
 */
static void
reduce(Graph *g)
{
	bool		changed = true;

	while (changed)
	{
		changed = false;
		memset(g->behind, 0, (size_t) g->n * sizeof(bool));
		for (int i = 0; i < g->n_needs; i++)
			if (g->stuck[g->waiters[i]] && is_dead(g, i))
				g->behind[g->waiters[i]] = true;
		for (int v = 0; v < g->n; v++)
			if (g->stuck[v] && !g->behind[v])
			{
				g->stuck[v] = false;
				changed = true;
			}
	}
}

/* Marks all who are reached from "start", itself only if there is a way back. */
static void
mark_ahead(Graph *g, int start)
{
	bool		changed = true;

	memset(g->ahead, 0, (size_t) g->n * sizeof(bool));
	while (changed)
	{
		changed = false;
		for (int i = 0; i < g->n_needs; i++)
		{
			int			w = g->waiters[i];

			if (!(w == start || g->ahead[w]) || !g->stuck[w] || !is_dead(g, i))
				continue;
			for (int j = 0; j < g->needs[i].n; j++)
			{
				bool	   *mark = &g->ahead[g->others[g->starts[i] + j]];

				changed = changed || !*mark;
				*mark = true;
			}
		}
	}
}

/* Marks all who reach "start". */
static void
mark_behind(Graph *g, int start)
{
	bool		changed = true;

	memset(g->behind, 0, (size_t) g->n * sizeof(bool));
	while (changed)
	{
		changed = false;
		for (int i = 0; i < g->n_needs; i++)
		{
			int			w = g->waiters[i];

			if (g->behind[w] || !g->stuck[w] || !is_dead(g, i))
				continue;
			for (int j = 0; j < g->needs[i].n && !g->behind[w]; j++)
			{
				int			other = g->others[g->starts[i] + j];

				if (other == start || g->behind[other])
					g->behind[w] = changed = true;
			}
		}
	}
}

/*
 * Narrows "stuck" to those who wait for "me" and whom it waits for, and who
 * can't go on even if all others could.  With needs of which one of several
 * suffices, the one step can make the other necessary again.
 */
static bool
narrow(Graph *g, int me)
{
	for (;;)
	{
		int			before = 0;
		int			after = 0;

		reduce(g);
		if (!g->stuck[me])
			return false;
		mark_ahead(g, me);
		if (!g->ahead[me])
			return false;
		mark_behind(g, me);
		for (int v = 0; v < g->n; v++)
		{
			before += g->stuck[v];
			g->stuck[v] = g->stuck[v] && g->ahead[v] && g->behind[v];
			after += g->stuck[v];
		}
		if (before == after)
			return true;
	}
}

static void
confine(Graph *g, ZklCircle within)
{
	for (int v = 0; v < g->n; v++)
		g->stuck[v] = within.ids == NULL ||
			index_of(within.ids, within.n, g->ids[v]) >= 0;
}

int
zkl_find_deadlock(const ZklNeed *needs, int n_needs, uint64_t me,
				  ZklCircle within, uint64_t **members)
{
	Graph		g;
	int			start;
	int			n = 0;

	*members = NULL;
	if (!graph_init(&g, needs, n_needs))
		return -1;
	confine(&g, within);
	start = index_of(g.ids, g.n, me);
	if (start >= 0 && narrow(&g, start))
	{
		for (int v = 0; v < g.n; v++)
			if (g.stuck[v])
				g.ids[n++] = g.ids[v];
		*members = g.ids;
		g.ids = NULL;
	}
	graph_free(&g);
	return n;
}

int
zkl_stuck_without(const ZklNeed *needs, int n_needs, uint64_t victim,
				  ZklCircle members)
{
	Graph		g;
	int			n = 0;

	if (!graph_init(&g, needs, n_needs))
		return -1;
	confine(&g, members);
	g.gone = index_of(g.ids, g.n, victim);
	reduce(&g);
	for (int v = 0; v < g.n; v++)
		n += g.stuck[v] && v != g.gone;
	graph_free(&g);
	return n;
}

/* Breadth first; "via" is the need by which each participant was reached. */
static int
search(const Graph *g, int start, int *via, int *queue)
{
	int			head = 0;
	int			tail = 0;

	queue[tail++] = start;
	while (head < tail)
	{
		int			w = queue[head++];

		for (int i = 0; i < g->n_needs; i++)
		{
			if (g->waiters[i] != w || !is_dead(g, i))
				continue;
			for (int j = 0; j < g->needs[i].n; j++)
			{
				int			other = g->others[g->starts[i] + j];

				if (!g->stuck[other] || via[other] >= 0)
					continue;
				via[other] = i;
				if (other == start)
					return 0;
				queue[tail++] = other;
			}
		}
	}
	return -1;
}

/* The needs from the start back to it, first one first. */
static int
trace(const Graph *g, int start, const int *via, int *path)
{
	int			n = 0;
	int			v = start;

	do
	{
		path[n++] = via[v];
		v = g->waiters[via[v]];
	} while (v != start);
	for (int i = 0; i < n / 2; i++)
	{
		int			swap = path[i];

		path[i] = path[n - 1 - i];
		path[n - 1 - i] = swap;
	}
	return n;
}

int
zkl_find_cycle(const ZklNeed *needs, int n_needs, uint64_t me,
			   ZklCircle members, int **path)
{
	Graph		g;
	int		   *via = NULL;
	int		   *queue = NULL;
	int			n = -1;
	int			start;

	*path = NULL;
	if (!graph_init(&g, needs, n_needs))
		return -1;
	confine(&g, members);
	start = index_of(g.ids, g.n, me);
	via = malloc(((size_t) g.n + 1) * sizeof(int));
	queue = malloc(((size_t) g.n + 1) * sizeof(int));
	*path = malloc(((size_t) g.n + 1) * sizeof(int));
	if (via && queue && *path && start >= 0)
	{
		for (int v = 0; v < g.n; v++)
			via[v] = -1;
		if (search(&g, start, via, queue) == 0)
			n = trace(&g, start, via, *path);
	}
	free(via);
	free(queue);
	graph_free(&g);
	if (n < 0)
	{
		free(*path);
		*path = NULL;
	}
	return n;
}
