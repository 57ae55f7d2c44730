/*-------------------------------------------------------------------------
 *
 * request.c
 *		One request: advancing it, what its nodes report, its grant and failure.
 *
 * All nodes of a request are created by one create or one multi.  So requests for
 * several locks are in the same order in all queues and cannot deadlock each other.
 * The nodes are granted or given up together; queue_lock.c handles each one in
 * between.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"


/*
 * The request as a whole
 */

/* Returns whether all nodes exist and are not being deleted. */
bool
zkl__request_is_queued(const ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
		if (request->nodes[i]->state <= NODE_UNKNOWN || request->nodes[i]->state >= NODE_LEAVING)
			return false;
	return true;
}

/*
 * Returns whether all nodes are first in their queues, and their czxids are known.  Begins
 * with the last node, which usually is the last one to be first.
 */
bool
zkl__request_is_first(const ZklRequest *request)
{
	for (int i = request->n - 1; i >= 0; i--)
		if (request->nodes[i]->state != NODE_HELD ||
			(request->nodes[i]->czxid == 0 && !request->nodes[i]->upgrade))
			return false;
	return true;
}

ZklCall *
zkl__request_call(ZklRequest *request, ZklHandler handler)
{
	return zkl__call_new(request->session, handler, request, &request->uses);
}

/*
 * Returns whether the request waits for this answer, and the answer was not lost.
 * "expected" is the call that the request waits for, and is cleared when answered.
 */
bool
zkl__request_answered(const ZklRequest *request, ZklCall **expected, const ZklCall *call,
					  const ZklResult *result)
{
	if (*expected != call)
		return false;
	*expected = NULL;
	return request->status == ZKL_PENDING && result->code != ZKL_RC_CONNECTION_LOSS;
}

/* A node waits for another session's node, which has this data. */
void
zkl__request_blocked(ZklRequest *request, int culprit, const ZklResult *data)
{
	size_t		n = data->data_len > 0 ? (size_t) data->data_len : 0;

	if (n >= sizeof(request->blocker))
		n = sizeof(request->blocker) - 1;
	if (n > 0)
		memcpy(request->blocker, data->data, n);
	request->blocker[n] = '\0';
	request->culprit = culprit;
	request->was_blocked = true;
	zkl__wake(request->session);
}

/* Grants the request: its nodes become locks, which the owner can take. */
void
zkl__request_grant(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
	{
		request->nodes[i]->may_be_gone = false;
		zkl__lock_granted(request->locks[i], request->nodes[i]);
		if (request->is_again)
			continue;
		zkl__elision_note(request->nodes[i]);
		if (request->nodes[i]->keep == ZKL_KEEP_NEVER)
			zkl__hold_watch_later(request->nodes[i]);
		else
			zkl__kept_granted(request->nodes[i]);
	}
	request->status = ZKL_OK;
	zkl__wake(request->session);
}

/* Frees the locks of a request that is not granted, except for those held before. */
void
zkl__request_free_locks(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
	{
		if (request->locks[i] && !request->locks[i]->taken)
			free(request->locks[i]);
		request->locks[i] = NULL;
	}
}

/* Fails a pending request and has its nodes deleted. */
void
zkl__request_fail(ZklRequest *request, ZklStatus status, int culprit, int raw_code)
{
	if (request->status != ZKL_PENDING)
		return;
	request->status = status;
	request->culprit = culprit;
	request->raw_code = raw_code;
	zkl__leave_begin(request->session);
	if (request->permit)
		zkl__on_permit_failed(request);
	for (int i = 0; i < request->n; i++)
		if (request->nodes[i])
			zkl__node_leave(request->nodes[i]);
	zkl__leave_end(request->session);
	zkl__request_free_locks(request);
	zkl__wake(request->session);
}

void
zkl__request_fail_code(ZklRequest *request, int culprit, const ZklResult *result)
{
	zkl__request_fail(request, zkl__status_of(result->code), culprit,
					  result->raw_code);
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
		zkl__request_advance(request);
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
	return !node->upgrade &&
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
		if (!request->nodes[i]->upgrade && request->nodes[i]->czxid == 0)
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
		zkl__request_advance(request);	/* this answer was late, too */
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
		const ZklNode *anchor = node->upgrade ? request->locks[i]->anchor : NULL;

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
 * Grants the request when all nodes are first.  Of a node that was kept, an event of its
 * watch would come before the answer of the proof.
 */
static void
grant_locks(ZklRequest *request)
{
	if (request->status != ZKL_PENDING || !zkl__request_is_first(request) ||
		(request->is_again && request->nodes[0]->hold_watch != HOLD_WATCHED))
		return;
	for (int i = 0; i < request->n && !request->is_again; i++)
		request->nodes[i]->may_be_gone |= !zkl__lease_is_fresh(request->session);
	if (!may_be_gone(request))
	{
		if (zkl__lease_allows_grant(request->session))
			zkl__request_grant(request);
	}
	else if (request->verify_call == NULL && zkl__is_connected(request->session))
	{
		request->verify_call = send_checks(zkl__request_call(request, on_verified), request);
		zkl__lease_await(request->verify_call);
	}
}

/* Sends the next operation besides those of the nodes, and grants the request in the end. */
static void
advance_rest(ZklRequest *request)
{
	if (request->permit)
		zkl__on_permit_advance(request);
	else
		grant_locks(request);
}

/* Sends the next operation that the request as a whole needs, if any. */
void
zkl__request_advance(ZklRequest *request)
{
	if (request->status != ZKL_PENDING || request->create_call ||
		!zkl__is_connected(request->session))
		return;
	advance_nodes(request);
	advance_rest(request);
}

/* Deletes the nodes and queues again, because another client deleted a node. */
void
zkl__request_restart(ZklRequest *request)
{
	request->czxid_call = NULL;
	request->verify_call = NULL;
	request->is_again = false;
	if (request->permit)
		zkl__on_permit_restart(request);
	for (int i = 0; i < request->n; i++)
	{
		ZklNode    *old = request->nodes[i];
		ZklNode    *fresh;

		if (old->state == NODE_NEW)
			continue;
		fresh = zkl__request_node_new(request, i, old->lock_path, old->mode, old->upgrade);
		if (fresh == NULL)
		{
			zkl__request_fail(request, ZKL_NO_MEMORY, i, 0);
			return;
		}
		request->nodes[i] = fresh;
		zkl__node_leave(old);
	}
	zkl__request_advance(request);
}


/*
 * Events of nodes that belong to a request
 */

void
zkl__on_node_found(ZklNode *node)
{
	if (node->state > NODE_UNKNOWN)
		node->request->attempts = 0;
	zkl__request_advance(node->request);
}

void
zkl__on_node_progress(ZklNode *node)
{
	advance_rest(node->request);
}

void
zkl__on_node_blocked(ZklNode *node, const ZklResult *data)
{
	zkl__request_blocked(node->request, node->index, data);
}

void
zkl__on_node_removed(ZklNode *node)
{
	zkl__request_restart(node->request);
}

void
zkl__on_node_failed(ZklNode *node, ZklStatus status, int raw_code)
{
	if (status == ZKL_LOCK_LOST)
		zkl__lock_lose(node->request->locks[node->index]);
	zkl__request_fail(node->request, status, node->index, raw_code);
}

const ZklNode *
zkl__on_anchor_needed(const ZklNode *node)
{
	const ZklLock *held = node->request->locks[node->index];

	return held->lost ? NULL : held->anchor;
}


/*
 * ... and while they belong to a lock
 */

void
zkl__on_node_moved(ZklNode *node)
{
	if (node->state == NODE_HELD)
	{
		node->revoked_version = 0;
		zkl__hold_watch_later(node);
	}
	zkl__confirm_advance(node->session);
}

ZklNode *
zkl__request_node_new(ZklRequest *request, int index, const char *lock_path,
					  ZklMode mode, bool upgrade)
{
	bool		may_be_kept = request->may_be_kept && !upgrade &&
		!zkl__was_asked(request->session, lock_path);
	ZklNode    *node = zkl__node_new(request->session, lock_path, mode, request->node_names,
									 request->data, request->data_len, may_be_kept);

	if (node == NULL)
		return NULL;
	node->upgrade = upgrade;
	node->non_blocking = request->non_blocking && request->permit == NULL;
	node->request = request;
	node->index = index;
	node->in_semaphore = request->permit != NULL;
	return node;
}

/*
 * Gives the request its node with this index, and the lock that the node becomes: "held"
 * for an upgrade of that lock, or a new one.  Returns false if memory is exhausted.
 */
bool
zkl__request_add_node(ZklRequest *request, int index, const char *lock_path,
					  ZklMode mode, ZklLock *held)
{
	request->locks[index] = held ? held : zkl__lock_new(request->session);
	if (request->locks[index])
		request->nodes[index] = zkl__request_node_new(request, index, lock_path, mode,
													  held != NULL);
	return request->nodes[index] != NULL;
}
