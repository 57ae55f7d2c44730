/*-------------------------------------------------------------------------
 *
 * requests.c
 *		All requests of a session: the list of them, and the session's events.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "internal.h"

void
zkl__request_link(ZklRequest *request)
{
	ZklSession *session = request->session;

	request->next = session->requests;
	if (request->next)
		request->next->prev = request;
	session->requests = request;
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

	if (!request->ended || request->uses.calls > 0)
		return;
	request->next_garbage = request->session->garbage_requests;
	request->session->garbage_requests = request;
	request->session->garbage = true;
}

/* Unlinks and frees. */
static void
request_free(ZklRequest *request)
{
	if (request->prev)
		request->prev->next = request->next;
	else
		request->session->requests = request->next;
	if (request->next)
		request->next->prev = request->prev;
	zkl__request_free_ungranted(request);
	zkl__request_free_memory(request);
}

static void
on_connected(ZklSession *session)
{
	for (ZklRequest *request = session->requests; request; request = request->next)
		if (request->sequence_restart_watch)
			zkl__sequence_restart_watch_fired(request, request->sequence_restart_watch);
}

static void
on_watch(ZklSession *session, const char *path)
{
	for (ZklRequest *request = session->requests; request; request = request->next)
		if (request->sequence_restart_watch)
			zkl__sequence_restart_watch_fired(request, path);
}

static void
on_drive(ZklSession *session)
{
	for (ZklRequest *request = session->requests; request; request = request->next)
		zkl__request_drive(request);
}

static void
on_sweep(ZklSession *session)
{
	while (session->garbage_requests)
	{
		ZklRequest *request = session->garbage_requests;

		session->garbage_requests = request->next_garbage;
		request_free(request);
	}
}

static void
on_free(ZklSession *session)
{
	while (session->requests)
		request_free(session->requests);
}

const ZklSessionPart zkl__requests_part = {
	.on_connected = on_connected,
	.on_watch = on_watch,
	.on_drive = on_drive,
	.on_sweep = on_sweep,
	.on_free = on_free,
};
