/*-------------------------------------------------------------------------
 *
 * capacity.c
 *		Checks that a semaphore has the expected capacity.
 *
 * zklock creates a semaphore with its capacity as data.  The data are read right behind
 * the create of the mutex node, which is answered first: while that node exists, the
 * semaphore cannot be deleted and created again.
 *
 * A semaphore of another program may have no data.  Then they are read again with the
 * mutex, and the session that has the mutex sets the capacity.  Data that are not a
 * number stay as they are, and the capacity is not checked.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>

#include "internal.h"

/* The answer is not needed: if it is lost, the next session sets the capacity. */
static void
set_capacity(ZklRequest *request, int32_t version)
{
	char		capacity[16];
	ZklOp		op = {
		.kind = ZKL_OP_SET,
		.path = request->permit->semaphore_path,
		.data = capacity,
		.data_len = snprintf(capacity, sizeof(capacity), "%d", request->permit->capacity),
		.version = version
	};

	zkl__send(zkl__request_call(request, zkl__ignore_answer), &op);
}

static void
compare_capacity(ZklRequest *request, const ZklResult *data)
{
	ZklPermit  *permit = request->permit;
	int			capacity = permit->capacity;

	(void) zkl_parse_capacity(data->data, data->data_len, &capacity);
	if (capacity != permit->capacity)
	{
		permit->other_capacity = capacity;
		zkl__request_fail(request, ZKL_OTHER_CAPACITY, 0, 0);
		return;
	}
	permit->read = CAPACITY_READ;
	if (data->data_len == 0 && zkl__request_is_first(request))
		set_capacity(request, data->version);
	else if (data->data_len == 0)
		permit->read = CAPACITY_UNSET;
	zkl__request_advance(request);
}

static void
on_capacity_read(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;

	/* A read that was answered before the mutex node existed proves nothing. */
	if (!zkl__request_answered(request, &request->permit->capacity_call, call, result) ||
		!zkl__request_is_queued(request))
		return;
	if (result->code == ZKL_RC_OK)
		compare_capacity(request, result);
	else if (result->code == ZKL_RC_NO_NODE)
		zkl__request_restart(request);	/* the mutex node is gone as well */
	else
		zkl__request_fail_code(request, 0, result);
}

/* Reads the capacity if it is unknown. */
void
zkl__capacity_advance(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;
	ZklOp		op = {.kind = ZKL_OP_GET, .path = permit->semaphore_path};
	bool		is_due = permit->read == CAPACITY_UNREAD ||
		(permit->read == CAPACITY_UNSET && zkl__request_is_first(request));

	if (is_due && permit->capacity_call == NULL)
		permit->capacity_call = zkl__send(zkl__request_call(request, on_capacity_read), &op);
}
