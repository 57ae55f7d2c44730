/*-------------------------------------------------------------------------
 *
 * hold_watch.c
 *		Watches the nodes of held locks, to detect their loss and revocation, and that of a
 *		semaphore's mutex.
 *
 * Another client may delete the node of a held lock, for example by hand.  A watch
 * on the node reports that.  The watch is set by reading the node after the lock has
 * been held for a moment, which spares short transactions the read.  A node deleted
 * before that is found missing when the watch is set.  A commit check sets the watches
 * that are missing, and relies on them (lock.c).
 *
 * The same watch reports a revocation: another client has set the data of the node
 * to __REVOKE__.  The session then writes the original data back, which show who
 * holds the lock.  It replaces only the version that it has read, so a second
 * revocation is never overwritten unseen.  The version grows with each change, so a
 * revocation that is read again after a lost connection is counted once.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* How long a lock is held before its node is watched. */
#define HOLD_WATCH_DELAY_MS 1000

/* Is the node first in its queue, under a name that is known? */
static bool
can_be_watched(const ZklNode *node)
{
	return node->state == NODE_HELD ||
		(node->state == NODE_DOWNGRADING && !zkl__node_is_moving(node));
}

void
zkl__hold_watch_later(ZklNode *node)
{
	if (node->state != NODE_HELD && node->state != NODE_DOWNGRADING)
		return;
	node->hold_watch = HOLD_UNWATCHED;
	node->hold_watch_ms = zkl_now_ms() + HOLD_WATCH_DELAY_MS;
	zkl__set_due(node->session, &zkl__locks(node->session)->hold_watch_ms, node->hold_watch_ms);
}

/* A change fires the watch, which reads the node again; a lost answer needs a retry. */
static void
on_restored(ZklCall *call, const ZklResult *result)
{
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		zkl__hold_watch_later(call->subject);
}

/* Writes the node's own data, in the place of those of this version. */
void
zkl__hold_watch_restore(ZklNode *node, int32_t version)
{
	ZklOp		op = {
		.kind = ZKL_OP_SET,
		.path = node->lock_path,
		.child = node->name,
		.data = node->data,
		.data_len = node->data_len,
		.version = version
	};

	if (!zkl__send(zkl__node_call(node, on_restored), &op))
		zkl__hold_watch_later(node);
}

/* The data of a lock's node have been replaced by a request to release it; their version. */
void
zkl__hold_watch_revoked(ZklNode *node, int32_t version)
{
	ZklLock    *lock = node->lock;

	if (version != node->revoked_version)
	{
		node->revoked_version = version;
		lock->revocations++;
		if (lock->taken && !lock->lost)
			zkl__config(node->session)->on_revoke_io();
		zkl__wake_at_unlock(node->session);
	}
	if (node->state != NODE_HELD)
		return;
	zkl__note_asked(node);
	zkl__hold_watch_restore(node, version);
}

/* What follows from the answer depends on whose node it is (hold_news.c). */
static void
on_hold_watch_set(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->subject;

	if (result->code == ZKL_RC_OK)
		node->hold_watch = HOLD_WATCHED;
	else if (result->code == ZKL_RC_CONNECTION_LOSS)
		zkl__hold_watch_later(node);	/* a busy server may refuse a read, too: no answer */
	else if (result->code != ZKL_RC_NO_NODE)
	{
		zkl__hold_watch_later(node);	/* also if an ACL forbids to read it */
		node->hold_watch = HOLD_UNREADABLE;
	}
	zkl__node_mark_answer(node, NODE_READ, result);
}

void
zkl__hold_watch_node(ZklNode *node)
{
	node->hold_watch_ms = 0;
	node->hold_watch = HOLD_UNWATCHED;
	if (!zkl__read_child(zkl__node_call(node, on_hold_watch_set), node->lock_path, node->name, true))
		zkl__hold_watch_later(node);
}

/* Watches all held nodes that are not watched yet. */
void
zkl__hold_watch_now(ZklSession *session)
{
	for (ZklNode *node = zkl__nodes(session); node; node = node->next)
		if (can_be_watched(node) && node->hold_watch_ms != 0)
			zkl__hold_watch_node(node);
}

void
zkl__hold_watches_due(ZklSession *session)
{
	int64_t    *due = &zkl__locks(session)->hold_watch_ms;
	int64_t		now = zkl_now_ms();

	if (!zkl__take_due(session, due, now))
		return;
	for (ZklNode *node = zkl__nodes(session); node; node = node->next)
		if ((node->state == NODE_HELD || node->state == NODE_DOWNGRADING) && node->hold_watch_ms != 0)
		{
			if (now < node->hold_watch_ms || !can_be_watched(node))
				zkl__set_due(session, due, now + HOLD_WATCH_DELAY_MS);	/* then all others are due, too */
			else if (zkl__is_connected(session))
				zkl__hold_watch_node(node);
		}
}

/* Watches the node, now or as soon as its name is known. */
void
zkl__hold_watch_again(ZklNode *node)
{
	if (can_be_watched(node))
		zkl__hold_watch_node(node);
	else
		zkl__hold_watch_later(node);
}

/*
 * After a new connection: all watches are lost, and maybe the removal of a node, or a question for
 * one that may be kept.
 */
void
zkl__hold_watches_lost(ZklSession *session)
{
	for (ZklNode *node = zkl__nodes(session); node; node = node->next)
		zkl__hold_watch_again(node);
}
