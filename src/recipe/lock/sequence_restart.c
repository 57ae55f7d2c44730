/*-------------------------------------------------------------------------
 *
 * sequence_restart.c
 *		Restarts the sequence numbers of a lock when they are used up.
 *
 * The server numbers children with a signed 32-bit counter of their parent.  When
 * the counter wraps, the order of the queue would be reversed.  So no request
 * contends with a number near the end: the request deletes its nodes, waits until
 * the queue is empty, and deletes the parent, whose successor counts from 0 again.
 * Any number of sessions may do this at once, because the server refuses to delete a
 * parent that has children.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static const char *
exhausted_path(const ZklRequest *request)
{
	return request->nodes[request->exhausted_index]->lock_path;
}

static void
forget_watch(ZklRequest *request)
{
	free(request->sequence_restart_watch);
	request->sequence_restart_watch = NULL;
}

static void
sequence_restart_over(ZklRequest *request)
{
	forget_watch(request);
	request->exhausted_index = -1;
	zkl__request_drive(request);
}

/* Returns whether the request waits for this answer, and the answer was not lost. */
static bool
answer_expected(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;

	if (request->sequence_restart_call != call)
		return false;
	request->sequence_restart_call = NULL;
	return request->status == ZKL_PENDING &&
		result->code != ZKL_RC_CONNECTION_LOSS;
}

/*
 * Returns whether the watched contender was numbered after a restart: it is younger
 * than the node whose number was too high, but its own number is not too high.
 */
static bool
counts_again(const ZklRequest *request, int64_t czxid)
{
	const char *name = strrchr(request->sequence_restart_watch, '/') + 1;
	ZklContender c;

	return czxid > request->exhausted_czxid && zkl_parse_child(name, &c) &&
		c.number >= 0 && c.number <= zkl__config(request->session)->sequence_limit;
}

static void
on_holder_read(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;
	bool		expected = answer_expected(call, result);

	if (expected && result->code == ZKL_RC_OK)
	{
		if (counts_again(request, result->czxid))
			sequence_restart_over(request);
		else
			zkl__request_blocked(request, request->exhausted_index, result);
		return;
	}
	if (!expected && request->sequence_restart_call)
		return;
	forget_watch(request);
	if (!expected)
		return;
	if (result->code == ZKL_RC_NO_NODE)
		zkl__sequence_restart_drive(request);
	else
		zkl__request_fail_code(request, request->exhausted_index, result);
}

static void
watch_holder(ZklRequest *request, const char *child)
{
	ZklSession *session = request->session;
	ZklCall    *call = NULL;

	request->sequence_restart_watch = zkl__path(exhausted_path(request), child);
	if (request->sequence_restart_watch)
		call = zkl__request_call(request, on_holder_read);
	request->sequence_restart_call =
		zkl__call_sent(call, call && zkl_client_get(zkl__client(session),
													request->sequence_restart_watch, true,
													&call->completion));
	if (request->sequence_restart_call == NULL)
		forget_watch(request);
}

static void
on_parent_deleted(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;

	if (!answer_expected(call, result))
		return;
	switch (result->code)
	{
		case ZKL_RC_OK:
		case ZKL_RC_NO_NODE:
			sequence_restart_over(request);
			break;
		case ZKL_RC_NOT_EMPTY:
			zkl__sequence_restart_drive(request);
			break;
		default:
			zkl__request_fail_code(request, request->exhausted_index, result);
	}
}

static void
delete_parent(ZklRequest *request)
{
	ZklSession *session = request->session;
	ZklCall    *call = zkl__request_call(request, on_parent_deleted);

	request->sequence_restart_call =
		zkl__call_sent(call, call && zkl_client_delete(zkl__client(session),
													   exhausted_path(request),
													   &call->completion));
}

/* Returns the last contender in the queue, which presumably leaves last. */
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
on_parent_listed(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;
	uint64_t	session_id = (uint64_t) zkl__session_id(request->session);
	const char *last;
	bool		foreign;

	if (!answer_expected(call, result))
		return;
	if (result->code == ZKL_RC_NO_NODE)
		sequence_restart_over(request);
	else if (result->code != ZKL_RC_OK)
		zkl__request_fail_code(request, request->exhausted_index, result);
	else if (result->n_children == 0)
		delete_parent(request);
	else if ((last = last_contender(result, session_id, &foreign)) == NULL)
		zkl__request_fail(request, ZKL_SEQUENCE_BLOCKED, request->exhausted_index, 0);
	else if (foreign && request->try_only)
		zkl__request_fail(request, ZKL_BUSY, request->exhausted_index, 0);
	else
		watch_holder(request, last);
}

/* Checks whether the queue is empty, unless a call or a watch for that is outstanding. */
void
zkl__sequence_restart_drive(ZklRequest *request)
{
	ZklSession *session = request->session;
	ZklCall    *call;

	if (request->sequence_restart_call || request->sequence_restart_watch ||
		request->status != ZKL_PENDING)
		return;
	call = zkl__request_call(request, on_parent_listed);
	request->sequence_restart_call =
		zkl__call_sent(call, call && zkl_client_list(zkl__client(session),
													 exhausted_path(request),
													 &call->completion));
}

void
zkl__sequence_restart_watch_fired(ZklRequest *request, const char *path)
{
	if (strcmp(request->sequence_restart_watch, path) != 0)
		return;
	forget_watch(request);
	request->sequence_restart_call = NULL;
	zkl__sequence_restart_drive(request);
}

/* Returns whether the number is too high; the limit leaves room for upgrades. */
static bool
number_exhausted(const ZklNode *node)
{
	return !node->upgrade &&
		(node->number < 0 || node->number > zkl__config(node->session)->sequence_limit);
}

/* If a node got a number that is too high, deletes all nodes and starts the restart. */
bool
zkl__request_restart_sequence(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
		if (number_exhausted(request->nodes[i]))
		{
			request->exhausted_index = i;
			request->exhausted_czxid = request->nodes[i]->czxid;
			zkl__request_restart(request);
			return true;
		}
	return false;
}
