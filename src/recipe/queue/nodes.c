/*-------------------------------------------------------------------------
 *
 * nodes.c
 *		All nodes of a session: allocation, look-up by path, leaving, and freeing.
 *
 * A session may have thousands of nodes and receive an event for each of them.  So
 * the node of an event is found with a hash table of parent paths.  queue_lock.c moves
 * a node from one state to the next, while it is wanted.
 *
 * The delete of a node that is given up is retried until the server confirms that the
 * node is gone, or the session ends.  Between zkl__leave_begin() and zkl__leave_end()
 * deletes are collected and then sent in one multi.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "recipe/zookeeper/log.h"

/* Returns the session's youngest node, which leads to the others, or NULL. */
ZklNode *
zkl__nodes(const ZklSession *session)
{
	return zkl__queues(session)->first_node;
}


/*
 * By path
 */

static ZklNode **
path_bucket(const ZklSession *session, const char *path, size_t length)
{
	return &zkl__queues(session)->by_path[zkl_hash(ZKL_HASH, path, length) % ZKL_PATH_BUCKETS];
}

static ZklNode *
find_from(ZklNode *node, const char *path, size_t length)
{
	while (node && (strncmp(node->lock_path, path, length) != 0 ||
					node->lock_path[length] != '\0'))
		node = node->priv->next_alike;
	return node;
}

/* Returns the youngest node below a path of the given length, or NULL. */
ZklNode *
zkl__nodes_below(const ZklSession *session, const char *path, size_t length)
{
	return find_from(*path_bucket(session, path, length), path, length);
}

/* Returns the next older node with the same parent, or NULL. */
ZklNode *
zkl__next_below(const ZklNode *node)
{
	return find_from(node->priv->next_alike, node->lock_path, strlen(node->lock_path));
}


/*
 * Requests for nodes that were kept
 */

/* How long locks of a name are not kept after another session has asked for one. */
#define NOT_KEPT_MS 60000

/* Names that share a place in this table only are not kept a little longer. */
static int64_t *
asked_ms(const ZklSession *session, const char *lock_path)
{
	return &zkl__queues(session)->asked_ms[zkl_hash(ZKL_HASH, lock_path, strlen(lock_path)) % ZKL_ASKED_TIMES];
}

bool
zkl__was_asked(const ZklSession *session, const char *lock_path)
{
	int64_t		at = *asked_ms(session, lock_path);

	return at != 0 && zkl_now_ms() - at < NOT_KEPT_MS;
}

void
zkl__note_asked(const ZklNode *node)
{
	*asked_ms(node->session, node->lock_path) = zkl_now_ms();
}

/* The node will be deleted when it is released; its data say so when they are written next. */
void
zkl__node_keep_never(ZklNode *node)
{
	if (node->keep == ZKL_KEEP_MAY)
		zkl_set_keep(node->data, node->data_len, ZKL_KEEP_IN_USE);
	node->keep = ZKL_KEEP_NEVER;
}


/*
 * Allocation and freeing
 */

static size_t
wanted_bytes(const ZklNode *node)
{
	return strlen(node->lock_path) + ZKL_CHILD_NAME_SIZE;
}

/* Adds the node to the session's lists and counters. */
static void
link_node(ZklNode *node)
{
	ZklQueues  *queues = zkl__queues(node->session);
	ZklNode   **bucket = path_bucket(node->session, node->lock_path, strlen(node->lock_path));

	node->next = queues->first_node;
	if (node->next)
		node->next->priv->prev = node;
	queues->first_node = node;
	node->priv->next_alike = *bucket;
	if (node->priv->next_alike)
		node->priv->next_alike->priv->link_alike = &node->priv->next_alike;
	node->priv->link_alike = bucket;
	*bucket = node;
	queues->n_wanted++;
	queues->wanted_bytes += wanted_bytes(node);
}

/* Unlinks and frees. */
static void
node_free(void *subject)
{
	ZklNode    *node = subject;

	if (node->priv->prev)
		node->priv->prev->next = node->next;
	else
		zkl__queues(node->session)->first_node = node->next;
	if (node->next)
		node->next->priv->prev = node->priv->prev;
	*node->priv->link_alike = node->priv->next_alike;
	if (node->priv->next_alike)
		node->priv->next_alike->priv->link_alike = node->priv->link_alike;
	free(node->priv->watched);
	free(node);
}

/* Returns a new node, with path and data in the same chunk; NULL if out of memory. */
ZklNode *
zkl__node_new(ZklSession *session, const char *lock_path,
			  ZklMode mode, ZklNodeNames node_names, const char *data, int data_len,
			  bool may_be_kept)
{
	size_t		path_size = strlen(lock_path) + 1;
	uint32_t	counter = ++zkl__queues(session)->guid_counter;
	ZklNode    *node = calloc(1, sizeof(ZklNode) + sizeof(ZklNodePrivate) +
							  path_size + (size_t) data_len + ZKL_KEEP_LENGTH);

	if (node == NULL)
		return NULL;
	node->priv = (ZklNodePrivate *) (node + 1);
	node->lock_path = (char *) (node->priv + 1);
	memcpy(node->lock_path, lock_path, path_size);
	node->data = node->lock_path + path_size;
	memcpy(node->data, data, (size_t) data_len);
	node->data_len = data_len;
	if (may_be_kept)
	{
		node->keep = ZKL_KEEP_MAY;
		counter |= ZKL_KEEP_BIT;
		node->data_len += ZKL_KEEP_LENGTH;
		zkl_set_keep(node->data, node->data_len, node->keep);
	}
	node->session = session;
	node->uses.subject = node;
	node->uses.free_subject = node_free;
	node->state = NODE_NEW;
	node->priv->wanted = true;
	node->mode = mode;
	node->node_names = node_names;
	node->guid_end = zkl_guid_end(zkl__config(session)->server_tag, counter);
	link_node(node);
	return node;
}

ZklCall *
zkl__node_call(ZklNode *node, ZklHandler handler)
{
	return zkl__call_new(node->session, handler, node, &node->uses);
}

/* Returns an operation on the node, which must exist until it is sent. */
ZklOp
zkl__op_for_node(ZklOpKind kind, const ZklNode *node)
{
	return (ZklOp) {.kind = kind, .path = node->lock_path, .child = node->name};
}

/* Sets the name to create, and returns the create. */
ZklOp
zkl__op_to_create(ZklNode *node)
{
	int64_t		session_id = zkl__session_id(node->session);
	ZklOp		op = zkl__op_for_node(ZKL_OP_CREATE, node);

	if (node->is_permit)
		zkl_permit_prefix(session_id, node->guid_end, node->name);
	else
		zkl_child_prefix(node->node_names, node->mode, session_id, node->guid_end, node->name);
	op.create_kind = ZKL_CREATE_EPHEMERAL_SEQUENTIAL;
	op.data = node->data;
	op.data_len = node->data_len;
	return op;
}

/* Returns whether this answer is the one that the state waits for, and not lost. */
bool
zkl__node_answered(ZklNode *node, const ZklCall *call, const ZklResult *result)
{
	if (node->priv->state_call != call)
		return false;
	node->priv->state_call = NULL;
	return result->code != ZKL_RC_CONNECTION_LOSS;
}

/* Returns whether the operation of the node's state can be sent, and is not in flight. */
bool
zkl__node_can_send(const ZklNode *node)
{
	return node->priv->state_call == NULL && zkl__is_connected(node->session);
}

/* Sets the child name that the node has at the server. */
void
zkl__node_set_name(ZklNode *node, const char *name)
{
	size_t		length = strnlen(name, sizeof(node->name) - 1);
	ZklContender contender;

	memcpy(node->name, name, length);
	node->name[length] = '\0';
	if (zkl_parse_child(node->name, &contender))
		node->number = contender.number;
}

/* The session ends: frees everything that this folder has allocated. */
void
zkl__nodes_free(ZklSession *session)
{
	zkl__elision_forget(session);
	zkl__empty_parents_free(session);
	while (zkl__nodes(session))
		node_free(zkl__nodes(session));
}


/*
 * Leaving
 */

/* Logs once for each node, because the delete is retried. */
static void
log_refusal(ZklNode *node)
{
	char		line[512];

	if (node->priv->is_undeletable)
		return;
	node->priv->is_undeletable = true;
	snprintf(line, sizeof(line), ":ZOO_WARN@release: an ACL forbids to delete %s/%s",
			 node->lock_path, node->name);
	zkl_log_keep_io(line);
}

/* The znode does not exist, or no longer exists. */
static void
gone(ZklNode *node)
{
	node->state = NODE_GONE;
	node->priv->state_call = NULL;
	zkl__uses_end(node->session, &node->uses);
	if (node->created_parent)
		zkl__empty_parents_add(node);
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
		zkl__retry_later(node->session);
	else if (node->priv->new_name[0] != '\0')
	{
		zkl__node_set_name(node, node->priv->new_name);
		node->priv->new_name[0] = '\0';
		zkl__node_send_delete(node);
	}
	else
		gone(node);
}

static void
put_off(ZklNode *node)
{
	ZklQueues  *queues = zkl__queues(node->session);

	if (node->priv->is_put_off)
		return;
	node->priv->is_put_off = true;
	node->priv->next_put_off = queues->put_off;
	queues->put_off = node;
	queues->n_put_off++;
}

/* Deletes a node that is LEAVING, alone, or with others in zkl__leave_end(). */
void
zkl__node_send_delete(ZklNode *node)
{
	ZklOp		op = zkl__op_for_node(ZKL_OP_DELETE, node);

	if (!zkl__node_can_send(node))
		return;
	if (zkl__queues(node->session)->leave_depth > 0 && node->priv->new_name[0] == '\0')
		put_off(node);
	else
		node->priv->state_call = zkl__send(zkl__node_call(node, on_deleted), &op);
}

/* A node that is given up no longer counts against the session's limits. */
static void
unwant(ZklNode *node)
{
	ZklQueues  *queues = zkl__queues(node->session);

	if (node->priv->wanted)
	{
		queues->n_wanted--;
		queues->wanted_bytes -= wanted_bytes(node);
	}
	node->priv->wanted = false;
}

/*
 * Gives the node up, in any state.  The delete is sent at once, or after the answer
 * to a create or a move, or after reconnecting.
 */
void
zkl__node_leave(ZklNode *node)
{
	unwant(node);
	node->request = NULL;
	node->lock = NULL;
	node->is_kept = false;
	switch (node->state)
	{
		case NODE_NEW:
			gone(node);
			break;
		case NODE_MOVING_UP:
		case NODE_DOWNGRADING:
			if (node->priv->state_call == NULL)
				node->state = NODE_LEAVING;
			break;
		case NODE_LISTING:
		case NODE_READING:
		case NODE_WAITING:
		case NODE_HELD:
			node->priv->state_call = NULL;
			node->state = NODE_LEAVING;
			break;
		case NODE_CREATING:
		case NODE_UNKNOWN:
		case NODE_LEAVING:
		case NODE_GONE:
			break;
	}
	if (node->state == NODE_LEAVING)
		zkl__node_send_delete(node);
}

/* Returns whether the node was given up and still exists, unless an ACL keeps it. */
bool
zkl__node_is_pending_delete(const ZklNode *node)
{
	return !node->priv->wanted && node->state != NODE_GONE && !node->priv->is_undeletable;
}

/* If the multi fails, each node is deleted alone: another client may have deleted one. */
static void
on_all_deleted(ZklCall *call, const ZklResult *result)
{
	ZklNode    *next;

	for (ZklNode *node = call->detail; node; node = next)
	{
		next = node->priv->next_put_off;
		node->priv->state_call = NULL;
		if (result->code == ZKL_RC_OK)
			gone(node);
		else if (result->code != ZKL_RC_CONNECTION_LOSS)
			zkl__node_send_delete(node);
	}
}

/* The multi fits into one packet, because zkl__session_has_room() bounds the paths. */
static ZklCall *
delete_together(ZklSession *session, ZklNode *nodes, int n)
{
	ZklOp	   *ops = calloc((size_t) n, sizeof(ZklOp));
	ZklCall    *call = zkl__call_new(session, on_all_deleted, NULL, NULL);
	int			i = 0;

	for (const ZklNode *node = nodes; ops && node; node = node->priv->next_put_off)
		ops[i++] = zkl__op_for_node(ZKL_OP_DELETE, node);
	if (call)
		call->detail = nodes;
	call = zkl__send_all(call, ZKL_MULTI, ops, n);
	free(ops);
	return call;
}

void
zkl__leave_begin(ZklSession *session)
{
	zkl__queues(session)->leave_depth++;
}

void
zkl__leave_end(ZklSession *session)
{
	ZklQueues  *queues = zkl__queues(session);
	ZklCall    *call = NULL;
	ZklNode    *nodes = queues->put_off;
	ZklNode    *next;
	int			n = queues->n_put_off;

	if (--queues->leave_depth > 0)
		return;
	queues->put_off = NULL;
	queues->n_put_off = 0;
	if (n > 1 && zkl__is_connected(session))
		call = delete_together(session, nodes, n);
	for (ZklNode *node = nodes; node; node = next)
	{
		next = node->priv->next_put_off;
		node->priv->is_put_off = false;
		node->priv->state_call = call;
		if (n == 1)
			zkl__node_send_delete(node);
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
