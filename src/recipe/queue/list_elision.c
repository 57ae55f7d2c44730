/*-------------------------------------------------------------------------
 *
 * list_elision.c
 *		Proves that a new node is first in its queue without a getChildren.
 *
 * A lock's znode counts the children created in it, and the server numbers new
 * children by that count.  So number 0 is first: no node was created before it, unless
 * the count has wrapped, which takes 2^32 creates.
 *
 * Also suppose that this session was granted number n with no node before it, and that
 * its next node has number n + 1.  Then no node was created in between, and all nodes
 * before n are gone, so n + 1 is first; at most n itself is left, whose delete may be
 * pending.  The exception: the znode was deleted meanwhile, as the server does with an
 * empty container, and the count of its successor has reached n + 1.  That takes more than
 * n + 1 transactions: the delete and n + 1 creates, before the new node.  Transaction ids
 * are consecutive, so a czxid at most n + 1 above the old one rules this out.  A new
 * connection clears the last grants, because it may lead to a new leader or to an ensemble
 * restored from a copy, with other ids.
 *
 * The proofs assume that no transaction creates two nodes in one queue, and that no client
 * creates a node with a number that the count has not reached.  No recipe of zklock,
 * ZooKeeper, Curator or kazoo does.  Without a proof, the queue is listed.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* The session's last node in a queue that was granted with no node before it. */
typedef struct ZklLastGrant
{
	int32_t		number;
	int64_t		czxid;
	bool		next_expected;	/* the next node's proof will probably succeed, too */
	char		lock_path[];
} LastGrant;

static LastGrant **
slot_of(const ZklNode *node)
{
	uint64_t	hash = zkl_hash(ZKL_HASH, node->lock_path, strlen(node->lock_path));

	return &zkl__queues(node->session)->last_grants[hash % ZKL_LAST_GRANTS];
}

static LastGrant *
last_grant(const ZklNode *node)
{
	LastGrant  *last = *slot_of(node);

	return last && strcmp(last->lock_path, node->lock_path) == 0 ? last : NULL;
}

/* Returns whether a proof is likely for a node that is about to be created. */
bool
zkl__elision_expected(const ZklNode *node)
{
	const LastGrant *last = node->is_upgrade ? NULL : last_grant(node);

	return last && last->next_expected;
}

/* The queue has to be listed: the next node's list is sent with its create. */
void
zkl__elision_failed(const ZklNode *node)
{
	LastGrant  *last = last_grant(node);

	if (last)
		last->next_expected = false;
}

static bool
is_first_number(const ZklNode *node)
{
	ZklContender contender;

	return node->number == 0 && zkl_parse_child(node->name, &contender);
}

/* Returns whether the node's name and czxid prove that it was first when it was created. */
ZklElision
zkl__elision(const ZklNode *node)
{
	const LastGrant *last;

	if (node->is_upgrade || node->is_permit)
		return ZKL_ELISION_NONE;
	if (is_first_number(node))
		return ZKL_ELISION_FIRST;
	last = last_grant(node);
	if (last == NULL || node->number != (int64_t) last->number + 1)
		return ZKL_ELISION_NONE;
	if (node->czxid == 0)
		return ZKL_ELISION_NEEDS_CZXID;
	return node->czxid - last->czxid <= node->number ? ZKL_ELISION_FIRST : ZKL_ELISION_NONE;
}

/* Replaces what the slot of the path has; returns NULL if memory is exhausted. */
static LastGrant *
last_grant_new(const ZklNode *node)
{
	size_t		size = strlen(node->lock_path) + 1;
	LastGrant  *last = malloc(sizeof(LastGrant) + size);
	LastGrant **slot = slot_of(node);

	if (last == NULL)
		return NULL;
	memcpy(last->lock_path, node->lock_path, size);
	free(*slot);
	*slot = last;
	return last;
}

/* Stores a node that is granted, unless there may be sharers before it. */
void
zkl__elision_note(const ZklNode *node)
{
	bool		proven = zkl__elision(node) == ZKL_ELISION_FIRST;
	LastGrant  *last;

	if (node->is_upgrade || node->is_permit || !(proven || node->mode == ZKL_MODE_EXCLUSIVE))
		return;
	last = last_grant(node);
	if (last == NULL)
		last = last_grant_new(node);
	if (last == NULL)
		return;
	last->number = node->number;
	last->czxid = node->czxid;
	last->next_expected = proven && node->number > 0;	/* 1 is hardly ever proven */
}

/* Forgets all grants: a new connection may lead to a server with other ids. */
void
zkl__elision_forget(ZklSession *session)
{
	LastGrant **grants = zkl__queues(session)->last_grants;

	for (int i = 0; i < ZKL_LAST_GRANTS; i++)
	{
		free(grants[i]);
		grants[i] = NULL;
	}
}
