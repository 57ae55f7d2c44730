/*-------------------------------------------------------------------------
 *
 * advance.c
 *		One request: advancing it, the news of its nodes, its grant.
 *
 * All nodes of a request are created by one create or one multi.  So requests for
 * several locks are in the same order in all queues and cannot deadlock each other.
 * The nodes are granted or given up together; node.c handles each one in
 * between.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "internal.h"

/* Grants the request: its nodes become locks, which the owner can take. */
void
zkl__request_grant(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
	{
		request->nodes[i]->may_be_gone = false;
		zkl__lock_granted(request->locks[i], request->nodes[i]);
		if (request->reacquires)
			continue;
		zkl__elision_note(request->nodes[i]);
		if (request->nodes[i]->keep == ZKL_KEEP_NEVER)
			zkl__hold_watch_later(request->nodes[i]);
		else
			zkl__kept_granted(request->nodes[i]);
	}
	request->status = ZKL_OK;
	zkl__wake_at_unlock(request->session);
}


/*
 * Advancing
 */

/* Sets the czxid of the permit node, or the one that all new nodes of the request share. */
static void
on_czxid_read(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;
	ZklNode    *node = call->detail;

	if (!zkl__request_answered(request, &request->czxid_call, call, result))
		return;
	if (result->code == ZKL_RC_NO_NODE)
		zkl__request_restart(request);
	else if (result->code != ZKL_RC_OK)
		zkl__request_fail_code(request, node->index, result);
	else if (result->czxid < 1) /* no server's; a token is positive */
		zkl__request_fail(request, ZKL_SERVER_ERROR, node->index, 0);
	else
	{
		if (node->is_permit)
			node->czxid = result->czxid;
		else
			for (int i = 0; i < request->n; i++)
				zkl__node_czxid_known(request->nodes[i], result->czxid);
		zkl__request_mark(request);
	}
}

/* Reads the czxid of a node whose create was answered without it. */
void
zkl__request_read_czxid(ZklRequest *request, ZklNode *node)
{
	ZklCall    *call;

	if (request->czxid_call)
		return;
	call = zkl__request_call(request, on_czxid_read);
	zkl__call_keep(call, node, &node->uses);
	request->czxid_call = zkl__read_child(call, node->lock_path, node->name, false);
}

/*
 * Returns whether the node's number is too high.  The server numbers children with a
 * signed 32-bit counter of their parent; when it wraps, the order of the queue would be
 * reversed.  The limit leaves room for upgrades.
 */
static bool
is_number_used_up(const ZklNode *node)
{
	return !node->is_upgrade &&
		(node->number < 0 || node->number > zkl__config(node->session)->sequence_limit);
}

/*
 * Fails the request, and deletes the lock's znode right behind its nodes: then the
 * numbers begin at 0 again.  The server refuses that delete while other nodes exist.
 */
static void
fail_used_up(ZklRequest *request, int i)
{
	ZklSession *session = request->session;
	ZklOp		op = {.kind = ZKL_OP_DELETE, .path = request->nodes[i]->lock_path};
	ZklCall    *call = zkl__call_new(session, zkl__ignore_answer, request->nodes[i],
									 &request->nodes[i]->uses);

	zkl__request_fail(request, ZKL_SEQUENCE_USED_UP, i, 0);
	zkl__send(call, &op);
}

/* All nodes exist: checks their numbers, and reads their czxid if it is unknown. */
static void
check_nodes(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
		if (is_number_used_up(request->nodes[i]))
		{
			fail_used_up(request, i);
			return;
		}
	for (int i = 0; i < request->n; i++)
		if (!request->nodes[i]->is_upgrade && request->nodes[i]->czxid == 0)
		{
			zkl__request_read_czxid(request, request->nodes[i]);
			return;
		}
}

/* Creates the nodes if there are none yet, and again if only some of them exist. */
static void
advance_nodes(ZklRequest *request)
{
	int			n_new = 0;

	for (int i = 0; i < request->n; i++)
	{
		ZklNodeState state = request->nodes[i]->state;

		if (state == NODE_CREATING || state == NODE_UNKNOWN)
			return;
		n_new += state == NODE_NEW;
	}
	if (n_new == request->n)
		zkl__request_create_nodes(request);
	else if (n_new > 0)
		zkl__request_restart(request);
	else
		check_nodes(request);
}

/*
 * Checks before a grant
 *
 * The answer that shows the nodes to be first suffices for a grant, unless another client may
 * have deleted one of them since: while the connection was lost, while the answer took so long
 * that the lease would not allow the grant, or, for several nodes, while others were waited for.
 * Then one multi checks all nodes, a write, whose answer renews the lease as well.  What an
 * upgrade builds on is checked with it.
 */

static void
on_verified(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;

	if (!zkl__request_answered(request, &request->verify_call, call, result))
		return;
	if (result->code == ZKL_RC_OK && zkl__lease_is_fresh(request->session))
		zkl__request_grant(request);
	else if (result->code == ZKL_RC_OK)
		zkl__request_mark(request); /* this answer was late, too */
	else if (result->code == ZKL_RC_NO_NODE)
		zkl__request_restart(request);
	else
		zkl__request_fail_code(request, -1, result);
}

static ZklCall *
send_checks(ZklCall *call, const ZklRequest *request)
{
	ZklOp	   *ops = calloc(2 * (size_t) request->n, sizeof(ZklOp));
	int			n = 0;

	for (int i = 0; ops && i < request->n; i++)
	{
		const ZklNode *node = request->nodes[i];
		const ZklNode *anchor = node->is_upgrade ? request->locks[i]->anchor : NULL;

		ops[n++] = zkl__op_for_node(ZKL_OP_CHECK, node);
		if (anchor && anchor->state == NODE_HELD)
			ops[n++] = zkl__op_for_node(ZKL_OP_CHECK, anchor);
	}
	call = zkl__send_all(call, ZKL_MULTI, ops, n);
	free(ops);
	return call;
}

/* Of several nodes, one may have been seen long before the others. */
static bool
may_be_gone(const ZklRequest *request)
{
	int64_t		age_ms = zkl_now_ms() - request->created_ms;

	if (request->n > 1 && age_ms > zkl__session_timeout_ms(request->session) / 6)
		return true;
	for (int i = 0; i < request->n; i++)
		if (request->nodes[i]->may_be_gone)
			return true;
	return request->n > 1 && request->was_blocked;
}

/*
 * Grants the request when all nodes are first.  A node that was kept is taken again only while
 * it is watched: if it has been removed, the server has sent the event of the watch before the
 * answer to the proof, so the proof shows that the node exists.
 */
static void
grant_locks(ZklRequest *request)
{
	if (request->status != ZKL_PENDING || !zkl__request_is_first(request) ||
		(request->reacquires && request->nodes[0]->hold_watch != HOLD_WATCHED))
		return;
	for (int i = 0; i < request->n && !request->reacquires; i++)
		request->nodes[i]->may_be_gone |= !zkl__lease_is_fresh(request->session);
	if (!may_be_gone(request))
	{
		if (zkl__prove_for_grant(request->session))
			zkl__request_grant(request);
	}
	else if (request->verify_call == NULL && zkl__is_connected(request->session))
	{
		request->verify_call = send_checks(zkl__request_call(request, on_verified), request);
		zkl__prove_by_write(request->verify_call);
	}
}

/*
 * Sends the next operation that the request as a whole needs, if any, and grants it in the
 * end.  A permit is granted by src/recipe/semaphore, after this.
 */
void
zkl__request_advance(ZklRequest *request)
{
	if (request->status != ZKL_PENDING || request->create_call ||
		!zkl__is_connected(request->session))
		return;
	advance_nodes(request);
	if (request->permit == NULL)
		grant_locks(request);
}

/*
 * Deletes the nodes and queues again, because another client deleted a node.  Each delete is a
 * request, because one multi would fail, and the new nodes would wait for the old ones.
 */
void
zkl__request_restart(ZklRequest *request)
{
	request->czxid_call = NULL;
	request->verify_call = NULL;
	request->reacquires = false;
	request->is_restarted = true;
	zkl__request_leave_permit(request);
	for (int i = 0; i < request->n; i++)
	{
		ZklNode    *old = request->nodes[i];
		ZklNode    *fresh;

		if (old->state == NODE_NEW)
			continue;
		fresh = zkl__request_node_new(request, i, old->lock_path, old->mode, old->is_upgrade);
		if (fresh == NULL)
		{
			zkl__request_fail(request, ZKL_NO_MEMORY, i, 0);
			return;
		}
		request->nodes[i] = fresh;
		request->progress += old->uses.progress;
		zkl__node_leave(old);
	}
	zkl__request_mark(request);
}


/*
 * News
 */

/*
 * Takes the news of a node: for its request, or for the lock that it belongs to.  Marks the
 * request, or grants it, if it goes on.
 */
void
zkl__node_news(ZklNode *node, unsigned news)
{
	ZklRequest *request = node->request;

	zkl__hold_news(node, news);
	if (request == NULL || node->request != request)
		return;
	if (news & NODE_BLOCKED)
		zkl__request_blocked(request, node->index, node->answer);
	if (news & NODE_FAILED)
	{
		if (node->failure == ZKL_LOCK_LOST)
			zkl__lock_lose(request->locks[node->index]);
		zkl__request_fail(request, node->failure, node->index, node->raw_code);
	}
	else if (news & NODE_REMOVED)
		zkl__request_restart(request);
	else if (news & NODE_FOUND)
	{
		if (node->state > NODE_UNKNOWN)
			request->attempts = 0;
		zkl__request_mark(request);
	}
	else if (news & NODE_PROGRESS && request->permit)
		zkl__request_mark(request);
	else if (news & NODE_PROGRESS)
		grant_locks(request);
}


/*
 * Events of the session
 */

/* Has all requests advanced. */
void
zkl__requests_mark(ZklSession *session)
{
	for (ZklRequest *request = zkl__requests(session); request; request = request->next)
		zkl__request_mark(request);
}
