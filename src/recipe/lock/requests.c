/*-------------------------------------------------------------------------
 *
 * requests.c
 *		All requests of a session: the list of them, and the session's events.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "internal.h"

typedef struct Requests
{
	ZklRequest *first;
	ZklRequest *garbage;
} Requests;

static Requests *
requests_of(const ZklSession *session)
{
	return zkl__state(session, ZKL_PART_REQUESTS);
}

/* Returns the session's youngest request, which leads to the others, or NULL. */
ZklRequest *
zkl__requests(const ZklSession *session)
{
	return requests_of(session)->first;
}

void
zkl__request_link(ZklRequest *request)
{
	Requests   *requests = requests_of(request->session);

	request->next = requests->first;
	if (request->next)
		request->next->prev = request;
	requests->first = request;
}

ZklCall *
zkl__request_call(ZklRequest *request, ZklHandler handler)
{
	return zkl__call_new(request->session, handler, request, &request->uses);
}

/* Has the request freed if it is ended and has no calls; called when that may be so. */
void
zkl__request_on_idle(void *subject)
{
	ZklRequest *request = subject;
	Requests   *requests = requests_of(request->session);

	if (!request->ended || request->uses.calls > 0)
		return;
	request->next_garbage = requests->garbage;
	requests->garbage = request;
	zkl__sweep_later(request->session);
}

/* Unlinks and frees. */
static void
request_free(ZklRequest *request)
{
	if (request->prev)
		request->prev->next = request->next;
	else
		requests_of(request->session)->first = request->next;
	if (request->next)
		request->next->prev = request->prev;
	zkl__request_free_ungranted(request);
	zkl__request_free_memory(request);
}

static void
on_connected(ZklSession *session)
{
	for (ZklRequest *request = zkl__requests(session); request; request = request->next)
		if (request->sequence_restart_watch)
			zkl__sequence_restart_watch_fired(request, request->sequence_restart_watch);
}

static void
on_watch(ZklSession *session, const char *path)
{
	for (ZklRequest *request = zkl__requests(session); request; request = request->next)
		if (request->sequence_restart_watch)
			zkl__sequence_restart_watch_fired(request, path);
}

static void
on_drive(ZklSession *session)
{
	for (ZklRequest *request = zkl__requests(session); request; request = request->next)
		zkl__request_drive(request);
}

static void
on_sweep(ZklSession *session)
{
	Requests   *requests = requests_of(session);

	while (requests->garbage)
	{
		ZklRequest *request = requests->garbage;

		requests->garbage = request->next_garbage;
		request_free(request);
	}
}

static void
on_free(ZklSession *session)
{
	while (zkl__requests(session))
		request_free(zkl__requests(session));
}

const ZklSessionPart zkl__requests_part = {
	.state_size = sizeof(Requests),
	.on_connected = on_connected,
	.on_watch = on_watch,
	.on_drive = on_drive,
	.on_sweep = on_sweep,
	.on_free = on_free,
};
