/*-------------------------------------------------------------------------
 *
 * hold_news.c
 *		What happens when something is found about a node that is first in its queue, by its
 *		watch or by a timer: one table of whose node it is and what was found.
 *
 * A node of a lock that is gone is a loss.  A contender asks for a node that may be kept
 * (ask.c): its owner deletes it if it is only kept, or about to be taken again, and answers that
 * it is in use otherwise; a request that is about to be granted for the first time does not lose
 * its place.  Any change of a kept node counts as a question, and so does a waiter that perhaps
 * cannot ask.  Without a finding a kept node goes only for another request of its own session, and
 * because its owner says so (kept.c: zkl__kept_make_room(), zkl__kept_leave(), zkl__kept_leave_all()).
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "internal.h"

/*
 * In the order of ZklFinding: nothing, ours, asked, other, revoke, removed, unreadable, changed,
 * waiter, time up.
 */
static const unsigned short responses[ZKL_N_HELD_BY][ZKL_N_FINDINGS] = {
	[ZKL_HELD_BY_NOBODY] = {
		0, 0, ZKL_NOTE, 0, 0, 0, 0, 0,
		ZKL_NOTE, 0
	},
	[ZKL_HELD_BY_LOCK] = {
		0, 0, ZKL_NOTE | ZKL_ANSWER, ZKL_KEEP_NOT, ZKL_KEEP_NOT | ZKL_REVOKED,
		ZKL_LOSE, 0, ZKL_WATCH,
		ZKL_NOTE | ZKL_KEEP_NOT, 0
	},
	[ZKL_HELD_BY_REQUEST] = {
		0, ZKL_GO_ON, ZKL_NOTE | ZKL_ANSWER, ZKL_KEEP_NOT | ZKL_GO_ON, ZKL_KEEP_NOT | ZKL_GO_ON,
		ZKL_QUEUE_AGAIN, 0, ZKL_WATCH,
		ZKL_NOTE | ZKL_KEEP_NOT, 0
	},
	[ZKL_HELD_BY_REACQUIRING] = {
		0, ZKL_GO_ON, ZKL_NOTE | ZKL_QUEUE_AGAIN, ZKL_NOTE | ZKL_QUEUE_AGAIN, ZKL_NOTE | ZKL_QUEUE_AGAIN,
		ZKL_QUEUE_AGAIN, ZKL_QUEUE_AGAIN, ZKL_WATCH,
		ZKL_NOTE | ZKL_KEEP_NOT, 0
	},
	[ZKL_HELD_BY_SESSION] = {
		0, 0, ZKL_NOTE | ZKL_LEAVE, ZKL_NOTE | ZKL_LEAVE, ZKL_NOTE | ZKL_LEAVE,
		ZKL_LEAVE, ZKL_LEAVE, ZKL_NOTE | ZKL_LEAVE,
		ZKL_NOTE | ZKL_LEAVE, ZKL_LEAVE
	},
};

/* Returns what is to be done, as a set of ZklHeldResponse. */
unsigned
zkl__held_response(ZklHeldBy holder, ZklFinding found)
{
	return responses[holder][found];
}

static ZklHeldBy
held_by(const ZklNode *node)
{
	if (node->is_kept)
		return ZKL_HELD_BY_SESSION;
	if (node->request)
		return node->request->reacquires ? ZKL_HELD_BY_REACQUIRING : ZKL_HELD_BY_REQUEST;
	return node->lock ? ZKL_HELD_BY_LOCK : ZKL_HELD_BY_NOBODY;
}

static bool
is_revocation(const ZklResult *result)
{
	return result->data_len == (int) strlen(ZKL_REVOKE_MESSAGE) &&
		memcmp(result->data, ZKL_REVOKE_MESSAGE, strlen(ZKL_REVOKE_MESSAGE)) == 0;
}

/* What does the answer to the read of the node say?  Only a node with ZKL_KEEP_BIT may be kept. */
static ZklFinding
classify(const ZklNode *node, const ZklResult *result)
{
	if (result->code == ZKL_RC_NO_NODE)
		return ZKL_HOLD_FOUND_REMOVED;
	if (result->code != ZKL_RC_OK)
		return zkl_has_keep_bit(node->guid_end) && result->code != ZKL_RC_CONNECTION_LOSS ? ZKL_HOLD_FOUND_UNREADABLE
			: ZKL_HOLD_FOUND_NOTHING;
	if (is_revocation(result) && !node->is_permit && (node->lock || zkl_has_keep_bit(node->guid_end)))
		return ZKL_HOLD_FOUND_REVOKE;
	if (!zkl_has_keep_bit(node->guid_end))
		return ZKL_HOLD_FOUND_NOTHING;
	switch (zkl_parse_keep(result->data, result->data_len))
	{
		case ZKL_KEEP_MAY:
			return ZKL_HOLD_FOUND_OURS;
		case ZKL_KEEP_ASKED:
			return ZKL_HOLD_FOUND_ASKED;
		default:
			return ZKL_HOLD_FOUND_OTHER;
	}
}

/* "version" is that of the node's data, if they were read. */
static void
respond(ZklNode *node, unsigned response, int32_t version)
{
	if (response & ZKL_NOTE)
		zkl__note_asked(node);
	if (response & (ZKL_KEEP_NOT | ZKL_ANSWER))
		zkl__node_keep_never(node);
	if (response & ZKL_ANSWER)
		zkl__hold_watch_restore(node, version);
	if (response & ZKL_REVOKED)
		zkl__hold_watch_revoked(node, version);
	if (response & ZKL_LEAVE)
		zkl__node_leave(node);
	if (response & ZKL_QUEUE_AGAIN)
		zkl__node_mark(node, NODE_REMOVED);
	if (response & ZKL_LOSE)
		zkl__node_mark(node, NODE_LOST);
	if (response & ZKL_GO_ON)
		zkl__node_mark(node, NODE_PROGRESS);
	if (response & ZKL_WATCH)
		zkl__hold_watch_again(node);
}

/* Takes what was found without a read. */
void
zkl__hold_found(ZklNode *node, ZklFinding found)
{
	respond(node, zkl__held_response(held_by(node), found), 0);
}

/* Takes the news of a node that is first in its queue, or was; those of a request come before (advance.c). */
void
zkl__hold_news(ZklNode *node, unsigned news)
{
	if (news & NODE_READ)
		respond(node, zkl__held_response(held_by(node), classify(node, node->answer)),
				node->answer->version);
	if (news & NODE_CHANGED)
		zkl__hold_found(node, ZKL_HOLD_FOUND_CHANGED);
	if (news & NODE_LOST)
	{
		zkl__lock_node_lost(node);
		zkl__node_leave(node);
	}
	if (news & NODE_MOVED && node->state == NODE_HELD)
	{
		node->revoked_version = 0;
		zkl__hold_watch_later(node);
	}
	if (news & NODE_MOVED)
		zkl__confirm_advance(node->session);
}
