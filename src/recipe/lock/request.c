/*-------------------------------------------------------------------------
 *
 * request.c
 *		One request: its state, its nodes, its failure.
 *
 * A handler that brings a request further marks it, and advance.c does the rest; only the answer
 * that a grant has waited for grants at once (on_verified() there, on_counted() in semaphore/permit.c).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"


/*
 * The request as a whole
 */

/* Returns the session's youngest request, which leads to the others, or NULL. */
ZklRequest *
zkl__requests(const ZklSession *session)
{
	return zkl__locks(session)->first_request;
}

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
			(request->nodes[i]->czxid == 0 && !request->nodes[i]->is_upgrade))
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

/* The request will be advanced before the mutex is released. */
void
zkl__request_mark(ZklRequest *request)
{
	ZklLocks   *locks = zkl__locks(request->session);

	if (request->is_marked)
		return;
	request->is_marked = true;
	request->next_marked = NULL;
	if (locks->first_marked)
		locks->last_marked->next_marked = request;
	else
		locks->first_marked = request;
	locks->last_marked = request;
}

/* Returns the request that was marked first, or NULL. */
ZklRequest *
zkl__request_take_marked(ZklSession *session)
{
	ZklLocks   *locks = zkl__locks(session);
	ZklRequest *request = locks->first_marked;

	if (request)
	{
		locks->first_marked = request->next_marked;
		request->is_marked = false;
	}
	return request;
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
	zkl__wake_at_unlock(request->session);
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

/* Gives up the permit node before the mutex, so the next holder does not count it. */
void
zkl__request_leave_permit(ZklRequest *request)
{
	if (request->permit_node)
	{
		request->progress += request->permit_node->uses.progress;
		zkl__node_leave(request->permit_node);
	}
	request->permit_node = NULL;
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
	zkl__deletes_begin(request->session);
	zkl__request_leave_permit(request);
	for (int i = 0; i < request->n; i++)
		if (request->nodes[i])
			zkl__node_leave(request->nodes[i]);
	zkl__deletes_end(request->session);
	zkl__request_free_locks(request);
	zkl__wake_at_unlock(request->session);
}

void
zkl__request_fail_code(ZklRequest *request, int culprit, const ZklResult *result)
{
	zkl__request_fail(request, zkl__status_of(result->code), culprit,
					  result->raw_code);
}


/*
 * Its nodes
 */

ZklNode *
zkl__request_node_new(ZklRequest *request, int index, const char *lock_path,
					  ZklMode mode, bool is_upgrade)
{
	bool		may_be_kept = request->may_be_kept && !is_upgrade &&
		!zkl__was_asked(request->session, lock_path);
	ZklNode    *node = zkl__node_new(request->session, lock_path, mode, request->node_names,
									 request->data, request->data_len, may_be_kept);

	if (node == NULL)
		return NULL;
	node->is_upgrade = is_upgrade;
	if (is_upgrade && !request->non_blocking)
		node->guid_end |= ZKL_UPGRADE_BIT;
	node->anchor = is_upgrade ? &request->locks[index]->base : NULL;
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
