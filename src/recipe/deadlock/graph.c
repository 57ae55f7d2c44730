/*-------------------------------------------------------------------------
 *
 * graph.c
 *		The wait-for graph: is a session part of a deadlock, and with which others?
 *
 * reduce() is the graph reduction of Holt ("Some Deadlock Properties of Computer
 * Systems", ACM Computing Surveys 4(3), 1972): it removes the sessions that can
 * proceed, then those that waited only for removed ones, and so on.  It looks at
 * each node set once for each of its members.  What remains is deadlocked, or
 * waits for a deadlock; narrow() keeps the strongly connected part around "me".
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "recipe/queue/node.h"

/* The node sets, with participants as indexes into "ids". */
typedef struct Graph
{
	const ZklNodeSet *node_sets;
	int			n_node_sets;
	uint64_t   *ids;			/* ascending */
	int			n;
	int		   *waiters;		/* waiter of each node set */
	int		   *starts;			/* where each node set's any_of begins in "others" */
	int		   *others;
	int		   *own;			/* node sets ordered by waiter */
	int		   *own_starts;		/* where each participant's begin in "own" */
	int		   *named;			/* node sets ordered by member, once for each member */
	int		   *named_starts;	/* where each participant's begin in "named" */
	int		   *helpers;		/* of each node set: members that can proceed */
	int		   *n_dead;			/* of each participant: node sets without a helper */
	int		   *queue;			/* participants to visit */
	bool	   *stuck;			/* of each participant: cannot proceed */
	int		   *via;			/* node set by which it was reached from the start, or -1 */
	bool	   *reaches_start;
} Graph;

bool
zkl_is_in_circle(ZklCircle circle, uint64_t id)
{
	return circle.ids == NULL || zkl_find_id(circle.ids, circle.n, id) >= 0;
}


/*
 * Building the graph
 */

static void
graph_free(Graph *g)
{
	free(g->ids);
	free(g->waiters);
	free(g->starts);
	free(g->others);
	free(g->own);
	free(g->own_starts);
	free(g->named);
	free(g->named_starts);
	free(g->helpers);
	free(g->n_dead);
	free(g->queue);
	free(g->stuck);
	free(g->via);
	free(g->reaches_start);
}

static void
collect_ids(Graph *g)
{
	int			n = 0;

	for (int i = 0; i < g->n_node_sets; i++)
	{
		g->ids[n++] = g->node_sets[i].waiter;
		for (int j = 0; j < g->node_sets[i].n; j++)
			g->ids[n++] = g->node_sets[i].any_of[j];
	}
	g->n = zkl_unique_ids(g->ids, n);
}

static bool
allocate(Graph *g)
{
	size_t		n_node_sets = (size_t) g->n_node_sets + 1;
	size_t		n_all = n_node_sets;

	for (int i = 0; i < g->n_node_sets; i++)
		n_all += (size_t) g->node_sets[i].n;
	g->ids = calloc(n_all, sizeof(uint64_t));
	g->waiters = calloc(n_node_sets, sizeof(int));
	g->starts = calloc(n_node_sets, sizeof(int));
	g->others = calloc(n_all, sizeof(int));
	g->own = calloc(n_node_sets, sizeof(int));
	g->own_starts = calloc(n_all + 1, sizeof(int));
	g->named = calloc(n_all, sizeof(int));
	g->named_starts = calloc(n_all + 1, sizeof(int));
	g->helpers = calloc(n_node_sets, sizeof(int));
	g->n_dead = calloc(n_all, sizeof(int));
	g->queue = calloc(n_all, sizeof(int));
	g->stuck = calloc(n_all, sizeof(bool));
	g->via = calloc(n_all, sizeof(int));
	g->reaches_start = calloc(n_all, sizeof(bool));
	return g->ids && g->waiters && g->starts && g->others && g->own &&
		g->own_starts && g->named && g->named_starts && g->helpers &&
		g->n_dead && g->queue && g->stuck && g->via && g->reaches_start;
}

/* Turns counts, stored one position further, into start positions. */
static void
add_up(int *starts, int n)
{
	for (int v = 0; v < n; v++)
		starts[v + 1] += starts[v];
}

/* Indexes the node sets by waiter and by member. */
static void
link_node_sets(Graph *g)
{
	int		   *fill = g->queue;

	for (int i = 0; i < g->n_node_sets; i++)
	{
		g->own_starts[g->waiters[i] + 1]++;
		for (int j = 0; j < g->node_sets[i].n; j++)
			g->named_starts[g->others[g->starts[i] + j] + 1]++;
	}
	add_up(g->own_starts, g->n);
	add_up(g->named_starts, g->n);
	memcpy(fill, g->own_starts, (size_t) g->n * sizeof(int));
	for (int i = 0; i < g->n_node_sets; i++)
		g->own[fill[g->waiters[i]]++] = i;
	memcpy(fill, g->named_starts, (size_t) g->n * sizeof(int));
	for (int i = 0; i < g->n_node_sets; i++)
		for (int j = 0; j < g->node_sets[i].n; j++)
			g->named[fill[g->others[g->starts[i] + j]]++] = i;
}

static bool
graph_init(Graph *g, const ZklNodeSet *node_sets, int n_node_sets)
{
	int			n_others = 0;

	memset(g, 0, sizeof(*g));
	g->node_sets = node_sets;
	g->n_node_sets = n_node_sets;
	if (!allocate(g))
	{
		graph_free(g);
		return false;
	}
	collect_ids(g);
	for (int i = 0; i < n_node_sets; i++)
	{
		g->waiters[i] = zkl_find_id(g->ids, g->n, node_sets[i].waiter);
		g->starts[i] = n_others;
		for (int j = 0; j < node_sets[i].n; j++)
			g->others[n_others++] = zkl_find_id(g->ids, g->n, node_sets[i].any_of[j]);
	}
	link_node_sets(g);
	return true;
}


/*
 * Which sessions cannot proceed
 */

/* Can no member of this node set proceed? */
static bool
is_dead(const Graph *g, int node_set)
{
	return g->node_sets[node_set].n > 0 && g->helpers[node_set] == 0;
}

static void
count_helpers(Graph *g)
{
	memset(g->n_dead, 0, (size_t) g->n * sizeof(int));
	for (int i = 0; i < g->n_node_sets; i++)
	{
		g->helpers[i] = 0;
		for (int j = 0; j < g->node_sets[i].n; j++)
			g->helpers[i] += !g->stuck[g->others[g->starts[i] + j]];
		g->n_dead[g->waiters[i]] += is_dead(g, i);
	}
}

/* Clears "stuck" of every session that can proceed, until no further one can. */
static void
reduce(Graph *g)
{
	int			tail = 0;

	count_helpers(g);
	for (int v = 0; v < g->n; v++)
		if (g->stuck[v] && g->n_dead[v] == 0)
		{
			g->stuck[v] = false;
			g->queue[tail++] = v;
		}
	for (int head = 0; head < tail; head++)
	{
		int			v = g->queue[head];

		for (int k = g->named_starts[v]; k < g->named_starts[v + 1]; k++)
		{
			int			w = g->waiters[g->named[k]];

			if (g->helpers[g->named[k]]++ == 0 && --g->n_dead[w] == 0 && g->stuck[w])
			{
				g->stuck[w] = false;
				g->queue[tail++] = w;
			}
		}
	}
}

/*
 * Finds all sessions that "start" waits for, nearest first; "start" itself only if it is
 * on a cycle.  They are all stuck, like every member of a node set without a helper.
 */
static void
walk_ahead(Graph *g, int start)
{
	int			tail = 0;

	for (int v = 0; v < g->n; v++)
		g->via[v] = -1;
	g->queue[tail++] = start;
	for (int head = 0; head < tail; head++)
	{
		int			v = g->queue[head];

		for (int k = g->own_starts[v]; k < g->own_starts[v + 1]; k++)
		{
			int			node_set = g->own[k];

			for (int j = 0; is_dead(g, node_set) && j < g->node_sets[node_set].n; j++)
			{
				int			other = g->others[g->starts[node_set] + j];

				if (g->via[other] >= 0)
					continue;
				g->via[other] = node_set;
				if (other != start)
					g->queue[tail++] = other;
			}
		}
	}
}

/* Marks all stuck sessions that reach "start". */
static void
mark_waiters(Graph *g, int start)
{
	int			tail = 0;

	memset(g->reaches_start, 0, (size_t) g->n * sizeof(bool));
	g->queue[tail++] = start;
	for (int head = 0; head < tail; head++)
	{
		int			v = g->queue[head];

		for (int k = g->named_starts[v]; k < g->named_starts[v + 1]; k++)
		{
			int			w = g->waiters[g->named[k]];

			if (g->reaches_start[w] || !g->stuck[w] || !is_dead(g, g->named[k]))
				continue;
			g->reaches_start[w] = true;
			if (w != start)
				g->queue[tail++] = w;
		}
	}
}

/*
 * Returns how many rounds narrow() may take.  Node sets with several members need
 * more than one: a session outside the part that "me" is in counts as able to
 * proceed, which can free members of that part, and so on.  Real waits take a few.
 */
static int
max_rounds(const Graph *g)
{
	int			work = g->n + g->n_node_sets + g->named_starts[g->n];
	int			rounds = ZKL_GRAPH_MAX_WORK / (work > 0 ? work : 1);

	return rounds < ZKL_GRAPH_MAX_ROUNDS ? rounds : ZKL_GRAPH_MAX_ROUNDS;
}

/*
 * Narrows "stuck" to the sessions that wait for "me", that "me" waits for, and
 * that cannot proceed even if all others could.  Returns false if "me" is not among
 * them.  Sets *unsearched if the rounds did not suffice.
 */
static bool
narrow(Graph *g, int me, bool *unsearched)
{
	int			rounds = max_rounds(g);

	for (int round = 0; round < rounds; round++)
	{
		bool		changed = false;

		reduce(g);
		if (!g->stuck[me])
			return false;
		walk_ahead(g, me);
		if (g->via[me] < 0)
			return false;
		mark_waiters(g, me);
		for (int v = 0; v < g->n; v++)
		{
			bool		stays = g->stuck[v] && g->via[v] >= 0 && g->reaches_start[v];

			changed = changed || stays != g->stuck[v];
			g->stuck[v] = stays;
		}
		if (!changed)
			return true;
	}
	*unsearched = true;
	return false;
}

static void
confine(Graph *g, ZklCircle within)
{
	for (int v = 0; v < g->n; v++)
		g->stuck[v] = zkl_is_in_circle(within, g->ids[v]);
}

int
zkl_find_deadlock(const ZklNodeSet *node_sets, int n_node_sets, uint64_t me,
				  ZklCircle within, uint64_t **members)
{
	Graph		g;
	bool		unsearched = false;
	int			start;
	int			n = 0;

	*members = NULL;
	if (!graph_init(&g, node_sets, n_node_sets))
		return -1;
	confine(&g, within);
	start = zkl_find_id(g.ids, g.n, me);
	if (start >= 0 && narrow(&g, start, &unsearched))
	{
		for (int v = 0; v < g.n; v++)
			if (g.stuck[v])
				g.ids[n++] = g.ids[v];
		*members = g.ids;
		g.ids = NULL;
	}
	graph_free(&g);
	return unsearched ? ZKL_GRAPH_UNSEARCHED : n;
}


/*
 * A shortest cycle
 */

/*
 * Stores the node sets of the cycle in path, from the start on; returns their number.
 * The last walk_ahead() of narrow() has reached each session by a shortest way.
 */
static int
trace(const Graph *g, int start, int *path)
{
	int			n = 0;
	int			v = start;

	do
	{
		path[n++] = g->via[v];
		v = g->waiters[g->via[v]];
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
zkl_find_cycle(const ZklNodeSet *node_sets, int n_node_sets, uint64_t me,
			   ZklCircle within, int **path)
{
	Graph		g;
	bool		unsearched = false;
	int			n = -1;
	int			start;

	*path = NULL;
	if (!graph_init(&g, node_sets, n_node_sets))
		return -1;
	confine(&g, within);
	start = zkl_find_id(g.ids, g.n, me);
	if (start >= 0 && narrow(&g, start, &unsearched))
		*path = malloc(((size_t) g.n + 1) * sizeof(int));
	if (*path)
		n = trace(&g, start, *path);
	graph_free(&g);
	return n;
}
