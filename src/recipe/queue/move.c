/*-------------------------------------------------------------------------
 *
 * move.c
 *		Renames a node: moving up in the queue, and downgrading.
 *
 * ZooKeeper has no rename, so one multi creates the new node and deletes the old
 * one.  The client chooses the new name, including its number.  So a multi whose
 * answer was lost can be sent again: if it was executed, the name exists.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Starts to rename the node to its mode and a number; "event" says why. */
void
zkl__node_move(ZklNode *node, ZklNodeEvent event, int32_t number)
{
	if (zkl_child_name(node->node_names, node->mode, zkl__session_id(node->session),
					   node->guid_end, number, node->priv->new_name))
		zkl__node_take(node, event);
}

/*
 * Sends the multi that renames the node.  Moving up also checks that the writer's
 * node still exists: until then no reader behind that writer is granted.
 */
void
zkl__node_send_move(ZklNode *node, ZklHandler handler)
{
	bool		is_up = node->state == NODE_MOVING_UP;
	ZklOp		ops[] = {
		{.kind = ZKL_OP_CREATE,.path = node->lock_path,.child = node->priv->new_name,
		.create_kind = ZKL_CREATE_EPHEMERAL,.data = node->data,.data_len = node->data_len},
		{.kind = ZKL_OP_DELETE,.path = node->lock_path,.child = node->name},
		{.kind = ZKL_OP_CHECK,.path = node->lock_path,.child = node->priv->watched},
	};

	node->priv->is_move_refused = false;
	node->priv->state_call = zkl__send_all(zkl__node_call(node, handler), ZKL_MULTI, ops,
										   is_up ? 3 : 2);
}

static void
move_done(ZklNode *node)
{
	zkl__node_set_name(node, node->priv->new_name);
	node->priv->new_name[0] = '\0';
	zkl__node_take(node, ON_MOVED);
}

/*
 * The multi failed.  Moving up lists again if the writer has just left.  After an
 * error that leaves the outcome open, the request fails and the node is deleted
 * under both names.  A downgrade whose node another client deleted has lost the
 * lock; any other error of a downgrade is retried.
 */
static void
move_failed(ZklNode *node, const ZklResult *result)
{
	if (node->state == NODE_MOVING_UP)
	{
		if (zkl__is_refusal(result->code))
		{
			node->priv->new_name[0] = '\0';
			zkl__node_take(node, ON_NOT_MOVED);
		}
		if (node->priv->wanted && result->code != ZKL_RC_NO_NODE)
			zkl__node_mark_failed(node, zkl__status_of(result->code), result->raw_code);
	}
	else if (result->code == ZKL_RC_NO_NODE)
		zkl__node_mark(node, NODE_LOST);
	else
	{
		node->priv->is_move_refused = zkl__is_refusal(result->code);
		zkl__retry_later(node->session, ZKL_RETRY_REFUSED);
	}
}

/* Sets the state that follows from the answer to the multi, unless that was lost. */
void
zkl__node_moved(ZklNode *node, const ZklResult *result)
{
	/* NODE_EXISTS: an earlier multi, whose answer was lost, was executed. */
	if (result->code == ZKL_RC_OK ||
		(result->n_ops > 0 && result->op_results[0].code == ZKL_RC_NODE_EXISTS))
		move_done(node);
	else if (result->code != ZKL_RC_CONNECTION_LOSS)
		move_failed(node, result);
}

/* Returns whether a held node is being renamed, and may have either name. */
bool
zkl__node_is_moving(const ZklNode *node)
{
	return node->state == NODE_DOWNGRADING && !node->priv->is_move_refused;
}
