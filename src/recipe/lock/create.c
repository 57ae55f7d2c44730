/*-------------------------------------------------------------------------
 *
 * create.c
 *		Creates a request's nodes, and the znodes above them.
 *
 * <root>, <root>/locks and <root>/semaphores are persistent, and created only if a create
 * still fails after that of the lock's own znode.  This one is a container,
 * which the server deletes some time after its last child.  Sessions delete it earlier
 * (empty_parents.c).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/*
 * A create may find its parent deleted again: by the server, which deletes empty
 * containers, one every 6 ms by default, or by a session whose last node there is gone
 * (empty_parents.c).  Each such delete needs a node that came and went, so many more failures
 * in a row than there are parents have another cause.
 */
#define MAX_ATTEMPTS 20


/*
 * Parents
 */

static void
on_parent_created(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;
	ZklNode    *node = call->detail;

	switch (result->code)
	{
		case ZKL_RC_OK:
			if (node)
				zkl__node_created_parent(node);
			break;
		case ZKL_RC_NODE_EXISTS:
			break;
		case ZKL_RC_CONNECTION_LOSS:
			/* Perhaps; but a semaphore is deleted only by the session that certainly created it. */
			if (node && !node->in_semaphore)
				zkl__node_created_parent(node);
			request->parents_status = ZKL_PENDING;
			break;
		case ZKL_RC_NO_NODE:
			/* Another client may have deleted the znode above, right after its create. */
			if (request->parents_status == ZKL_OK)
				request->parents_status = ZKL_PENDING;
			break;
		default:
			if (request->parents_status == ZKL_OK)
			{
				request->parents_status = zkl__status_of(result->code);
				request->parents_raw_code = result->raw_code;
			}
	}
}

/* Above the topmost znode only the chroot can be missing. */
static void
on_topmost_created(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;

	if (result->code == ZKL_RC_NO_NODE && request->parents_status == ZKL_OK)
		request->parents_status = ZKL_NO_CHROOT;
	else
		on_parent_created(call, result);
}

/* Creates one parent.  "node" is the node that is to delete it later, or NULL. */
static void
send_parent(ZklRequest *request, ZklNode *node, const char *path,
			const char *data, ZklCreateKind kind)
{
	bool		is_topmost = strrchr(path, '/') == path;
	ZklOp		op = {
		.kind = ZKL_OP_CREATE,
		.path = path,
		.create_kind = kind,
		.data = data,
		.data_len = (int) strlen(data)
	};
	ZklCall    *call = zkl__request_call(request, is_topmost ? on_topmost_created
										 : on_parent_created);

	if (node)
		zkl__call_keep(call, node, &node->uses);
	if (!zkl__send(call, &op))
		request->parents_status = ZKL_PENDING;
}

/* Creates top_path and all znodes above it, from the root down. */
static void
send_top(ZklRequest *request)
{
	char	   *path = strdup(request->top_path);

	if (path == NULL)
	{
		request->parents_status = ZKL_PENDING;
		return;
	}
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/'))
	{
		*slash = '\0';
		send_parent(request, NULL, path, "", ZKL_CREATE_PERSISTENT);
		*slash = '/';
	}
	send_parent(request, NULL, path, "", ZKL_CREATE_PERSISTENT);
	free(path);
}

/*
 * If an operation found no parent, creates the parent that is usually missing; if it found
 * none again, creates all of them.  Parents that exist do not change.
 */
void
zkl__request_send_parents(ZklRequest *request)
{
	if (request->attempts == 0)
		return;
	request->parents_status = ZKL_OK;
	if (request->attempts > 1)
		send_top(request);
	for (int i = 0; i < request->n_parents; i++)
		if (i < ZKL_PERMIT_NODE_PARENT || zkl__request_is_queued(request))
			send_parent(request, i == 0 ? request->nodes[0] : NULL,
						request->parents[i].path, request->parents[i].data,
						ZKL_CREATE_CONTAINER);
	for (int i = 0; request->n_parents == 0 && i < request->n; i++)
		send_parent(request, request->nodes[i], request->nodes[i]->lock_path, "",
					ZKL_CREATE_CONTAINER);
}


/*
 * The nodes
 */

/* An operation found no parent: tries again, with the parents created first. */
void
zkl__request_no_parent(ZklRequest *request)
{
	if (request->attempts > 0 && request->parents_status != ZKL_OK &&
		request->parents_status != ZKL_PENDING)
		zkl__request_fail(request, request->parents_status, -1,
						  request->parents_raw_code);
	else if (++request->attempts > MAX_ATTEMPTS + request->n)
		zkl__request_fail(request, ZKL_SERVER_ERROR, -1, 0);
	else
		zkl__request_mark(request);
}

/*
 * A multi was refused because the leader has no such session.  If the session has just
 * expired, the request waits for that: the second create comes behind a proof, which an
 * expiring session does not get.  If the leader gives this answer twice, the session is a local
 * one: its server, a follower, refuses a single create, but sends a multi to the leader.
 */
static void
on_unknown_session(ZklRequest *request, const ZklResult *result)
{
	if (request->is_unknown)
		zkl__request_fail(request, ZKL_LOCAL_SESSION, zkl__failed_op(result), result->raw_code);
	request->is_unknown = true;
}

/* Goes on after the create of nodes, or of a permit node. */
void
zkl__request_created(ZklRequest *request, const ZklResult *result)
{
	if (request->status != ZKL_PENDING)
		return;
	switch (result->code)
	{
		case ZKL_RC_OK:
			request->attempts = 0;
			request->is_unknown = false;
			zkl__request_mark(request);
			break;
		case ZKL_RC_CONNECTION_LOSS:
			break;
		case ZKL_RC_NO_NODE:
			zkl__request_no_parent(request);
			break;
		default:
			if (result->code == ZKL_RC_SESSION_EXPIRED && zkl__failed_op(result) >= 0)
				on_unknown_session(request, result);
			else
				zkl__request_fail_code(request, zkl__failed_op(result), result);
	}
}

static void
on_created(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;

	request->create_call = NULL;
	for (int i = 0; i < request->n; i++)
		if (request->nodes[i]->state == NODE_CREATING)
			zkl__node_created(request->nodes[i], result->code,
							  request->n == 1 || result->code != ZKL_RC_OK
							  ? result->path : result->op_results[i].path,
							  result->czxid);
	zkl__request_created(request, result);
}

/*
 * Sends one create, whose answer has the czxid, or a multi with several.  Pipelined behind
 * it, sends the lists that are probably needed.  The server answers in order, so each list
 * contains the new node, and an uncontended lock costs one round trip.
 */
void
zkl__request_create_nodes(ZklRequest *request)
{
	ZklOp	   *ops = calloc((size_t) request->n, sizeof(ZklOp));

	if (ops)
	{
		for (int i = 0; i < request->n; i++)
			ops[i] = zkl__op_to_create(request->nodes[i]);
		zkl__request_send_parents(request);
		request->created_ms = zkl_now_ms();
		request->create_call = zkl__send_all(zkl__request_call(request, on_created),
											 request->n == 1 ? ZKL_SINGLE : ZKL_MULTI,
											 ops, request->n);
		for (int i = 0; request->create_call && i < request->n; i++)
			zkl__node_creating(request->nodes[i], request->attempts > 0);
	}
	else
		zkl__request_fail(request, ZKL_NO_MEMORY, -1, 0);
	free(ops);
}
