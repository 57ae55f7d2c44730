/*-------------------------------------------------------------------------
 *
 * find_deadlock_edges.c
 *		Who waits for whom, as far as a search has read it.
 *
 * Where the snapshot is doubtful, a session counts as able to proceed: that can only hide
 * a deadlock.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "find_deadlock_internal.h"

static void
add_edge(ZklSnapshot *s, ZklEdge edge)
{
	ZklEdge    *copy;

	if (s->n_edges++ == ZKL_SEARCH_MAX_EDGES)
		zkl__scratch_leave(s->scratch, ZKL_LEFT_TOO_MUCH);
	copy = zkl__scratch(s->scratch, 1, sizeof(ZklEdge));
	*copy = edge;
	copy->next_out = edge.from->out;
	copy->next_in = edge.to->in;
	edge.from->out = edge.to->in = copy;
}

/* Returns how many holds of the kind a local waiter lists for the place. */
static int
count_held(ZklSnapshot *s, const ZklVertex *v, ZklHeldKind kind, const Place *place)
{
	int			n = 0;

	zkl__snapshot_count(s, v->waiter->n_held);
	for (int i = 0; i < v->waiter->n_held; i++)
		n += v->waiter->held[i].kind == kind && v->waiter->held[i].key == place->key;
	return n;
}

/*
 * Does the node of this session block the node of another one behind it?  Two readers never
 * do.  A local waiter has released what it does not list, and only the delete is pending; so
 * may be that of a writer's node that becomes a reader's.
 */
static bool
blocks(ZklSnapshot *s, const Place *place, const ZklVertex *v, const ZklQueued *node, bool writer)
{
	if (!writer && !node->contender.writer)
		return false;
	if (v->reporter == 0)
		return v->report != NULL;
	if (v->waiter == NULL || place->place != ZKL_PLACE_LOCK)
		return false;
	return count_held(s, v, ZKL_HELD_EXCLUSIVE, place) > 0 ||
		(writer && count_held(s, v, ZKL_HELD_SHARED, place) > 0);
}

/*
 * Adds the edges of a wait to the owner of a node before its own.  Another node of the session
 * itself is its reader, if it upgrades; else it is released, and the wait for its delete ends.
 */
static void
add_blocker(ZklSnapshot *s, const Wait *wait, const ZklQueued *node)
{
	const Place *place = wait->place;

	if (node->contender.has_owner && node->contender.owner == wait->vertex->session)
	{
		wait->vertex->can_proceed = wait->vertex->own_node->anchor < 0;
		return;
	}
	for (ZklVertex *to = node->item; to; to = zkl__snapshot_next_vertex(s, to))
	{
		ZklEdge		edge = {wait->vertex, to, .node = wait->node, .blocker = node->name};

		edge.is_hold = node->granted && place->place == ZKL_PLACE_LOCK;
		if (blocks(s, place, to, node, wait->vertex->own_node->contender.writer))
			add_edge(s, edge);
	}
}

/*
 * Is it a writer, which by its own report waits for all nodes before it?  Not one that can
 * proceed: it would hide who is before it.
 */
static bool
waits_for_all_before(const ZklQueued *node)
{
	const ZklVertex *v = node->item;

	return v && v->own_node == node && !v->can_proceed && node->contender.writer && !node->granted && node->anchor < 0;
}

/*
 * Adds edges to what blocks a node, from the back to the next writer that waits for all
 * the rest, and to those that are granted.  So n waiters do not have n * n edges, and a
 * cycle rarely needs a waiter between.  An upgrade, whose session has a reader, waits only
 * for the other readers that are granted.
 */
static void
add_queue_wait(ZklSnapshot *s, const Wait *wait)
{
	const ZklVertex *v = wait->vertex;
	const ZklQueued *first = wait->place->nodes;
	const ZklQueued *last = v->own_node;	/* nodes from here on are done */
	bool		upgrade = last->anchor >= 0;

	while (!upgrade && last > first && !v->can_proceed)
	{
		last--;
		zkl__snapshot_count(s, 1);
		add_blocker(s, wait, last);
		if (waits_for_all_before(last))
			break;
	}
	for (; first < last && first->granted && !v->can_proceed; first++)
	{
		zkl__snapshot_count(s, 1);
		if (!upgrade || !first->contender.writer)
			add_blocker(s, wait, first);
	}
}

/* Returns the vertex that has the waits of a permit's owner; NULL: it has none. */
static ZklVertex *
owner_of(ZklSnapshot *s, const ZklQueued *node)
{
	for (ZklVertex *v = node->item; v; v = zkl__snapshot_next_vertex(s, v))
		if (v->report || v->waiter)
			return v;
	return NULL;
}

/*
 * Adds edges to the owners of all other permits: any of them may release one.  The session
 * can proceed if not all permits are out, if an owner is not known to wait, or if a local
 * waiter lists less permits than it has nodes, so that the delete of one is pending.
 */
static void
add_permit_wait(ZklSnapshot *s, const Wait *wait)
{
	const Place *place = wait->place;
	ZklVertex  *v = wait->vertex;
	int			n = 0;			/* nodes of one session, which are adjacent */

	v->is_or_wait = true;
	v->can_proceed = v->can_proceed || place->n <= wait->node->capacity;
	for (int i = 0; i < place->n && !v->can_proceed; i++)
	{
		const ZklQueued *node = &place->nodes[i];
		ZklVertex  *to = owner_of(s, node);
		ZklEdge		edge = {v, to, .node = wait->node, .blocker = node->name, .is_hold = true};

		zkl__snapshot_count(s, 1);
		n = i > 0 && node->item == place->nodes[i - 1].item ? n + 1 : 1;
		if (to == v)
			continue;
		v->can_proceed = to == NULL ||
			(to->waiter && count_held(s, to, ZKL_HELD_PERMIT, place) < n);
		if (!v->can_proceed)
			add_edge(s, edge);
	}
}

static void
add_waits(ZklSnapshot *s, const Place *place)
{
	for (const Wait *wait = place->waits; wait; wait = wait->next)
		wait->vertex->own_node = wait->own;
	for (const Wait *wait = place->waits; wait; wait = wait->next)
		if (wait->vertex->can_proceed)
			continue;
		else if (place->place == ZKL_PLACE_PERMITS)
			add_permit_wait(s, wait);
		else
			add_queue_wait(s, wait);
}

static bool
lists_same(const ZklLocalWaiter *a, const ZklLocalWaiter *b)
{
	for (int i = 0; a->n_held == b->n_held && i < a->n_held; i++)
		if (a->held[i].key != b->held[i].key || a->held[i].kind != b->held[i].kind)
			return false;
	return a->n_held == b->n_held;
}

/*
 * Adds the edges of local waiters.  One that several sessions report needs all of them to go:
 * its first vertex also has their edges, for waits for its permits.  But not that of a report
 * that lists other holds: the verdict checks only the report of the edge, so that one must
 * show what the waiter holds, too.
 */
static void
add_local_waits(ZklSnapshot *s)
{
	ZklVertex  *first = NULL;

	for (ZklVertex *v = s->vertices; v < s->vertices + s->n; v++)
	{
		ZklEdge		edge = {v, zkl__snapshot_vertex(s, v->reporter), .waiter = v->waiter};

		if (v->waiter == NULL)
			continue;
		edge.is_hold = !v->waiter->only_for_place;
		add_edge(s, edge);
		if (first == NULL || first->session != v->session)
			first = v;
		else if (lists_same(first->waiter, v->waiter))
		{
			edge.from = first;
			add_edge(s, edge);
		}
	}
}

void
zkl__snapshot_add_edges(ZklSnapshot *s)
{
	add_local_waits(s);

	/* A session whose node is gone can proceed. */
	for (int i = 0; i < MAX_PLACES; i++)
		for (const Wait *wait = s->places[i] ? s->places[i]->waits : NULL; wait; wait = wait->next)
			if (wait->own == NULL)
				wait->vertex->can_proceed = true;
	for (int i = 0; i < MAX_PLACES; i++)
		if (s->places[i])
			add_waits(s, s->places[i]);
}
