/*-------------------------------------------------------------------------
 *
 * request.c
 *		A request for one or several locks: its nodes as a whole.
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
 * A create may find its parent deleted again, because the server deletes empty
 * containers.  That happens at most once a minute, so many failures in a row have
 * another cause.
 */
#define MAX_ATTEMPTS 20


/* Called when the request is granted or fails. */
void
zkl__request_inform_of_end(ZklRequest *request)
{
	if (request->on_ended)
		request->on_ended(request);
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
	if (request->kind)
		request->kind->on_failed(request);
	for (int i = 0; i < request->n; i++)
		if (request->nodes[i])
			zkl__node_leave(request->nodes[i]);
	zkl__leave_end(request->session);
	zkl__request_inform_of_end(request);
	zkl__wake(request->session);
}

void
zkl__request_fail_code(ZklRequest *request, int culprit, const ZklResult *result)
{
	zkl__request_fail(request, zkl__status_of(result->code), culprit,
					  result->raw_code);
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


/*
 * Creating
 */

/* The answer with the czxid that all new nodes of the request share. */
static void
on_czxid_read(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;

	if (request->czxid_call != call)
		return;
	request->czxid_call = NULL;
	if (request->status != ZKL_PENDING || result->code == ZKL_RC_CONNECTION_LOSS)
		return;
	if (result->code == ZKL_RC_NO_NODE)
		zkl__request_restart(request);
	else if (result->code != ZKL_RC_OK)
		zkl__request_fail_code(request, -1, result);
	else
	{
		for (int i = 0; i < request->n; i++)
			zkl__node_czxid_known(request->nodes[i], result->czxid);
		if (!zkl__request_restart_sequence(request))
			zkl__request_check_granted(request);
	}
}

static void
send_czxid_read(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
	{
		const ZklNode *node = request->nodes[i];

		if (node->upgrade)
			continue;
		request->czxid_call = zkl__read_child(zkl__request_call(request, on_czxid_read),
											  node->lock_path, node->name, false);
		return;
	}
}

/*
 * Called when nodes may exist.  Once all of them do, reads their czxid if it is
 * unknown; the read does not wait until a node is first.
 */
void
zkl__request_created(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
		if (request->nodes[i]->state <= NODE_UNKNOWN)
			return;
	request->attempts = 0;
	*request->top_exists = true;
	for (int i = 0; i < request->n; i++)
		if (!request->nodes[i]->upgrade && request->nodes[i]->czxid == 0)
		{
			if (request->czxid_call == NULL)
				send_czxid_read(request);
			return;
		}
	zkl__request_restart_sequence(request);
}

/* An operation found no parent: tries again, with the parents created first. */
void
zkl__request_no_parent(ZklRequest *request)
{
	if (request->attempts > 0 && request->parents_status != ZKL_OK &&
		!request->parents_unknown)
		zkl__request_fail(request, request->parents_status, -1,
						  request->parents_raw_code);
	else if (++request->attempts > MAX_ATTEMPTS)
		zkl__request_fail(request, ZKL_SERVER_ERROR, -1, 0);
	else
		zkl__request_drive(request);
}

/* Returns the index of the operation that failed a multi, or -1. */
static int
failed_op(const ZklResult *result)
{
	for (int i = 0; i < result->n_ops; i++)
		if (result->op_codes[i] != ZKL_RC_OK &&
			result->op_codes[i] != ZKL_RC_ROLLED_BACK)
			return i;
	return -1;
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
							  ? result->path : result->op_paths[i],
							  result->czxid);
	if (request->status != ZKL_PENDING)
		return;
	switch (result->code)
	{
		case ZKL_RC_OK:
			zkl__request_created(request);
			break;
		case ZKL_RC_CONNECTION_LOSS:
			break;
		case ZKL_RC_NO_NODE:
			zkl__request_no_parent(request);
			break;
		default:
			zkl__request_fail_code(request, failed_op(result), result);
	}
}

/* Sends a create for one node, whose answer has the czxid, or a multi for several. */
static ZklCall *
send_create(ZklRequest *request, const ZklOp *ops)
{
	ZklClient  *client = zkl__client(request->session);
	ZklCall    *call = zkl__request_call(request, on_created);

	if (call == NULL)
		return zkl__call_sent(call, false);
	call->confirms = true;
	if (request->n == 1)
		return zkl__call_sent(call,
							  zkl_client_create(client, ops->path, ops->data,
												ops->data_len, ops->create_kind,
												&call->completion));
	return zkl__call_sent(call, zkl_client_multi(client, ops, request->n,
												 &call->completion));
}

/*
 * Sends the creates and, pipelined behind them, the lists.  The server answers in
 * order, so each list contains the new node, and an uncontended lock costs one round
 * trip.
 */
static void
create_nodes(ZklRequest *request)
{
	ZklSession *session = request->session;
	ZklOp	   *ops = calloc((size_t) request->n, sizeof(ZklOp));
	bool		complete = ops != NULL;

	for (int i = 0; complete && i < request->n; i++)
	{
		ZklNode    *node = request->nodes[i];

		zkl_child_prefix(node->node_names, node->mode,
						 zkl__session_id(session), node->guid_counter,
						 node->name);
		complete = zkl__op_for_node(&ops[i], ZKL_OP_CREATE, node);
		ops[i].create_kind = ZKL_CREATE_EPHEMERAL_SEQUENTIAL;
		ops[i].data = node->data;
		ops[i].data_len = node->data_len;
	}
	if (!complete)
		zkl__request_fail(request, ZKL_NO_MEMORY, -1, 0);
	else
	{
		request->parents_status = ZKL_OK;
		request->parents_unknown = false;
		if (request->attempts > 0)
			zkl__request_send_parents(request);
		request->create_call = send_create(request, ops);
		for (int i = 0; request->create_call && i < request->n; i++)
		{
			request->nodes[i]->state = NODE_CREATING;
			if (!zkl__elision_expected(request->nodes[i]))
				zkl__node_list(request->nodes[i]);
		}
	}
	zkl__ops_free(ops, request->n);
}

static void
drive_nodes(ZklRequest *request)
{
	int			n_new = 0;
	int			n_held = 0;
	bool		undecided = false;
	bool		without_czxid = false;

	for (int i = 0; i < request->n; i++)
	{
		ZklNodeState state = request->nodes[i]->state;

		n_new += state == NODE_NEW;
		undecided = undecided || state == NODE_CREATING || state == NODE_UNKNOWN;
		without_czxid = without_czxid || state == NODE_READING_CZXID;
		n_held += state == NODE_HELD;
	}
	if (n_new == request->n)
		create_nodes(request);
	else if (n_new > 0 && !undecided)
		zkl__request_restart(request);
	else if (!undecided && without_czxid && request->czxid_call == NULL)
		send_czxid_read(request);
	else if (n_held == request->n)
		zkl__request_check_granted(request);
}

/* Sends the next operation that the request as a whole needs, if any. */
void
zkl__request_drive(ZklRequest *request)
{
	if (request->status != ZKL_PENDING || request->create_call ||
		!zkl__is_connected(request->session))
		return;
	if (request->exhausted_index >= 0)
	{
		zkl__sequence_restart_drive(request);
		return;
	}
	drive_nodes(request);
	if (request->kind)
		request->kind->on_drive(request);
}

/*
 * Deletes the nodes and queues again, because another client deleted a node, or the
 * sequence numbers are used up.
 */
void
zkl__request_restart(ZklRequest *request)
{
	request->czxid_call = NULL;
	request->verify_call = NULL;
	if (request->kind)
		request->kind->on_restart(request);
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
	zkl__request_drive(request);
}

/*
 * Public functions; the one that starts a request is in request_items.c
 */

/* Frees the locks that were allocated and never granted. */
void
zkl__request_free_ungranted(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
	{
		free(request->ungranted[i]);
		request->ungranted[i] = NULL;
	}
}

void
zkl__request_free_memory(ZklRequest *request)
{
	free(request->sequence_restart_watch);
	if (request->kind)
		request->kind->on_free(request);
	free(request);
}

/* Returns the status; the end of the session also ends a pending request. */
static ZklStatus
status_with_session(const ZklRequest *request)
{
	return request->status == ZKL_PENDING ? zkl__final_status(request->session)
		: request->status;
}

ZklStatus
zkl_request_status(ZklRequest *request)
{
	ZklStatus	status;

	zkl__session_lock(request->session);
	status = status_with_session(request);
	zkl__session_unlock(request->session);
	return status;
}

void
zkl_request_info(ZklRequest *request, ZklRequestInfo *info)
{
	zkl__session_lock(request->session);
	memset(info, 0, sizeof(*info));
	info->was_blocked = request->was_blocked;
	info->n_answers = zkl__n_answers(request->session);
	info->raw_code = request->raw_code;
	info->culprit = request->culprit;
	info->probe = request->n_probes;
	info->is_unsearched = request->is_unsearched;
	memcpy(info->blocker, request->blocker, sizeof(info->blocker));
	info->blocked = request->sequence_restart_watch != NULL;
	zkl__refusal_info(request, info);
	if (request->kind)
		request->kind->on_info(request, info);
	for (int i = 0; !info->blocked && i < request->n && request->status == ZKL_PENDING; i++)
		info->blocked = request->nodes[i]->state == NODE_WAITING;
	zkl__session_unlock(request->session);
}

ZklLock *
zkl_request_lock(ZklRequest *request, int i)
{
	ZklSession *session = request->session;
	ZklLock    *lock = request->locks[i];

	zkl__session_lock(session);
	request->locks[i] = NULL;
	if (!lock->taken && (lock->lost || zkl__is_final(session)))
		zkl__notify_loss(session);
	else if (!lock->taken && lock->revocations > 0)
		zkl__notify_revocation(session);
	lock->taken = true;
	zkl__session_unlock(session);
	return lock;
}

/*
 * Releases what was granted and not taken.  The lock of an upgrade was taken before,
 * so only the upgrade is undone; its node may have been deleted by another client.
 */
static void
release_untaken(ZklRequest *request)
{
	zkl__leave_begin(request->session);
	for (int i = 0; i < request->n; i++)
	{
		ZklLock    *lock = request->locks[i];

		if (lock)
			zkl__lock_reduce(lock, lock->taken ? ZKL_MODE_SHARED : ZKL_MODE_NONE);
		request->locks[i] = NULL;
	}
	zkl__leave_end(request->session);
}

void
zkl_request_end(ZklRequest *request)
{
	ZklSession *session = request->session;

	zkl__session_lock(session);
	if (request->status == ZKL_OK)
		release_untaken(request);
	zkl__request_fail(request, ZKL_ABANDONED, -1, 0);
	zkl__request_free_ungranted(request);
	request->ended = true;
	zkl__request_on_idle(request);
	zkl__session_unlock(session);
}
