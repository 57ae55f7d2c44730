/*-------------------------------------------------------------------------
 *
 * capacity.c
 *		Checks that a semaphore has the expected layout and capacity.
 *
 * Both are read right behind the create of the mutex node, which is answered first.
 * While the mutex node exists, the semaphore cannot be deleted and created again.
 *
 * zklock creates a semaphore with its capacity as data.  A semaphore of another program
 * may have no data; then the holder of the mutex sets the capacity, unless the version
 * has changed since the read.  Data that are not a number stay as they are, and the
 * capacity is not checked then.
 *
 * The children of the semaphore show which layout is in use.  Each session creates a
 * child of its own layout first (<semaphore>/locks, or its permit node) and then looks
 * for children of the other layout.  So of two sessions with different layouts at
 * least one is refused.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "internal.h"

bool
zkl__semaphore_is_checked(const ZklPermit *permit)
{
	return permit->layout_known && permit->capacity_known;
}


/*
 * The layout
 */

static void
on_layout_children(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;
	ZklPermit  *permit = request->permit;

	if (!zkl__request_answered(request, &permit->layout_call, call, result) ||
		!zkl__request_is_queued(request))
		return;
	if (result->code == ZKL_RC_NO_NODE)
	{
		/* Another client has deleted the semaphore, so the mutex node is gone as well. */
		zkl__request_restart(request);
		return;
	}
	if (result->code != ZKL_RC_OK)
	{
		zkl__request_fail_code(request, 0, result);
		return;
	}
	for (int i = 0; i < result->n_children; i++)
		if (zkl_is_kazoos(result->children[i]))
		{
			zkl__request_fail(request, ZKL_OTHER_LAYOUT, 0, 0);
			return;
		}
	permit->layout_known = true;
	zkl__request_drive(request);
}

static void
send_get_children(ZklRequest *request)
{
	request->permit->layout_call = zkl__get_children(zkl__request_call(request, on_layout_children),
													 request->permit->semaphore_path, false, false);
}


/*
 * The capacity
 */

static void
take_capacity(ZklRequest *request, const ZklResult *result)
{
	ZklPermit  *permit = request->permit;
	int			capacity;

	permit->capacity_unset = result->data_len == 0 && zkl__request_is_queued(request);
	permit->version = result->version;
	if (zkl_parse_capacity(result->data, result->data_len, &capacity) && capacity != permit->capacity)
	{
		permit->other_capacity = capacity;
		zkl__request_fail(request, ZKL_OTHER_CAPACITY, 0, 0);
		return;
	}
	if (zkl__request_is_queued(request))
		request->attempts = 0;
	permit->capacity_known = zkl__request_is_queued(request) && !permit->capacity_unset;
	zkl__request_drive(request);
}

/* The answer to a read of the capacity, or to an attempt to set it. */
static void
on_capacity_read(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;
	ZklPermit  *permit = request->permit;
	bool		was_set = permit->capacity_unset;

	if (permit->capacity_call == call)
		permit->capacity_unset = false;
	if (!zkl__request_answered(request, &permit->capacity_call, call, result))
		return;
	switch (result->code)
	{
		case ZKL_RC_OK:
			if (!was_set)
				take_capacity(request, result);
			else
			{
				permit->capacity_known = zkl__request_is_queued(request);
				zkl__request_drive(request);
			}
			break;
		case ZKL_RC_BAD_VERSION:
			zkl__request_drive(request);
			break;
		case ZKL_RC_NO_NODE:
			/* May be missing in kazoo's layout, which has the queue elsewhere. */
			if (zkl__request_is_queued(request))
				zkl__request_no_parent(request);
			break;
		default:
			zkl__request_fail_code(request, 0, result);
	}
}

static void
send_read(ZklRequest *request)
{
	ZklOp		op = {.kind = ZKL_OP_GET, .path = request->permit->semaphore_path};

	request->permit->capacity_call = zkl__send(zkl__request_call(request, on_capacity_read),
											   &op);
}

static void
send_set(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;
	char		capacity[16];
	ZklOp		op = {
		.kind = ZKL_OP_SET,
		.path = permit->semaphore_path,
		.data = capacity,
		.data_len = snprintf(capacity, sizeof(capacity), "%d", permit->capacity),
		.version = permit->version
	};

	permit->capacity_call = zkl__send(zkl__request_call(request, on_capacity_read), &op);
}

/* Sends reads for what is unknown, and sets the capacity if there is none. */
void
zkl__semaphore_check(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;

	if (!permit->layout_known && permit->layout_call == NULL)
		send_get_children(request);
	if (permit->capacity_known || permit->capacity_call)
		return;
	if (permit->capacity_unset && zkl__request_is_first(request))
		send_set(request);
	else if (!permit->capacity_unset)
	{
		if (zkl__request_is_queued(request))
			zkl__request_send_parents(request);
		send_read(request);
	}
}
