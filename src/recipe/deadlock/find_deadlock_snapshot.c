/*-------------------------------------------------------------------------
 *
 * find_deadlock_snapshot.c
 *		Collects what a search reads, and says what it must read next.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "find_deadlock_internal.h"


/*
 * Bounds
 */

void
zkl__snapshot_count(ZklSnapshot *s, int steps)
{
	if (steps > ZKL_SEARCH_MAX_STEPS - s->steps)
		zkl__scratch_leave(s->scratch, ZKL_LEFT_TOO_MUCH);
	s->steps += steps;
}

/* Counts the bytes of an answer. */
static void
count_bytes(ZklSnapshot *s, size_t bytes)
{
	s->bytes += bytes;
	if (s->bytes > ZKL_SEARCH_MAX_BYTES)
		zkl__scratch_leave(s->scratch, ZKL_LEFT_TOO_MUCH);
}

static void
want(ZklSnapshot *s, ZklWant wanted)
{
	if (s->n_wants == ZKL_SEARCH_MAX_READS)
		zkl__scratch_leave(s->scratch, ZKL_LEFT_TOO_MUCH);
	s->wants[s->n_wants++] = wanted;
}

ZklSnapshot *
zkl_snapshot_new(ZklScratch *scratch, uint64_t me)
{
	ZklSnapshot *s = zkl__scratch(scratch, 1, sizeof(ZklSnapshot));

	s->scratch = scratch;
	s->me = me;
	return s;
}


/*
 * Sessions that wait
 */

static int
compare_vertices(const void *a, const void *b)
{
	const ZklVertex *x = a;
	const ZklVertex *y = b;

	if (x->session != y->session)
		return x->session < y->session ? -1 : 1;
	return x->reporter < y->reporter ? -1 : x->reporter > y->reporter;
}

ZklVertex *
zkl__snapshot_vertex(const ZklSnapshot *s, uint64_t session)
{
	int			low = 0;
	int			high = s->n;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (s->vertices[middle].session < session)
			low = middle + 1;
		else
			high = middle;
	}
	return low < s->n && s->vertices[low].session == session ? &s->vertices[low] : NULL;
}

ZklVertex *
zkl__snapshot_next_vertex(ZklSnapshot *s, ZklVertex *v)
{
	zkl__snapshot_count(s, 1);
	return v + 1 < s->vertices + s->n && v[1].session == v->session ? v + 1 : NULL;
}

/* Wants the report of a session, if it has one. */
static void
want_report(ZklSnapshot *s, uint64_t session)
{
	ZklVertex  *v = zkl__snapshot_vertex(s, session);
	ZklWant		wanted = {.kind = ZKL_WANT_REPORT, .session = session};

	if (v == NULL || v->reporter != 0 || v->is_wanted)
		return;
	v->is_wanted = true;
	want(s, wanted);
}

void
zkl_snapshot_add_waiting(ZklSnapshot *s, const char *const *children, int n)
{
	s->vertices = zkl__scratch(s->scratch, (size_t) n + 1, sizeof(ZklVertex));
	for (int i = 0; i < n; i++)
	{
		uint64_t	session;
		uint64_t	local;

		count_bytes(s, strlen(children[i]) + 1);
		if (zkl_parse_waiting(children[i], &session, &local))
			s->vertices[s->n++] = (ZklVertex)
		{
			.session = local ? local : session,.reporter = local ? session : 0
		};
	}
	qsort(s->vertices, (size_t) s->n, sizeof(ZklVertex), compare_vertices);
	want_report(s, s->me);
}


/*
 * Places
 */

/* Returns where the place is in the hash table, or would be. */
static Place **
place_at(ZklSnapshot *s, ZklWaitPlace place, const char *name)
{
	uint64_t	h = zkl_hash((uint64_t) place, name, strlen(name)) % MAX_PLACES;

	while (s->places[h] &&
		   (s->places[h]->place != place || strcmp(s->places[h]->name, name) != 0))
		h = (h + 1) % MAX_PLACES;
	return &s->places[h];
}

/* Returns a node of the place, or NULL. */
static const ZklQueued *
find_node(const Place *place, const char *child)
{
	ZklQueued	key = {.name = child};

	if (place->n == 0 ||
		(place->place != ZKL_PLACE_PERMITS && !zkl_parse_child(child, &key.contender)))
		return NULL;
	key.distance = (uint32_t) key.contender.number -
		((uint32_t) place->nodes[0].contender.number - place->nodes[0].distance);
	return bsearch(&key, place->nodes, (size_t) place->n, sizeof(ZklQueued), zkl_compare_queued);
}

/*
 * Finds the node of a wait whose place has been read, and wants the reports of the sessions
 * that may block it, and of those that block them locally: all with a node before its own,
 * or with a permit.
 */
static void
search_before(ZklSnapshot *s, Wait *wait)
{
	Place	   *place = wait->place;
	const ZklQueued *own = find_node(place, wait->node->child);
	int			end;

	if (own == NULL || !own->contender.has_owner || own->contender.owner != wait->vertex->session)
		return;
	wait->own = own;
	end = place->place == ZKL_PLACE_PERMITS ? place->n : (int) (own - place->nodes);
	for (; place->seen < end; place->seen++)
		for (ZklVertex *v = place->nodes[place->seen].item; v; v = zkl__snapshot_next_vertex(s, v))
			want_report(s, v->reporter ? v->reporter : v->session);
}

static void
note_wait(ZklSnapshot *s, ZklVertex *v, const ZklWaitNode *node)
{
	Place	  **place = place_at(s, node->place, node->name);
	Wait	   *wait = zkl__scratch(s->scratch, 1, sizeof(Wait));
	ZklWant		wanted = {.kind = ZKL_WANT_QUEUE, .place = node->place, .name = node->name};

	if (*place == NULL)
	{
		want(s, wanted);
		*place = zkl__scratch(s->scratch, 1, sizeof(Place));
		(*place)->place = node->place;
		(*place)->name = node->name;
	}
	*wait = (Wait)
	{
		.next = (*place)->waits, .place = *place, .vertex = v, .node = node
	};
	(*place)->waits = wait;
	search_before(s, wait);
}

void
zkl_snapshot_add_report(ZklSnapshot *s, uint64_t session, uint64_t owner, int64_t czxid,
						int32_t version, const char *data, int length)
{
	ZklVertex  *v = zkl__snapshot_vertex(s, session);
	const ZklReport *report;

	if (v == NULL || v->reporter != 0 || v->report || owner != session)
		return;
	count_bytes(s, (size_t) length);
	report = v->report = zkl_report_decode(s->scratch, data, length);
	v->czxid = czxid;
	v->version = version;
	for (int i = 0; report && i < report->n_nodes; i++)
		note_wait(s, v, &report->nodes[i]);
	for (int i = 0; report && i < report->n_waiters; i++)
		for (v = zkl__snapshot_vertex(s, (uint64_t) report->waiters[i].session_id); v;
			 v = zkl__snapshot_next_vertex(s, v))
			if (v->reporter == session)
				v->waiter = &report->waiters[i];
}

/* Stores a contender of a queue, or any child of a parent of permits. */
static void
store_node(ZklSnapshot *s, Place *place, const char *child)
{
	ZklQueued  *node = &place->nodes[place->n];

	if (place->place == ZKL_PLACE_PERMITS)
		node->contender.has_owner = zkl_parse_guid(child, &node->contender.owner,
												   &node->contender.guid_end) != NULL;
	else if (!zkl_parse_child(child, &node->contender))
		return;
	node->name = zkl__scratch_text(s->scratch, "%s", child);
	if (node->contender.has_owner)
		node->item = zkl__snapshot_vertex(s, node->contender.owner);
	place->n++;
}

void
zkl_snapshot_add_queue(ZklSnapshot *s, ZklWaitPlace which, const char *name, uint32_t key,
					   const char *const *children, int n)
{
	Place	   *place = *place_at(s, which, name);

	place->key = key;
	place->nodes = zkl__scratch(s->scratch, (size_t) n + 1, sizeof(ZklQueued));
	for (int i = 0; i < n; i++)
	{
		count_bytes(s, strlen(children[i]) + 1);
		store_node(s, place, children[i]);
	}
	zkl_sort_queue(place->nodes, place->n);
	if (which != ZKL_PLACE_PERMITS)
		zkl_grant_queue(place->nodes, place->n);
	for (Wait *wait = place->waits; wait; wait = wait->next)
		search_before(s, wait);
}

ZklWant
zkl_snapshot_next(ZklSnapshot *s)
{
	if (s->n_taken < s->n_wants)
		return s->wants[s->n_taken++];
	return (ZklWant)
	{
		.kind = ZKL_WANT_NOTHING
	};
}
