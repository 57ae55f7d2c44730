/*-------------------------------------------------------------------------
 *
 * node.c
 *		One node in the queue of a lock, from create to delete: sends what its state
 *		requires, and takes the answers.
 *
 * This is the queue lock of ZooKeeper's recipes.  Each contender has an ephemeral
 * sequential node below the lock's znode, and the lowest number holds the lock.  Each
 * waiter watches only its predecessor, so a release wakes one waiter.  queue.h
 * describes the states (ZklNodeState).  MOVING_UP and DOWNGRADING are in move.c,
 * LEAVING is in deletes.c.  The request sends the create, because it creates several
 * nodes in one multi, and takes the news of the node (ZklNodeNews).
 *
 * Invariants:
 *
 * - A node is granted only by a list of the queue that shows it first, or by a proof
 *	 (list_elision.c); neither is repeated on a new connection, where its request checks
 *	 that it exists.  A missing predecessor is no proof: the predecessor may have given up,
 *	 or a downgrade may have created a lower number.
 * - A node waits for one answer at a time, that to node->priv->state_call.  Another state
 *	 clears state_call (node_state.c), and a handler ignores the answer to any other call.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Has the request fail; its nodes are deleted. */
static void
node_fail(ZklNode *node, ZklStatus status)
{
	zkl__node_mark_failed(node, status, 0);
}

static void
node_fail_code(ZklNode *node, const ZklResult *result)
{
	zkl__node_mark_failed(node, zkl__status_of(result->code), result->raw_code);
}

static bool
set_watched(ZklNode *node, const char *child)
{
	free(node->priv->watched);
	node->priv->watched = strdup(child);
	if (node->priv->watched == NULL)
		node_fail(node, ZKL_NO_MEMORY);
	return node->priv->watched != NULL;
}


/*
 * UNKNOWN: does the node exist?
 */

static void
on_own_node_children(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->subject;
	const char *found = NULL;
	bool		exists;

	if (!zkl__node_answered(node, call, result))
		return;
	if (result->code != ZKL_RC_OK && result->code != ZKL_RC_NO_NODE)
	{
		if (node->priv->wanted)
			node_fail_code(node, result);
		zkl__retry_later(node->session, ZKL_RETRY_REFUSED);
		return;
	}
	if (result->code == ZKL_RC_OK)
		found = zkl_find_child(result->children, result->n_children, node->name);
	exists = found && strlen(found) < sizeof(node->name);
	zkl__node_created(node, exists ? ZKL_RC_OK : ZKL_RC_NO_NODE, found, 0);
	if (node->request)
		zkl__node_mark(node, NODE_FOUND);
}

static void
send_find_own_node(ZklNode *node)
{
	node->priv->state_call = zkl__get_children(zkl__node_call(node, on_own_node_children),
											   node->lock_path, ZKL_LIST_PROVEN, false);
}


/*
 * LISTING: the position in the queue
 */

/* Returns the node's position, given what the session holds in the queue already. */
static ZklPosition
position_of(ZklNode *node, const ZklResult *list, const char **other)
{
	const ZklNode *anchor = node->anchor ? *node->anchor : NULL;
	const char *mine[3] = {node->name};
	int			n_mine = 1;

	if (anchor)
	{
		mine[n_mine++] = anchor->name;
		if (anchor->priv->new_name[0] != '\0')
			mine[n_mine++] = anchor->priv->new_name;
	}
	return zkl_position(list->children, list->n_children, mine, n_mine,
						node->is_upgrade, other);
}

/* A waiter reads its predecessor. */
static void
wait_for_predecessor(ZklNode *node, const char *predecessor)
{
	if (!set_watched(node, predecessor))
		return;
	zkl__node_take(node, ON_NOT_FIRST);
	zkl__node_advance(node);
	zkl__node_mark(node, NODE_PROGRESS);
}

/*
 * A non-blocking attempt lists again, behind a sync, before it fails, because this server
 * may lag behind releases from before the attempt.
 */
static void
refuse_busy(ZklNode *node)
{
	if (node->priv->lists_synced)
		node_fail(node, ZKL_BUSY);
	else
	{
		node->priv->lists_synced = true;
		zkl__node_take(node, ON_CHANGE);
		zkl__node_advance(node);
	}
}

void
zkl__node_look_again(ZklNode *node)
{
	node->priv->none_released = true;
	node->priv->lists_synced = true;
	zkl__node_take(node, ON_CHANGE);
	zkl__node_advance(node);
}

/* Asks for the nodes before that may be kept, and waits for the nearest one. */
static void
become_waiter(ZklNode *node, const char *predecessor, const ZklResult *list)
{
	if (!zkl__node_may_wait(node, predecessor, list))
	{
		refuse_busy(node);
		return;
	}
	if (!node->priv->has_asked)
	{
		node->priv->has_asked = true;	/* unless that fails */
		zkl__ask_for_kept(node->session, node->lock_path, list, node->name);
	}
	wait_for_predecessor(node, predecessor);
}

static void
move_up(ZklNode *node, const char *writer)
{
	ZklContender contender;

	if (!zkl_parse_child(writer, &contender) || !set_watched(node, writer))
		return;
	zkl__node_move(node, ON_WAITING_WRITER, contender.number);
	zkl__node_advance(node);
}

/* The predecessor was read; or, while the node is LISTING, an upgrade's rival. */
static void
on_other_read(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->subject;

	if (!zkl__node_answered(node, call, result))
		return;
	if (result->code == ZKL_RC_NO_NODE)
	{
		zkl__node_take(node, ON_CHANGE);
		zkl__node_advance(node);
	}
	else if (node->state == NODE_LISTING)
	{
		zkl__node_mark_answer(node, NODE_BLOCKED, result);
		node_fail(node, ZKL_DEADLOCK);
	}
	else if (node->non_blocking && result->code == ZKL_RC_NO_AUTH)
		refuse_busy(node);		/* the predecessor's data would not change that */
	else if (result->code != ZKL_RC_OK)
		node_fail_code(node, result);
	else if (zkl__node_is_refused(node, result))
		refuse_busy(node);
	else
	{
		zkl__node_take(node, ON_READ);
		zkl__node_mark_answer(node, NODE_BLOCKED, result);
	}
}

/* Sets a watch by a read, because a read of a missing node leaves no watch behind. */
static void
read_other(ZklNode *node, const char *other, bool watch)
{
	node->priv->state_call = zkl__read_child(zkl__node_call(node, on_other_read), node->lock_path,
											 other, watch);
}

static void
on_children(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->subject;
	const char *other;

	if (!zkl__node_answered(node, call, result) || node->state != NODE_LISTING)
		return;
	if (result->code == ZKL_RC_NO_NODE)
	{
		zkl__node_mark(node, NODE_REMOVED);
		return;
	}
	if (result->code != ZKL_RC_OK)
	{
		node_fail_code(node, result);
		return;
	}
	switch (position_of(node, result, &other))
	{
		case ZKL_POSITION_FIRST:
			zkl__node_take(node, ON_FIRST);
			zkl__node_mark(node, NODE_PROGRESS);
			break;
		case ZKL_POSITION_WAITS:
			become_waiter(node, other, result);
			break;
		case ZKL_POSITION_MOVE_UP:
			move_up(node, other);
			break;
		case ZKL_POSITION_GONE:
			zkl__node_mark(node, NODE_REMOVED);
			break;
		case ZKL_POSITION_DEADLOCK:
			/* An attempt that does not wait takes part in no deadlock. */
			if (node->non_blocking)
				become_waiter(node, other, result);
			else				/* the rival's data identify its session */
				read_other(node, other, false);
			break;
		case ZKL_POSITION_NO_ANCHOR:
			node_fail(node, ZKL_LOCK_LOST);
			break;
		case ZKL_POSITION_NO_MEMORY:
			node_fail(node, ZKL_NO_MEMORY);
			break;
	}
}

static void
send_get_children(ZklNode *node)
{
	node->priv->state_call = zkl__get_children(zkl__node_call(node, on_children), node->lock_path,
											   node->priv->lists_synced ? ZKL_LIST_SYNCED : ZKL_LIST_ANY, false);
}


/*
 * READING and WAITING: the predecessor
 */

bool
zkl__node_has_predecessor(const ZklNode *node)
{
	return node->state == NODE_READING || node->state == NODE_WAITING;
}

/* Parses the name of the node's predecessor; returns false if it has none, as far as is known. */
bool
zkl__node_predecessor(const ZklNode *node, ZklContender *predecessor)
{
	return zkl__node_has_predecessor(node) && zkl_parse_child(node->priv->watched, predecessor);
}


/*
 * MOVING_UP and DOWNGRADING
 */

static void
on_moved(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->subject;

	if (node->priv->state_call != call)
		return;
	node->priv->state_call = NULL;
	zkl__node_moved(node, result);
	if (!node->priv->wanted)
		zkl__node_leave(node);	/* also if the answer was lost */
	else if (node->state == NODE_LISTING && node->failure == ZKL_OK)
		zkl__node_advance(node);
	zkl__node_mark(node, NODE_MOVED);
}


/*
 * Called by the owner
 */

/*
 * The owner has sent the create.  Pipelined behind it, the list contains the new node; a
 * permit's owner counts instead.  A node that will probably be proven to be first needs
 * no list, like the first one in a new queue.
 */
void
zkl__node_creating(ZklNode *node, bool is_new_queue)
{
	zkl__node_take(node, ON_CREATING);
	if (!node->is_permit && !is_new_queue && !zkl__elision_expected(node))
		send_get_children(node);
}

/* A node that exists is first, or waits for its czxid as a proof, or is looked for in a list. */
static void
find_position(ZklNode *node)
{
	ZklElision	elision = zkl__elision(node);

	if (elision == ZKL_ELISION_FIRST)
		zkl__node_take(node, ON_FIRST);
	else if (elision == ZKL_ELISION_NONE)
	{
		zkl__elision_failed(node);
		zkl__node_advance(node);	/* unless the list is in flight already */
	}
}

/* The request has read the czxid, which all its nodes share. */
void
zkl__node_czxid_known(ZklNode *node, int64_t czxid)
{
	node->czxid = czxid;
	if (node->state == NODE_LISTING)
		find_position(node);
}

/*
 * Handles the answer to the create, or to the list that replaces a lost answer.
 * "path" is the path or name of the node if it exists.  A wanted node that does not
 * exist becomes NEW; its owner creates it again, or fails the request.
 */
void
zkl__node_created(ZklNode *node, ZklResultCode code, const char *path,
				  int64_t czxid)
{
	const char *name = path ? strrchr(path, '/') : NULL;

	if (code == ZKL_RC_OK)
	{
		zkl__node_set_name(node, name ? name + 1 : path);
		node->czxid = czxid > 0 ? czxid : 0;	/* 0: will be read */
		zkl__node_take(node, ON_CREATED);
		if (node->state == NODE_LISTING)
			find_position(node);
		else
			zkl__node_dispose(node);
		return;
	}
	zkl__node_take(node, zkl__is_refusal(code) ? ON_NOT_CREATED : ON_OUTCOME_OPEN);
	if (node->state == NODE_GONE)
		zkl__node_dispose(node);
	else if (code != ZKL_RC_CONNECTION_LOSS)
		zkl__node_advance(node);
}

/* Turns a held writer node into a reader node of the same number. */
void
zkl__node_downgrade(ZklNode *node)
{
	node->mode = ZKL_MODE_SHARED;
	zkl__node_keep_never(node);
	zkl__node_move(node, ON_REDUCED, node->number);
	zkl__node_advance(node);
}

/* Sends the operation of the state, if the session is connected and none is in flight. */
void
zkl__node_advance(ZklNode *node)
{
	if (!zkl__node_can_send(node))
		return;
	switch (node->state)
	{
		case NODE_UNKNOWN:
			send_find_own_node(node);
			break;
		case NODE_LISTING:
			if (!node->is_permit)	/* its request counts */
				send_get_children(node);
			break;
		case NODE_MOVING_UP:
		case NODE_DOWNGRADING:
			zkl__node_send_move(node, on_moved);
			break;
		case NODE_READING:
			read_other(node, node->priv->watched, true);
			break;
		case NODE_WAITING:
			if (!node->priv->has_asked)
			{
				zkl__node_take(node, ON_CHANGE);
				send_get_children(node);
			}
			break;
		case NODE_LEAVING:
			zkl__node_send_delete(node);
			break;
		default:
			break;
	}
}


/*
 * Events of the session
 */

/* After a new connection: watches and answers are lost. */
void
zkl__nodes_list_again(ZklSession *session)
{
	zkl__elision_forget(session);
	for (ZklNode *node = zkl__nodes(session); node; node = node->next)
	{
		node->priv->has_asked = false;
		zkl__node_take(node, ON_CONNECTED);
		if (node->state == NODE_LISTING || node->state == NODE_CREATING)
			node->priv->state_call = NULL;	/* the list */
		node->may_be_gone = node->may_be_gone || node->state > NODE_UNKNOWN;
	}
}

void
zkl__nodes_advance(ZklSession *session)
{
	for (ZklNode *node = zkl__nodes(session); node; node = node->next)
		zkl__node_advance(node);
}

void
zkl__nodes_watched(ZklSession *session, const char *path)
{
	const char *child = strrchr(path, '/');

	for (ZklNode *node = child ? zkl__nodes_below(session, path, (size_t) (child - path)) : NULL;
		 node; node = zkl__next_below(node))
		if (strcmp(node->name, child + 1) == 0)
			zkl__node_mark(node, NODE_CHANGED);
		else if (zkl__node_has_predecessor(node) && strcmp(node->priv->watched, child + 1) == 0)
		{
			zkl__prove_if_due(session);
			zkl__node_take(node, ON_CHANGE);
			zkl__node_advance(node);
		}
}
