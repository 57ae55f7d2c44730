/*-------------------------------------------------------------------------
 *
 * move.c
 *		A new name for a node: moving up in the queue, and downgrading.
 *
 * Both create the node under its new name and delete the old one in one multi.
 * The new name is chosen by us, not numbered by the server, so a multi whose
 * answer was lost can be sent again: if it was carried out, the name exists.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static void
move_done(ZklNode *node)
{
	ZklContender contender;

	strcpy(node->name, node->new_name);
	node->new_name[0] = '\0';
	if (zkl_parse_child(node->name, &contender))
		node->number = contender.number;
	node->state = node->state == NODE_BARRING ? NODE_LISTING : NODE_HELD;
	node->revoked_version = 0;
	zkl__guard_later(node);
}

/*
 * The multi failed.  A barring whose writer has just left lists again; a
 * downgrade whose node somebody removed has lost the lock.
 */
static void
move_failed(ZklNode *node, const ZklResult *result)
{
	if (node->state == NODE_BARRING)
	{
		node->new_name[0] = '\0';
		node->state = NODE_LISTING;
		if (node->wanted && result->code != ZKL_RC_NO_NODE)
			zkl__request_fail_code(node->request, node->index, result);
	}
	else if (result->code == ZKL_RC_NO_NODE)
	{
		zkl__lock_node_lost(node);
		zkl__node_leave(node);
	}
	else
		zkl__retry_later(node->session);
}

static void
moved(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->node;

	if (node->asked != call)
		return;
	node->asked = NULL;
	if (result->code != ZKL_RC_CONNECTION_LOSS)
	{
		/* The new name exists: an earlier try, whose answer was lost, did it. */
		if (result->code == ZKL_RC_OK ||
			(result->n_ops > 0 && result->op_codes[0] == ZKL_RC_NODE_EXISTS))
			move_done(node);
		else
			move_failed(node, result);
	}
	if (!node->wanted)
		zkl__node_leave(node);
	zkl__node_drive(node);
	zkl__confirm_drive(node->session);
}

/*
 * Creates the node under its new name and deletes the old one, at once.  A
 * barring also checks that the writer it moves up to still waits: while it
 * does, no reader behind it has been let in.
 */
void
zkl__node_send_move(ZklNode *node)
{
	char	   *new_path = zkl__path(node->lock_path, node->new_name);
	char	   *old_path = zkl__path(node->lock_path, node->name);
	ZklOp		ops[] = {
		{ZKL_OP_CREATE, new_path, ZKL_CREATE_EPHEMERAL, node->data, node->data_len},
		{ZKL_OP_DELETE, old_path, 0, NULL, 0},
		{ZKL_OP_CHECK, node->watched, 0, NULL, 0},
	};
	ZklCall    *call = NULL;

	if (new_path && old_path)
		call = zkl__call_new(node->session, moved, node, NULL);
	if (call)
		call->confirms = true;
	node->asked = zkl__call_sent(call, call &&
								 zkl_client_multi(node->session->client, ops,
												  node->state == NODE_BARRING ? 3 : 2,
												  &call->completion));
	free(new_path);
	free(old_path);
}

/* Makes a held writer node a reader node of the same number. */
void
zkl__node_downgrade(ZklNode *node)
{
	node->mode = ZKL_MODE_SHARED;
	if (zkl_child_name(node->dialect, node->mode,
					   node->session->connection.session_id, node->guid_counter,
					   node->number, node->new_name))
	{
		node->state = NODE_DOWNGRADING;
		zkl__node_drive(node);
	}
}
