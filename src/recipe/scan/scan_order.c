/*-------------------------------------------------------------------------
 *
 * scan_order.c
 *		Determines from the nodes that a scan has read who holds and who waits.
 *
 * Does no I/O.  Called by scan.c when everything is read.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* The existing nodes, in the order of the result. */
typedef struct Nodes
{
	ZklScanItem **items;
	int			n;
	ZklQueued  *queue;			/* as many elements */
} Nodes;

/* Sorts by kind, name and role, then by czxid, which is the order of permits. */
static int
compare(const void *a, const void *b)
{
	const ZklScanItem *x = *(ZklScanItem *const *) a;
	const ZklScanItem *y = *(ZklScanItem *const *) b;
	int			order;

	if (x->object->kind != y->object->kind)
		return x->object->kind < y->object->kind ? -1 : 1;
	order = strcmp(x->object->name, y->object->name);
	if (order != 0)
		return order;
	if (x->role != y->role)
		return x->role < y->role ? -1 : 1;
	if (x->entry.token != y->entry.token)
		return x->entry.token < y->entry.token ? -1 : 1;
	return strcmp(x->path, y->path);
}

static bool
same_object(const ZklScanItem *a, const ZklScanItem *b)
{
	return a->object->kind == b->object->kind &&
		strcmp(a->object->name, b->object->name) == 0;
}

/* Returns the first index after "from" of another lock or semaphore, or not with *role. */
static int
end_of(const Nodes *nodes, int from, const ZklRole *role)
{
	int			i = from;

	while (i < nodes->n && same_object(nodes->items[from], nodes->items[i]) &&
		   (role == NULL || nodes->items[i]->role == *role))
		i++;
	return i;
}

/* Sorts the nodes of one queue, all of which are contenders. */
static void
sort_queue(Nodes *nodes, int from, int to)
{
	for (int i = from; i < to; i++)
	{
		ZklScanItem *item = nodes->items[i];

		nodes->queue[i].name = item->child;
		nodes->queue[i].item = item;
		zkl_parse_child(item->child, &nodes->queue[i].contender);
	}
	zkl_sort_queue(nodes->queue + from, to - from);
	for (int i = from; i < to; i++)
		nodes->items[i] = nodes->queue[i].item;
}

/* Sets mode, position and token of the nodes in the queue of a lock. */
static void
decide_lock(Nodes *nodes, int from, int to)
{
	ZklQueued  *queue = nodes->queue + from;
	int			waiting = 0;

	sort_queue(nodes, from, to);
	zkl_grant_queue(queue, to - from);
	for (int i = 0; i < to - from; i++)
	{
		ZklScanItem *item = queue[i].item;

		item->entry.mode = queue[i].contender.writer ? ZKL_MODE_EXCLUSIVE
			: ZKL_MODE_SHARED;
		item->entry.position = queue[i].granted ? 0 : ++waiting;
		if (queue[i].anchor >= 0)
		{
			ZklScanItem *anchor = queue[queue[i].anchor].item;

			item->entry.token = anchor->entry.token;
			anchor->is_anchor = anchor->is_anchor || queue[i].granted;
		}
	}
}

/* Returns the first waiter in the queue of Curator's layout, or NULL. */
static ZklScanItem *
first_waiter(Nodes *nodes, int from, int to)
{
	for (int i = from; i < to; i++)
		if (nodes->items[i]->role == ROLE_WAITER)
			return nodes->items[i];
	return NULL;
}

/*
 * In Curator's recipe, the first waiter creates its permit node at once and then
 * waits until there are not too many.  If the capacity is unknown, the last permit
 * node is taken for such a node if its session is also the first waiter.  The two
 * nodes become one entry of a waiter.
 */
static void
decide_permits(Nodes *nodes, int from, int to, int capacity, int *waiting)
{
	const ZklRole permit = ROLE_PERMIT;
	int			n = end_of(nodes, from, &permit) - from;
	ZklScanItem *first = first_waiter(nodes, from, to);

	for (int i = 0; i < n; i++)
	{
		ZklScanItem *item = nodes->items[from + i];
		bool		own = first && item->entry.session_id != 0 &&
			item->entry.session_id == first->entry.session_id;

		if (capacity > 0 ? i < capacity : i < n - 1 || !own)
			continue;
		item->entry.position = ++*waiting;
		if (own)
			first->is_seen = false;
	}
}

static void
decide_semaphore(Nodes *nodes, int from, int to)
{
	int			capacity = 0;
	int			waiting = 0;

	for (int i = from; i < to; i++)
		if (nodes->items[i]->object->capacity > capacity)
			capacity = nodes->items[i]->object->capacity;
	for (int i = from, end; i < to; i = end)
	{
		end = end_of(nodes, i, &nodes->items[i]->role);
		if (nodes->items[i]->role >= ROLE_WAITER)
			sort_queue(nodes, i, end);
	}
	decide_permits(nodes, from, to, capacity, &waiting);
	for (int i = from; i < to; i++)
		if (nodes->items[i]->role >= ROLE_WAITER && nodes->items[i]->is_seen)
			nodes->items[i]->entry.position = ++waiting;
}

static void
collect(ZklScan *scan, Nodes *nodes)
{
	for (ZklScanItem *item = scan->items; item; item = item->next)
	{
		ZklEntry   *entry = &item->entry;

		if (item->kind != ITEM_NODE || !item->is_seen)
			continue;
		item->child = strrchr(item->path, '/') + 1;
		entry->kind = item->object->kind;
		entry->name = item->object->name;
		entry->path = item->path;
		entry->maker = zkl_maker(item->child, entry->session_id);
		entry->data = item->data;
		nodes->items[nodes->n++] = item;
	}
	if (nodes->n > 1)
		qsort(nodes->items, (size_t) nodes->n, sizeof(ZklScanItem *), compare);
}

/* Decides which nodes hold, and makes the entries; returns false if out of memory. */
bool
zkl__scan_order(ZklScan *scan)
{
	size_t		room = (size_t) scan->n_items + 1;
	Nodes		nodes = {
		.items = malloc(room * sizeof(ZklScanItem *)),
		.queue = malloc(room * sizeof(ZklQueued))
	};
	bool		complete;

	scan->entries = malloc(room * sizeof(ZklEntry));
	complete = nodes.items && nodes.queue && scan->entries;
	if (complete)
		collect(scan, &nodes);
	for (int from = 0, to; from < nodes.n; from = to)
	{
		to = end_of(&nodes, from, NULL);
		if (nodes.items[from]->object->kind == ZKL_KIND_LOCK)
			decide_lock(&nodes, from, to);
		else
			decide_semaphore(&nodes, from, to);
	}
	for (int i = 0; i < nodes.n; i++)
		if (nodes.items[i]->is_seen)
			scan->entries[scan->n_entries++] = nodes.items[i]->entry;
	free(nodes.items);
	free(nodes.queue);
	return complete;
}
