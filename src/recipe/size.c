/*-------------------------------------------------------------------------
 *
 * size.c
 *		Is the semaphore the one that is meant: its layout and its size?
 *
 * Both are asked for right behind the create of the mutex's node, whose answer
 * comes first; while that node exists the pool can't be removed and made anew.
 *
 * The pool is born with its size.  One that another program made has none; who
 * has the mutex gives it one, unless somebody has done so since the data were
 * read.  Data that are no number are left alone, and nothing is guarded then.
 *
 * Which layout is in use is seen by the pool's children.  Each session makes its
 * own mark there first (<pool>/locks, or its permit's node) and then looks for
 * the other's, so of two that meet at least one is refused.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "internal.h"

bool
zkl__pool_is_ours(const ZklPermit *permit)
{
	return permit->layout_known && permit->size_known;
}


/*
 * The layout
 */

static void
parts_listed(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;
	ZklPermit  *permit = request->permit;

	if (permit->parts_listed != call)
		return;
	permit->parts_listed = NULL;
	if (request->status != ZKL_PENDING || !zkl__permit_in_queue(request) ||
		result->code == ZKL_RC_CONNECTION_LOSS)
		return;
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
	zkl__permit_drive(request);
}

static void
send_list(ZklRequest *request)
{
	ZklCall    *call = zkl__call_new(request->session, parts_listed, NULL, request);

	request->permit->parts_listed =
		zkl__call_sent(call, call && zkl_client_list(request->session->client,
													 request->permit->pool_path,
													 &call->completion));
}


/*
 * The size
 */

static void
size_read(ZklRequest *request, const ZklResult *result)
{
	ZklPermit  *permit = request->permit;
	int			size = permit->size;

	permit->size_unset = false;
	switch (zkl_parse_size(result->data, result->data_len, &size))
	{
		case ZKL_SIZE_EMPTY:
			permit->size_unset = true;
			permit->version = result->version;
			break;
		case ZKL_SIZE_NUMBER:
		case ZKL_SIZE_FOREIGN:
			break;
	}
	if (size != permit->size)
	{
		permit->other_size = size;
		zkl__request_fail(request, ZKL_OTHER_SIZE, 0, 0);
		return;
	}
	request->attempts = 0;
	permit->size_known = zkl__permit_in_queue(request) && !permit->size_unset;
	zkl__permit_drive(request);
}

/* The answer to a read of the size, or to an attempt to set it. */
static void
sized(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;
	ZklPermit  *permit = request->permit;
	bool		was_set = permit->size_unset;

	if (permit->sized != call)
		return;
	permit->sized = NULL;
	permit->size_unset = false;
	if (request->status != ZKL_PENDING)
		return;
	switch (result->code)
	{
		case ZKL_RC_OK:
			if (!was_set)
				size_read(request, result);
			else
			{
				permit->size_known = zkl__permit_in_queue(request);
				zkl__permit_drive(request);
			}
			break;
		case ZKL_RC_CONNECTION_LOSS:
			break;
		case ZKL_RC_BAD_VERSION:
			zkl__permit_drive(request);
			break;
		case ZKL_RC_NO_NODE:
			/* Made with the queue in Curator's layout, beside it in kazoo's. */
			if (zkl__permit_in_queue(request))
				zkl__request_no_parent(request);
			break;
		default:
			zkl__request_fail_code(request, 0, result);
	}
}

static void
send_read(ZklRequest *request)
{
	ZklCall    *call = zkl__call_new(request->session, sized, NULL, request);

	request->permit->sized =
		zkl__call_sent(call, call && zkl_client_get(request->session->client,
													request->permit->pool_path, false,
													&call->completion));
}

static void
send_set(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;
	ZklCall    *call = zkl__call_new(request->session, sized, NULL, request);
	char		size[16];
	int			n = snprintf(size, sizeof(size), "%d", permit->size);

	permit->sized =
		zkl__call_sent(call, call && zkl_client_set(request->session->client,
													permit->pool_path, size, n,
													permit->version, &call->completion));
}

/* Asks for what is not known. */
void
zkl__pool_look(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;

	if (!permit->layout_known && permit->parts_listed == NULL)
		send_list(request);
	if (permit->size_known || permit->sized)
		return;
	if (permit->size_unset && zkl__permit_in_turn(request))
		send_set(request);
	else if (!permit->size_unset)
	{
		if (zkl__permit_in_queue(request))
			zkl__permit_parents(request);
		send_read(request);
	}
}
