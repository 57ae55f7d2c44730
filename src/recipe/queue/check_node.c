/*-------------------------------------------------------------------------
 *
 * check_node.c
 *		Asserts what queue.h says of each state of a node.
 *
 * Compiled in only with ZKL_CHECKS.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "internal.h"

#ifdef ZKL_CHECKS

static bool
is_state(const ZklNode *node, ZklNodeState first, ZklNodeState last)
{
	return node->state >= first && node->state <= last;
}

/* A node that is wanted has one owner; what that may be depends on the state. */
static void
check_owner(const ZklNode *node)
{
	int			n_owners = (node->request != NULL) + (node->lock != NULL) + node->is_kept;

	ZKL_ASSERT(n_owners == node->priv->wanted);
	ZKL_ASSERT(node->lock == NULL || node->state == NODE_HELD || node->state == NODE_DOWNGRADING);
	ZKL_ASSERT(!node->is_kept || (node->state == NODE_HELD && node->keep == ZKL_KEEP_MAY));
	ZKL_ASSERT(node->request == NULL || node->state != NODE_DOWNGRADING);
	ZKL_ASSERT(!is_state(node, NODE_LEAVING, NODE_GONE) || !node->priv->wanted);
	if (node->state == NODE_NEW || is_state(node, NODE_LISTING, NODE_WAITING) || node->state == NODE_HELD)
		ZKL_ASSERT(node->priv->wanted || node->state == NODE_MOVING_UP);
	ZKL_ASSERT(!node->is_upgrade || !node->priv->wanted || node->anchor != NULL);
	ZKL_ASSERT(node->anchor == NULL || node->is_upgrade);
}

/* The names that the state works with. */
static void
check_names(const ZklNode *node)
{
	bool		moves = node->state == NODE_MOVING_UP || node->state == NODE_DOWNGRADING;

	ZKL_ASSERT(!moves || node->priv->new_name[0] != '\0');
	ZKL_ASSERT(moves || node->state == NODE_LEAVING || node->priv->new_name[0] == '\0');
	ZKL_ASSERT(!(is_state(node, NODE_READING, NODE_WAITING) || node->state == NODE_MOVING_UP) ||
			   node->priv->watched != NULL);
	ZKL_ASSERT(!is_state(node, NODE_NEW, NODE_UNKNOWN) || node->priv->watched == NULL);
	ZKL_ASSERT(!is_state(node, NODE_NEW, NODE_UNKNOWN) || node->czxid == 0);
	ZKL_ASSERT(!is_state(node, NODE_CREATING, NODE_GONE) || node->name[0] != '\0' || !node->priv->wanted);
	ZKL_ASSERT(node->state != NODE_MOVING_UP || node->is_upgrade);
	ZKL_ASSERT(node->state != NODE_DOWNGRADING || node->mode == ZKL_MODE_SHARED);
	ZKL_ASSERT(!node->is_permit || !(is_state(node, NODE_MOVING_UP, NODE_WAITING) ||
									 node->state == NODE_DOWNGRADING));
	ZKL_ASSERT(node->keep == ZKL_KEEP_NEVER || zkl_has_keep_bit(node->guid_end));
}

/* The answer that the state waits for. */
static void
check_call(const ZklNode *node)
{
	const ZklCall *call = node->priv->state_call;

	if (node->state == NODE_NEW || node->state == NODE_WAITING || node->state == NODE_HELD ||
		node->state == NODE_GONE)
		ZKL_ASSERT(call == NULL);
	if (node->state == NODE_MOVING_UP || node->state == NODE_DOWNGRADING)
		ZKL_ASSERT(call != NULL || node->priv->wanted);
	ZKL_ASSERT(!node->priv->is_collected || (node->state == NODE_LEAVING && call == NULL &&
											 zkl__queues(node->session)->collect_depth > 0));
	/* The end of the session frees calls without an answer. */
	ZKL_ASSERT(call == NULL || zkl__is_final(node->session) || call->subject == node ||
			   node->state == NODE_LEAVING);
}

void
zkl__check_node(const ZklNode *node)
{
	ZKL_ASSERT(is_state(node, NODE_NEW, NODE_GONE));
	check_owner(node);
	check_names(node);
	check_call(node);
	ZKL_ASSERT(node->priv->is_pending == zkl__node_is_pending_delete(node));
	ZKL_ASSERT(!node->priv->is_undeletable || is_state(node, NODE_LEAVING, NODE_GONE));
	ZKL_ASSERT(!node->priv->is_move_refused || node->state == NODE_DOWNGRADING || !node->priv->wanted);
}

/* The youngest nodes; and what is counted of all, if these are all. */
void
zkl__check_nodes(const ZklSession *session)
{
	const ZklQueues *queues = zkl__queues(session);
	const ZklNode *node = zkl__nodes(session);
	int			n_wanted = 0;
	int			n_pending = 0;
	int			n_collected = 0;

	for (int i = 0; node && i < ZKL_N_CHECKED; i++, node = node->next)
	{
		zkl__check_node(node);
		ZKL_ASSERT(node->news == 0);
		n_wanted += node->priv->wanted;
		n_pending += node->priv->is_pending;
		n_collected += node->priv->is_collected;
	}
	ZKL_ASSERT(node || (n_wanted == queues->n_wanted && n_pending == queues->n_pending &&
						n_collected == queues->n_collected));
	ZKL_ASSERT(queues->first_marked == NULL && queues->collect_depth >= 0);
}

#endif
