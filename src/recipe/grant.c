/*-------------------------------------------------------------------------
 *
 * grant.c
 *		When a request is granted.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "waits.h"

static void
grant_node(ZklRequest *request, int i)
{
	ZklSession *session = request->session;
	ZklNode    *node = request->nodes[i];
	ZklLock    *lock = request->locks[i];

	zkl__succession_note(node);
	if (node->upgrade)
		lock->upgrade = node;
	else
	{
		request->unborn[i] = NULL;
		lock->anchor = node;
		lock->token = node->czxid;
		lock->next = session->locks;
		if (lock->next)
			lock->next->prev = lock;
		session->locks = lock;
	}
	node->lock = lock;
	node->request = NULL;
	zkl__guard_later(node);
}

/* What the nodes stand for is the owner's. */
void
zkl__request_grant(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
		grant_node(request, i);
	request->status = ZKL_OK;
	zkl__waits_end(request);
	zkl__wake(request->session);
}

static void
verified(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;

	if (request->verified != call)
		return;
	request->verified = NULL;
	if (request->status != ZKL_PENDING || result->code == ZKL_RC_CONNECTION_LOSS)
		return;
	if (result->code == ZKL_RC_OK)
	{
		request->is_verified = true;
		zkl__request_check_granted(request);
	}
	else if (result->code == ZKL_RC_NO_NODE)
		zkl__request_restart(request);
	else
		zkl__request_fail_code(request, -1, result);
}

/*
 * A node that became first while others of the request still waited may have
 * been removed by somebody since: all are checked at once.
 */
static void
verify(ZklRequest *request)
{
	ZklOp	   *ops = calloc((size_t) request->n, sizeof(ZklOp));
	ZklCall    *call = NULL;
	bool		complete = ops != NULL;

	for (int i = 0; complete && i < request->n; i++)
	{
		ops[i].kind = ZKL_OP_CHECK;
		ops[i].path = zkl__path(request->nodes[i]->lock_path,
								request->nodes[i]->name);
		complete = ops[i].path != NULL;
	}
	if (complete)
		call = zkl__call_new(request->session, verified, NULL, request);
	if (call)
		call->confirms = true;
	request->verified =
		zkl__call_sent(call, call && zkl_client_multi(request->session->client,
													  ops, request->n,
													  &call->completion));
	for (int i = 0; ops && i < request->n; i++)
		free((char *) ops[i].path);
	free(ops);
}

/* Are all nodes first in their queues?  Then the locks are the owner's. */
void
zkl__request_check_granted(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
		if (request->nodes[i]->state != NODE_HELD)
		{
			zkl__request_drive(request);
			return;
		}
	if (request->permit)
	{
		zkl__permit_drive(request);
		return;
	}
	if (request->n > 1 && request->was_blocked && !request->is_verified)
	{
		if (request->verified == NULL &&
			request->session->state == ZKL_SESSION_CONNECTED)
			verify(request);
		return;
	}
	zkl__request_grant(request);
}
