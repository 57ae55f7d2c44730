/*-------------------------------------------------------------------------
 *
 * session.c
 *		One ZooKeeper session: its connection and its calls.
 *
 * Owns the client, the descriptor that wakes the owner, and the list of calls
 * in flight.  Knows nothing of what the calls are for.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "survey.h"
#include "waits.h"

void
zkl__session_lock(ZklSession *session)
{
	pthread_mutex_lock(&session->mutex);
}

/*
 * Frees what is done with.  Here and nowhere else, so that no function need
 * fear that what it walks over is freed by what it calls.
 */
static void
sweep(ZklSession *session)
{
	ZklNode    *next_node;
	ZklRequest *next_request;

	session->garbage = false;
	for (ZklNode *node = session->nodes; node; node = next_node)
	{
		next_node = node->next;
		if (node->state == NODE_GONE && node->calls == 0)
			zkl__node_free(node);
	}
	for (ZklRequest *request = session->requests; request; request = next_request)
	{
		next_request = request->next;
		if (request->ended && request->calls == 0)
			zkl__request_free(request);
	}
	zkl__surveys_sweep(session, false);
}

/* The owner is woken last, so that it does not find the mutex taken. */
void
zkl__session_unlock(ZklSession *session)
{
	uint64_t	one = 1;
	bool		wake = session->wake_due && !session->woken;

	if (session->garbage)
		sweep(session);
	session->wake_due = false;
	session->woken = session->woken || wake;
	pthread_mutex_unlock(&session->mutex);
	while (wake && write(session->wakeup_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void
zkl__wake(ZklSession *session)
{
	session->wake_due = true;
}

bool
zkl__is_final(const ZklSession *session)
{
	return session->state >= ZKL_SESSION_EXPIRED;
}

void
zkl__session_end(ZklSession *session, ZklSessionState state)
{
	bool		any = false;

	session->state = state;
	for (const ZklLock *lock = session->locks; lock; lock = lock->next)
		any = any || (lock->taken && !lock->lost);
	if (any)
		zkl__tell_loss(session);
	zkl__wake(session);
}

char *
zkl__path(const char *parent, const char *child)
{
	size_t		parent_length = strlen(parent);
	char	   *path = malloc(parent_length + strlen(child) + 2);

	if (path)
	{
		memcpy(path, parent, parent_length);
		path[parent_length] = '/';
		strcpy(path + parent_length + 1, child);
	}
	return path;
}


/*
 * Calls in flight
 */

/* For a call that is made for its side effect. */
void
zkl__ignore_answer(ZklCall *call, const ZklResult *result)
{
	(void) call;
	(void) result;
}

static void
call_unlink(ZklCall *call)
{
	ZklSession *session = call->session;

	if (call->prev)
		call->prev->next = call->next;
	else
		session->calls = call->next;
	if (call->next)
		call->next->prev = call->prev;
	else
		session->last_call = call->prev;
	if (call->node)
		call->node->calls--;
	if (call->request)
		call->request->calls--;
	if (call->survey)
		call->survey->calls--;
	if ((call->node && call->node->state == NODE_GONE) ||
		(call->request && call->request->ended) ||
		(call->survey && call->survey->ended))
		session->garbage = true;
}

static void
done_io(ZklCompletion *completion, const ZklResult *result)
{
	ZklCall    *call = (ZklCall *) completion;
	ZklSession *session = call->session;

	zkl__session_lock(session);
	if (!zkl__is_final(session) && result->code == ZKL_RC_AUTH_FAILED)
		zkl__session_end(session, ZKL_SESSION_AUTH_FAILED);
	if (!zkl__is_final(session))
	{
		if (call->confirms && result->code == ZKL_RC_OK &&
			call->submitted_ms > session->lease_from_ms)
			session->lease_from_ms = call->submitted_ms;
		call->handler(call, result);
		if (result->code != ZKL_RC_CONNECTION_LOSS)
			session->n_answers++;
		else if (session->state == ZKL_SESSION_CONNECTED)
			zkl__retry_later(session);
	}
	call_unlink(call);
	free(call);
	zkl__session_unlock(session);
}

/* Prepares a call about a node or a request, or about neither; NULL when out of memory. */
ZklCall *
zkl__call_new(ZklSession *session, ZklHandler handler,
			  ZklNode *node, ZklRequest *request)
{
	ZklCall    *call = calloc(1, sizeof(ZklCall));

	if (call == NULL)
	{
		zkl__retry_later(session);
		return NULL;
	}
	call->completion.done_io = done_io;
	call->session = session;
	call->submitted_ms = zkl_client_now();
	call->handler = handler;
	call->node = node;
	call->request = request;
	call->prev = session->last_call;
	if (call->prev)
		call->prev->next = call;
	else
		session->calls = call;
	session->last_call = call;
	if (node)
		node->calls++;
	if (request)
		request->calls++;
	return call;
}

/*
 * To be called with what the client said to the call.  Returns the call if it
 * will be answered; otherwise NULL, and everything is driven again in a while.
 */
ZklCall *
zkl__call_sent(ZklCall *call, bool sent)
{
	ZklSession *session;

	if (call == NULL)
		return NULL;
	session = call->session;
	if (sent)
	{
		if (!call->is_nudge)
			zkl__nudge_later(call);
		return call;
	}
	call_unlink(call);
	free(call);
	zkl__retry_later(session);
	return NULL;
}


/*
 * The connection
 */

void
zkl__drive_all(ZklSession *session)
{
	for (ZklNode *node = session->nodes; node; node = node->next)
		zkl__node_drive(node);
	for (ZklRequest *request = session->requests; request; request = request->next)
		zkl__request_drive(request);
	zkl__surveys_drive(session);
	zkl__confirm_drive(session);
	zkl__waits_drive(session);
}

static void
connected(ZklSession *session, const ZklConnectionInfo *info)
{
	session->state = ZKL_SESSION_CONNECTED;
	session->connection = *info;
	if (session->opened_ms == 0)
		session->opened_ms = zkl_client_now();
	zkl__succession_forget(session);
	for (ZklNode *node = session->nodes; node; node = node->next)
	{
		zkl__node_relist(node);
		zkl__guard_later(node);
	}
	for (ZklRequest *request = session->requests; request; request = request->next)
	{
		if (request->drain_watch)
			zkl__drain_watch_fired(request, request->drain_watch);
		if (request->permit)
			zkl__permit_recount(request);
	}
	zkl__waits_reconnected(session);
	zkl__drive_all(session);
	zkl__wake(session);
}

static void
disconnected(ZklSession *session)
{
	if (session->state != ZKL_SESSION_CONNECTED)
		return;
	session->state = ZKL_SESSION_SUSPENDED;
	session->disconnected_ms = zkl_client_now();
	zkl__arm_alarm(session, session->disconnected_ms +
				   session->connection.session_timeout_ms);
	zkl__wake(session);
}

static void
connection_io(void *context, ZklConnectionEvent event,
			  const ZklConnectionInfo *info)
{
	ZklSession *session = context;

	zkl__session_lock(session);
	if (!zkl__is_final(session))
		switch (event)
		{
			case ZKL_EVENT_CONNECTED:
				connected(session, info);
				break;
			case ZKL_EVENT_DISCONNECTED:
				disconnected(session);
				break;
			case ZKL_EVENT_EXPIRED:
				zkl__session_end(session, ZKL_SESSION_EXPIRED);
				break;
			case ZKL_EVENT_AUTH_FAILED:
				zkl__session_end(session, ZKL_SESSION_AUTH_FAILED);
				break;
		}
	zkl__session_unlock(session);
}

static void
watch_io(void *context, const char *path)
{
	ZklSession *session = context;

	zkl__session_lock(session);
	if (!zkl__is_final(session))
	{
		for (ZklNode *node = session->nodes; node; node = node->next)
		{
			zkl__node_watch_fired(node, path);
			zkl__guard_watch_fired(node, path);
		}
		for (ZklRequest *request = session->requests; request; request = request->next)
		{
			if (request->drain_watch)
				zkl__drain_watch_fired(request, path);
			if (request->permit)
				zkl__permit_watch_fired(request, path);
		}
		zkl__waits_watch_fired(session, path);
	}
	zkl__session_unlock(session);
}


/*
 * The public face
 */

static void
session_free(ZklSession *session)
{
	while (session->calls)
	{
		ZklCall    *call = session->calls;

		call_unlink(call);
		free(call);
	}
	while (session->nodes)
		zkl__node_free(session->nodes);
	while (session->requests)
		zkl__request_free(session->requests);
	zkl__surveys_sweep(session, true);
	while (session->locks)
	{
		ZklLock    *lock = session->locks;

		session->locks = lock->next;
		free(lock);
	}
	zkl__waits_free(session);
	zkl__succession_forget(session);
	free(session->confirm_locks);
	free(session->root);
	free(session->locks_path);
	free(session->semaphores_path);
	if (session->wakeup_fd >= 0)
		close(session->wakeup_fd);
	pthread_mutex_destroy(&session->mutex);
	free(session);
}

/* The client could not be closed in time, and now it is. */
static void
abandoned_io(void *context)
{
	session_free(context);
}

ZklSession *
zkl_session_open(const ZklSessionConfig *config)
{
	static const ZklEvents events = {connection_io, watch_io, zkl__alarm_io, abandoned_io};
	ZklClientConfig client_config = {
		.connect_string = config->connect_string,
		.session_timeout_ms = config->session_timeout_ms,
		.digest = config->digest,
		.tls = config->tls,
		.creator_acl = config->creator_acl,
	};
	ZklSession *session = calloc(1, sizeof(ZklSession));

	if (session == NULL)
		return NULL;
	pthread_mutex_init(&session->mutex, NULL);
	session->dialect = config->dialect;
	session->max_nodes = config->max_nodes;
	session->on_loss_io = config->on_loss_io;
	session->on_revoke_io = config->on_revoke_io;
	session->sequence_limit = config->sequence_limit ?
		config->sequence_limit : ZKL_SEQUENCE_LIMIT;
	session->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	session->root = strdup(config->root);
	session->locks_path = zkl__path(config->root, "locks");
	session->semaphores_path = zkl__path(config->root, "semaphores");
	if (session->wakeup_fd >= 0 && session->root && session->locks_path &&
		session->semaphores_path)
	{
		/* Events may come before the client is known here. */
		zkl__session_lock(session);
		session->client = zkl_client_open(&client_config, &events, session);
		zkl__session_unlock(session);
	}
	if (session->client == NULL)
	{
		session_free(session);
		return NULL;
	}
	return session;
}

void
zkl_session_close(ZklSession *session, int timeout_ms)
{
	bool		answers_due;

	zkl__session_lock(session);
	if (!zkl__is_final(session))
		session->state = ZKL_SESSION_EXPIRED;
	answers_due = session->calls != NULL;
	zkl__session_unlock(session);
	if (zkl_client_close(session->client, answers_due, timeout_ms))
		session_free(session);
}

int
zkl_session_fd(const ZklSession *session)
{
	return session->wakeup_fd;
}

void
zkl_session_clear_wakeup(ZklSession *session)
{
	uint64_t	count;

	zkl__session_lock(session);
	if (session->woken)
		session->woken = read(session->wakeup_fd, &count, sizeof(count)) < 0;
	zkl__session_unlock(session);
}

ZklSessionState
zkl_session_state(ZklSession *session)
{
	ZklSessionState state;

	zkl__session_lock(session);
	state = session->state;
	zkl__session_unlock(session);
	return state;
}

bool
zkl_session_is_intact(ZklSession *session)
{
	bool		intact;

	zkl__session_lock(session);
	intact = !zkl__is_final(session) && session->n_lost == 0;
	zkl__session_unlock(session);
	return intact;
}

/*
 * A third of the session timeout after the submission of the last confirmed
 * quorum write: the leader cannot expire the session before.
 */
static int64_t
lease_left(const ZklSession *session, int64_t now)
{
	int64_t		end;

	if (session->lease_from_ms == 0 || zkl__is_final(session))
		return 0;
	end = session->lease_from_ms + session->connection.session_timeout_ms / 3;
	return now < end ? end - now : 0;
}

ZklLease
zkl_session_lease(ZklSession *session)
{
	int64_t		now = zkl_client_now();
	ZklLease	lease;

	zkl__session_lock(session);
	lease.session_id = session->connection.session_id;
	lease.session_timeout_ms = session->connection.session_timeout_ms;
	lease.left_ms = lease_left(session, now);
	zkl__session_unlock(session);
	return lease;
}

void
zkl_session_info(ZklSession *session, ZklSessionInfo *info)
{
	int64_t		now = zkl_client_now();

	memset(info, 0, sizeof(*info));
	zkl__session_lock(session);
	info->state = session->state;
	info->session_id = session->connection.session_id;
	info->session_timeout_ms = session->connection.session_timeout_ms;
	memcpy(info->server, session->connection.server, sizeof(info->server));
	info->connected_ms = session->opened_ms ? now - session->opened_ms : 0;
	info->lease_ms = lease_left(session, now);
	for (ZklLock *lock = session->locks; lock; lock = lock->next)
		info->n_locks++;
	info->n_answers = session->n_answers;
	zkl__session_unlock(session);
}
