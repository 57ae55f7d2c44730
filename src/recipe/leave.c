/*-------------------------------------------------------------------------
 *
 * leave.c
 *		Nodes that are given up, one by one or many in one multi.
 *
 * A node that leaves is deleted as soon as that can be done, whatever happens on
 * the way.  Between zkl__leave_begin() and zkl__leave_end() deletes are put off,
 * so that they go together.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

void
zkl__node_gone(ZklNode *node)
{
	node->state = NODE_GONE;
	node->asked = NULL;
	node->session->garbage = true;
}

static void
deleted(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->node;

	if (node->asked != call)
		return;
	node->asked = NULL;
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		return;

	if (result->code != ZKL_RC_OK && result->code != ZKL_RC_NO_NODE)
		zkl__retry_later(node->session);
	else if (node->new_name[0] != '\0')
	{
		strcpy(node->name, node->new_name);
		node->new_name[0] = '\0';
		zkl__node_drive(node);
	}
	else
		zkl__node_gone(node);
}

/* Deletes the node, at once or with others. */
void
zkl__node_send_delete(ZklNode *node)
{
	ZklCall    *call = NULL;
	char	   *path;

	if (node->session->leaving > 0 && node->new_name[0] == '\0')
	{
		node->put_off = true;
		return;
	}
	path = zkl__path(node->lock_path, node->name);
	if (path)
		call = zkl__call_new(node->session, deleted, node, NULL);
	node->asked = zkl__call_sent(call, call &&
								 zkl_client_delete(node->session->client, path,
												   &call->completion));
	free(path);
}

/* All are gone, or none of them: then each goes alone, as somebody may have removed one. */
static void
all_deleted(ZklCall *call, const ZklResult *result)
{
	for (ZklNode *node = call->session->nodes; node; node = node->next)
	{
		if (node->asked != call)
			continue;
		node->asked = NULL;
		if (result->code == ZKL_RC_OK)
			zkl__node_gone(node);
		else if (result->code != ZKL_RC_CONNECTION_LOSS)
			zkl__node_drive(node);
	}
}

/* The paths of a session's nodes are bounded so that they fit into one packet. */
static ZklCall *
delete_together(ZklSession *session, int n)
{
	ZklOp	   *ops = calloc((size_t) n, sizeof(ZklOp));
	ZklCall    *call = ops ? zkl__call_new(session, all_deleted, NULL, NULL) : NULL;
	bool		complete = call != NULL;
	int			i = 0;

	for (ZklNode *node = session->nodes; complete && node; node = node->next)
		if (node->put_off)
		{
			ops[i].kind = ZKL_OP_DELETE;
			ops[i].path = zkl__path(node->lock_path, node->name);
			complete = ops[i++].path != NULL;
		}
	if (ops == NULL)
		zkl__retry_later(session);
	call = zkl__call_sent(call, complete && zkl_client_multi(session->client, ops, n,
															 &call->completion));
	for (i = 0; ops && i < n; i++)
		free((char *) ops[i].path);
	free(ops);
	return call;
}

void
zkl__leave_begin(ZklSession *session)
{
	session->leaving++;
}

void
zkl__leave_end(ZklSession *session)
{
	ZklCall    *call = NULL;
	int			n = 0;

	if (--session->leaving > 0)
		return;
	for (ZklNode *node = session->nodes; node; node = node->next)
		n += node->put_off;
	if (n > 1 && session->state == ZKL_SESSION_CONNECTED)
		call = delete_together(session, n);
	for (ZklNode *node = session->nodes; n > 0 && node; node = node->next)
	{
		if (!node->put_off)
			continue;
		node->put_off = false;
		node->asked = call;
		if (n == 1)
			zkl__node_drive(node);
	}
}

void
zkl_releases_begin(ZklSession *session)
{
	zkl__session_lock(session);
	zkl__leave_begin(session);
	zkl__session_unlock(session);
}

void
zkl_releases_end(ZklSession *session)
{
	zkl__session_lock(session);
	zkl__leave_end(session);
	zkl__session_unlock(session);
}
