/*-------------------------------------------------------------------------
 *
 * ask.c
 *		Asks other sessions for nodes that they may keep.
 *
 * A contender asks by a change of the node's data, which its owner watches.  The owner
 * deletes a node that it only keeps, or answers that it is in use (lock/hold_news.c).  The
 * change names the version that was read, so it replaces neither an answer nor another
 * program's data.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Asked in one multi: a writer may wait for thousands of kept readers. */
#define GROUP_SIZE 16

/* Nodes with more data were not created by this layer. */
#define MAX_DATA 4096

/* The nodes that a contender asks for. */
typedef struct AskedNodes
{
	ZklUses		uses;
	const char *lock_path;		/* in the same chunk of memory */
	char		contender[ZKL_CHILD_NAME_SIZE]; /* for whom it asks */
	int			n_reads;		/* of the group, not answered yet */
	int			n_ops;
	ZklOp		ops[GROUP_SIZE];	/* a write for each node of the group that is kept */
	int			n;
	int			next;			/* the first behind the group */
	char		names[][ZKL_CHILD_NAME_SIZE];
} AskedNodes;

static void
remove_op(AskedNodes *asked, int i)
{
	free((char *) asked->ops[i].data);
	asked->ops[i] = asked->ops[--asked->n_ops];
}

static void
remove_ops(AskedNodes *asked)
{
	while (asked->n_ops > 0)
		remove_op(asked, 0);
}

static void
asked_nodes_free(void *subject)
{
	AskedNodes *asked = subject;

	remove_ops(asked);
	free(asked);
}

static AskedNodes *
asked_nodes_new(const char *lock_path, const char *contender, int room)
{
	size_t		names_size = (size_t) room * ZKL_CHILD_NAME_SIZE;
	AskedNodes *asked = calloc(1, sizeof(AskedNodes) + names_size + strlen(lock_path) + 1);

	if (asked == NULL)
		return NULL;
	asked->lock_path = strcpy((char *) asked->names + names_size, lock_path);
	snprintf(asked->contender, sizeof(asked->contender), "%s", contender);
	asked->uses.subject = asked;
	asked->uses.free_subject = asked_nodes_free;
	return asked;
}

/*
 * A question was not asked, and that says nothing about the node: the contender lists again
 * and asks all, with the next retry.  A contender of another session asks by itself, or its
 * keepers look at the queue.
 */
static void
ask_again(ZklSession *session, const char *lock_path, const char *contender)
{
	for (ZklNode *node = zkl__nodes_below(session, lock_path, strlen(lock_path)); node;
		 node = zkl__next_below(node))
		if (strcmp(node->name, contender) == 0)
			node->priv->has_asked = false;
	zkl__retry_later(session, ZKL_RETRY_UNANSWERED);
}

/* Is the node gone, has its owner answered, or may it not be read or changed? */
static bool
says_enough(ZklResultCode code)
{
	return code == ZKL_RC_OK || code == ZKL_RC_NO_NODE || code == ZKL_RC_BAD_VERSION ||
		code == ZKL_RC_NO_AUTH;
}

static void on_kept_read(ZklCall *call, const ZklResult *result);

/* Reads the nodes of the next group. */
static void
read_group(ZklSession *session, AskedNodes *asked)
{
	for (int i = 0; i < GROUP_SIZE && asked->next < asked->n; i++)
	{
		char	   *name = asked->names[asked->next++];
		ZklCall    *call = zkl__call_new(session, on_kept_read, asked, &asked->uses);

		if (call)
			call->detail = name;
		if (zkl__read_child(call, asked->lock_path, name, false))
			asked->n_reads++;
		else
			ask_again(session, asked->lock_path, asked->contender);
	}
}

static void on_asked(ZklCall *call, const ZklResult *result);

static void
ask_group(ZklSession *session, AskedNodes *asked)
{
	if (asked->n_ops == 0)
		read_group(session, asked);
	else if (!zkl__send_all(zkl__call_new(session, on_asked, asked, &asked->uses),
							asked->n_ops == 1 ? ZKL_SINGLE : ZKL_MULTI,
							asked->ops, asked->n_ops))
	{
		ask_again(session, asked->lock_path, asked->contender);
		remove_ops(asked);
		read_group(session, asked);
	}
}

/* A throttling server, or exhausted memory, fails a call and leaves the connection. */
static bool
has_lost_connection(const ZklCall *call, const ZklResult *result)
{
	return result->code == ZKL_RC_CONNECTION_LOSS && !zkl__is_connected(call->session);
}

/*
 * One refusal refuses the multi: the owner has answered or deleted its node, or an ACL
 * forbids the write.  The other nodes are asked again.  On the next connection the
 * contender asks for all that are left.
 */
static void
on_asked(ZklCall *call, const ZklResult *result)
{
	AskedNodes *asked = call->subject;
	int			failed = zkl__failed_op(result);

	if (has_lost_connection(call, result))
		return;
	if (!says_enough(result->code))
		ask_again(call->session, asked->lock_path, asked->contender);
	if (says_enough(result->code) && result->code != ZKL_RC_OK)
		remove_op(asked, failed >= 0 ? failed : 0);
	else
		remove_ops(asked);
	ask_group(call->session, asked);
}

static bool
add_op(AskedNodes *asked, const char *name, const ZklResult *node)
{
	char	   *data = malloc((size_t) node->data_len);

	if (data == NULL)
		return false;
	memcpy(data, node->data, (size_t) node->data_len);
	zkl_set_keep(data, node->data_len, ZKL_KEEP_ASKED);
	asked->ops[asked->n_ops++] = (ZklOp)
	{
		.kind = ZKL_OP_SET,
			.path = asked->lock_path,
			.child = name,
			.data = data,
			.data_len = node->data_len,
			.version = node->version
	};
	return true;
}

static void
on_kept_read(ZklCall *call, const ZklResult *result)
{
	AskedNodes *asked = call->subject;
	bool		is_asked = says_enough(result->code);

	asked->n_reads--;
	if (result->code == ZKL_RC_OK && result->data_len <= MAX_DATA &&
		zkl_parse_keep(result->data, result->data_len) == ZKL_KEEP_MAY)
		is_asked = add_op(asked, call->detail, result);
	if (!is_asked && !has_lost_connection(call, result))
		ask_again(call->session, asked->lock_path, asked->contender);
	if (asked->n_reads == 0 && !has_lost_connection(call, result))
		ask_group(call->session, asked);
}

/*
 * Asks for all nodes in a list that may be kept, and that the contender waits for: holders,
 * and also waiters, which could keep what they are granted later.
 */
void
zkl__ask_for_kept(ZklSession *session, const char *lock_path, const ZklResult *list,
				  const char *contender)
{
	AskedNodes *asked = NULL;
	ZklContender waiter;
	ZklContender other;

	if (!zkl_parse_child(contender, &waiter))
		return;
	for (int i = 0; i < list->n_children; i++)
	{
		const char *child = list->children[i];

		if (strlen(child) >= ZKL_CHILD_NAME_SIZE || !zkl_parse_child(child, &other) ||
			!zkl_may_be_kept(&other) || !(waiter.writer || other.writer) ||
			(int64_t) other.owner == zkl__session_id(session) ||
			!zkl_is_before(other.number, child, waiter.number, contender))
			continue;
		if (asked == NULL)
			asked = asked_nodes_new(lock_path, contender, list->n_children - i);
		if (asked == NULL)
		{
			ask_again(session, lock_path, contender);
			return;
		}
		strcpy(asked->names[asked->n++], child);
	}
	if (asked == NULL)
		return;
	read_group(session, asked);
	zkl__uses_end(session, &asked->uses);
}


/*
 * What a non-blocking attempt may wait for
 */

/*
 * Returns the session whose pending delete the predecessor is, because the session's owner has
 * the local lock, which the owner of the predecessor needed to create it; or 0.
 */
static uint64_t
released_by(const ZklNode *node, const char *predecessor)
{
	uint32_t	tag = zkl__config(node->session)->server_tag;
	ZklContender contender;

	return tag != 0 && !node->priv->none_released && zkl_parse_child(predecessor, &contender) &&
		contender.guid_end >> 32 == tag ? contender.owner : 0;
}

uint64_t
zkl__node_awaits_release(const ZklNode *node)
{
	return node->non_blocking && node->state == NODE_WAITING ?
		released_by(node, node->priv->watched) : 0;
}

/* Returns whether its session may keep a predecessor; whether it does is in the node's data. */
static bool
may_be_kept(const ZklNode *node, const char *predecessor)
{
	ZklContender contender;

	return released_by(node, predecessor) == 0 && zkl_parse_child(predecessor, &contender) &&
		zkl_may_be_kept(&contender);
}

/* Returns whether this node holds the lock: one that waits will use it. */
static bool
is_granted(const ZklResult *list, const char *child)
{
	const char *before;

	return zkl_position(list->children, list->n_children, &child, 1, false, &before) ==
		ZKL_POSITION_FIRST;
}

/* Returns whether a node may wait for this predecessor in the list. */
bool
zkl__node_may_wait(const ZklNode *node, const char *predecessor, const ZklResult *list)
{
	return !node->non_blocking || released_by(node, predecessor) != 0 ||
		(may_be_kept(node, predecessor) && is_granted(list, predecessor));
}

/* Does a non-blocking attempt wait for the answer of a session that it has asked? */
bool
zkl__node_awaits_answer(const ZklNode *node)
{
	return node->non_blocking && node->state == NODE_WAITING &&
		may_be_kept(node, node->priv->watched);
}

/* Returns whether a non-blocking attempt finds that the lock is in use, not only kept. */
bool
zkl__node_is_refused(const ZklNode *node, const ZklResult *predecessor)
{
	ZklKeepState state = zkl_parse_keep(predecessor->data, predecessor->data_len);

	return node->non_blocking && may_be_kept(node, node->priv->watched) &&
		state != ZKL_KEEP_MAY && state != ZKL_KEEP_ASKED;
}
