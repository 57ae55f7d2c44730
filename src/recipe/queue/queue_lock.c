/*-------------------------------------------------------------------------
 *
 * queue_lock.c
 *		One node in the queue of a lock: the state machine from create to
 *		delete.
 *
 * This is the queue lock of ZooKeeper's recipes.  Each contender has an ephemeral
 * sequential node below the lock's znode, and the lowest number holds the lock.  Each
 * waiter watches only its predecessor, so a release wakes one waiter.  queue.h
 * describes the states (ZklNodeState).  MOVING_UP and DOWNGRADING are in move.c,
 * LEAVING is in leave.c.  The owner sends the create, because it creates several
 * nodes in one multi, and receives the results through ZklNodeOwner.
 *
 * Invariants:
 *
 * - A node is granted only by a list of the queue that shows it first, or by the
 *	 proof in list_elision.c.  That its predecessor is gone is no proof: the
 *	 predecessor may have given up, or a downgrade may have created a lower number.
 * - A node waits for one answer at a time, that to node->state_call.  A transition
 *	 clears state_call, and a handler ignores the answer to any other call.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Fails the request; its nodes are deleted. */
static void
node_fail(ZklNode *node, ZklStatus status)
{
	node->owner->on_failed(node, status, 0);
}

static void
node_fail_code(ZklNode *node, const ZklResult *result)
{
	node->owner->on_failed(node, zkl__status_of(result->code), result->raw_code);
}

static bool
watch_path(ZklNode *node, const char *child)
{
	free(node->watched);
	node->watched = zkl__path(node->lock_path, child);
	if (node->watched == NULL)
		node_fail(node, ZKL_NO_MEMORY);
	return node->watched != NULL;
}


/*
 * UNKNOWN: does the node exist?
 */

static void
on_own_node_listed(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->subject;
	const char *found = NULL;

	if (!zkl__node_answered(node, call, result))
		return;
	if (result->code != ZKL_RC_OK && result->code != ZKL_RC_NO_NODE)
	{
		if (node->wanted)
			node_fail_code(node, result);
		zkl__retry_later(node->session);
		return;
	}
	if (result->code == ZKL_RC_OK)
		found = node->find(result->children, result->n_children, node->name);
	if (found && strlen(found) < sizeof(node->name))
		zkl__node_created(node, ZKL_RC_OK, found, 0);
	else
		zkl__node_created(node, ZKL_RC_NO_NODE, NULL, 0);
	if (node->request)
		node->owner->on_lookup(node);
}

static void
send_own_node_list(ZklNode *node)
{
	node->state_call = zkl__list_synced(zkl__node_call(node, on_own_node_listed),
										node->lock_path, false);
}


/*
 * LISTING: the position in the queue
 */

static void
became_first(ZklNode *node)
{
	if (node->upgrade || node->czxid != 0)
		node->state = NODE_HELD;
	else
		node->state = NODE_READING_CZXID;
	node->owner->on_first(node);
}

/*
 * A waiter reads its predecessor.  A non-blocking attempt first lists again, behind
 * a sync, because this server may lag behind releases from before the attempt.
 * Then its owner decides whether to wait for the predecessor (zkl_request_wait()) or
 * not (zkl_request_refuse()).
 */
static void
wait_behind(ZklNode *node, const char *other)
{
	if (node->is_try && !node->lists_synced)
	{
		node->lists_synced = true;
		zkl__node_drive(node);
	}
	else if (watch_path(node, other))
	{
		node->state = NODE_READING;
		node->is_refused = node->is_try;
		if (node->is_try)
			zkl__wake(node->session);
		zkl__node_drive(node);
		node->owner->on_behind(node);
	}
}

/* For deadlock detection.  If memory is exhausted, a deadlock may stay hidden. */
static void
note_blockers(ZklNode *node, const ZklResult *result)
{
	ZklBlocker *blockers = realloc(node->blockers,
								   (size_t) result->n_children * sizeof(ZklBlocker));

	node->n_blockers = 0;
	if (blockers == NULL)
		return;
	node->blockers = blockers;
	node->n_blockers = zkl_blockers(result->children, result->n_children,
									node->name, node->upgrade, blockers);
}

static void
move_up(ZklNode *node, const char *writer)
{
	ZklContender contender;

	if (!zkl_parse_child(writer, &contender) || !watch_path(node, writer))
		return;
	zkl_child_name(node->node_names, node->mode,
				   zkl__session_id(node->session), node->guid_counter,
				   contender.number, node->new_name);
	node->state = NODE_MOVING_UP;
	zkl__node_drive(node);
}

/* Returns the node's position, given what the session holds in the queue already. */
static ZklPosition
position_of(const ZklNode *node, const ZklResult *result, const char **other)
{
	const ZklNode *anchor = node->owner->anchor(node);
	const char *mine[3] = {node->name};
	int			n_mine = 1;

	if (anchor)
	{
		mine[n_mine++] = anchor->name;
		if (anchor->new_name[0] != '\0')
			mine[n_mine++] = anchor->new_name;
	}
	return zkl_position(result->children, result->n_children, mine, n_mine,
						node->upgrade, other);
}

static bool
is_listed(const ZklResult *result, const char *name)
{
	for (int i = 0; i < result->n_children; i++)
		if (strcmp(result->children[i], name) == 0)
			return true;
	return false;
}

/* Another sharer upgrades as well; its reader's data identify the session. */
static void
on_rival_read(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->subject;

	if (!zkl__node_answered(node, call, result))
		return;
	if (result->code == ZKL_RC_NO_NODE)
	{
		zkl__node_drive(node);
		return;
	}
	node->owner->on_blocked(node, result);
	node_fail(node, ZKL_DEADLOCK);
}

static void
read_rival(ZklNode *node, const char *child)
{
	node->state_call = zkl__read_child(zkl__node_call(node, on_rival_read), node->lock_path,
									   child, false);
}

/* Returns whether another client deleted the reader node that the upgrade builds on. */
static bool
has_lost_anchor(const ZklNode *node, const ZklResult *result)
{
	const ZklNode *anchor = node->upgrade ? node->owner->anchor(node) : NULL;

	return node->upgrade &&
		(anchor == NULL || !(is_listed(result, anchor->name) ||
							 is_listed(result, anchor->new_name)));
}

static void
on_listed(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->subject;
	const char *other;

	if (node->list_call == call)
		node->list_call = NULL;
	if (!zkl__node_answered(node, call, result))
		return;
	if (result->code == ZKL_RC_NO_NODE)
	{
		node->owner->on_removed(node);
		return;
	}
	if (result->code != ZKL_RC_OK)
	{
		node_fail_code(node, result);
		return;
	}
	if (has_lost_anchor(node, result))
	{
		node->owner->on_anchor_lost(node);
		node_fail(node, ZKL_LOCK_LOST);
		return;
	}
	switch (position_of(node, result, &other))
	{
		case ZKL_POSITION_FIRST:
			became_first(node);
			break;
		case ZKL_POSITION_BEHIND:
			note_blockers(node, result);
			wait_behind(node, other);
			break;
		case ZKL_POSITION_MOVE_UP:
			move_up(node, other);
			break;
		case ZKL_POSITION_GONE:
			node->owner->on_removed(node);
			break;
		case ZKL_POSITION_DEADLOCK:
			read_rival(node, other);
			break;
		case ZKL_POSITION_NO_MEMORY:
			node_fail(node, ZKL_NO_MEMORY);
			break;
	}
}

/* Lists the queue.  Pipelined behind a create, the list contains the new node. */
void
zkl__node_list(ZklNode *node)
{
	ZklCall    *call = zkl__node_call(node, on_listed);

	node->list_call = node->lists_synced ? zkl__list_synced(call, node->lock_path, false)
		: zkl__call_sent(call, call && zkl_client_list(zkl__client(node->session),
													   node->lock_path,
													   &call->completion));
	if (node->state == NODE_LISTING)
		node->state_call = node->list_call;
}


/*
 * READING and WAITING: the predecessor
 */

static void
on_predecessor_read(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->subject;

	if (node->state_call != call)
		return;
	node->state_call = NULL;
	switch (result->code)
	{
		case ZKL_RC_OK:
			node->state = NODE_WAITING;
			node->owner->on_blocked(node, result);
			break;
		case ZKL_RC_NO_NODE:
		case ZKL_RC_CONNECTION_LOSS:
			node->state = NODE_LISTING;
			zkl__node_drive(node);
			break;
		default:
			node_fail_code(node, result);
	}
}

/* Sets the watch by a read, because a read of a missing node leaves no watch behind. */
static void
send_read(ZklNode *node)
{
	ZklCall    *call = zkl__node_call(node, on_predecessor_read);

	node->state_call = zkl__call_sent(call, call &&
									  zkl_client_get(zkl__client(node->session),
													 node->watched, true,
													 &call->completion));
}

/* Makes a waiting node list the queue again, when it is driven next. */
void
zkl__node_relist(ZklNode *node)
{
	if (node->state == NODE_READING || node->state == NODE_WAITING)
	{
		node->state = NODE_LISTING;
		node->state_call = NULL;
	}
}

void
zkl__node_watch_fired(ZklNode *node, const char *path)
{
	if ((node->state == NODE_READING || node->state == NODE_WAITING) &&
		strcmp(node->watched, path) == 0)
	{
		zkl__node_relist(node);
		zkl__node_drive(node);
	}
}


/*
 * Called by the owner
 */

/* Waits for the list, which may be in flight already, or for the czxid as a proof. */
static void
place(ZklNode *node)
{
	node->state_call = node->list_call;
	node->awaits_elision = node->czxid == 0 && zkl__elision_expected(node);
	if (node->awaits_elision)
		node->state = NODE_READING_CZXID;
	else
		zkl__node_drive(node);
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
	ZklContender contender;
	const char *name = path ? strrchr(path, '/') : NULL;

	if (zkl__is_refusal(code))
	{
		node->state = NODE_NEW;
		if (!node->wanted)
			zkl__node_leave(node);
	}
	else if (code != ZKL_RC_OK)
	{
		node->state = NODE_UNKNOWN;
		if (code != ZKL_RC_CONNECTION_LOSS)
			zkl__node_drive(node);
	}
	else
	{
		name = name ? name + 1 : path;
		strncpy(node->name, name, sizeof(node->name) - 1);
		if (zkl_parse_child(node->name, &contender))
			node->number = contender.number;
		node->czxid = czxid;
		node->state = NODE_LISTING;
		if (!node->wanted)
			zkl__node_leave(node);
		else if (zkl__elision_proven(node))
			became_first(node);
		else
			place(node);
	}
}

/* Sets the czxid, which all nodes of one request share. */
void
zkl__node_czxid_known(ZklNode *node, int64_t czxid)
{
	node->czxid = czxid;
	if (node->state != NODE_READING_CZXID)
		return;
	if (node->awaits_elision && !zkl__elision_proven(node))
	{
		node->state = NODE_LISTING;
		zkl__node_drive(node);
	}
	else
		node->state = NODE_HELD;
	node->awaits_elision = false;
}

/* Sends the operation of the state, if the session is connected and none is in flight. */
void
zkl__node_drive(ZklNode *node)
{
	if (node->state_call || !zkl__is_connected(node->session))
		return;
	switch (node->state)
	{
		case NODE_UNKNOWN:
			send_own_node_list(node);
			break;
		case NODE_LISTING:
			if (node->is_permit)
				node->owner->on_listing(node);
			else
				zkl__node_list(node);
			break;
		case NODE_MOVING_UP:
		case NODE_DOWNGRADING:
			zkl__node_send_move(node);
			break;
		case NODE_READING:
			if (!node->is_refused)
				send_read(node);
			break;
		case NODE_LEAVING:
			zkl__node_send_delete(node);
			break;
		case NODE_NEW:
		case NODE_CREATING:
		case NODE_WAITING:
		case NODE_READING_CZXID:
		case NODE_HELD:
		case NODE_GONE:
			break;
	}
}
