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

void
zkl__refusal_info(const ZklRequest *request, ZklRequestInfo *info)
{
	const ZklNode *node = refused_node(request);

	info->is_refused = node != NULL;
	if (node == NULL)
		return;
	info->culprit = node->index;
	info->refused_by = zkl__node_predecessor(node);
}

void
zkl_request_refuse(ZklRequest *request, int64_t refused_by)
{
	ZklRequestInfo info = {0};

	zkl__session_lock(request->session);
	request->kind->on_info(request, &info);
	if (info.is_refused && info.refused_by == refused_by)
		zkl__request_fail(request, ZKL_BUSY, info.culprit, 0);
	zkl__session_unlock(request->session);
}

void
zkl_request_wait(ZklRequest *request, int64_t refused_by)
{
	ZklNode    *node;

	zkl__session_lock(request->session);
	node = refused_node(request);
	if (node && node->state == NODE_REFUSED && zkl__node_predecessor(node) == refused_by)
	{
		node->state = NODE_READING;
		zkl__node_drive(node);
	}
	zkl__session_unlock(request->session);
}
