/*-------------------------------------------------------------------------
 *
 * permit.c
 *		One request for a permit of a semaphore: mutex, capacity, permit node, count.
 *
 * The recipe is that of Curator's InterProcessSemaphoreV2:
 *
 *		1. Acquire the semaphore's mutex, a queue lock (request.c, node.c).
 *		2. Create a permit node below the permits parent.
 *		3. Wait until the parent has no more children than the capacity.
 *		4. Release the mutex.
 *
 * All children count, whichever program created them.  The count after the create
 * decides, so a mutex node that another client deletes costs a wait, never a permit too
 * many.
 *
 * A non-blocking request is refused because of the count, not because of the mutex,
 * which others hold only for a moment.  So it also counts before it has the mutex.
 *
 * zklock creates a semaphore with its capacity as data.  The data are read right behind
 * the create of the mutex node, which is answered first: while that node exists, the
 * semaphore cannot be deleted and created again.  If another program has created it without data,
 * or with data that are not a number, they stay as they are, and the capacity is not checked.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "semaphore.h"

static ZklNode *
mutex_node(const ZklRequest *request)
{
	return request->nodes[0];
}

static bool
permit_exists(const ZklRequest *request)
{
	return request->permit_node && request->permit_node->state == NODE_LISTING;
}


/*
 * Capacity
 */

static void
compare_capacity(ZklRequest *request, const ZklResult *data)
{
	ZklPermit  *permit = request->permit;

	permit->other_capacity = permit->capacity;
	(void) zkl_parse_capacity(data->data, data->data_len, &permit->other_capacity);
	permit->has_capacity = permit->other_capacity == permit->capacity;
	if (permit->has_capacity)
		zkl__request_mark(request);
	else
		zkl__request_fail(request, ZKL_OTHER_CAPACITY, 0, 0);
}

static void
on_capacity_read(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;

	/* A read that was answered before the mutex node existed proves nothing. */
	if (!zkl__request_answered(request, &request->permit->capacity_call, call, result) ||
		!zkl__request_is_queued(request))
		return;
	if (result->code == ZKL_RC_NO_NODE)
		zkl__request_restart(request);	/* the mutex node is gone as well */
	else if (result->code != ZKL_RC_OK)
		zkl__request_fail_code(request, 0, result);
	else
		compare_capacity(request, result);
}

static void
read_capacity(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;
	ZklOp		op = {.kind = ZKL_OP_GET, .path = permit->semaphore_path};

	if (permit->capacity_call == NULL)
		permit->capacity_call = zkl__send(zkl__request_call(request, on_capacity_read), &op);
}


/*
 * Counting
 */

static void send_count(ZklRequest *request);
static void advance_permit(ZklRequest *request);

/*
 * Grants the request and releases the mutex.  In the request, the permit node
 * replaces the mutex node.
 */
static void
grant(ZklRequest *request)
{
	ZklNode    *mutex = mutex_node(request);

	if (!zkl__prove_for_grant(request->session))
	{
		if (zkl__is_proving(request->session))
			send_count(request);	/* behind the proof: only a new count can be relied on then */
		return;
	}
	request->nodes[0] = request->permit_node;
	request->permit_node = NULL;
	zkl__node_take(request->nodes[0], ON_FIRST);
	request->nodes[0]->created_parent = mutex->created_parent;
	mutex->created_parent = false;
	zkl__request_grant(request);
	zkl__node_leave(mutex);
}

static void
wait_for_permit(ZklRequest *request)
{
	request->permit->seen = SEEN_FULL;
	request->was_blocked = true;
	request->culprit = 0;
	request->blocker[0] = '\0'; /* no longer the session before it in the queue, but all with a permit */
	zkl__wake_at_unlock(request->session);
}

/* Returns how many of the permit nodes are pending deletes of this session. */
static int
count_own_deletes(const ZklRequest *request, const ZklResult *result)
{
	const char *path = request->permit->permits_path;
	int			n = 0;

	for (const ZklNode *node = zkl__nodes_below(request->session, path, strlen(path)); node;
		 node = zkl__next_below(node))
		n += zkl__node_is_pending_delete(node) &&
			zkl_find_child(result->children, result->n_children, node->name) != NULL;
	return n;
}

/*
 * A non-blocking attempt counts again behind a sync before it fails.  It does not fail because
 * of permits that its own session has released: it waits until their nodes are gone.
 */
static void
refuse_attempt(ZklRequest *request, const ZklResult *result, int n_excess)
{
	ZklPermit  *permit = request->permit;

	if (n_excess <= count_own_deletes(request, result))
	{
		permit->seen = SEEN_FULL;
		zkl__wake_at_unlock(request->session);
	}
	else if (permit->counts_synced)
		zkl__request_fail(request, ZKL_BUSY, 0, 0);
	else
	{
		permit->counts_synced = true;
		permit->seen = SEEN_NOTHING;
		advance_permit(request);
	}
}

static void
check_count(ZklRequest *request, const ZklResult *result)
{
	ZklPermit  *permit = request->permit;
	bool		exists = permit_exists(request);
	int			room = permit->capacity - !exists;	/* nodes that may exist */

	if (exists && !zkl_find_child(result->children, result->n_children,
								  request->permit_node->name))
		zkl__request_restart(request);
	else if (result->n_children <= room)
	{
		permit->seen = SEEN_ROOM;
		if (exists)
			grant(request);
		else
			advance_permit(request);
	}
	else if (request->non_blocking)
		refuse_attempt(request, result, result->n_children - room);
	else
		wait_for_permit(request);
}

static void
on_counted(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;
	ZklPermit  *permit = request->permit;

	if (!zkl__request_answered(request, &permit->count_call, call, result))
		return;

	/* A count that was answered before the create does not include the permit node. */
	if (request->permit_node && !permit_exists(request))
		return;
	if (result->code == ZKL_RC_OK)
	{
		request->attempts = 0;
		check_count(request, result);
	}
	else if (result->code != ZKL_RC_NO_NODE)
		zkl__request_fail_code(request, 0, result);
	else if (request->permit_node)
		zkl__request_restart(request);
	else
		zkl__request_no_parent(request);
}

static void
send_count(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;
	ZklFreshness freshness = request->permit_node && request->permit_node->may_be_gone ? ZKL_LIST_PROVEN
		: permit->counts_synced ? ZKL_LIST_SYNCED : ZKL_LIST_ANY;

	if (permit->count_call == NULL)
		permit->count_call = zkl__get_children(zkl__request_call(request, on_counted),
											   permit->permits_path, freshness, true);
}


/*
 * The permit node
 */

static void
on_permit_created(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->subject;
	ZklRequest *request = node->request;

	zkl__node_created(node, result->code, result->path, result->czxid);
	if (request)
		zkl__request_created(request, result);
}

/* Sends the create of the permit node and, pipelined behind it, the count. */
static void
create_permit(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;
	ZklNode    *node = request->permit_node;
	ZklOp		op;

	if (node == NULL)
		node = zkl__request_node_new(request, 0, permit->permits_path, ZKL_MODE_EXCLUSIVE, false);
	if (node == NULL)
	{
		zkl__request_fail(request, ZKL_NO_MEMORY, 0, 0);
		return;
	}
	request->permit_node = node;
	node->is_permit = true;
	zkl__request_send_parents(request);
	op = zkl__op_to_create(node);
	if (zkl__send(zkl__node_call(node, on_permit_created), &op))
	{
		zkl__node_creating(node, false);
		permit->seen = SEEN_NOTHING;
		send_count(request);
	}
}


/*
 * Advancing
 */

/* Counts, and creates the permits parent before, if the last count has not found it. */
static void
count_again(ZklRequest *request)
{
	zkl__request_send_parents(request);
	send_count(request);
}

static void
advance_with_mutex(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;

	/*
	 * A count from before the mutex was held proves nothing.  If another client deletes
	 * the mutex node, another request gets the mutex as well, and two requests that wait
	 * with a permit node each could wait for each other forever.  So the node is watched.
	 */
	if (!permit->has_mutex)
	{
		permit->seen = SEEN_NOTHING;
		zkl__hold_watch_later(mutex_node(request));
	}
	permit->has_mutex = true;
	if (permit->seen == SEEN_FULL)
		return;
	if (permit_exists(request) && request->permit_node->czxid == 0)
		zkl__request_read_czxid(request, request->permit_node);
	else if (permit_exists(request))
		count_again(request);
	else if (request->permit_node == NULL || request->permit_node->state == NODE_NEW)
		create_permit(request);
}

/* The request begins again: outstanding answers are ignored. */
static void
reset(ZklPermit *permit)
{
	permit->has_mutex = false;
	permit->seen = SEEN_NOTHING;
	permit->has_capacity = false;
	permit->capacity_call = NULL;
	permit->count_call = NULL;
}

/* Sends the next operation of the permit, besides those of the mutex node, or grants it. */
static void
advance_permit(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;
	ZklNode    *mutex = mutex_node(request);

	if (request->status != ZKL_PENDING || !zkl__is_connected(request->session) ||
		(mutex->state != NODE_CREATING && !zkl__request_is_queued(request)))
		return;
	if (!permit->has_capacity)
		read_capacity(request);
	else if (zkl__request_is_first(request))
		advance_with_mutex(request);
	if (request->non_blocking && permit->seen == SEEN_NOTHING &&
		(mutex->state == NODE_READING || mutex->state == NODE_WAITING))
		count_again(request);
}

void
zkl__permit_advance(ZklRequest *request)
{
	if (request->is_restarted)
		reset(request->permit);
	request->is_restarted = false;
	if (request->create_call)
		return;
	zkl__request_advance(request);
	advance_permit(request);
}
