/*-------------------------------------------------------------------------
 *
 * lock_request.c
 *		Starts requests for locks.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

bool
zkl_session_has_mode(const ZklSession *session, ZklMode mode)
{
	return zkl_has_mode(zkl__config(session)->node_names, mode);
}

static bool
has_room_for_items(const ZklRequest *request, const ZklLockItem *items)
{
	size_t		path_bytes = 0;

	for (int i = 0; i < request->n; i++)
		path_bytes += strlen(zkl__config(request->session)->locks_path) +
			strlen(items[i].name) + ZKL_CHILD_NAME_SIZE;
	return zkl__session_has_room(request->session, request->n, path_bytes,
								 (size_t) request->n * (size_t) request->data_len);
}

static bool
add_item_node(ZklRequest *request, int i, const ZklLockItem *item)
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
	if (!has_room_for_items(request, items))
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
		if (!add_item_node(request, i, &items[i]))
		{
			zkl__request_fail(request, ZKL_NO_MEMORY, i, 0);
			return;
		}
	}
	zkl__request_advance(request);
}

ZklRequest *
zkl_lock_request(ZklSession *session, const ZklLockItem *items, int n_items,
				 bool non_blocking, const char *data, int data_len)
{
	ZklRequest *request;

	zkl__session_lock(session);
	request = zkl__request_new(session, NULL, n_items, non_blocking, data, data_len);
	if (request)
	{
		request->top_path = zkl__config(session)->locks_path;
		start_request(request, items);
	}
	zkl__session_unlock(session);
	return request;
}
