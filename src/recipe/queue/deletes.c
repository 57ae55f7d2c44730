/*-------------------------------------------------------------------------
 *
 * deletes.c
 *		Gives nodes up, in any state, and deletes them, alone or together.
 *
 * The delete of a node that is given up is retried until the server confirms that the
 * node is gone, or the session ends.  Between zkl__deletes_begin() and zkl__deletes_end()
 * deletes are collected and then sent in one multi.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"
#include "recipe/zookeeper/log.h"

/* Counts the node if it is a pending delete, and shows how many there are. */
static void
count_pending(ZklNode *node)
{
	ZklQueues  *queues = zkl__queues(node->session);
	uint32_t   *shown = zkl__config(node->session)->pending_deletes;
	bool		is_pending = zkl__node_is_pending_delete(node);

	if (is_pending == node->priv->is_pending)
		return;
	node->priv->is_pending = is_pending;
	queues->n_pending += is_pending ? 1 : -1;
	if (shown)
		__atomic_store_n(shown, (uint32_t) queues->n_pending, __ATOMIC_RELEASE);
}

/* Logs once for each node, because the delete is retried. */
static void
log_refusal(ZklNode *node)
{
	char		line[512];

	if (node->priv->is_undeletable)
		return;
	node->priv->is_undeletable = true;
	count_pending(node);
	snprintf(line, sizeof(line), ":ZOO_WARN@release: an ACL forbids to delete %s/%s",
			 node->lock_path, node->name);
	zkl_log_keep_io(line);
}

/* The node is GONE: it does not exist, or no longer exists. */
static void
node_gone(ZklNode *node)
{
	count_pending(node);
	zkl__uses_end(node->session, &node->uses);
	zkl__empty_parents_add(node);
}

static void
node_deleted(ZklNode *node)
{
	zkl__node_take(node, ON_DELETED);
	node_gone(node);
}

static void
on_deleted(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->subject;

	if (!zkl__node_answered(node, call, result))
		return;
	if (result->code == ZKL_RC_NO_AUTH)
		log_refusal(node);
	if (result->code != ZKL_RC_OK && result->code != ZKL_RC_NO_NODE)
		zkl__retry_later(node->session, ZKL_RETRY_REFUSED);
	else if (node->priv->new_name[0] != '\0')
	{
		zkl__node_set_name(node, node->priv->new_name);
		node->priv->new_name[0] = '\0';
		zkl__node_send_delete(node);
	}
	else
		node_deleted(node);
}

static void
collect(ZklNode *node)
{
	ZklQueues  *queues = zkl__queues(node->session);

	if (node->priv->is_collected)
		return;
	node->priv->is_collected = true;
	node->priv->next_collected = queues->collected;
	queues->collected = node;
	queues->n_collected++;
}

/* Deletes a node that is LEAVING, alone, or with others in zkl__deletes_end(). */
void
zkl__node_send_delete(ZklNode *node)
{
	ZklOp		op = zkl__op_for_node(ZKL_OP_DELETE, node);

	if (!zkl__node_can_send(node))
		return;
	if (zkl__queues(node->session)->collect_depth > 0 && node->priv->new_name[0] == '\0')
		collect(node);
	else
		node->priv->state_call = zkl__send(zkl__node_call(node, on_deleted), &op);
}

/*
 * Gives the node up, in any state.  The delete is sent at once, or after the answer
 * to a create or a move, or after reconnecting.
 */
void
zkl__node_leave(ZklNode *node)
{
	zkl__node_unwant(node);
	count_pending(node);
	node->request = NULL;
	node->anchor = NULL;
	node->lock = NULL;
	node->is_kept = false;
	if (node->state == NODE_GONE)
		return;
	zkl__node_take(node, ON_GIVEN_UP);
	zkl__node_dispose(node);
}

/* A node that was given up is deleted, or is freed with its last call. */
void
zkl__node_dispose(ZklNode *node)
{
	if (node->state == NODE_LEAVING)
		zkl__node_send_delete(node);
	else if (node->state == NODE_GONE)
		node_gone(node);
}

/*
 * Deletes a znode of this session that is in no queue, and that may exist or not: as a node
 * that was given up.  If memory is exhausted, it ends with the session.
 */
void
zkl__delete_later(ZklSession *session, const char *parent, const char *name)
{
	ZklNode    *node = zkl__node_new(session, parent, ZKL_MODE_NONE,
									 zkl__config(session)->node_names, "", 0, false);

	if (node == NULL)
		return;
	zkl__node_set_name(node, name);
	node->state = NODE_LEAVING; /* without the states before */
	zkl__node_unwant(node);
	count_pending(node);
	zkl__node_send_delete(node);
}

/* Returns whether the node was given up and still exists, unless an ACL keeps it. */
bool
zkl__node_is_pending_delete(const ZklNode *node)
{
	return !node->priv->wanted && node->state != NODE_GONE && !node->priv->is_undeletable;
}

/* If the multi fails, each node is deleted alone. */
static void
on_all_deleted(ZklCall *call, const ZklResult *result)
{
	ZklNode    *next;

	for (ZklNode *node = call->detail; node; node = next)
	{
		next = node->priv->next_collected;
		node->priv->state_call = NULL;
		if (result->code == ZKL_RC_OK)
			node_deleted(node);
		else if (result->code != ZKL_RC_CONNECTION_LOSS)
			zkl__node_send_delete(node);
	}
}

/* The multi fits into one packet, because has_room() in lock/kept.c bounds the paths. */
static ZklCall *
delete_together(ZklSession *session, ZklNode *nodes, int n, ZklHandler handler)
{
	ZklOp	   *ops = calloc((size_t) n, sizeof(ZklOp));
	ZklCall    *call = zkl__call_new(session, handler, NULL, NULL);
	int			i = 0;

	for (const ZklNode *node = nodes; ops && node; node = node->priv->next_collected)
		ops[i++] = zkl__op_for_node(ZKL_OP_DELETE, node);
	if (call)
		call->detail = nodes;
	call = zkl__send_all(call, ZKL_MULTI, ops, n);
	free(ops);
	return call;
}

/*
 * If another client has deleted one of the nodes, or an ACL forbids to delete one, the others
 * are deleted together, once more.
 */
static void
on_deleted_together(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklNode    *nodes = call->detail;
	ZklNode   **link = &nodes;
	ZklNode    *failed;
	ZklCall    *again;
	int			at = zkl__failed_op(result);

	if (at < 0 || result->n_ops < 3)
	{
		on_all_deleted(call, result);
		return;
	}
	for (int i = 0; i < at; i++)
		link = &(*link)->priv->next_collected;
	failed = *link;
	*link = failed->priv->next_collected;
	failed->priv->state_call = NULL;
	zkl__node_send_delete(failed);
	again = delete_together(session, nodes, result->n_ops - 1, on_all_deleted);
	for (ZklNode *node = nodes; node; node = node->priv->next_collected)
		node->priv->state_call = again;
}

void
zkl__deletes_begin(ZklSession *session)
{
	zkl__queues(session)->collect_depth++;
}

void
zkl__deletes_end(ZklSession *session)
{
	ZklQueues  *queues = zkl__queues(session);
	ZklCall    *call = NULL;
	ZklNode    *nodes = queues->collected;
	ZklNode    *next;
	int			n = queues->n_collected;

	if (--queues->collect_depth > 0)
		return;
	queues->collected = NULL;
	queues->n_collected = 0;
	if (n > 1 && zkl__is_connected(session))
		call = delete_together(session, nodes, n, on_deleted_together);
	for (ZklNode *node = nodes; node; node = next)
	{
		next = node->priv->next_collected;
		node->priv->is_collected = false;
		node->priv->state_call = call;
		if (n == 1)
			zkl__node_send_delete(node);
	}
}
