/*-------------------------------------------------------------------------
 *
 * nodes.c
 *		All nodes of a session: allocation, look-up by path, and freeing.
 *
 * A session may have thousands of nodes and receive an event for each of them.  So
 * the node of an event is found with a hash table of parent paths.  queue_lock.c moves
 * a node from one state to the next.
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
	return zkl__parts(session)->first_node;
}

/* Returns how many nodes are wanted, and sets the bytes of their paths. */
int
zkl__nodes_wanted(const ZklSession *session, size_t *path_bytes)
{
	*path_bytes = zkl__parts(session)->wanted_bytes;
	return zkl__parts(session)->n_wanted;
}


/*
 * By path
 */

/* FNV-1a. */
uint32_t
zkl__path_hash(const char *path, size_t length)
{
	uint32_t	hash = 2166136261u;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char) path[i]) * 16777619u;
	return hash;
}

static ZklNode **
path_bucket(const ZklSession *session, const char *path, size_t length)
{
	return &zkl__parts(session)->by_path[zkl__path_hash(path, length) % ZKL_PATH_BUCKETS];
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
	ZklParts   *nodes = zkl__parts(node->session);
	ZklNode   **bucket = path_bucket(node->session, node->lock_path, strlen(node->lock_path));

	node->next = nodes->first_node;
	if (node->next)
		node->next->priv->prev = node;
	nodes->first_node = node;
	node->priv->next_alike = *bucket;
	if (node->priv->next_alike)
		node->priv->next_alike->priv->link_alike = &node->priv->next_alike;
	node->priv->link_alike = bucket;
	*bucket = node;
	nodes->n_wanted++;
	nodes->wanted_bytes += wanted_bytes(node);
}

/* Unlinks and frees. */
static void
node_free(void *subject)
{
	ZklNode    *node = subject;

	if (node->priv->prev)
		node->priv->prev->next = node->next;
	else
		zkl__parts(node->session)->first_node = node->next;
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
			  ZklMode mode, ZklNodeNames node_names, const char *data, int data_len)
{
	size_t		path_size = strlen(lock_path) + 1;
	ZklNode    *node = calloc(1, sizeof(ZklNode) + sizeof(ZklNodePrivate) +
							  path_size + (size_t) data_len);

	if (node == NULL)
		return NULL;
	node->priv = (ZklNodePrivate *) (node + 1);
	node->lock_path = (char *) (node->priv + 1);
	memcpy(node->lock_path, lock_path, path_size);
	node->data = node->lock_path + path_size;
	memcpy(node->data, data, (size_t) data_len);
	node->data_len = data_len;
	node->session = session;
	node->uses.subject = node;
	node->uses.free_subject = node_free;
	node->state = NODE_NEW;
	node->priv->wanted = true;
	node->mode = mode;
	node->node_names = node_names;
	node->guid_end = zkl_guid_end(zkl__config(session)->server_tag,
								  ++zkl__parts(session)->guid_counter);
	link_node(node);
	return node;
}

ZklCall *
zkl__node_call(ZklNode *node, ZklHandler handler)
{
	return zkl__call_new(node->session, handler, node, &node->uses);
}

/* Makes the operation of a multi one on the node; without a path if memory is exhausted. */
void
zkl__op_for_node(ZklOp *op, ZklOpKind kind, const ZklNode *node)
{
	op->kind = kind;
	op->path = zkl__path(node->lock_path, node->name);
}

/* Frees the operations, which may be NULL, and their paths. */
void
zkl__ops_free(ZklOp *ops, int n)
{
	for (int i = 0; ops && i < n; i++)
		free((char *) ops[i].path);
	free(ops);
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
	ZklContender contender;

	strncpy(node->name, name, sizeof(node->name) - 1);
	if (zkl_parse_child(node->name, &contender))
		node->number = contender.number;
}

/* Marks the node as given up; it no longer counts against the session's limits. */
void
zkl__node_unwant(ZklNode *node)
{
	ZklParts   *nodes = zkl__parts(node->session);

	if (node->priv->wanted)
	{
		nodes->n_wanted--;
		nodes->wanted_bytes -= wanted_bytes(node);
	}
	node->priv->wanted = false;
}

/* The znode does not exist, or no longer exists. */
void
zkl__node_gone(ZklNode *node)
{
	node->state = NODE_GONE;
	node->priv->state_call = NULL;
	zkl__uses_end(node->session, &node->uses);
}


void
zkl__nodes_free(ZklSession *session)
{
	while (zkl__nodes(session))
		node_free(zkl__nodes(session));
}
