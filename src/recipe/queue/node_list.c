/*-------------------------------------------------------------------------
 *
 * node_list.c
 *		All nodes of a session: allocation, look-up by path, news, and freeing.
 *
 * A session may have thousands of nodes and receive an event for each of them.  So
 * the node of an event is found with a hash table of parent paths.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

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
	uint32_t	counter = ++zkl__queues(session)->guid_counter & (ZKL_UPGRADE_BIT - 1);
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
	node->priv->wanted = true;
	node->mode = mode;
	node->node_names = node_names;
	node->guid_end = zkl_guid_end(zkl__config(session)->server_tag, counter);
	link_node(node);
	return node;
}



/*
 * News
 */

void
zkl__node_mark(ZklNode *node, ZklNodeNews news)
{
	ZklQueues  *queues = zkl__queues(node->session);

	if (node->news == 0)
	{
		node->priv->next_marked = NULL;
		if (queues->first_marked)
			queues->last_marked->priv->next_marked = node;
		else
			queues->first_marked = node;
		queues->last_marked = node;
	}
	node->news |= news;
}

void
zkl__node_mark_answer(ZklNode *node, ZklNodeNews news, const ZklResult *answer)
{
	node->answer = answer;
	zkl__node_mark(node, news);
}

void
zkl__node_mark_failed(ZklNode *node, ZklStatus failure, int raw_code)
{
	node->failure = failure;
	node->raw_code = raw_code;
	zkl__node_mark(node, NODE_FAILED);
}

/* Returns the node that was marked first, or NULL; takes its news. */
ZklNode *
zkl__node_take_marked(ZklSession *session, unsigned *news)
{
	ZklQueues  *queues = zkl__queues(session);
	ZklNode    *node = queues->first_marked;

	if (node == NULL)
		return NULL;
	queues->first_marked = node->priv->next_marked;
	*news = node->news;
	node->news = 0;
	return node;
}


/*
 * Operations
 */

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

/* A node that is given up no longer counts against the session's limits. */
void
zkl__node_unwant(ZklNode *node)
{
	ZklQueues  *queues = zkl__queues(node->session);

	if (node->priv->wanted)
	{
		queues->n_wanted--;
		queues->wanted_bytes -= wanted_bytes(node);
	}
	node->priv->wanted = false;
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
