/*-------------------------------------------------------------------------
 *
 * request_nodes.c
 *		The nodes of requests and locks: allocation, and the handlers of what they
 *		report.
 *
 *-------------------------------------------------------------------------
 */
#include "internal.h"


/*
 * Nodes of a request
 */

static void
on_lookup(ZklNode *node)
{
	ZklRequest *request = node->request;

	zkl__request_created(request);
	zkl__request_drive(request);
}

static void
on_listing(ZklNode *node)
{
	node->request->kind->on_drive(node->request);
}

static void
on_first(ZklNode *node)
{
	zkl__request_check_granted(node->request);
}

static void
on_behind(ZklNode *node)
{
	if (node->request->kind)
		node->request->kind->on_drive(node->request);
}

static void
on_blocked(ZklNode *node, const ZklResult *data)
{
	zkl__request_blocked(node->request, node->index, data);
}

static void
on_removed(ZklNode *node)
{
	zkl__request_restart(node->request);
}

static void
on_failed(ZklNode *node, ZklStatus status, int raw_code)
{
	zkl__request_fail(node->request, status, node->index, raw_code);
}

static const ZklNode *
anchor(const ZklNode *node)
{
	const ZklLock *held = node->request->locks[node->index];

	return held->lost ? NULL : held->anchor;
}

static void
on_anchor_lost(ZklNode *node)
{
	zkl__lock_lose(node->request->locks[node->index]);
}


/*
 * Nodes of a lock
 */

static void
on_moved(ZklNode *node)
{
	node->revoked_version = 0;
	zkl__hold_watch_later(node);
}

static void
on_move_ended(ZklNode *node)
{
	zkl__confirm_drive(node->session);
}

static const ZklNodeOwner owner = {
	.on_lookup = on_lookup,
	.on_listing = on_listing,
	.on_first = on_first,
	.on_behind = on_behind,
	.on_blocked = on_blocked,
	.on_removed = on_removed,
	.on_failed = on_failed,
	.anchor = anchor,
	.on_anchor_lost = on_anchor_lost,
	.on_moved = on_moved,
	.on_move_ended = on_move_ended,
	.on_lost = zkl__lock_node_lost,
};

ZklNode *
zkl__request_node_new(ZklRequest *request, int index, const char *lock_path,
					  ZklMode mode, bool upgrade)
{
	ZklNode    *node = zkl__node_new(request->session, &owner, lock_path, mode,
									 request->node_names, request->data, request->data_len);

	if (node == NULL)
		return NULL;
	node->upgrade = upgrade;
	node->is_try = request->try_only && !request->kind;
	node->request = request;
	node->index = index;
	node->parts = request->kind ? request->kind->parts : NULL;
	return node;
}
