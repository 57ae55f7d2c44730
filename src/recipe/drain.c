/*-------------------------------------------------------------------------
 *
 * drain.c
 *		A request that waits for the sequence numbers of a lock to restart.
 *
 * The server numbers children with a signed 32-bit counter of their parent,
 * which wraps; order would turn round.  So nobody contends with a number near
 * the end: the request gives its nodes back, waits until the queue has drained,
 * and removes the parent, whose successor counts from 0 again.  The server
 * refuses to remove a parent that has children, which makes this safe however
 * many do it at once.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static const char *
drained_path(const ZklRequest *request)
{
	return request->nodes[request->draining]->lock_path;
}

static void
forget_watch(ZklRequest *request)
{
	free(request->drain_watch);
	request->drain_watch = NULL;
}

static void
drain_over(ZklRequest *request)
{
	forget_watch(request);
	request->draining = -1;
	zkl__request_drive(request);
}

/* Is this the answer that the request waits for? */
static bool
answer_expected(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;

	if (request->drained != call)
		return false;
	request->drained = NULL;
	return request->status == ZKL_PENDING &&
		result->code != ZKL_RC_CONNECTION_LOSS;
}

/*
 * Is this contender one of a new count?  It is younger than the node whose
 * number was too high, and has a number that is not.
 */
static bool
counts_anew(const ZklRequest *request, int64_t czxid)
{
	const char *name = strrchr(request->drain_watch, '/') + 1;
	ZklContender c;

	return czxid > request->exhausted_czxid && zkl_parse_child(name, &c) &&
		c.number >= 0 && c.number <= request->session->sequence_limit;
}

static void
holder_read(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;
	bool		expected = answer_expected(call, result);

	if (expected && result->code == ZKL_RC_OK)
	{
		if (counts_anew(request, result->czxid))
			drain_over(request);
		else
			zkl__request_blocked(request, request->draining, result);
		return;
	}
	if (!expected && request->drained)
		return;
	forget_watch(request);
	if (!expected)
		return;
	if (result->code == ZKL_RC_NO_NODE)
		zkl__drain_drive(request);
	else
		zkl__request_fail_code(request, request->draining, result);
}

static void
watch_holder(ZklRequest *request, const char *child)
{
	ZklSession *session = request->session;
	ZklCall    *call = NULL;

	request->drain_watch = zkl__path(drained_path(request), child);
	if (request->drain_watch)
		call = zkl__call_new(session, holder_read, NULL, request);
	request->drained =
		zkl__call_sent(call, call && zkl_client_get(session->client,
													request->drain_watch, true,
													&call->completion));
	if (request->drained == NULL)
		forget_watch(request);
}

static void
parent_deleted(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;

	if (!answer_expected(call, result))
		return;
	switch (result->code)
	{
		case ZKL_RC_OK:
		case ZKL_RC_NO_NODE:
			drain_over(request);
			break;
		case ZKL_RC_NOT_EMPTY:
			zkl__drain_drive(request);
			break;
		default:
			zkl__request_fail_code(request, request->draining, result);
	}
}

static void
delete_parent(ZklRequest *request)
{
	ZklSession *session = request->session;
	ZklCall    *call = zkl__call_new(session, parent_deleted, NULL, request);

	request->drained =
		zkl__call_sent(call, call && zkl_client_delete(session->client,
													   drained_path(request),
													   &call->completion));
}

/* The contender that will leave last, as far as one can tell. */
static const char *
last_contender(const ZklResult *result, uint64_t session_id, bool *foreign)
{
	const char *last = NULL;
	int32_t		last_number = 0;

	*foreign = false;
	for (int i = 0; i < result->n_children; i++)
	{
		ZklContender c;

		if (!zkl_parse_child(result->children[i], &c))
			continue;
		if (!c.has_owner || c.owner != session_id)
			*foreign = true;
		if (last == NULL ||
			zkl_is_before(last_number, last, c.number, result->children[i]))
		{
			last = result->children[i];
			last_number = c.number;
		}
	}
	return last;
}

static void
parent_listed(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;
	uint64_t	session_id = (uint64_t) request->session->connection.session_id;
	const char *last;
	bool		foreign;

	if (!answer_expected(call, result))
		return;
	if (result->code == ZKL_RC_NO_NODE)
		drain_over(request);
	else if (result->code != ZKL_RC_OK)
		zkl__request_fail_code(request, request->draining, result);
	else if (result->n_children == 0)
		delete_parent(request);
	else if ((last = last_contender(result, session_id, &foreign)) == NULL)
		zkl__request_fail(request, ZKL_NOT_DRAINING, request->draining, 0);
	else if (foreign && request->try_only)
		zkl__request_fail(request, ZKL_BUSY, request->draining, 0);
	else
		watch_holder(request, last);
}

/* Looks whether the queue has drained, unless that is under way or waited for. */
void
zkl__drain_drive(ZklRequest *request)
{
	ZklSession *session = request->session;
	ZklCall    *call;

	if (request->drained || request->drain_watch ||
		request->status != ZKL_PENDING)
		return;
	call = zkl__call_new(session, parent_listed, NULL, request);
	request->drained =
		zkl__call_sent(call, call && zkl_client_list(session->client,
													 drained_path(request),
													 &call->completion));
}

void
zkl__drain_watch_fired(ZklRequest *request, const char *path)
{
	if (strcmp(request->drain_watch, path) != 0)
		return;
	forget_watch(request);
	request->drained = NULL;
	zkl__drain_drive(request);
}

/* A number beyond what order can bear; some room is left for upgrades. */
static bool
number_exhausted(const ZklNode *node)
{
	return !node->upgrade &&
		(node->number < 0 || node->number > node->session->sequence_limit);
}

/* Did one of the nodes draw a number that is too high?  Then all are given back. */
bool
zkl__request_drain_if_exhausted(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
		if (number_exhausted(request->nodes[i]))
		{
			request->draining = i;
			request->exhausted_czxid = request->nodes[i]->czxid;
			zkl__request_restart(request);
			return true;
		}
	return false;
}
