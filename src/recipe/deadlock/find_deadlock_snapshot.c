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
 * Memory and bounds
 */

typedef struct Block
{
	struct Block *next;
	max_align_t start[];
} Block;

void *
zkl__snapshot_alloc(ZklSnapshot *s, size_t n, size_t size)
{
	Block	   *block = calloc(1, sizeof(Block) + n * size);

	if (block == NULL)
	{
		s->no_memory = true;
		return NULL;
	}
	block->next = s->blocks;
	s->blocks = block;
	return block->start;
}

ZklSnapshot *
zkl_snapshot_new(uint64_t me)
{
	ZklSnapshot *s = calloc(1, sizeof(ZklSnapshot));

	if (s)
		s->me = me;
	return s;
}

void
zkl_snapshot_free(ZklSnapshot *s)
{
	Block	   *next;

	if (s == NULL)
		return;
	for (int i = 0; i < s->n; i++)
		free(s->vertices[i].report);
	for (Block *block = s->blocks; block; block = next)
	{
		next = block->next;
		free(block);
	}
	free(s);
}

bool
zkl__snapshot_goes_on(ZklSnapshot *s, int steps)
{
	s->too_much = s->too_much || steps > ZKL_SEARCH_MAX_STEPS - s->steps;
	s->steps += s->too_much ? 0 : steps;
	return !s->too_much && !s->no_memory;
}

/* Counts the bytes of an answer; returns false if the search is beyond its bounds. */
static bool
has_room(ZklSnapshot *s, size_t bytes)
{
	s->bytes += bytes;
	s->too_much = s->too_much || s->bytes > ZKL_SEARCH_MAX_BYTES;
	return !s->too_much && !s->no_memory;
}

static void
want(ZklSnapshot *s, ZklWant wanted)
{
	if (s->n_wants == ZKL_SEARCH_MAX_READS)
		s->too_much = true;
	else
		s->wants[s->n_wants++] = wanted;
}


/*
 * Sessions that wait
 */

static int
compare_vertices(const void *a, const void *b)
{
	const Vertex *x = a;
	const Vertex *y = b;

	if (x->session != y->session)
		return x->session < y->session ? -1 : 1;
	return x->behind < y->behind ? -1 : x->behind > y->behind;
}

Vertex *
zkl__snapshot_vertex(const ZklSnapshot *s, uint64_t session, uint64_t behind)
{
	Vertex		key = {.session = session,.behind = behind};
	int			low = 0;
	int			high = s->n;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (compare_vertices(&s->vertices[middle], &key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < s->n && s->vertices[low].session == session ? &s->vertices[low] : NULL;
}

Vertex *
zkl__snapshot_next_vertex(const ZklSnapshot *s, Vertex *v)
{
	return v + 1 < s->vertices + s->n && v[1].session == v->session ? v + 1 : NULL;
}

static void
want_report(ZklSnapshot *s, uint64_t session)
{
	Vertex	   *v = zkl__snapshot_vertex(s, session, 0);
	ZklWant		wanted = {.kind = ZKL_WANT_REPORT, .session = session};

	if (v == NULL || v->behind != 0 || v->is_wanted)
		return;
	v->is_wanted = true;
	want(s, wanted);
}

void
zkl_snapshot_add_waiting(ZklSnapshot *s, const char *const *children, int n)
{
	s->vertices = zkl__snapshot_alloc(s, (size_t) n + 1, sizeof(Vertex));
	for (int i = 0; i < n && has_room(s, strlen(children[i]) + 1); i++)
	{
		uint64_t	session;
		uint64_t	local;

		if (zkl_parse_waiting(children[i], &session, &local))
			s->vertices[s->n++] = (Vertex)
		{
			.session = local ? local : session,.behind = local ? session : 0
		};
	}
	if (s->n > 1)
		qsort(s->vertices, (size_t) s->n, sizeof(Vertex), compare_vertices);
	want_report(s, s->me);
}


/*
 * Places
 */

Place **
zkl__snapshot_place(ZklSnapshot *s, ZklWaitPlace place, const char *name)
{
	uint32_t	h = (uint32_t) place;

	for (const char *c = name; *c; c++)
		h = h * 16777619u + (unsigned char) *c;
	h %= MAX_PLACES;
	while (s->places[h] &&
		   (s->places[h]->place != place || strcmp(s->places[h]->name, name) != 0))
		h = (h + 1) % MAX_PLACES;
	return &s->places[h];
}

/*
 * Wants the reports of the sessions that may block this wait, and of those that block them
 * locally: all with a node before its own, or with a permit.
 */
static void
follow(ZklSnapshot *s, const Wait *wait)
{
	Place	   *place = wait->place;
	const ZklQueued *own = zkl__place_find(place, wait->node->child);
	int			end = own == NULL ? 0
		: place->place == ZKL_PLACE_PERMITS ? place->n : (int) (own - place->nodes);

	for (; place->seen < end; place->seen++)
		for (Vertex *v = place->nodes[place->seen].item; v; v = zkl__snapshot_next_vertex(s, v))
			want_report(s, v->behind ? v->behind : v->session);
}

/* Notes a node with which the session waits; the first one, if it names several of a place. */
static void
add_wait(ZklSnapshot *s, Vertex *v, const ZklReportNode *node)
{
	Place	  **place = zkl__snapshot_place(s, node->place, node->name);
	Wait	   *wait = zkl__snapshot_alloc(s, 1, sizeof(Wait));
	ZklWant		wanted = {.kind = ZKL_WANT_QUEUE, .place = node->place, .name = node->name};

	if (*place == NULL)
	{
		want(s, wanted);
		if (s->too_much || (*place = zkl__snapshot_alloc(s, 1, sizeof(Place))) == NULL)
			return;
		(*place)->place = node->place;
		(*place)->name = node->name;
	}
	if (wait == NULL || ((*place)->waits && (*place)->waits->vertex == v))
		return;
	*wait = (Wait)
	{
		.next = (*place)->waits, .place = *place, .vertex = v, .node = node
	};
	(*place)->waits = wait;
	follow(s, wait);
}

/* Two reports may name a local waiter; each has its own vertex. */
static void
add_local_waiter(ZklSnapshot *s, uint64_t session, const ZklReportWaiter *waiter)
{
	Vertex	   *v = zkl__snapshot_vertex(s, waiter->session, session);

	if (v && v->behind == session)
		v->waiter = waiter;
}

void
zkl_snapshot_add_report(ZklSnapshot *s, uint64_t session, uint64_t owner, int64_t czxid,
						int32_t version, const char *data, int length)
{
	Vertex	   *v = zkl__snapshot_vertex(s, session, 0);

	if (v == NULL || v->behind != 0 || v->report || owner != session || length < 0 ||
		!has_room(s, (size_t) length))
		return;
	v->report = zkl_report_decode(data, length);
	v->czxid = czxid;
	v->version = version;
	for (int i = 0; v->report && i < v->report->n_nodes; i++)
		add_wait(s, v, &v->report->nodes[i]);
	for (int i = 0; v->report && i < v->report->n_waiters; i++)
		add_local_waiter(s, session, &v->report->waiters[i]);
}

static int
compare_nodes(const void *a, const void *b)
{
	const ZklQueued *x = a;
	const ZklQueued *y = b;

	if (x->distance != y->distance)
		return x->distance < y->distance ? -1 : 1;
	return strcmp(x->name, y->name);
}

const ZklQueued *
zkl__place_find(const Place *place, const char *child)
{
	ZklQueued	key = {.name = child};

	if (place->n == 0 ||
		(place->place != ZKL_PLACE_PERMITS && !zkl_parse_child(child, &key.contender)))
		return NULL;
	key.distance = (uint32_t) key.contender.number -
		((uint32_t) place->nodes[0].contender.number - place->nodes[0].distance);
	return bsearch(&key, place->nodes, (size_t) place->n, sizeof(ZklQueued), compare_nodes);
}

/* Stores a contender of a queue, or any child of a parent of permits. */
static void
add_node(ZklSnapshot *s, Place *place, const char *child)
{
	ZklQueued  *node = &place->nodes[place->n];
	size_t		size = strlen(child) + 1;
	char	   *name;

	if (place->place == ZKL_PLACE_PERMITS)
		node->contender.has_owner = zkl_parse_owner(child, &node->contender.owner);
	else if (!zkl_parse_child(child, &node->contender))
		return;
	name = zkl__snapshot_alloc(s, size, 1);
	if (name == NULL)
		return;
	node->name = memcpy(name, child, size);
	if (node->contender.has_owner)
		node->item = zkl__snapshot_vertex(s, node->contender.owner, 0);
	place->n++;
}

void
zkl_snapshot_add_queue(ZklSnapshot *s, ZklWaitPlace which, const char *name, uint32_t key,
					   const char *const *children, int n)
{
	Place	   *place = *zkl__snapshot_place(s, which, name);

	if (place == NULL || place->is_read)
		return;
	place->nodes = zkl__snapshot_alloc(s, (size_t) n + 1, sizeof(ZklQueued));
	for (int i = 0; i < n && has_room(s, strlen(children[i]) + 1); i++)
		add_node(s, place, children[i]);
	if (s->no_memory || s->too_much)
		return;
	place->is_read = true;
	place->key = key;
	zkl_sort_queue(place->nodes, place->n);
	if (which != ZKL_PLACE_PERMITS)
		zkl_grant_queue(place->nodes, place->n);
	for (const Wait *wait = place->waits; wait; wait = wait->next)
		follow(s, wait);
}

ZklWant
zkl_snapshot_next(ZklSnapshot *s)
{
	while (s->n_taken < s->n_wants && !s->too_much && !s->no_memory)
	{
		const ZklWant *next = &s->wants[s->n_taken++];

		if (next->kind == ZKL_WANT_QUEUE ||
			zkl__snapshot_vertex(s, next->session, 0)->report == NULL)
			return *next;
	}
	return (ZklWant)
	{
		.kind = ZKL_WANT_NOTHING
	};
}
