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

typedef enum RestartState
{
	LISTING,					/* list the queue: is it empty? */
	READING,					/* it is not: read the last contender with a watch */
	WAITING,					/* ... and wait for the watch */
	DELETING					/* it is: delete the parent */
} RestartState;

struct ZklSequenceRestart
{
	RestartState state;
	ZklCall    *call;			/* whose answer the state waits for, or NULL */
	int			index;			/* of the lock whose numbers are used up */
	int64_t		czxid;			/* of the node whose number was too high */
	char	   *watched;		/* READING, WAITING: path of the last contender, else NULL */
};

/* Returns whether the number is too high; the limit leaves room for upgrades. */
static bool
is_exhausted(const ZklNode *node)
{
	return !node->upgrade &&
		(node->number < 0 || node->number > zkl__config(node->session)->sequence_limit);
}

/*
 * If a node got a number that is too high, begins a restart and returns true.  The
 * caller then has all nodes of the request deleted.
 */
bool
zkl__sequence_restart_begin(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
		if (is_exhausted(request->nodes[i]))
		{
			request->sequence_restart = calloc(1, sizeof(ZklSequenceRestart));
			if (request->sequence_restart)
			{
				request->sequence_restart->index = i;
				request->sequence_restart->czxid = request->nodes[i]->czxid;
				return true;
			}
			zkl__request_fail(request, ZKL_NO_MEMORY, i, 0);
			break;
		}
	return false;
}

/* Ends the restart, if there is one. */
void
zkl__sequence_restart_free(ZklRequest *request)
{
	if (request->sequence_restart)
		free(request->sequence_restart->watched);
	free(request->sequence_restart);
	request->sequence_restart = NULL;
}

/* Has the queue listed again when the restart is driven next. */
static void
get_children_again(ZklSequenceRestart *restart)
{
	free(restart->watched);
	restart->watched = NULL;
	restart->call = NULL;
	restart->state = LISTING;
}

/* Returns whether it waits for another contender to leave. */
bool
zkl__sequence_restart_is_blocked(const ZklRequest *request)
{
	return request->sequence_restart && request->sequence_restart->watched;
}

/*
 * A watch has fired, or, if path is NULL, all watches are lost.  Returns whether the
 * restart waited for it.
 */
bool
zkl__sequence_restart_watch_fired(ZklRequest *request, const char *path)
{
	if (!zkl__sequence_restart_is_blocked(request) ||
		(path && strcmp(request->sequence_restart->watched, path) != 0))
		return false;
	get_children_again(request->sequence_restart);
	return true;
}


/*
 * The answers
 */

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
on_parent_children(ZklRequest *request, const ZklResult *result)
{
	ZklSequenceRestart *restart = request->sequence_restart;
	uint64_t	session_id = (uint64_t) zkl__session_id(request->session);
	const char *last;
	bool		foreign;

	if (result->code == ZKL_RC_NO_NODE)
		zkl__sequence_restart_free(request);
	else if (result->code != ZKL_RC_OK)
		zkl__request_fail_code(request, restart->index, result);
	else if (result->n_children == 0)
		restart->state = DELETING;
	else if ((last = last_contender(result, session_id, &foreign)) == NULL)
		zkl__request_fail(request, ZKL_SEQUENCE_BLOCKED, restart->index, 0);
	else if (foreign && request->non_blocking)
		zkl__request_fail(request, ZKL_BUSY, restart->index, 0);
	else
	{
		restart->watched = zkl__path(request->nodes[restart->index]->lock_path, last);
		if (restart->watched)
			restart->state = READING;
		else
			zkl__request_fail(request, ZKL_NO_MEMORY, restart->index, 0);
	}
}

/*
 * Returns whether the watched contender was numbered after a restart: it is younger
 * than the node whose number was too high, but its own number is not too high.
 */
static bool
counts_again(const ZklRequest *request, int64_t czxid)
{
	const char *name = strrchr(request->sequence_restart->watched, '/') + 1;
	ZklContender c;

	return czxid > request->sequence_restart->czxid && zkl_parse_child(name, &c) &&
		c.number >= 0 && c.number <= zkl__config(request->session)->sequence_limit;
}

static void
contender_read(ZklRequest *request, const ZklResult *result)
{
	ZklSequenceRestart *restart = request->sequence_restart;

	if (result->code == ZKL_RC_NO_NODE)
		get_children_again(restart);
	else if (result->code != ZKL_RC_OK)
		zkl__request_fail_code(request, restart->index, result);
	else if (counts_again(request, result->czxid))
		zkl__sequence_restart_free(request);
	else
	{
		restart->state = WAITING;
		zkl__request_blocked(request, restart->index, result);
	}
}

static void
parent_deleted(ZklRequest *request, const ZklResult *result)
{
	if (result->code == ZKL_RC_OK || result->code == ZKL_RC_NO_NODE)
		zkl__sequence_restart_free(request);
	else if (result->code == ZKL_RC_NOT_EMPTY)
		get_children_again(request->sequence_restart);
	else
		zkl__request_fail_code(request, request->sequence_restart->index, result);
}

/*
 * Handles the answer to a call of zkl__sequence_restart_drive().  Returns whether the
 * request has to be driven now.
 */
bool
zkl__sequence_restart_answered(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;
	ZklSequenceRestart *restart = request->sequence_restart;

	if (restart == NULL || !zkl__request_answered(request, &restart->call, call, result))
		return false;
	if (restart->state == LISTING)
		on_parent_children(request, result);
	else if (restart->state == READING)
		contender_read(request, result);
	else
		parent_deleted(request, result);
	return true;
}

/*
 * Sends the operation of the state, unless its answer is outstanding.  The handler calls
 * zkl__sequence_restart_answered().
 */
void
zkl__sequence_restart_drive(ZklRequest *request, ZklHandler on_answer)
{
	ZklSequenceRestart *restart = request->sequence_restart;
	ZklOp		op = {
		.kind = restart->state == LISTING ? ZKL_OP_LIST
		: restart->state == READING ? ZKL_OP_GET : ZKL_OP_DELETE,
		.path = restart->state == READING ? restart->watched
		: request->nodes[restart->index]->lock_path,
		.watch = restart->state == READING
	};

	if (restart->call == NULL && restart->state != WAITING)
		restart->call = zkl__send(zkl__request_call(request, on_answer), &op);
}
