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


/*
 * Any request
 */

/* How many nodes does the session have, and are their paths too long for it? */
static bool
session_has_room(const ZklSession *session, int n_nodes, size_t path_bytes,
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

/*
 * Not yet known to the session; NULL when out of memory.  One piece of memory,
 * with the arrays and the data behind the request.
 */
static ZklRequest *
request_new(ZklSession *session, int n, bool try_only,
			const char *data, int data_len)
{
	size_t		room = (size_t) n;
	ZklRequest *request = calloc(1, sizeof(ZklRequest) +
								 room * (sizeof(ZklNode *) + 2 * sizeof(ZklLock *)) +
								 (size_t) data_len);

	if (request == NULL)
		return NULL;
	request->session = session;
	request->status = ZKL_PENDING;
	request->culprit = -1;
	request->draining = -1;
	request->try_only = try_only;
	request->n = n;
	request->nodes = (ZklNode **) (request + 1);
	request->locks = (ZklLock **) (request->nodes + room);
	request->unborn = request->locks + room;
	request->data = (char *) (request->unborn + room);
	memcpy(request->data, data, (size_t) data_len);
	request->data_len = data_len;
	return request;
}

static void
link_request(ZklRequest *request)
{
	ZklSession *session = request->session;

	request->next = session->requests;
	if (request->next)
		request->next->prev = request;
	session->requests = request;
}


/*
 * Locks
 */

static bool
has_room(const ZklRequest *request, const ZklLockWish *wishes)
{
	size_t		path_bytes = 0;

	for (int i = 0; i < request->n; i++)
		path_bytes += strlen(request->session->locks_path) +
			strlen(wishes[i].name) + ZKL_CHILD_NAME_SIZE;
	return session_has_room(request->session, request->n, path_bytes,
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

	if (!has_room(request, wishes))
	{
		zkl__request_fail(request, ZKL_TOO_MANY, -1, 0);
		return;
	}
	for (int i = 0; i < request->n; i++)
	{
		if (!zkl_has_mode(session->dialect, wishes[i].mode))
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

ZklRequest *
zkl_lock_request(ZklSession *session, const ZklLockWish *wishes, int n_wishes,
				 bool try_only, const char *data, int data_len)
{
	ZklRequest *request = request_new(session, n_wishes, try_only, data, data_len);

	if (request == NULL)
		return NULL;
	zkl__session_lock(session);
	link_request(request);
	start_request(request, wishes);
	zkl__session_unlock(session);
	return request;
}


/*
 * Permits
 */

void
zkl__permit_free(ZklPermit *permit)
{
	free(permit->pool_path);
	free(permit->lease_path);
	free(permit->owners);
	free(permit);
}

/* The permit and its paths; that of the queue goes to *queue_path. */
static ZklPermit *
permit_new(const ZklSession *session, const char *name, int size, char **queue_path)
{
	ZklPermit  *permit = calloc(1, sizeof(ZklPermit));
	char	   *component = malloc(strlen(name) + ZKL_POOL_NAME_EXTRA);

	*queue_path = NULL;
	if (permit && component)
	{
		permit->size = size;
		permit->kazoo = session->dialect == ZKL_DIALECT_KAZOO;
		permit->layout_known = permit->kazoo;
		zkl_pool_name(name, component);
		permit->pool_path = zkl__path(session->semaphores_path, component);
	}
	free(component);
	if (permit && permit->pool_path && permit->kazoo)
	{
		permit->lease_path = strdup(permit->pool_path);
		*queue_path = malloc(strlen(permit->pool_path) + sizeof(ZKL_KAZOO_QUEUE));
		if (*queue_path)
			strcat(strcpy(*queue_path, permit->pool_path), ZKL_KAZOO_QUEUE);
	}
	else if (permit && permit->pool_path)
	{
		permit->lease_path = zkl__path(permit->pool_path, ZKL_CURATOR_LEASES);
		*queue_path = zkl__path(permit->pool_path, ZKL_CURATOR_QUEUE);
	}
	if (permit && (permit->lease_path == NULL || *queue_path == NULL))
	{
		zkl__permit_free(permit);
		permit = NULL;
	}
	return permit;
}

/* The mutex is given back, so that only the permit's own node counts. */
static bool
has_room_for_permit(const ZklRequest *request)
{
	size_t		path_bytes = strlen(request->permit->lease_path) + ZKL_CHILD_NAME_SIZE;

	return session_has_room(request->session, 1, 2 * path_bytes,
							(size_t) request->data_len);
}

static void
start_permit(ZklRequest *request, const char *queue_path)
{
	if (!has_room_for_permit(request))
	{
		zkl__request_fail(request, ZKL_TOO_MANY, -1, 0);
		return;
	}
	request->nodes[0] = zkl__node_new(request, 0, queue_path, ZKL_MODE_EXCLUSIVE, false);
	if (request->nodes[0] == NULL)
		zkl__request_fail(request, ZKL_NO_MEMORY, -1, 0);
	else
		zkl__request_drive(request);
}

ZklRequest *
zkl_permit_request(ZklSession *session, const char *name, int size,
				   bool try_only, const char *data, int data_len)
{
	char	   *queue_path = NULL;
	ZklPermit  *permit = permit_new(session, name, size, &queue_path);
	ZklRequest *request = request_new(session, 1, try_only, data, data_len);
	ZklLock    *lock = calloc(1, sizeof(ZklLock));

	if (permit == NULL || request == NULL || lock == NULL)
	{
		if (permit)
			zkl__permit_free(permit);
		if (request)
			zkl__request_free_memory(request);
		free(lock);
		free(queue_path);
		return NULL;
	}
	lock->session = session;
	request->permit = permit;
	request->locks[0] = request->unborn[0] = lock;
	zkl__session_lock(session);
	link_request(request);
	start_permit(request, queue_path);
	zkl__session_unlock(session);
	free(queue_path);
	return request;
}
