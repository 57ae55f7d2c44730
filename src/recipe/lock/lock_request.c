/*-------------------------------------------------------------------------
 *
 * lock_request.c
 *		Requests for locks: starting one, and granting it when its nodes are first.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"


/*
 * The handlers of ZklRequestKind
 */

static void
on_verified(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;

	if (!zkl__request_answered(request, &request->verify_call, call, result))
		return;
	if (result->code == ZKL_RC_OK && zkl__lease_allows_grant(request->session))
		zkl__request_grant(request);
	else if (result->code == ZKL_RC_OK)
		return;					/* the proof leads to another multi */
	else if (result->code == ZKL_RC_NO_NODE)
		zkl__request_restart(request);
	else
		zkl__request_fail_code(request, -1, result);
}

/*
 * Grants the request when all nodes are first.  Several nodes are checked in one multi
 * before: while some of them waited, another client may have deleted one that was first.
 */
static void
on_drive(ZklRequest *request)
{
	if (request->status != ZKL_PENDING || !zkl__request_is_first(request))
		return;
	if (request->n == 1 || !request->was_blocked)
	{
		if (zkl__lease_allows_grant(request->session))
			zkl__request_grant(request);
	}
	else if (request->verify_call == NULL && zkl__is_connected(request->session))
		request->verify_call = zkl__check_nodes(zkl__request_call(request, on_verified),
												request->nodes, request->n);
}

static void
send_parents(ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
		zkl__request_send_parent(request, request->nodes[i], request->nodes[i]->lock_path, "",
								 zkl__container_kind(request->session));
}

static const ZklRequestKind lock_kind = {
	.send_parents = send_parents,
	.on_drive = on_drive,
};


/*
 * Starting a request
 */

bool
zkl_session_has_mode(const ZklSession *session, ZklMode mode)
{
	return zkl_has_mode(zkl__config(session)->node_names, mode);
}

static bool
has_room(const ZklRequest *request, const ZklLockItem *items)
{
	size_t		path_bytes = 0;

	for (int i = 0; i < request->n; i++)
		path_bytes += strlen(zkl__config(request->session)->locks_path) +
			strlen(items[i].name) + ZKL_CHILD_NAME_SIZE;
	return zkl__session_has_room(request->session, request->n, path_bytes,
								 (size_t) request->n * (size_t) request->data_len);
}

static bool
add_node(ZklRequest *request, int i, const ZklLockItem *item)
{
	char	   *path = zkl__path(zkl__config(request->session)->locks_path, item->name);
	bool		added = path &&
		zkl__request_add_node(request, i, path, item->mode, item->held);

	free(path);
	return added;
}

static void
start_request(ZklRequest *request, const ZklLockItem *items)
{
	if (!has_room(request, items))
	{
		zkl__request_fail(request, ZKL_TOO_MANY, -1, 0);
		return;
	}
	for (int i = 0; i < request->n; i++)
	{
		if (!zkl_session_has_mode(request->session, items[i].mode))
		{
			zkl__request_fail(request, ZKL_NOT_SUPPORTED, i, 0);
			return;
		}
		if (!add_node(request, i, &items[i]))
		{
			zkl__request_fail(request, ZKL_NO_MEMORY, i, 0);
			return;
		}
	}
	zkl__request_drive(request);
}

ZklRequest *
zkl_lock_request(ZklSession *session, const ZklLockItem *items, int n_items,
				 bool non_blocking, const char *data, int data_len)
{
	ZklRequest *request;

	zkl__session_lock(session);
	request = zkl__request_new(session, &lock_kind, n_items, non_blocking, data, data_len);
	if (request)
	{
		request->top_path = zkl__config(session)->locks_path;
		start_request(request, items);
	}
	zkl__session_unlock(session);
	return request;
}
