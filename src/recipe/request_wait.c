/*-------------------------------------------------------------------------
 *
 * request_wait.c
 *		With which nodes a request waits, for the detector of deadlocks.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* Does the request hold the mutex of a semaphore that is full? */
static bool
waits_for_permit(const ZklRequest *request)
{
	return request->permit && !request->non_blocking && zkl__request_is_first(request) &&
		request->permit->seen == SEEN_FULL && request->permit_node;
}

/*
 * Is a node given up that still exists, or a writer's node about to become a reader's?
 * Waits for it end by themselves, so the session reports nothing meanwhile.
 */
static bool
has_pending_releases(const ZklSession *session)
{
	for (const ZklNode *node = zkl__nodes(session); node; node = node->next)
		if (zkl__node_is_pending_delete(node) || zkl__node_is_moving(node))
			return true;
	return false;
}

/* Does the request wait, and no node of it change its state? */
static bool
has_settled(const ZklRequest *request)
{
	bool		any;

	/* First: the nodes of a request that is decided may be freed. */
	if (request->status != ZKL_PENDING || has_pending_releases(request->session))
		return false;
	any = waits_for_permit(request);
	for (int i = 0; i < request->n; i++)
	{
		const ZklNode *node = request->nodes[i];

		if (zkl__node_has_predecessor(node))
			any = true;
		else if (node->state != NODE_HELD)
			return false;
	}
	return any;
}

/*
 * Does the writer wait right behind a reader, or another program's writer?  A reader behind
 * it waits for it, but not for the readers before it.  Of several writers between, one report
 * suffices: that of the first one that is a session of zklock, as the later ones wait for it.
 * This looks at the predecessor alone, which the node watches.  Whether there is a reader
 * anywhere before is not known: a list shows that only until a holder downgrades its lock.
 */
static bool
keeps_readers_from_readers(const ZklNode *node)
{
	ZklContender predecessor;

	return node->mode == ZKL_MODE_EXCLUSIVE && zkl__node_predecessor(node, &predecessor) &&
		!(predecessor.writer && zkl_is_zklocks(&predecessor));
}

/*
 * Can another session wait for this one, apart from its local waiters?  For one that holds
 * nothing and waits with one node, others wait only where they also wait for its blockers,
 * with one exception.
 */
static bool
may_block(const ZklRequest *request)
{
	if (request->n > 1)
		return true;
	for (const ZklNode *node = zkl__nodes(request->session); node; node = node->next)
		if (node->state == NODE_HELD || node->lock)
			return true;
	return request->permit == NULL && keeps_readers_from_readers(request->nodes[0]);
}


/*
 * The copy for the owner
 */

/* The nodes of the queues, and, while the request waits for a permit, the permit node. */
static const ZklNode *
node_at(const ZklRequest *request, int i)
{
	return i < request->n ? request->nodes[i] : request->permit_node;
}

static const char *
last_component(const ZklRequest *request, const ZklNode *node)
{
	return strrchr(request->permit ? request->permit->semaphore_path : node->lock_path, '/') + 1;
}

static ZklWaitPlace
place_of(const ZklRequest *request, const ZklNode *node)
{
	if (request->permit == NULL)
		return ZKL_PLACE_LOCK;
	return node == request->permit_node ? ZKL_PLACE_PERMITS : ZKL_PLACE_MUTEX;
}

/* Copies a text to *room, and moves that behind it. */
static const char *
copy_text(char **room, const char *text)
{
	const char *copy = *room;

	*room = stpcpy(*room, text) + 1;
	return copy;
}

static ZklWait *
copy_wait(const ZklRequest *request)
{
	int			n = has_settled(request) ? request->n + waits_for_permit(request) : 0;
	size_t		size = sizeof(ZklWait) + (size_t) n * sizeof(ZklWaitNode);
	ZklWait    *wait;
	char	   *room;

	for (int i = 0; i < n; i++)
		size += strlen(last_component(request, node_at(request, i))) + 1 + ZKL_CHILD_NAME_SIZE;
	wait = calloc(1, size);
	if (wait == NULL)
		return NULL;
	room = (char *) &wait->nodes[n];
	for (int i = 0; i < n; i++)
	{
		const ZklNode *node = node_at(request, i);

		if (request->permit == NULL && !zkl__node_has_predecessor(node))
			continue;
		wait->nodes[wait->n_nodes++] = (ZklWaitNode)
		{
			.place = place_of(request, node),
				.name = copy_text(&room, last_component(request, node)),
				.child = copy_text(&room, node->name),
				.capacity = request->permit ? request->permit->capacity : 0
		};
	}
	wait->may_block = n > 0 && may_block(request);
	return wait;
}

ZklWait *
zkl_request_wait(ZklRequest *request)
{
	ZklSession *session = request->session;
	ZklWait    *wait;

	zkl__enter(session);
	wait = copy_wait(request);
	zkl__leave(session);
	return wait;
}
