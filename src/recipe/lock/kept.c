/*-------------------------------------------------------------------------
 *
 * kept.c
 *		Nodes that stay in their queue after the lock was released, for the session's next
 *		request.
 *
 * A kept node is HELD, but belongs to no lock and no request.  It is not a hold: nothing
 * depends on it, it sends no proofs, and its loss is silent.  The same session takes it
 * again without a request, if the lease suffices for a grant.  Otherwise a proof comes
 * first; behind it the watch on the node shows whether the node exists (lock.c).
 *
 * A contender asks for the node (ask.c).  The watch on the node reports that, so the
 * node is read right after the grant, after each event, and on each new connection.  What
 * follows is decided with the session's mutex held, on the thread that reads the answer (hold_news.c).
 *
 * Other programs do not ask.  So every n T/12 the session looks at a queue with n
 * contenders in which it keeps a node, and asks on behalf of a waiter.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Sets the timer for the time at which a kept node is given up, or its queue is read. */
static void
set_due(const ZklNode *node)
{
	int64_t		at_ms = node->check_ms;

	if (node->is_kept && node->kept_until_ms < at_ms)
		at_ms = node->kept_until_ms;
	zkl__set_due(node->session, &zkl__locks(node->session)->kept_ms, at_ms);
}


/*
 * From held to kept, and back
 */

/* Returns whether the node of a lock that is released can stay. */
static bool
can_be_kept(const ZklLock *lock)
{
	const ZklNode *node = lock->anchor;

	return node && lock->writer_node == NULL && !lock->lost &&
		node->keep == ZKL_KEEP_MAY && node->state == NODE_HELD &&
		node->hold_watch_ms == 0 && zkl__is_connected(lock->session);
}

/* Releases the lock, and keeps its node if that is possible. */
void
zkl__lock_keep(ZklLock *lock, int keep_ms)
{
	ZklNode    *node = lock->anchor;

	if (!can_be_kept(lock))
	{
		zkl__lock_reduce(lock, ZKL_MODE_NONE);
		return;
	}
	node->lock = NULL;
	node->is_kept = true;
	node->was_kept = true;
	node->kept_until_ms = zkl_now_ms() + keep_ms;
	set_due(node);
	zkl__lock_free(lock);
}

/* Returns what is kept of a lock, or NULL. */
ZklNode *
zkl__kept_find(const ZklSession *session, const char *lock_path)
{
	ZklNode    *node = zkl__nodes_below(session, lock_path, strlen(lock_path));

	while (node && !node->is_kept)
		node = zkl__next_below(node);
	return node;
}

/* Gives up what is kept of a lock. */
void
zkl__kept_leave(ZklSession *session, const char *lock_path)
{
	ZklNode    *node = zkl__kept_find(session, lock_path);

	if (node)
		zkl__node_leave(node);
}

/*
 * Half of a server's default packet limit (jute.maxbuffer).  Bounds the paths of a
 * session's nodes, which the server writes into one closing transaction, and the
 * paths and data of one multi.
 */
#define PACKET_BYTES 500000

/* Returns whether the session's limits allow so many nodes, paths and data more. */
static bool
has_room(const ZklSession *session, int n_nodes, size_t path_bytes, size_t data_bytes)
{
	const ZklQueues *queues = zkl__queues(session);

	return n_nodes + queues->n_wanted <= zkl__config(session)->max_nodes &&
		path_bytes + queues->wanted_bytes <= PACKET_BYTES &&
		path_bytes + data_bytes <= PACKET_BYTES;
}

static int
compare_rests(const void *a, const void *b)
{
	const ZklNode *x = *(ZklNode *const *) a;
	const ZklNode *y = *(ZklNode *const *) b;

	return x->kept_until_ms < y->kept_until_ms ? -1 : x->kept_until_ms > y->kept_until_ms;
}

/* Returns the kept nodes, malloc'd, that with the shortest rest of its time first; NULL: none. */
static ZklNode **
sort_kept(const ZklSession *session, int *n)
{
	ZklNode   **kept;

	*n = 0;
	for (const ZklNode *node = zkl__nodes(session); node; node = node->next)
		*n += node->is_kept;
	kept = *n > 0 ? malloc((size_t) *n * sizeof(ZklNode *)) : NULL;
	*n = 0;
	for (ZklNode *node = zkl__nodes(session); kept && node; node = node->next)
		if (node->is_kept)
			kept[(*n)++] = node;
	if (kept)
		qsort(kept, (size_t) *n, sizeof(ZklNode *), compare_rests);
	return kept;
}

/*
 * Returns whether the session has room, as has_room(); gives up for it what is
 * kept, that with the shortest rest of its time first.
 */
bool
zkl__kept_make_room(ZklSession *session, int n_nodes, size_t path_bytes, size_t data_bytes)
{
	ZklNode   **kept;
	int			n;

	if (has_room(session, n_nodes, path_bytes, data_bytes))
		return true;
	kept = sort_kept(session, &n);
	zkl__deletes_begin(session);
	for (int i = 0; i < n && !has_room(session, n_nodes, path_bytes, data_bytes); i++)
		zkl__node_leave(kept[i]);
	zkl__deletes_end(session);
	free(kept);
	return has_room(session, n_nodes, path_bytes, data_bytes);
}

void
zkl__kept_leave_all(ZklSession *session)
{
	zkl__deletes_begin(session);
	for (ZklNode *node = zkl__nodes(session); node; node = node->next)
		if (node->is_kept)
			zkl__node_leave(node);
	zkl__deletes_end(session);
}


/* The lock has been granted with this node: from now on contenders may ask for it. */
void
zkl__kept_granted(ZklNode *node)
{
	node->check_ms = zkl_now_ms() + zkl__session_timeout_ms(node->session) / 12;
	zkl__hold_watch_node(node);
}


/*
 * Contenders that do not ask
 */

/* Returns the first waiter among the contenders, and their number; NULL if none waits. */
static const char *
find_waiter(const ZklResult *list, int *n)
{
	ZklPlace   *places = malloc(((size_t) list->n_children + 1) * sizeof(ZklPlace));
	const char *waiter = NULL;

	*n = places ? zkl_order_queue(list->children, list->n_children, places) : -1;
	for (int i = 0; i < *n && waiter == NULL; i++)
		if (places[i].position > 0)
			waiter = list->children[places[i].index];
	free(places);
	return waiter;
}

static void
on_queue_checked(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->subject;
	ZklSession *session = node->session;
	const char *waiter;
	int			n;

	if (result->code != ZKL_RC_OK)
		return;
	waiter = find_waiter(result, &n);
	node->check_ms = zkl_now_ms() + (int64_t) (n > 1 ? n : 1) * zkl__session_timeout_ms(session) / 12;
	if (waiter == NULL)
		return;
	zkl__ask_for_kept(session, node->lock_path, result, waiter);
	zkl__hold_found(node, ZKL_HOLD_FOUND_WAITER);
}

static void
check_queue(ZklNode *node, int64_t now)
{
	node->check_ms = now + zkl__session_timeout_ms(node->session) / 12;
	if (node->was_kept && zkl__is_connected(node->session))
		zkl__get_children(zkl__node_call(node, on_queue_checked), node->lock_path, ZKL_LIST_ANY, false);
	node->was_kept = node->is_kept;
}

/* Does what is due for kept nodes. */
void
zkl__kept_due(ZklSession *session)
{
	int64_t		now = zkl_now_ms();

	if (!zkl__take_due(session, &zkl__locks(session)->kept_ms, now))
		return;
	zkl__deletes_begin(session);
	for (ZklNode *node = zkl__nodes(session); node; node = node->next)
	{
		if (node->keep != ZKL_KEEP_MAY || node->state != NODE_HELD)
			continue;
		if (node->is_kept && now >= node->kept_until_ms)
		{
			zkl__hold_found(node, ZKL_HOLD_FOUND_TIME_UP);
			continue;
		}
		if (now >= node->check_ms)
			check_queue(node, now);
		if (node->was_kept)
			set_due(node);
	}
	zkl__deletes_end(session);
}
