/*-------------------------------------------------------------------------
 *
 * wish.c
 *		How a request begins: what is asked for, and whether there is room.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* How many nodes does the session have, and are their paths too long for it? */
bool
zkl__session_has_room(const ZklSession *session, int n_nodes, size_t path_bytes,
					  size_t data_bytes)
{
	size_t		request_bytes = path_bytes + data_bytes;

	for (const ZklNode *node = session->nodes; node; node = node->next)
		if (node->wanted)
		{
			n_nodes++;
			path_bytes += strlen(node->lock_path) + ZKL_CHILD_NAME_SIZE;
		}
	return n_nodes <= session->max_nodes && path_bytes <= ZKL_PACKET_BYTES &&
		request_bytes <= ZKL_PACKET_BYTES;
}

static bool
has_room(const ZklRequest *request, const ZklLockWish *wishes)
{
	size_t		path_bytes = 0;

	for (int i = 0; i < request->n; i++)
		path_bytes += strlen(request->session->locks_path) +
			strlen(wishes[i].name) + ZKL_CHILD_NAME_SIZE;
	return zkl__session_has_room(request->session, request->n, path_bytes,
								 (size_t) request->n * (size_t) request->data_len);
}

static bool
make_node(ZklRequest *request, int i, const ZklLockWish *wish)
{
	char	   *path = zkl__path(request->session->locks_path, wish->name);

	if (wish->held == NULL)
		request->unborn[i] = calloc(1, sizeof(ZklLock));
	request->locks[i] = wish->held ? wish->held : request->unborn[i];
	if (path && request->locks[i])
	{
		request->locks[i]->session = request->session;
		request->nodes[i] = zkl__node_new(request, i, path, wish->mode,
										  wish->held != NULL);
	}
	free(path);
	return request->nodes[i] != NULL;
}

static void
start_request(ZklRequest *request, const ZklLockWish *wishes)
{
	ZklSession *session = request->session;
	char		unused[ZKL_CHILD_NAME_SIZE];

	if (!has_room(request, wishes))
	{
		zkl__request_fail(request, ZKL_TOO_MANY, -1, 0);
		return;
	}
	for (int i = 0; i < request->n; i++)
	{
		if (!zkl_child_prefix(session->dialect, wishes[i].mode, 0, 0, unused))
		{
			zkl__request_fail(request, ZKL_NOT_SUPPORTED, i, 0);
			return;
		}
		if (!make_node(request, i, &wishes[i]))
		{
			zkl__request_fail(request, ZKL_NO_MEMORY, i, 0);
			return;
		}
	}
	zkl__request_drive(request);
}

/* Not yet known to the session; NULL when out of memory. */
ZklRequest *
zkl__request_new(ZklSession *session, int n, bool try_only,
				 const char *data, int data_len)
{
	ZklRequest *request = calloc(1, sizeof(ZklRequest));

	if (request == NULL)
		return NULL;
	request->session = session;
	request->status = ZKL_PENDING;
	request->culprit = -1;
	request->draining = -1;
	request->try_only = try_only;
	request->n = n;
	request->nodes = calloc((size_t) n, sizeof(ZklNode *));
	request->locks = calloc((size_t) n, sizeof(ZklLock *));
	request->unborn = calloc((size_t) n, sizeof(ZklLock *));
	request->data = malloc((size_t) data_len + 1);
	if (request->nodes == NULL || request->locks == NULL ||
		request->unborn == NULL || request->data == NULL)
	{
		zkl__request_free_memory(request);
		return NULL;
	}
	memcpy(request->data, data, (size_t) data_len);
	request->data_len = data_len;
	return request;
}

void
zkl__request_link(ZklRequest *request)
{
	ZklSession *session = request->session;

	request->next = session->requests;
	if (request->next)
		request->next->prev = request;
	session->requests = request;
}

ZklRequest *
zkl_lock_request(ZklSession *session, const ZklLockWish *wishes, int n_wishes,
				 bool try_only, const char *data, int data_len)
{
	ZklRequest *request = zkl__request_new(session, n_wishes, try_only, data, data_len);

	if (request == NULL)
		return NULL;
	zkl__session_lock(session);
	zkl__request_link(request);
	start_request(request, wishes);
	zkl__session_unlock(session);
	return request;
}
