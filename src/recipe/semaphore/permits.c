/*-------------------------------------------------------------------------
 *
 * permits.c
 *		All requests for permits of a session: starting them, and the session's
 *		events.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "semaphore.h"


/*
 * Starting a request
 */

void
zkl__on_permit_free(ZklPermit *permit)
{
	free(permit->owners);
	free(permit);
}

/* Returns a new permit with its paths, or NULL if out of memory. */
static ZklPermit *
permit_new(const ZklSession *session, const char *name, int capacity)
{
	const char *parent = zkl__config(session)->semaphores_path;
	size_t		size = strlen(parent) + strlen(name) + sizeof("//" ZKL_PERMITS);
	ZklPermit  *permit = calloc(1, sizeof(ZklPermit) + 3 * size);

	if (permit == NULL)
		return NULL;
	permit->capacity = capacity;
	permit->semaphore_path = (char *) (permit + 1);
	permit->queue_path = permit->semaphore_path + size;
	permit->permits_path = permit->queue_path + size;
	snprintf(permit->semaphore_path, size, "%s/%s", parent, name);
	snprintf(permit->queue_path, size, "%s/%s", permit->semaphore_path, ZKL_PERMITS_QUEUE);
	snprintf(permit->permits_path, size, "%s/%s", permit->semaphore_path, ZKL_PERMITS);
	return permit;
}

/* Counts one node, the permit node, because the mutex is released with the grant. */
static bool
has_room_for_permit(const ZklRequest *request)
{
	size_t		path_bytes = strlen(request->permit->permits_path) + ZKL_CHILD_NAME_SIZE;

	return zkl__session_has_room(request->session, 1, 2 * path_bytes,
								 (size_t) request->data_len);
}

static void
start_permit(ZklRequest *request)
{
	while (!has_room_for_permit(request) && zkl__kept_leave_oldest(request->session))
		;
	if (!has_room_for_permit(request))
		zkl__request_fail(request, ZKL_TOO_MANY, -1, 0);
	else if (!zkl__request_add_node(request, 0, request->permit->queue_path, ZKL_MODE_EXCLUSIVE, NULL))
		zkl__request_fail(request, ZKL_NO_MEMORY, -1, 0);
	else
		zkl__request_advance(request);
}


/*
 * Called by the request
 */

/*
 * Creates the semaphore with its capacity as data: the first request specifies it.  The
 * session that creates it deletes it later, with the znodes below it.
 */
void
zkl__on_permit_parents(ZklRequest *request)
{
	const ZklPermit *permit = request->permit;
	ZklCreateKind kind = ZKL_CREATE_CONTAINER;
	char		capacity[16];

	snprintf(capacity, sizeof(capacity), "%d", permit->capacity);
	zkl__request_send_parent(request, request->nodes[0], permit->semaphore_path, capacity, kind);
	zkl__request_send_parent(request, NULL, request->nodes[0]->lock_path, "", kind);
	if (zkl__request_is_queued(request))
		zkl__request_send_parent(request, NULL, permit->permits_path, "", kind);
}

void
zkl__on_permit_info(const ZklRequest *request, ZklRequestInfo *info)
{
	const ZklPermit *permit = request->permit;

	info->is_permit = true;
	info->capacity = permit->other_capacity;
	info->blocked = permit->seen == SEEN_FULL;
	if (permit->permit_node)
		info->progress += permit->permit_node->uses.progress;
	info->n_excess = permit->n_excess;
	info->n_others = permit->n_owners;
	info->others = permit->owners;
}

/* Gives up the permit node before the mutex, so the next holder does not count it. */
void
zkl__on_permit_failed(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;

	if (permit->permit_node)
		zkl__node_leave(permit->permit_node);
	permit->permit_node = NULL;
}

/* Resets the permit; outstanding answers are ignored. */
void
zkl__on_permit_restart(ZklRequest *request)
{
	ZklPermit  *permit = request->permit;

	zkl__on_permit_failed(request);
	permit->has_mutex = false;
	permit->seen = SEEN_NOTHING;
	permit->has_capacity = false;
	permit->capacity_call = NULL;
	permit->count_call = NULL;
	permit->holder_call = NULL;
}

/*
 * Public functions
 */

ZklRequest *
zkl_permit_request(ZklSession *session, const char *name, int capacity,
				   bool non_blocking, const char *data, int data_len)
{
	ZklPermit  *permit = permit_new(session, name, capacity);
	ZklRequest *request = NULL;

	if (permit == NULL)
		return NULL;
	zkl__session_lock(session);
	request = zkl__request_new(session, permit, 1, non_blocking, data, data_len);
	if (request)
	{
		request->node_names = ZKL_NODE_NAMES_CURATOR_MUTEX;
		request->top_path = zkl__config(session)->semaphores_path;
		start_permit(request);
	}
	zkl__session_unlock(session);
	if (request == NULL)
		zkl__on_permit_free(permit);
	return request;
}


/*
 * Events of the session
 */

/* After a new connection: watches and answers are lost. */
void
zkl__permits_connected(ZklSession *session)
{
	for (ZklRequest *request = zkl__requests(session); request; request = request->next)
		if (request->permit)
			request->permit->seen = SEEN_NOTHING;
}

void
zkl__permits_watched(ZklSession *session, const char *path)
{
	for (ZklRequest *request = zkl__requests(session); request; request = request->next)
		if (request->permit && strcmp(path, request->permit->permits_path) == 0)
		{
			zkl__lease_prepare(session);
			request->permit->seen = SEEN_NOTHING;
			zkl__on_permit_advance(request);
		}
}
