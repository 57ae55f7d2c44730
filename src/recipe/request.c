/*-------------------------------------------------------------------------
 *
 * request.c
 *		A request for one or several locks: its nodes as a whole.
 *
 * All nodes of a request are created at once, by a create or by one multi, so
 * that all queues see the requests of several names in one order; they are
 * granted or given up together.  What happens to each node in between is in
 * queue_lock.c.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "waits.h"

/*
 * A create may find its parent gone again because the server removes empty
 * containers.  That happens once a minute at most, so a longer row of it means
 * something else.
 */
#define MAX_ATTEMPTS 20


ZklStatus
zkl__status_of(ZklResultCode code)
{
	switch (code)
	{
		case ZKL_RC_OK:
			return ZKL_OK;
		case ZKL_RC_NO_AUTH:
			return ZKL_NO_AUTH;
		case ZKL_RC_AUTH_FAILED:
			return ZKL_AUTH_FAILED;
		case ZKL_RC_SESSION_EXPIRED:
			return ZKL_SESSION_LOST;
		case ZKL_RC_CONNECTION_LOSS:
		case ZKL_RC_NO_NODE:
		case ZKL_RC_NODE_EXISTS:
		case ZKL_RC_NOT_EMPTY:
		case ZKL_RC_BAD_VERSION:
		case ZKL_RC_UNIMPLEMENTED:
		case ZKL_RC_ROLLED_BACK:
		case ZKL_RC_OTHER:
			break;
	}
	return ZKL_SERVER_ERROR;
}

/* Ends a pending request without the locks; its nodes leave. */
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
		zkl__permit_leave(request);
	for (int i = 0; i < request->n; i++)
		if (request->nodes[i])
			zkl__node_leave(request->nodes[i]);
	zkl__leave_end(request->session);
	zkl__waits_end(request);
	zkl__wake(request->session);
}

void
zkl__request_fail_code(ZklRequest *request, int culprit, const ZklResult *result)
{
	zkl__request_fail(request, zkl__status_of(result->code), culprit,
					  result->raw_code);
}

/* A node waits for another session's; "data" says whose. */
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

/* Reads the czxid that all new nodes of the request share, unless it is known. */
static void
stamped(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;

	if (request->stamped != call)
		return;
	request->stamped = NULL;
	if (request->status != ZKL_PENDING || result->code == ZKL_RC_CONNECTION_LOSS)
		return;
	if (result->code == ZKL_RC_NO_NODE)
		zkl__request_restart(request);
	else if (result->code != ZKL_RC_OK)
		zkl__request_fail_code(request, -1, result);
	else
	{
		for (int i = 0; i < request->n; i++)
			zkl__node_stamped(request->nodes[i], result->czxid);
		if (!zkl__request_drain_if_exhausted(request))
			zkl__request_check_granted(request);
	}
}

static void
send_stamp(ZklRequest *request)
{
	ZklSession *session = request->session;

	for (int i = 0; i < request->n; i++)
	{
		ZklNode    *node = request->nodes[i];
		ZklCall    *call;
		char	   *path;

		if (node->upgrade)
			continue;
		path = zkl__path(node->lock_path, node->name);
		call = path ? zkl__call_new(session, stamped, NULL, request) : NULL;
		request->stamped =
			zkl__call_sent(call, call && zkl_client_get(session->client, path,
														false, &call->completion));
		free(path);
		return;
	}
}

/*
 * The nodes exist, once none of them is undecided.  Their czxid is asked for
 * without waiting for what they will need it for.
 */
void
zkl__request_created(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
		if (request->nodes[i]->state <= NODE_UNKNOWN)
			return;
	request->attempts = 0;
	request->session->top_exists[request->permit != NULL] = true;
	for (int i = 0; i < request->n; i++)
		if (!request->nodes[i]->upgrade && request->nodes[i]->czxid == 0)
		{
			if (request->stamped == NULL)
				send_stamp(request);
			return;
		}
	zkl__request_drain_if_exhausted(request);
}

/* A create, or what comes before it, found no parent: it is made, and then tried again. */
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

/* Which operation of a multi is the one that failed, if any does. */
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
created(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;

	request->created = NULL;
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

/* One name is a plain create, whose answer holds the czxid; more are a multi. */
static ZklCall *
send_create(ZklRequest *request, const ZklOp *ops)
{
	ZklClient  *client = request->session->client;
	ZklCall    *call = zkl__call_new(request->session, created, NULL, request);

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
 * Sends the creates and, without waiting for their answer, the lists that will be
 * needed: answers come in order, so each list shows the new node, and an
 * uncontended lock costs one round trip.
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

		zkl_child_prefix(node->dialect, node->mode,
						 session->connection.session_id, node->guid_counter,
						 node->name);
		ops[i].kind = ZKL_OP_CREATE;
		ops[i].create_kind = ZKL_CREATE_EPHEMERAL_SEQUENTIAL;
		ops[i].path = zkl__path(node->lock_path, node->name);
		ops[i].data = node->data;
		ops[i].data_len = node->data_len;
		complete = ops[i].path != NULL;
	}
	if (!complete)
		zkl__request_fail(request, ZKL_NO_MEMORY, -1, 0);
	else
	{
		request->parents_status = ZKL_OK;
		request->parents_unknown = false;
		if (request->attempts > 0)
			zkl__request_send_parents(request);
		request->created = send_create(request, ops);
		for (int i = 0; request->created && i < request->n; i++)
		{
			request->nodes[i]->state = NODE_CREATING;
			if (!zkl__succession_foreseen(request->nodes[i]))
				zkl__node_list(request->nodes[i]);
		}
	}
	for (int i = 0; ops && i < request->n; i++)
		free((char *) ops[i].path);
	free(ops);
}

static void
drive_nodes(ZklRequest *request)
{
	int			n_new = 0;
	int			n_held = 0;
	bool		undecided = false;
	bool		unstamped = false;

	for (int i = 0; i < request->n; i++)
	{
		ZklNodeState state = request->nodes[i]->state;

		n_new += state == NODE_NEW;
		undecided = undecided || state == NODE_CREATING || state == NODE_UNKNOWN;
		unstamped = unstamped || state == NODE_STAMPING;
		n_held += state == NODE_HELD;
	}
	if (n_new == request->n)
		create_nodes(request);
	else if (n_new > 0 && !undecided)
		zkl__request_restart(request);
	else if (!undecided && unstamped && request->stamped == NULL)
		send_stamp(request);
	else if (n_held == request->n)
		zkl__request_check_granted(request);
}

/* Sends what the request as a whole needs next, if anything. */
void
zkl__request_drive(ZklRequest *request)
{
	if (request->status != ZKL_PENDING || request->created ||
		request->session->state != ZKL_SESSION_CONNECTED)
		return;
	if (request->draining >= 0)
	{
		zkl__drain_drive(request);
		return;
	}
	drive_nodes(request);
	if (request->permit)
		zkl__permit_drive(request);
}

/*
 * Gives back what there is and queues anew: somebody removed a node, or the
 * numbers are used up.
 */
void
zkl__request_restart(ZklRequest *request)
{
	request->stamped = NULL;
	request->verified = NULL;
	request->is_verified = false;
	if (request->permit)
		zkl__permit_reset(request);
	for (int i = 0; i < request->n; i++)
	{
		ZklNode    *old = request->nodes[i];
		ZklNode    *fresh;

		if (old->state == NODE_NEW)
			continue;
		fresh = zkl__node_new(request, i, old->lock_path, old->mode, old->upgrade);
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
 * The public face, but for the beginning
 */

/* Locks that were made ready and never granted. */
static void
free_unborn_locks(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
	{
		free(request->unborn[i]);
		request->unborn[i] = NULL;
	}
}

void
zkl__request_free_memory(ZklRequest *request)
{
	free(request->drain_watch);
	if (request->permit)
		zkl__permit_free(request->permit);
	free(request);
}

/* For the sweep in session.c only: unlinks and frees. */
void
zkl__request_free(ZklRequest *request)
{
	if (request->prev)
		request->prev->next = request->next;
	else
		request->session->requests = request->next;
	if (request->next)
		request->next->prev = request->prev;
	free_unborn_locks(request);
	zkl__request_free_memory(request);
}

/* A session that is over decides every request that was not decided before. */
static ZklStatus
status_with_session(const ZklRequest *request)
{
	if (request->status == ZKL_PENDING)
		switch (request->session->state)
		{
			case ZKL_SESSION_EXPIRED:
				return ZKL_SESSION_LOST;
			case ZKL_SESSION_AUTH_FAILED:
				return ZKL_AUTH_FAILED;
			case ZKL_SESSION_CONNECTING:
			case ZKL_SESSION_CONNECTED:
			case ZKL_SESSION_SUSPENDED:
				break;
		}
	return request->status;
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
	info->n_answers = request->session->n_answers;
	info->raw_code = request->raw_code;
	info->culprit = request->culprit;
	if (request->session->waits)
		info->question = request->session->waits->n_questions;
	memcpy(info->blocker, request->blocker, sizeof(info->blocker));
	info->blocked = request->drain_watch != NULL ||
		(request->permit && request->permit->seen == SEEN_FULL);
	info->is_permit = request->permit != NULL;
	info->size = request->permit ? request->permit->other_size : 0;
	for (int i = 0; i < request->n && request->status == ZKL_PENDING; i++)
		if (request->nodes[i]->state == NODE_WAITING)
			info->blocked = true;
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
		zkl__tell_loss(session);
	else if (!lock->taken && lock->revocations > 0)
		zkl__tell_revocation(session);
	lock->taken = true;
	zkl__session_unlock(session);
	return lock;
}

/*
 * Gives back what was granted and not taken.  An upgrade's lock was taken
 * before; its node may be gone already, if somebody removed it.
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
	zkl__request_fail(request, ZKL_SESSION_LOST, -1, 0);
	free_unborn_locks(request);
	request->ended = true;
	session->garbage = true;
	zkl__session_unlock(session);
}
