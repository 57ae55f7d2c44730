/*-------------------------------------------------------------------------
 *
 * questions.c
 *		Asks other sessions for nodes that they may keep.
 *
 * A contender asks by a change of the node's data, which its owner watches.  The owner
 * deletes a node that it only keeps, or answers that it is in use (lock/kept.c).  The
 * change names the version that was read, so it replaces neither an answer nor another
 * program's data.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct Question
{
	ZklUses		uses;
	char	   *path;			/* of the node, in the same chunk of memory */
} Question;

static void
send_question(ZklCall *call, const char *path, const ZklResult *node)
{
	char	   *data = malloc((size_t) node->data_len);
	ZklOp		op = {
		.kind = ZKL_OP_SET,
		.path = data ? path : NULL,
		.data = data,
		.data_len = node->data_len,
		.version = node->version
	};

	if (data)
	{
		memcpy(data, node->data, (size_t) node->data_len);
		zkl_set_keep(data, node->data_len, ZKL_KEEP_ASKED);
	}
	zkl__send(call, &op);
	free(data);
}

static void
on_kept_read(ZklCall *call, const ZklResult *result)
{
	Question   *question = call->subject;

	if (result->code == ZKL_RC_OK &&
		zkl_parse_keep(result->data, result->data_len) == ZKL_KEEP_MAY)
		send_question(zkl__call_new(call->session, zkl__ignore_answer, question, &question->uses),
					  question->path, result);
}

/* If memory is exhausted, the owner finds out by itself, when it looks at the queue. */
static void
ask(ZklSession *session, const char *lock_path, const char *child)
{
	Question   *question = calloc(1, sizeof(Question) + strlen(lock_path) + strlen(child) + 2);
	ZklOp		read = {.kind = ZKL_OP_GET};

	if (question == NULL)
		return;
	question->path = (char *) (question + 1);
	stpcpy(stpcpy(stpcpy(question->path, lock_path), "/"), child);
	question->uses.subject = question;
	question->uses.free_subject = free;
	read.path = question->path;
	zkl__send(zkl__call_new(session, on_kept_read, question, &question->uses), &read);
	zkl__uses_end(session, &question->uses);
}

/*
 * Asks for all nodes in a list that may be kept, and that the contender waits for: holders,
 * and also waiters, which could keep what they are granted later.
 */
void
zkl__ask_for_kept(ZklSession *session, const char *lock_path, const ZklResult *list,
				  const char *contender)
{
	ZklContender waiter;
	ZklContender other;

	if (!zkl_parse_child(contender, &waiter))
		return;
	for (int i = 0; i < list->n_children; i++)
	{
		const char *child = list->children[i];

		if (zkl_has_keep_bit(child) && zkl_parse_child(child, &other) &&
			(waiter.writer || other.writer) &&
			(int64_t) other.owner != zkl__session_id(session) &&
			zkl_is_before(other.number, child, waiter.number, contender))
			ask(session, lock_path, child);
	}
}


/*
 * What a non-blocking attempt may wait for
 */

/*
 * Returns whether the predecessor is a pending delete, because the session's owner has the
 * local lock, which the owner of the predecessor needed to create it.
 */
static bool
is_released_here(const ZklNode *node, const char *other)
{
	uint32_t	tag = zkl__config(node->session)->server_tag;

	return tag != 0 && zkl_parse_tag(other) == tag;
}

/* Returns whether a predecessor can be one that its session keeps; its data will tell. */
static bool
can_be_kept(const ZklNode *node, const char *other)
{
	return !is_released_here(node, other) && zkl_has_keep_bit(other);
}

/* Returns whether a node may wait for this predecessor. */
bool
zkl__node_may_wait(const ZklNode *node, const char *other)
{
	return !node->non_blocking || is_released_here(node, other) || can_be_kept(node, other);
}

/* Does a non-blocking attempt wait for the answer of a session that it has asked? */
bool
zkl__node_awaits_keeper(const ZklNode *node)
{
	return node->non_blocking && node->state == NODE_WAITING &&
		can_be_kept(node, node->priv->watched);
}

/* Returns whether a non-blocking attempt finds that the lock is in use, not only kept. */
bool
zkl__node_is_refused(const ZklNode *node, const ZklResult *predecessor)
{
	ZklKeepState state = zkl_parse_keep(predecessor->data, predecessor->data_len);

	return node->non_blocking && can_be_kept(node, node->priv->watched) &&
		state != ZKL_KEEP_MAY && state != ZKL_KEEP_ASKED;
}
