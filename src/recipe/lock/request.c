/*-------------------------------------------------------------------------
 *
 * request.c
 *		A request as a whole: answers, waiting, grant, failure.
 *
 * All other files about requests build on this one.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

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
 * Returns whether all nodes are first in their queues.  Begins with the last node, which
 * usually is the last one to be first.
 */
bool
zkl__request_is_first(const ZklRequest *request)
{
	for (int i = request->n - 1; i >= 0; i--)
		if (request->nodes[i]->state != NODE_HELD)
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
		zkl__lock_granted(request->locks[i], request->nodes[i]);
		zkl__hold_watch_later(request->nodes[i]);
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
