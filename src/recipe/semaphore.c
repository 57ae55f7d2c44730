/*-------------------------------------------------------------------------
 *
 * semaphore.c
 *		A permit of a semaphore: its queue, its node, the count.
 *
 * As Curator's InterProcessSemaphoreV2 and kazoo's Semaphore do it: whoever
 * wants a permit first takes a mutex, which is a queue lock like any other
 * (request.c and queue_lock.c see to it), makes its node among the permits'
 * when it has the mutex, waits there until there are no more of them than the
 * semaphore's size, and gives back the mutex.  All children count, whoever made
 * them.  Curator makes the node and then counts, kazoo counts, makes it, and
 * holds it; here it is counted afterwards in any case, so that a mutex that
 * somebody removed costs a wait and no permit too many.
 *
 * A try is not turned away by the mutex alone, which others have for a moment
 * only, unless there is no permit to be had: so it counts while it stands in
 * the queue, too.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static ZklNode *
mutex_node(const ZklRequest *request)
{
	return request->nodes[0];
}

/* Its node exists, and stands in the queue or is first. */
bool
zkl__permit_in_queue(const ZklRequest *request)
{
	ZklNodeState state = mutex_node(request)->state;

	return state > NODE_UNKNOWN && state < NODE_LEAVING;
}

/* It has the mutex. */
bool
zkl__permit_in_turn(const ZklRequest *request)
{
	return mutex_node(request)->state == NODE_HELD;
}

static bool
lease_exists(const ZklPermit *permit)
{
	return permit->lease && permit->lease->state == NODE_LISTING;
}

/* Up to how many permits may be out, its own node included if that exists? */
int
zkl__permit_limit(const ZklPermit *permit)
{
	return lease_exists(permit) ? permit->size : permit->size - 1;
}

/* Makes what was missing above, if anything was. */
void
zkl__permit_parents(ZklRequest *request)
{
	if (request->attempts == 0)
		return;
	request->parents_status = ZKL_OK;
	request->parents_unknown = false;
	zkl__request_send_parents(request);
}


/*
 * Counting
 */

/*
 * The permit is the owner's, and the next one's turn has come.  Its node takes
 * the place of the mutex's in the request.
 */
static void
grant(ZklRequest *request)
{
	ZklNode    *mutex = mutex_node(request);

	request->nodes[0] = request->permit->lease;
	request->permit->lease = NULL;
	request->nodes[0]->state = NODE_HELD;
	zkl__request_grant(request);
	zkl__node_leave(mutex);
}

/* Nodes among the children that this session gave up, and that will be gone soon. */
static int
own_debts(const ZklRequest *request, const ZklResult *result)
{
	int			n = 0;

	for (const ZklNode *node = request->session->nodes; node; node = node->next)
		if (node->is_lease && !node->wanted &&
			strcmp(node->lock_path, request->permit->lease_path) == 0 &&
			zkl_find_lease(result->children, result->n_children, node->name))
			n++;
	return n;
}

static void
holder_read(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;

	if (request->permit->holder_read != call)
		return;
	request->permit->holder_read = NULL;
	if (request->status == ZKL_PENDING && result->code == ZKL_RC_OK)
		zkl__request_blocked(request, 0, result);
}

/* One of those in the way is read, to be told about; any of them may make room. */
static void
read_holder(ZklRequest *request, const ZklResult *result)
{
	ZklPermit  *permit = request->permit;
	ZklSession *session = request->session;
	const char *child = result->children[0];
	char	   *path;
	ZklCall    *call;

	if (permit->holder_read)
		return;
	if (permit->lease && strcmp(child, permit->lease->name) == 0 &&
		result->n_children > 1)
		child = result->children[1];
	path = zkl__path(permit->lease_path, child);
	call = path ? zkl__call_new(session, holder_read, NULL, request) : NULL;
	permit->holder_read = zkl__call_sent(call, call &&
										 zkl_client_get(session->client, path,
														false, &call->completion));
	free(path);
}

/* For deadlock detection; what is not noted can only hide one. */
static void
note_owners(ZklRequest *request, const ZklResult *result)
{
	ZklPermit  *permit = request->permit;
	uint64_t   *owners = realloc(permit->owners,
								 ((size_t) result->n_children + 1) * sizeof(uint64_t));

	permit->n_owners = -1;
	if (owners == NULL)
		return;
	permit->owners = owners;
	permit->n_owners = zkl_permit_owners(result->children, result->n_children,
										 (uint64_t) request->session->connection.session_id,
										 owners, &permit->n_own);
}

static void
full(ZklRequest *request, const ZklResult *result)
{
	request->permit->seen = SEEN_FULL;
	note_owners(request, result);
	request->was_blocked = true;
	request->culprit = 0;
	zkl__wake(request->session);
	read_holder(request, result);
	zkl__permit_drive(request);
}

/* Whose children are these? */
static bool
is_foreign_layout(const ZklPermit *permit, const ZklResult *result)
{
	for (int i = 0; permit->kazoo && i < result->n_children; i++)
		if (zkl_is_curators(result->children[i]))
			return true;
	return false;
}

static void
count(ZklRequest *request, const ZklResult *result)
{
	ZklPermit  *permit = request->permit;
	bool		exists = lease_exists(permit);
	int			limit = zkl__permit_limit(permit);

	if (is_foreign_layout(permit, result))
		zkl__request_fail(request, ZKL_OTHER_LAYOUT, 0, 0);
	else if (exists && !zkl_find_lease(result->children, result->n_children,
									   permit->lease->name))
		zkl__request_restart(request);
	else if (result->n_children <= limit)
	{
		permit->seen = SEEN_ROOM;
		if (exists)
			grant(request);
		else
			zkl__permit_drive(request);
	}
	else if (request->try_only &&
			 result->n_children - own_debts(request, result) > limit)
		zkl__request_fail(request, ZKL_BUSY, 0, 0);
	else
		full(request, result);
}

static void
counted(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;
	ZklPermit  *permit = request->permit;

	if (permit->counted != call)
		return;
	permit->counted = NULL;
	if (request->status != ZKL_PENDING)
		return;

	/* Answers come in order, so that one that comes first did not see the node. */
	if (permit->lease && !lease_exists(permit))
		return;
	switch (result->code)
	{
		case ZKL_RC_OK:
			count(request, result);
			break;
		case ZKL_RC_CONNECTION_LOSS:
			break;
		case ZKL_RC_NO_NODE:
			if (permit->lease)
				zkl__request_restart(request);
			else
				zkl__request_no_parent(request);
			break;
		default:
			zkl__request_fail_code(request, 0, result);
	}
}

static void
send_count(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;
	ZklCall    *call;

	if (permit->counted)
		return;
	call = zkl__call_new(request->session, counted, NULL, request);
	permit->counted = zkl__call_sent(call, call &&
									 zkl_client_watch_children(request->session->client,
															   permit->lease_path,
															   &call->completion));
}


/*
 * The node
 */

static void
lease_created(ZklCall *call, const ZklResult *result)
{
	ZklNode    *lease = call->node;
	ZklRequest *request = lease->request;

	zkl__node_created(lease, result->code, result->path, result->czxid);
	if (request == NULL || request->status != ZKL_PENDING)
		return;
	switch (result->code)
	{
		case ZKL_RC_OK:
			request->attempts = 0;
			break;
		case ZKL_RC_CONNECTION_LOSS:
			break;
		case ZKL_RC_NO_NODE:
			zkl__request_no_parent(request);
			break;
		default:
			zkl__request_fail_code(request, 0, result);
	}
}

static bool
make_lease(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;

	if (permit->lease)
		return true;
	permit->lease = zkl__node_new(request, 0, permit->lease_path,
								  ZKL_MODE_EXCLUSIVE, false);
	if (permit->lease)
		permit->lease->is_lease = true;
	else
		zkl__request_fail(request, ZKL_NO_MEMORY, 0, 0);
	return permit->lease != NULL;
}

/* Creates the node and counts, without waiting for its answer. */
static void
create_lease(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;
	ZklSession *session = request->session;
	ZklNode    *lease;
	ZklCall    *call;
	char	   *path;

	if (!make_lease(request))
		return;
	zkl__permit_parents(request);
	lease = permit->lease;
	zkl_lease_prefix(session->dialect, session->connection.session_id,
					 lease->guid_counter, lease->name);
	path = zkl__path(permit->lease_path, lease->name);
	call = path ? zkl__call_new(session, lease_created, lease, NULL) : NULL;
	if (call)
		call->confirms = true;
	if (zkl__call_sent(call, call &&
					   zkl_client_create(session->client, path, lease->data,
										 lease->data_len, permit->kazoo
										 ? ZKL_CREATE_EPHEMERAL
										 : ZKL_CREATE_EPHEMERAL_SEQUENTIAL,
										 &call->completion)))
	{
		lease->state = NODE_CREATING;
		permit->seen = SEEN_NOTHING;
		send_count(request);
	}
	free(path);
}

/* The czxid of a node whose create was not answered. */
static void
stamped(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;
	ZklPermit  *permit = request->permit;

	if (permit->stamped != call)
		return;
	permit->stamped = NULL;
	if (request->status != ZKL_PENDING || result->code == ZKL_RC_CONNECTION_LOSS)
		return;
	if (result->code == ZKL_RC_NO_NODE)
		zkl__request_restart(request);
	else if (result->code != ZKL_RC_OK)
		zkl__request_fail_code(request, 0, result);
	else
	{
		permit->lease->czxid = result->czxid;
		zkl__permit_drive(request);
	}
}

static void
send_stamp(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;
	ZklSession *session = request->session;
	ZklCall    *call;
	char	   *path;

	if (permit->stamped)
		return;
	path = zkl__path(permit->lease_path, permit->lease->name);
	call = path ? zkl__call_new(session, stamped, NULL, request) : NULL;
	permit->stamped = zkl__call_sent(call, call &&
									 zkl_client_get(session->client, path, false,
													&call->completion));
	free(path);
}


/*
 * While it waits: somebody may remove the mutex's node, and then another one
 * has its turn, too.  Two that wait with a node each could wait for ever.
 */

static void
guarded(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;
	ZklPermit  *permit = request->permit;

	if (permit->guarding != call)
		return;
	permit->guarding = NULL;
	if (request->status != ZKL_PENDING)
		return;
	if (result->code == ZKL_RC_NO_NODE)
		zkl__request_restart(request);
	else
		permit->is_guarded = result->code != ZKL_RC_CONNECTION_LOSS;
}

static char *
mutex_path(const ZklRequest *request)
{
	return zkl__path(mutex_node(request)->lock_path, mutex_node(request)->name);
}

static void
guard_mutex(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;
	ZklSession *session = request->session;
	ZklCall    *call;
	char	   *path;

	if (permit->is_guarded || permit->guarding)
		return;
	path = mutex_path(request);
	call = path ? zkl__call_new(session, guarded, NULL, request) : NULL;
	permit->guarding = zkl__call_sent(call, call &&
									  zkl_client_get(session->client, path, true,
													 &call->completion));
	free(path);
}


/*
 * Called by the request
 */

static void
drive_turn(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;

	/* What was seen before is no proof. */
	if (!permit->in_turn)
		permit->seen = SEEN_NOTHING;
	permit->in_turn = true;
	if (permit->seen == SEEN_FULL)
		guard_mutex(request);
	else if (lease_exists(permit) && permit->lease->czxid == 0)
		send_stamp(request);
	else if (lease_exists(permit) ||
			 (permit->kazoo && permit->lease == NULL && permit->seen == SEEN_NOTHING))
		send_count(request);
	else if (permit->lease == NULL || permit->lease->state == NODE_NEW)
		create_lease(request);
}

/* Sends what the permit needs next, beside the mutex's node. */
void
zkl__permit_drive(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;
	ZklNode    *mutex = mutex_node(request);

	if (request->status != ZKL_PENDING || request->draining >= 0 ||
		request->session->state != ZKL_SESSION_CONNECTED ||
		(mutex->state != NODE_CREATING && !zkl__permit_in_queue(request)))
		return;
	zkl__pool_look(request);
	if (zkl__permit_in_turn(request))
	{
		if (zkl__pool_is_ours(permit))
			drive_turn(request);
	}
	else if (request->try_only && permit->seen == SEEN_NOTHING &&
			 (mutex->state == NODE_READING || mutex->state == NODE_WAITING))
	{
		zkl__permit_parents(request);
		send_count(request);
	}
}

/* The permits may have changed. */
void
zkl__permit_recount(ZklRequest *request)
{
	request->permit->seen = SEEN_NOTHING;
}

void
zkl__permit_watch_fired(ZklRequest *request, const char *path)
{
	ZklPermit  *permit = request->permit;
	char	   *mutex;

	if (request->status != ZKL_PENDING)
		return;
	if (strcmp(path, permit->lease_path) == 0)
		zkl__permit_recount(request);
	mutex = mutex_path(request);
	if (mutex && strcmp(path, mutex) == 0)
		permit->is_guarded = false;
	free(mutex);
	zkl__permit_drive(request);
}

/* Gives up the node, before the mutex goes: the next one shall not count it. */
void
zkl__permit_leave(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;

	if (permit->lease)
		zkl__node_leave(permit->lease);
	permit->lease = NULL;
}

/* Begins anew; answers that are on their way are not waited for any more. */
void
zkl__permit_reset(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;

	zkl__permit_leave(request);
	permit->in_turn = false;
	permit->seen = SEEN_NOTHING;
	permit->is_guarded = false;
	permit->layout_known = permit->kazoo;
	permit->size_known = false;
	permit->size_unset = false;
	permit->parts_listed = NULL;
	permit->sized = NULL;
	permit->counted = NULL;
	permit->stamped = NULL;
	permit->holder_read = NULL;
	permit->guarding = NULL;
}
