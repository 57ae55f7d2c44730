/*-------------------------------------------------------------------------
 *
 * list_elision.c
 *		Proves that a new node is first in its queue without a getChildren.
 *
 * A lock's znode counts the children created in it, and the server numbers new
 * children by that count.  So number 0 is first: no node was created before it.
 *
 * Also suppose that this session was granted number n with no node before it, and that
 * its next node has number n + 1.  Then no node was created in between, and all nodes
 * before n are gone, so n + 1 is first.  The exception: the znode was deleted meanwhile,
 * as the server does with an empty container, and the count of its successor has reached
 * n + 1.  That takes more than n + 1 transactions: the delete and n + 1 creates, before
 * the new node.  Transaction ids are consecutive, so a czxid at most n + 1 above the old
 * one rules this out.  A new connection clears the last grants, because it may lead to a
 * new leader or to an ensemble restored from a copy, with other ids.
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
	uint32_t	hash = zkl__path_hash(node->lock_path, strlen(node->lock_path));

	return &zkl__parts(node->session)->last_grants[hash % ZKL_LAST_GRANTS];
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
	const LastGrant *last = node->upgrade ? NULL : last_grant(node);

	return last && last->next_expected;
}

/* Returns whether the node's name and czxid prove that it was first when it was created. */
ZklElision
zkl__elision(const ZklNode *node)
{
	const LastGrant *last = last_grant(node);

	if (node->upgrade)
		return ZKL_ELISION_NONE;
	if (node->number == 0)
		return ZKL_ELISION_FIRST;
	if (last == NULL || node->number != (int64_t) last->number + 1)
		return ZKL_ELISION_NONE;
	if (node->czxid == 0)
		return ZKL_ELISION_NEEDS_CZXID;
	return node->czxid > last->czxid && node->czxid - last->czxid <= node->number
		? ZKL_ELISION_FIRST : ZKL_ELISION_NONE;
}

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

/* Stores the granted node, unless there may be sharers before it. */
void
zkl__elision_note(const ZklNode *node)
{
	bool		proven = zkl__elision(node) == ZKL_ELISION_FIRST;
	LastGrant  *last = last_grant(node);

	if (node->upgrade || node->is_permit || !(proven || node->mode == ZKL_MODE_EXCLUSIVE))
		return;
	if (last == NULL)
		last = last_grant_new(node);
	if (last == NULL)
		return;
	last->number = node->number;
	last->czxid = node->czxid;
	last->next_expected = proven && node->number > 0;	/* number 1 is never proven */
}

/* Forgets all grants: a new connection may lead to a server with other ids. */
void
zkl__elision_forget(ZklSession *session)
{
	LastGrant **grants = zkl__parts(session)->last_grants;

	for (int i = 0; i < ZKL_LAST_GRANTS; i++)
	{
		free(grants[i]);
		grants[i] = NULL;
	}
}
