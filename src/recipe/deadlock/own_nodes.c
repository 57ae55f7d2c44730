/*-------------------------------------------------------------------------
 *
 * own_nodes.c
 *		The znodes of this session's wait report that may exist, and their deletes.
 *
 * The report itself is published by the owner (publish.c), which notes each path here
 * before it sends the create.  When the wait ends, the owner waits for nothing: the
 * deletes are sent at once, and again after a lost connection.  All znodes are ephemeral,
 * so they end with the session at the latest.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "detector.h"

#define MAX_ATTEMPTS 5

typedef struct ZklOwnNode OwnNode;
struct ZklOwnNode
{
	OwnNode    *next;
	bool		is_leaving;
	bool		is_sent;		/* a delete of it is in flight */
	int			attempts;		/* that the ensemble has refused */
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

/* A delete that is refused for good is given up: the node ends with the session. */
static void
on_own_node_deleted(ZklCall *call, const ZklResult *result)
{
	OwnNode    *node = call->subject;

	node->is_sent = false;
	if (result->code == ZKL_RC_OK || result->code == ZKL_RC_NO_NODE ||
		(result->code != ZKL_RC_CONNECTION_LOSS && ++node->attempts >= MAX_ATTEMPTS))
		forget(call->session, node);
	else if (result->code != ZKL_RC_CONNECTION_LOSS)
		zkl__retry_later(call->session);
}

/* Sends the deletes that are due and not in flight. */
void
zkl__own_nodes_advance(ZklSession *session)
{
	for (OwnNode *node = *own_nodes(session); node; node = node->next)
	{
		ZklOp		op = {.kind = ZKL_OP_DELETE, .path = node->path};

		if (node->is_leaving && !node->is_sent && zkl__is_connected(session) &&
			!(node->attempts > 0 && zkl__has_retry(session)))
			node->is_sent = zkl__send(zkl__call_new(session, on_own_node_deleted, node, NULL), &op) != NULL;
	}
}

/* Notes a znode that is about to be created.  Returns false if memory is exhausted. */
bool
zkl__own_nodes_add(ZklSession *session, const char *path)
{
	OwnNode    *node = calloc(1, sizeof(OwnNode) + strlen(path) + 1);

	if (node == NULL)
		return false;
	strcpy(node->path, path);
	zkl__session_lock(session);
	node->next = *own_nodes(session);
	*own_nodes(session) = node;
	zkl__session_unlock(session);
	return true;
}

/* None of the znodes was created. */
void
zkl__own_nodes_forget(ZklSession *session)
{
	OwnNode    *next;

	zkl__session_lock(session);
	for (OwnNode *node = *own_nodes(session); node; node = next)
	{
		next = node->next;
		if (!node->is_leaving)
			forget(session, node);
	}
	zkl__session_unlock(session);
}

/* Deletes the znode of this path, or all of them (NULL), without waiting. */
void
zkl__own_nodes_leave(ZklSession *session, const char *path)
{
	zkl__session_lock(session);
	for (OwnNode *node = *own_nodes(session); node; node = node->next)
		node->is_leaving = node->is_leaving || path == NULL || strcmp(path, node->path) == 0;
	zkl__own_nodes_advance(session);
	zkl__session_unlock(session);
}

/* Returns whether a delete is not finished.  A create must not overtake it. */
bool
zkl__own_nodes_are_leaving(ZklSession *session)
{
	bool		any = false;

	zkl__session_lock(session);
	for (OwnNode *node = *own_nodes(session); node; node = node->next)
		any = any || node->is_leaving;
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
