/*-------------------------------------------------------------------------
 *
 * queue_order.c
 *		A node's position in a queue, and which nodes hold the lock.
 *
 * Declared in queue_order.h and batch.h.  Does no I/O; called on any thread.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "queue_order.h"

bool
zkl_is_before(int32_t a_number, const char *a_name,
			  int32_t b_number, const char *b_name)
{
	uint32_t	distance = (uint32_t) b_number - (uint32_t) a_number;

	if (distance == 0)
		return strcmp(a_name, b_name) < 0;
	if (distance == UINT32_C(0x80000000))
		return a_number < b_number;
	return distance < UINT32_C(0x80000000);
}


/*
 * Sorted queues
 */

/*
 * Compares distances from one of the numbers, which is a total order for any
 * numbers.  Comparing the numbers themselves is not, because they wrap.
 */
int
zkl_compare_queued(const void *a, const void *b)
{
	const ZklQueued *qa = a;
	const ZklQueued *qb = b;

	if (qa->distance != qb->distance)
		return qa->distance < qb->distance ? -1 : 1;
	return strcmp(qa->name, qb->name);
}

/* Sorts by the distance from a number that all the others are behind. */
static void
sort_from(ZklQueued *queue, int n, uint32_t origin)
{
	for (int i = 0; i < n; i++)
		queue[i].distance = (uint32_t) queue[i].contender.number - origin;
	if (n > 1)
		qsort(queue, (size_t) n, sizeof(ZklQueued), zkl_compare_queued);
}

void
zkl_sort_queue(ZklQueued *queue, int n)
{
	if (n > 0)
		sort_from(queue, n, (uint32_t) queue[0].contender.number + UINT32_C(0x80000000));
}

/* Returns the index of the first writer in a sorted queue, or n. */
static int
first_writer(const ZklQueued *queue, int n)
{
	int			first = 0;

	while (first < n && !queue[first].contender.writer)
		first++;
	return first;
}

static bool
same_owner(const ZklQueued *a, const ZklQueued *b)
{
	return a->contender.has_owner && b->contender.has_owner &&
		a->contender.owner == b->contender.owner;
}

/* Sorts by owner, then by position in the queue. */
static int
compare_anchors(const void *a, const void *b)
{
	const ZklQueued *x = *(ZklQueued *const *) a;
	const ZklQueued *y = *(ZklQueued *const *) b;

	if (x->contender.owner != y->contender.owner)
		return x->contender.owner < y->contender.owner ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* Sets each writer's anchor: its session's first reader among the first n_readers. */
static void
find_anchors(ZklQueued *queue, int n, int n_readers)
{
	ZklQueued **sorted = malloc(((size_t) n + 1) * sizeof(ZklQueued *));
	ZklQueued  *reader = NULL;
	int			n_sorted = 0;

	for (int i = 0; i < n; i++)
	{
		queue[i].anchor = -1;
		if (sorted && queue[i].contender.has_owner &&
			(queue[i].contender.writer || i < n_readers))
			sorted[n_sorted++] = &queue[i];
	}
	if (n_sorted > 1)
		qsort(sorted, (size_t) n_sorted, sizeof(ZklQueued *), compare_anchors);
	for (int i = 0; i < n_sorted; i++)
	{
		if (reader && reader->contender.owner != sorted[i]->contender.owner)
			reader = NULL;
		if (sorted[i]->contender.writer)
			sorted[i]->anchor = reader ? (int) (reader - queue) : -1;
		else if (reader == NULL)
			reader = sorted[i];
	}
	free(sorted);
}

/*
 * The readers up to the first writer's number hold the lock.  So does one of the
 * writers of that number: the first whose session owns all readers before the
 * number, or the first of all if there are no such readers.
 */
void
zkl_grant_queue(ZklQueued *queue, int n)
{
	int			first = first_writer(queue, n);
	int			n_readers;		/* before the first writer's number */
	bool		alone = true;	/* all of these belong to one session */
	bool		taken = false;

	for (n_readers = first; n_readers > 0 && first < n &&
		 queue[n_readers - 1].distance == queue[first].distance;)
		n_readers--;
	for (int i = 1; i < n_readers; i++)
		alone = alone && same_owner(&queue[0], &queue[i]);
	find_anchors(queue, n, n_readers);
	for (int i = 0; i < n; i++)
	{
		ZklQueued  *q = &queue[i];
		bool		early = first == n || q->distance <= queue[first].distance;

		q->granted = early && (!q->contender.writer ||
							   (!taken && (n_readers == 0 || (alone && q->anchor >= 0))));
		taken = taken || (q->granted && q->contender.writer);
	}
}


/*
 * The position of one node
 */

static bool
is_among(const char *name, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

/*
 * An upgrade waits only for readers that may hold the lock: those before the first
 * foreign writer.  Readers behind that writer wait for it, and would be granted if it
 * gave up.  So the upgrade first moves its own node up to the writer's number, where it
 * blocks these readers as well.
 *
 * If one of the readers before has an upgrade that waits before this one, both would wait for each
 * other.  If memory is exhausted, find_anchors() finds none: then the deadlock search of the waiting
 * sessions finds the deadlock, later.
 */
static ZklPosition
position_of_upgrade(ZklQueued *before, int n, const ZklContender *own, const char **other)
{
	int			n_holders = first_writer(before, n);

	find_anchors(before, n, n_holders);
	for (int i = n_holders; i < n; i++)
		if (before[i].anchor >= 0 && before[i].contender.owner != own->owner &&
			zkl_is_upgrade(&before[i].contender))
		{
			*other = before[i].name;
			return ZKL_POSITION_DEADLOCK;
		}
	if (n_holders < n && before[n_holders].contender.number != own->number)
	{
		*other = before[n_holders].name;
		return ZKL_POSITION_MOVE_UP;
	}
	if (n_holders == 0)
		return ZKL_POSITION_FIRST;
	*other = before[n_holders - 1].name;
	return ZKL_POSITION_WAITS;
}

/* A reader waits for the nearest writer before it, a writer for the nearest node. */
static ZklPosition
position_of_newcomer(const ZklQueued *before, int n, bool writer, const char **other)
{
	for (int i = n - 1; i >= 0; i--)
		if (writer || before[i].contender.writer)
		{
			*other = before[i].name;
			return ZKL_POSITION_WAITS;
		}
	return ZKL_POSITION_FIRST;
}

ZklPosition
zkl_position(const char *const *children, int n_children,
			 const char *const *mine, int n_mine,
			 bool is_upgrade, const char **other)
{
	ZklContender own;
	ZklQueued  *before;
	ZklPosition position;
	bool		has_anchor = !is_upgrade;
	int			n = 0;

	*other = NULL;
	for (int i = 1; i < n_mine; i++)
		has_anchor |= is_among(mine[i], children, n_children);
	if (!has_anchor)
		return ZKL_POSITION_NO_ANCHOR;
	if (!is_among(mine[0], children, n_children) || !zkl_parse_child(mine[0], &own))
		return ZKL_POSITION_GONE;
	before = malloc((size_t) n_children * sizeof(ZklQueued));
	if (before == NULL)
		return ZKL_POSITION_NO_MEMORY;
	for (int i = 0; i < n_children; i++)
	{
		before[n].name = children[i];
		if (zkl_parse_child(children[i], &before[n].contender) &&
			zkl_is_before(before[n].contender.number, children[i], own.number, mine[0]) &&
			!is_among(children[i], mine, n_mine))
			n++;
	}
	sort_from(before, n, (uint32_t) own.number + 1);
	position = is_upgrade ? position_of_upgrade(before, n, &own, other)
		: position_of_newcomer(before, n, own.writer, other);
	free(before);
	return position;
}


/*
 * Reading a queue
 */

/* Returns the contenders, malloc'd, sorted and granted; NULL if out of memory. */
static ZklQueued *
read_queue(const char *const *children, int n_children, int *n)
{
	ZklQueued  *queue = calloc((size_t) n_children + 1, sizeof(ZklQueued));

	*n = 0;
	for (int i = 0; queue && i < n_children; i++)
		if (zkl_parse_child(children[i], &queue[*n].contender))
		{
			queue[*n].name = children[i];
			queue[(*n)++].index = i;
		}
	if (queue)
	{
		zkl_sort_queue(queue, *n);
		zkl_grant_queue(queue, *n);
	}
	return queue;
}

int
zkl_order_queue(const char *const *children, int n_children, ZklPlace *places)
{
	int			n;
	int			n_waiting = 0;
	ZklQueued  *queue = read_queue(children, n_children, &n);

	if (queue == NULL)
		return -1;
	for (int i = 0; i < n; i++)
		places[i] = (ZklPlace)
	{
		.index = queue[i].index,
			.mode = queue[i].contender.writer ? ZKL_MODE_EXCLUSIVE : ZKL_MODE_SHARED,
			.position = queue[i].granted ? 0 : ++n_waiting,
			.anchor = queue[i].anchor >= 0 ? queue[queue[i].anchor].index : -1,
	};
	free(queue);
	return n;
}
