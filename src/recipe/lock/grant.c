/*-------------------------------------------------------------------------
 *
 * grant.c
 *		Decides when a request is granted, and hands over its locks.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static void
grant_node(ZklRequest *request, int i)
{
	ZklNode    *node = request->nodes[i];
	ZklLock    *lock = request->locks[i];

	zkl__elision_note(node);
	if (node->upgrade)
		lock->upgrade = node;
	else
	{
		request->ungranted[i] = NULL;
		lock->anchor = node;
		lock->token = node->czxid;
		zkl__lock_link(lock);
	}
	node->lock = lock;
	node->request = NULL;
	zkl__hold_watch_later(node);
}

/* Grants the request: its nodes become locks, which the owner can take. */
void
zkl__request_grant(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
		grant_node(request, i);
	request->status = ZKL_OK;
	zkl__request_inform_of_end(request);
	zkl__wake(request->session);
}

static void
on_verified(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;

	if (request->verify_call != call)
		return;
	request->verify_call = NULL;
	if (request->status != ZKL_PENDING || result->code == ZKL_RC_CONNECTION_LOSS)
		return;
	if (result->code == ZKL_RC_OK)
		zkl__request_grant(request);
	else if (result->code == ZKL_RC_NO_NODE)
		zkl__request_restart(request);
	else
		zkl__request_fail_code(request, -1, result);
}

/*
 * Checks all nodes in one multi before the grant: while some of them waited, another
 * client may have deleted one that was first.
 */
static void
verify(ZklRequest *request)
{
	ZklOp	   *ops = calloc((size_t) request->n, sizeof(ZklOp));
	ZklCall    *call = zkl__request_call(request, on_verified);
	bool		complete = ops && call;

	for (int i = 0; complete && i < request->n; i++)
		complete = zkl__op_for_node(&ops[i], ZKL_OP_CHECK, request->nodes[i]);
	if (call)
		call->confirms = true;
	request->verify_call =
		zkl__call_sent(call, complete && zkl_client_multi(zkl__client(request->session),
														  ops, request->n,
														  &call->completion));
	zkl__ops_free(ops, request->n);
}

/* Continues at n_held, then checks all nodes again, as one may have left HELD. */
static bool
are_all_held(ZklRequest *request)
{
	while (request->n_held < request->n &&
		   request->nodes[request->n_held]->state == NODE_HELD)
		request->n_held++;
	if (request->n_held < request->n)
		return false;
	for (request->n_held = 0; request->n_held < request->n; request->n_held++)
		if (request->nodes[request->n_held]->state != NODE_HELD)
			return false;
	return true;
}

/* Grants the request, or takes the last steps to it, if all nodes are first. */
void
zkl__request_check_granted(ZklRequest *request)
{
	if (!are_all_held(request))
	{
		/* Everything is in flight already, except perhaps the read of the czxid. */
		if (request->kind || (request->czxid_call == NULL &&
							  request->nodes[request->n_held]->state == NODE_READING_CZXID))
			zkl__request_drive(request);
		return;
	}
	if (request->kind)
	{
		request->kind->on_drive(request);
		return;
	}
	if (request->n > 1 && request->was_blocked)
	{
		if (request->verify_call == NULL &&
			zkl__is_connected(request->session))
			verify(request);
		return;
	}
	zkl__request_grant(request);
}
