/*-------------------------------------------------------------------------
 *
 * refusal.c
 *		A non-blocking request with another contender first: refuse or wait.
 *
 * Only the owner can find out which sessions belong to its server and what these
 * have released by now.  So the owner gets the session of the predecessor, which was
 * listed behind a sync, and decides.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/*
 * Returns a node that has a predecessor, or NULL.  A node for which the owner has to
 * decide comes before a node that waits already.
 */
static ZklNode *
refused_node(const ZklRequest *request)
{
	ZklNode    *found = NULL;

	if (request->status != ZKL_PENDING || !request->non_blocking)
		return NULL;
	for (int i = 0; i < request->n; i++)
	{
		ZklNode    *node = request->nodes[i];

		if (node->state == NODE_REFUSED)
			return node;
		if (found == NULL && (node->state == NODE_READING || node->state == NODE_WAITING))
			found = node;
	}
	return found;
}

/* Returns the node that this session's contender keeps from the lock, or NULL. */
static ZklNode *
node_refused_by(const ZklRequest *request, int64_t session)
{
	ZklNode    *node = refused_node(request);

	return node && zkl__node_predecessor(node) == session ? node : NULL;
}

int
zkl__refused_item(const ZklRequest *request, int64_t refused_by)
{
	const ZklNode *node = node_refused_by(request, refused_by);

	return node ? node->index : -1;
}

void
zkl__refusal_info(const ZklRequest *request, ZklRequestInfo *info)
{
	const ZklNode *node = refused_node(request);

	info->is_refused = node != NULL;
	if (node)
		info->refused_by = zkl__node_predecessor(node);
}

void
zkl_request_refuse(ZklRequest *request, int64_t refused_by)
{
	int			item;

	zkl__session_lock(request->session);
	item = request->kind->refused_item(request, refused_by);
	if (item >= 0)
		zkl__request_fail(request, ZKL_BUSY, item, 0);
	zkl__session_unlock(request->session);
}

void
zkl_request_wait(ZklRequest *request, int64_t refused_by)
{
	ZklNode    *node;

	zkl__session_lock(request->session);
	node = node_refused_by(request, refused_by);
	if (node && node->state == NODE_REFUSED)
	{
		node->state = NODE_READING;
		zkl__node_drive(node);
	}
	zkl__session_unlock(request->session);
}
