/*-------------------------------------------------------------------------
 *
 * engine.c
 *		The top of a session: the events of its client, and what all layers do then.
 *
 * Each event takes the session's mutex.  The session itself changes first (session.c), then
 * every layer in the order that the functions below have; at the end the mutex is released, what
 * was submitted is sent, and the client ends if it is time.  No file below calls this one.
 *
 *-------------------------------------------------------------------------
 */
#include "engine.h"


/*
 * What all layers do together
 */

#ifdef ZKL_CHECKS
#define check_node(node) zkl__check_node(node)

static void
check_request(const ZklRequest *request)
{
	zkl__check_request(request);
	if (request->permit)
		zkl__check_permit(request);
}

/* Also of what is not marked: a bounded part, because this runs after each event. */
static void
check_session(const ZklSession *session)
{
	zkl__check_session(session);
	zkl__check_nodes(session);
	zkl__check_locks(session);
	zkl__check_permits(session);
}
#else
#define check_node(node) ((void) 0)
#define check_request(request) ((void) 0)
#define check_session(session) ((void) 0)
#endif

/*
 * Advances what handlers have marked: first nodes, which change their requests and locks, then
 * requests, with the next operation or the grant.  Nothing below calls this, so no handler
 * finds its subject changed behind its back.  To be called before the mutex is released.
 */
static void
run(ZklSession *session)
{
	ZklNode    *node;
	ZklRequest *request;
	unsigned	news;

	for (;;)
	{
		if ((node = zkl__node_take_marked(session, &news)) != NULL)
		{
			check_node(node);
			zkl__node_news(node, news);
			check_node(node);
		}
		else if ((request = zkl__request_take_marked(session)) != NULL)
		{
			check_request(request);
			if (request->permit)
				zkl__permit_advance(request);
			else
				zkl__request_advance(request);
			check_request(request);
		}
		else
			break;
	}
	check_session(session);
}

void
zkl__enter(ZklSession *session)
{
	zkl__session_lock(session);
}

void
zkl__leave(ZklSession *session)
{
	run(session);
	zkl__session_unlock(session);
}

/* Sends what must be sent and was not sent, or not answered. */
static void
advance(ZklSession *session)
{
	zkl__nodes_advance(session);
	zkl__empty_parents_advance(session);
	zkl__requests_mark(session);
	run(session);
	zkl__confirm_advance(session);
}

/* Answers and watches of the earlier connection may be lost. */
static void
begin_connection(ZklSession *session)
{
	zkl__nodes_list_again(session);
	zkl__hold_watches_lost(session);
	zkl__permits_connected(session);
	zkl__acls_read(session);
	advance(session);
	zkl__batches_connected(session);
}

/* Frees the session and everything that refers to it. */
static void
session_free(ZklSession *session)
{
	zkl__calls_free(session);
	zkl__nodes_free(session);
	zkl__requests_free(session);
	zkl__locks_free(session);
	zkl__session_free(session);
}


/*
 * Events of the client
 */

static void
handle_event_io(ZklSession *session, ZklConnectionEvent event, const ZklConnectionInfo *info)
{
	zkl__enter(session);
	if (zkl__session_event(session, event, info))
		begin_connection(session);
	run(session);
	zkl__session_unlock_and_end(session);
}

static void
handle_answer_io(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	bool		goes_on;

	zkl__enter(session);
	goes_on = zkl__call_answered(call, result);
	run(session);
	if (goes_on)
		advance(session);
	zkl__leave(session);
}

static void
handle_watch_io(ZklSession *session, const char *path)
{
	zkl__enter(session);
	if (!zkl__is_final(session))
	{
		zkl__nodes_watched(session, path);
		zkl__permits_watched(session, path);
		zkl__batches_watched(session, path);
	}
	zkl__leave(session);
}

/*
 * The timer retries what could not be sent, sends proofs, and keepalive reads to a server that
 * forgot to answer, declares a session lost that cannot be trusted any more, and serves the
 * higher layers.  All of them share the one timer of the client.
 */
static void
handle_timer_io(ZklSession *session)
{
	int64_t		now;

	zkl__enter(session);
	now = zkl_now_ms();
	if (zkl__session_rings(session, now))
	{
		if (zkl__take_retry(session, now))
		{
			advance(session);
			zkl__batches_retry(session);
		}
		zkl__proofs_run(session, now);
		zkl__empty_parents_advance(session);
		zkl__hold_watches_due(session);
		zkl__kept_due(session);
		zkl__keepalive(session, now);
		zkl__session_arm(session);
	}
	run(session);
	zkl__session_unlock_and_end(session);
}

static const ZklClientEvents events = {
	.event_io = handle_event_io,
	.answer_io = handle_answer_io,
	.watch_io = handle_watch_io,
	.timer_io = handle_timer_io,
	.closed_io = session_free,
};


/*
 * Opening and closing
 */

ZklSession *
zkl_session_open(const ZklSessionConfig *config)
{
	ZklSession *session = zkl__session_new(config, sizeof(ZklQueues), sizeof(ZklLocks));

	if (session && !zkl__session_open(session, config, &events))
	{
		session_free(session);
		return NULL;
	}
	return session;
}

void
zkl_session_close(ZklSession *session, int timeout_ms)
{
	bool		goes_on;

	zkl__enter(session);
	zkl__empty_parents_close(session);
	goes_on = zkl__session_leave(session);
	zkl__leave(session);
	if (!goes_on && zkl__session_close(session, timeout_ms))
		session_free(session);
}
