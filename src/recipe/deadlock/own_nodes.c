/*-------------------------------------------------------------------------
 *
 * own_nodes.c
 *		Deletes of the znodes of this session's wait report.
 *
 * When a wait ends, its owner waits for nothing: each delete is sent at once, and again
 * until it succeeds.  All znodes are ephemeral, so they end with the session at the latest.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "detector.h"

typedef struct ZklOwnNode OwnNode;
struct ZklOwnNode
{
	OwnNode    *next;
	bool		is_sent;
	char		path[];
};

static OwnNode **
own_nodes(const ZklSession *session)
{
	return &zkl__parts(session)->own_nodes;
}

static void
forget(ZklSession *session, OwnNode *node)
{
	OwnNode   **link = own_nodes(session);

	while (*link != node)
		link = &(*link)->next;
	*link = node->next;
	free(node);
}

static void
on_own_node_deleted(ZklCall *call, const ZklResult *result)
{
	OwnNode    *node = call->subject;

	node->is_sent = false;
	if (result->code == ZKL_RC_OK || result->code == ZKL_RC_NO_NODE)
	{
		forget(call->session, node);
		zkl__wake(call->session);
	}
	else if (result->code != ZKL_RC_CONNECTION_LOSS)
		zkl__retry_later(call->session);
}

/* Sends the deletes that are not in flight; all of them later, if one was refused. */
void
zkl__own_nodes_advance(ZklSession *session)
{
	for (OwnNode *node = *own_nodes(session); node; node = node->next)
	{
		ZklOp		op = {.kind = ZKL_OP_DELETE, .path = node->path};

		if (!node->is_sent && zkl__is_connected(session) && !zkl__has_retry(session))
			node->is_sent = zkl__send(zkl__call_new(session, on_own_node_deleted, node, NULL), &op) != NULL;
	}
}

/* Deletes a znode, which may exist or not, without waiting.  Memory may be exhausted. */
void
zkl__own_nodes_delete(ZklSession *session, const char *parent, const char *name)
{
	OwnNode    *node = calloc(1, sizeof(OwnNode) + strlen(parent) + strlen(name) + 2);

	if (node == NULL)
		return;
	stpcpy(stpcpy(stpcpy(node->path, parent), "/"), name);
	zkl__session_lock(session);
	node->next = *own_nodes(session);
	*own_nodes(session) = node;
	zkl__own_nodes_advance(session);
	zkl__session_unlock(session);
}

/* Returns whether a delete is not finished.  A create must not overtake it. */
bool
zkl__own_nodes_are_leaving(ZklSession *session)
{
	bool		any;

	zkl__session_lock(session);
	any = *own_nodes(session) != NULL;
	zkl__session_unlock(session);
	return any;
}

/* Calls in flight are gone: no handler is called any more. */
void
zkl__own_nodes_free(ZklSession *session)
{
	while (*own_nodes(session))
		forget(session, *own_nodes(session));
}
