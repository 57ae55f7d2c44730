/*-------------------------------------------------------------------------
 *
 * request_items.c
 *		Starts a request: its items, and the session's limits.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"


/*
 * Any request
 */

/* Returns whether the session's limits allow so many nodes, paths and data more. */
bool
zkl__session_has_room(const ZklSession *session, int n_nodes, size_t path_bytes,
					  size_t data_bytes)
{
	size_t		request_bytes = path_bytes + data_bytes;
	size_t		wanted_bytes;
	int			n_wanted = zkl__nodes_wanted(session, &wanted_bytes);

	return n_nodes + n_wanted <= zkl__config(session)->max_nodes &&
		path_bytes + wanted_bytes <= ZKL_PACKET_BYTES &&
		request_bytes <= ZKL_PACKET_BYTES;
}

/*
 * Returns a new request, not yet linked to the session; NULL if out of memory.  The
 * arrays and the data are in the same chunk of memory.
 */
ZklRequest *
zkl__request_new(ZklSession *session, int n, bool try_only,
				 const char *data, int data_len)
{
	size_t		room = (size_t) n;
	ZklRequest *request = calloc(1, sizeof(ZklRequest) +
								 room * (sizeof(ZklNode *) + 2 * sizeof(ZklLock *)) +
								 (size_t) data_len);

	if (request == NULL)
		return NULL;
	request->session = session;
	request->uses.on_idle = zkl__request_on_idle;
	request->status = ZKL_PENDING;
	request->node_names = zkl__config(session)->node_names;
	request->culprit = -1;
	request->exhausted_index = -1;
	request->try_only = try_only;
	request->n = n;
	request->nodes = (ZklNode **) (request + 1);
	request->locks = (ZklLock **) (request->nodes + room);
	request->ungranted = request->locks + room;
	request->data = (char *) (request->ungranted + room);
	memcpy(request->data, data, (size_t) data_len);
	request->data_len = data_len;
	return request;
}


/*
 * Locks
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
make_node(ZklRequest *request, int i, const ZklLockItem *item)
{
	char	   *path = zkl__path(zkl__config(request->session)->locks_path, item->name);

	if (item->held == NULL)
		request->ungranted[i] = calloc(1, sizeof(ZklLock));
	request->locks[i] = item->held ? item->held : request->ungranted[i];
	if (path && request->locks[i])
	{
		request->locks[i]->session = request->session;
		request->nodes[i] = zkl__request_node_new(request, i, path, item->mode,
												  item->held != NULL);
	}
	free(path);
	return request->nodes[i] != NULL;
}

static void
start_request(ZklRequest *request, const ZklLockItem *items)
{
	ZklSession *session = request->session;

	if (!has_room(request, items))
	{
		zkl__request_fail(request, ZKL_TOO_MANY, -1, 0);
		return;
	}
	for (int i = 0; i < request->n; i++)
	{
		if (!zkl_session_has_mode(session, items[i].mode))
		{
			zkl__request_fail(request, ZKL_NOT_SUPPORTED, i, 0);
			return;
		}
		if (!make_node(request, i, &items[i]))
		{
			zkl__request_fail(request, ZKL_NO_MEMORY, i, 0);
			return;
		}
	}
	zkl__request_drive(request);
}

ZklRequest *
zkl_lock_request(ZklSession *session, const ZklLockItem *items, int n_items,
				 bool try_only, const char *data, int data_len)
{
	ZklRequest *request = zkl__request_new(session, n_items, try_only, data, data_len);

	if (request == NULL)
		return NULL;
	zkl__session_lock(session);
	zkl__request_below_locks(request);
	zkl__request_link(request);
	start_request(request, items);
	zkl__session_unlock(session);
	return request;
}
