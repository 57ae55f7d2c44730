/*-------------------------------------------------------------------------
 *
 * permit_api.c
 *		Requests for permits for their owner: start and questions; the session's events.
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

/* Returns a new permit with its paths, or NULL if out of memory. */
static ZklPermit *
permit_new(const ZklSession *session, const char *name, int capacity)
{
	const char *parent = zkl__config(session)->semaphores_path;
	size_t		size = strlen(parent) + strlen(name) + sizeof("//" ZKL_PERMITS);
	ZklPermit  *permit = calloc(1, sizeof(ZklPermit) + 3 * size);
	char	   *room = (char *) (permit + 1);

	if (permit == NULL)
		return NULL;
	permit->capacity = capacity;
	snprintf(permit->capacity_text, sizeof(permit->capacity_text), "%d", capacity);
	permit->semaphore_path = zkl__put_path(&room, parent, name);
	permit->queue_path = zkl__put_path(&room, permit->semaphore_path, ZKL_PERMITS_QUEUE);
	permit->permits_path = zkl__put_path(&room, permit->semaphore_path, ZKL_PERMITS);
	return permit;
}

/* Counts one node, the permit node, because the mutex is released with the grant. */
static bool
make_room_for_permit(const ZklRequest *request)
{
	size_t		path_bytes = strlen(request->permit->permits_path) + ZKL_CHILD_NAME_SIZE;

	return zkl__kept_make_room(request->session, 1, 2 * path_bytes, (size_t) request->data_len);
}

static void
start_permit(ZklRequest *request)
{
	if (!make_room_for_permit(request))
		zkl__request_fail(request, ZKL_TOO_MANY, -1, 0);
	else if (!zkl__request_add_node(request, 0, request->permit->queue_path, ZKL_MODE_EXCLUSIVE, NULL))
		zkl__request_fail(request, ZKL_NO_MEMORY, -1, 0);
	else
		zkl__request_mark(request);
}


ZklRequest *
zkl__permit_request(ZklSession *session, const char *name, int capacity, bool non_blocking,
					const char *data, int data_len)
{
	ZklPermit  *permit = permit_new(session, name, capacity);
	ZklRequest *request = NULL;

	if (permit)
		request = zkl__request_new(session, permit, 1, non_blocking, data, data_len);
	if (request == NULL)
	{
		free(permit);
		return NULL;
	}
	request->node_names = ZKL_NODE_NAMES_CURATOR_MUTEX;
	request->top_path = zkl__config(session)->semaphores_path;
	request->parents[0] = (ZklParent) {permit->semaphore_path, permit->capacity_text};
	request->parents[1] = (ZklParent) {permit->queue_path, ""};
	request->parents[ZKL_PERMIT_NODE_PARENT] = (ZklParent) {permit->permits_path, ""};
	request->n_parents = 3;
	start_permit(request);
	return request;
}

/* The session has no pending delete left. */
void
zkl__permit_look_again(ZklRequest *request)
{
	if (request->status != ZKL_PENDING || request->permit->seen != SEEN_FULL)
		return;
	request->permit->seen = SEEN_NOTHING;
	zkl__request_mark(request);
}

/* Adds what only requests for permits have. */
void
zkl__permit_info(const ZklRequest *request, ZklRequestInfo *info)
{
	const ZklPermit *permit = request->permit;

	info->is_permit = true;
	info->capacity = permit->other_capacity;
	info->blocked = info->blocked || permit->seen == SEEN_FULL;
	if (request->non_blocking && permit->seen == SEEN_FULL)
		info->released_by = (uint64_t) zkl__session_id(request->session);
}


/*
 * Events of the session
 */

/*
 * After a new connection: watches are lost, and so are answers, except that of a count which was sent
 * before the loss was known.  It is not as fresh as a count must be now.
 */
void
zkl__permits_connected(ZklSession *session)
{
	for (ZklRequest *request = zkl__requests(session); request; request = request->next)
		if (request->permit)
		{
			request->permit->seen = SEEN_NOTHING;
			request->permit->count_call = NULL;
		}
}

void
zkl__permits_watched(ZklSession *session, const char *path)
{
	for (ZklRequest *request = zkl__requests(session); request; request = request->next)
		if (request->permit && strcmp(path, request->permit->permits_path) == 0)
		{
			zkl__prove_if_due(session);
			request->permit->seen = SEEN_NOTHING;
			zkl__request_mark(request);
		}
}
