/*-------------------------------------------------------------------------
 *
 * calls.c
 *		Keeps the calls in flight: operations of the client without an answer.  Has each
 *		subject freed after its last call, and reminds a server that forgot to answer.
 *		Says what the codes of answers mean.
 *
 * Owns their list.  Nothing here depends on what the calls are for.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Handler of a call that is made only for its effect. */
void
zkl__ignore_answer(ZklCall *call, const ZklResult *result)
{
	(void) call;
	(void) result;
}

static void
free_if_unused(ZklSession *session, ZklUses *uses)
{
	if (!uses->ended || uses->calls > 0)
		return;
	uses->ended = false;		/* once */
	uses->next = session->garbage;
	session->garbage = uses;
}

/* The subject gets no more calls: has it freed after the last call in flight. */
void
zkl__uses_end(ZklSession *session, ZklUses *uses)
{
	uses->ended = true;
	free_if_unused(session, uses);
}

static void
release(ZklSession *session, ZklUses *uses)
{
	if (uses == NULL)
		return;
	uses->calls--;
	free_if_unused(session, uses);
}

/* Unlinks and frees the call. */
static void
call_free(ZklCall *call)
{
	ZklSession *session = call->session;

	if (session->proof == call)
		session->proof = NULL;
	if (session->list_proof == call)
		session->list_proof = NULL;
	if (call->prev)
		call->prev->next = call->next;
	else
		session->calls = call->next;
	if (call->next)
		call->next->prev = call->prev;
	else
		session->last_call = call->prev;
	release(session, call->uses);
	release(session, call->detail_uses);
	free(call);
}

/*
 * Counts an answer as progress of the call's subject, unless it only repeats what the subject
 * had before the connection was lost.  So connections that die of the same request again and
 * again bring no progress.
 */
static void
count_progress(const ZklCall *call)
{
	ZklUses    *uses = call->uses;

	if (uses == NULL)
		return;
	if (uses->connection != call->session->n_connections)
		uses->n_answers = 0;
	uses->connection = call->session->n_connections;
	if (++uses->n_answers > uses->progress)
		uses->progress = uses->n_answers;
}

/* Returns whether grants that waited for a proof go on. */
static bool
handle_answer(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklResult	unproven = {.code = ZKL_RC_CONNECTION_LOSS};

	if (session->proof == call)
		session->proof = NULL;
	if (call->needs_freshness != ZKL_LIST_ANY)
		result = &unproven;
	if (call->confirms && result->code == ZKL_RC_OK)
		zkl__lease_confirmed(call);
	if (result->code != ZKL_RC_CONNECTION_LOSS)
		count_progress(call);
	call->handler(call, result);
	if (result->code != ZKL_RC_CONNECTION_LOSS)
	{
		session->n_answers++;
		session->answered_ms = zkl_now_ms();
	}
	else if (session->state == ZKL_SESSION_CONNECTED)
		zkl__retry_later(session, ZKL_RETRY_UNANSWERED);
	return zkl__lease_answered(session);
}

/*
 * The client has answered the call, which is freed.  Returns whether grants that waited
 * for a proof go on.
 */
bool
zkl__call_answered(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	bool		goes_on = false;

	if (!zkl__is_final(session) && result->code == ZKL_RC_AUTH_FAILED)
		zkl__session_end(session, ZKL_SESSION_AUTH_FAILED);
	zkl__lease_check(session);
	if (!zkl__is_final(session))
		goes_on = handle_answer(call, result);
	call_free(call);
	zkl__arm_keepalive(session);
	return goes_on;
}

/* The session ends: no call is answered any more. */
void
zkl__calls_free(ZklSession *session)
{
	while (session->calls)
		call_free(session->calls);
	zkl__sweep(session);
}

/* Creates a call, maybe with a subject and its uses; returns NULL when out of memory. */
ZklCall *
zkl__call_new(ZklSession *session, ZklHandler handler, void *subject, ZklUses *uses)
{
	ZklCall    *call = calloc(1, sizeof(ZklCall));

	if (call == NULL)
	{
		zkl__retry_later(session, ZKL_RETRY_UNANSWERED);
		return NULL;
	}
	call->session = session;
	call->submitted_ms = zkl_now_ms();
	call->handler = handler;
	call->subject = subject;
	call->uses = uses;
	call->prev = session->last_call;
	if (call->prev)
		call->prev->next = call;
	else
		session->calls = call;
	session->last_call = call;
	if (uses)
		uses->calls++;
	return call;
}

/* Adds a second subject, which must exist as long.  The call may be NULL. */
void
zkl__call_keep(ZklCall *call, void *detail, ZklUses *uses)
{
	if (call == NULL)
		return;
	call->detail = detail;
	call->detail_uses = uses;
	uses->calls++;
}

/*
 * Submits operations as one request.  "call" comes from zkl__call_new() and may be NULL,
 * as may "ops", if memory is exhausted.  Returns the call if it will be answered; otherwise
 * frees it, schedules a retry and returns NULL.
 */
ZklCall *
zkl__send_all(ZklCall *call, ZklRequestForm form, const ZklOp *ops, int n)
{
	ZklSession *session;
	int64_t		now;

	if (call == NULL)
		return NULL;
	session = call->session;
	now = zkl_now_ms();
	/* Before another thread can send it. */
	call->settled_ms = zkl__clock_settled_ms(&session->clock, now);
	call->is_backed = zkl__clock_is_backed(&session->clock, now);
	if (ops && zkl_client_submit(session->client, form, ops, n, call))
	{
		call->confirms = form == ZKL_MULTI || ops->kind == ZKL_OP_CREATE;
		zkl__arm_keepalive(session);
		return call;
	}
	call_free(call);
	zkl__retry_later(session, ZKL_RETRY_UNANSWERED);
	return NULL;
}

/* The same for one operation. */
ZklCall *
zkl__send(ZklCall *call, const ZklOp *op)
{
	return zkl__send_all(call, ZKL_SINGLE, op, 1);
}

ZklCall *
zkl__read_child(ZklCall *call, const char *parent, const char *child, bool watch)
{
	ZklOp		op = {.kind = ZKL_OP_GET, .path = parent, .child = child, .watch = watch};

	return zkl__send(call, &op);
}


/*
 * The meaning of result codes
 */

/* Handlers never get AUTH_FAILED: the session has ended then. */
ZklStatus
zkl__status_of(ZklResultCode code)
{
	switch (code)
	{
		case ZKL_RC_OK:
			return ZKL_OK;
		case ZKL_RC_NO_AUTH:
			return ZKL_NO_AUTH;
		case ZKL_RC_SESSION_EXPIRED:
			return ZKL_SESSION_LOST;
		case ZKL_RC_LOCAL_SESSION:
			return ZKL_LOCAL_SESSION;
		default:
			return ZKL_SERVER_ERROR;
	}
}

/* Returns the operation because of which a multi failed; -1: none, or all, as with a lost answer. */
int
zkl__failed_op(const ZklResult *result)
{
	for (int i = 0; i < result->n_ops && result->code != ZKL_RC_CONNECTION_LOSS; i++)
		if (result->op_results[i].code != ZKL_RC_OK &&
			result->op_results[i].code != ZKL_RC_ROLLED_BACK)
			return i;
	return -1;
}

/*
 * Returns whether it is certain that a create, or a multi with one, with this answer
 * has created no node.  All other codes leave that open, and the node is looked for.
 * NODE_EXISTS is one of them: a node of that name is ours, from an earlier create.
 */
bool
zkl__is_refusal(ZklResultCode code)
{
	switch (code)
	{
		case ZKL_RC_NO_NODE:
		case ZKL_RC_NO_AUTH:
		case ZKL_RC_REFUSED:
		case ZKL_RC_LOCAL_SESSION:
			return true;
		default:
			return false;
	}
}


/*
 * Keepalive reads
 */

/* Returns the oldest call that is not a keepalive read. */
static ZklCall *
oldest_call(const ZklSession *session)
{
	ZklCall    *call = session->calls;

	while (call && call->is_keepalive)
		call = call->next;
	return call;
}

/*
 * Returns when a keepalive read for this call is due.  The server may first be slow and then
 * forget.  So it is repeated, each time after twice the time, until there is an answer; and a
 * server that has answered may forget the next request.  The library does not ping while a
 * request is unanswered, and the lease needs a packet every third of the session timeout.
 */
static int64_t
keepalive_due_ms(const ZklSession *session, const ZklCall *call)
{
	int64_t		since_ms = call->submitted_ms > session->answered_ms ? call->submitted_ms
		: session->answered_ms;
	int64_t		pause_ms = session->keepalive_ms - since_ms;
	int64_t		longest_ms = session->connection.session_timeout_ms / 4;

	if (pause_ms <= 0)
		return since_ms + KEEPALIVE_MS;
	return session->keepalive_ms + (pause_ms < longest_ms ? pause_ms : longest_ms);
}

void
zkl__arm_keepalive(ZklSession *session)
{
	const ZklCall *call = oldest_call(session);

	if (call && zkl__is_connected(session))
		zkl__arm_timer(session, keepalive_due_ms(session, call));
}

/*
 * Sends a keepalive read: with any further request, a server also answers a request that it
 * had forgotten, and a read is cheap.
 */
void
zkl__keepalive(ZklSession *session, int64_t now)
{
	ZklOp		op = {.kind = ZKL_OP_GET, .path = session->config.root};
	ZklCall    *call = oldest_call(session);

	if (call == NULL || !zkl__is_connected(session) || now < keepalive_due_ms(session, call))
		return;
	session->keepalive_ms = now;
	call = zkl__call_new(session, zkl__ignore_answer, NULL, NULL);
	if (call)
		call->is_keepalive = true;
	zkl__send(call, &op);
}
