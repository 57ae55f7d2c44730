/*-------------------------------------------------------------------------
 *
 * session.c
 *		Opens and closes sessions, and follows the state of their connection.
 *
 * Owns the client.  Informs the higher layers (zkl__on_..., session.h).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"


/*
 * Znodes above the locks that others may change
 *
 * With creator_acl, sessions create znodes that others may only read.  Existing znodes
 * keep their ACLs; if a program without the credentials may change one above the locks,
 * the ACLs further down protect little.  So the ACLs are read when the session is
 * connected, before its first request: answers come in order, so the result is known
 * when the first lock is granted.  A znode whose ACL the session may not read was
 * created with other credentials.
 */

static void
on_acl_read(ZklCall *call, const ZklResult *result)
{
	bool	   *is_read = call->detail;

	if (result->code == ZKL_RC_CONNECTION_LOSS)
		*is_read = false;
	else if (result->code == ZKL_RC_NO_AUTH ||
			 (result->code == ZKL_RC_OK && result->is_open))
		call->session->has_open_parents = true;
}

/* Reads the ACLs not known yet; missing znodes will be created with the right ACL. */
static void
read_acls(ZklSession *session)
{
	const char *const paths[ZKL_N_PARENTS] = {
		session->config.root, session->config.locks_path,
		session->config.semaphores_path, session->config.waiting_path,
		session->config.bells_path
	};

	for (int i = 0; session->creator_acl && i < ZKL_N_PARENTS; i++)
	{
		ZklOp		op = {.kind = ZKL_OP_GET_ACL, .path = paths[i]};
		ZklCall    *call;

		if (session->is_acl_read[i])
			continue;
		call = zkl__call_new(session, on_acl_read, NULL, NULL);
		if (call)
			call->detail = &session->is_acl_read[i];
		session->is_acl_read[i] = zkl__send(call, &op) != NULL;
	}
}


/*
 * The connection
 */

static void
session_connected(ZklSession *session, const ZklConnectionInfo *info)
{
	session->state = ZKL_SESSION_CONNECTED;
	session->n_connections++;
	session->n_pauses = 0;
	session->connection = *info;
	if (session->opened_ms == 0)
		session->opened_ms = zkl_now_ms();
	zkl__lease_connected(session);
	zkl__on_connected(session);
	read_acls(session);
	zkl__on_advance(session);
	zkl__batches_watched(session, NULL);
	zkl__batches_retry(session);
	zkl__wake(session);
}

static void
session_disconnected(ZklSession *session)
{
	if (session->state != ZKL_SESSION_CONNECTED)
		return;
	session->state = ZKL_SESSION_SUSPENDED;
	zkl__wake(session);
}

/*
 * A session that a timer has declared lost, or that was closed while disconnected, may
 * still exist at the ensemble, with its nodes: no session expires while there is no
 * quorum, or while its client is connected.  So the client stays until it is connected
 * again, or the session has expired, and then closes the session.  The client is called
 * without the mutex.
 */
typedef enum Ending
{
	ENDING_NONE,
	ENDING_CLIENT,				/* the owner still has the session */
	ENDING_ALL					/* the owner has closed the session: it is freed */
} Ending;

static Ending
begin_ending(ZklSession *session)
{
	if (!zkl__is_final(session) || session->is_ending ||
		!(session->client_connected || session->is_gone))
		return ENDING_NONE;
	session->is_ending = true;
	return session->is_left ? ENDING_ALL : ENDING_CLIENT;
}

static void
end_client(ZklClient *client, Ending ending)
{
	if (ending == ENDING_CLIENT)
		zkl_client_end(client);
	else if (ending == ENDING_ALL)
		(void) zkl_client_close(client, 0);
}

void
zkl__on_client_timer_io(ZklSession *session)
{
	ZklClient  *client;
	Ending		ending;

	zkl__session_lock(session);
	client = session->client;
	zkl__timers_run(session);
	ending = begin_ending(session);
	zkl__session_unlock(session);
	end_client(client, ending);
}

void
zkl__on_client_event_io(ZklSession *session, ZklConnectionEvent event,
						const ZklConnectionInfo *info)
{
	ZklClient  *client;
	Ending		ending;

	zkl__session_lock(session);
	client = session->client;
	session->client_connected = event == ZKL_EVENT_CONNECTED;
	session->is_gone = event == ZKL_EVENT_EXPIRED || event == ZKL_EVENT_AUTH_FAILED;
	zkl__lease_check(session);
	if (!zkl__is_final(session))
		switch (event)
		{
			case ZKL_EVENT_CONNECTED:
				session_connected(session, info);
				break;
			case ZKL_EVENT_DISCONNECTED:
				session_disconnected(session);
				break;
			case ZKL_EVENT_EXPIRED:
				zkl__session_end(session, ZKL_SESSION_EXPIRED);
				break;
			case ZKL_EVENT_AUTH_FAILED:
				zkl__session_end(session, ZKL_SESSION_AUTH_FAILED);
				break;
		}
	ending = begin_ending(session);
	zkl__session_unlock(session);
	end_client(client, ending);
}

void
zkl__on_client_watch_io(ZklSession *session, const char *path)
{
	zkl__session_lock(session);
	if (!zkl__is_final(session))
	{
		zkl__on_watch(session, path);
		zkl__batches_watched(session, path);
	}
	zkl__session_unlock(session);
}


/*
 * Public functions
 */

static int	n_open;

int
zkl_sessions_open(void)
{
	return __atomic_load_n(&n_open, __ATOMIC_RELAXED);
}

static void
session_free(ZklSession *session)
{
	(void) __atomic_fetch_sub(&n_open, 1, __ATOMIC_RELAXED);
	while (session->calls)
		zkl__call_free(session->calls);
	zkl__on_free(session);
	zkl__batches_free(session);
	free(session->config.root);
	free(session->config.locks_path);
	free(session->config.semaphores_path);
	free(session->config.waiting_path);
	free(session->config.bells_path);
	zkl__wait_fd_close(session);
	pthread_mutex_destroy(&session->mutex);
	free(session);
}

void
zkl__on_client_closed_io(ZklSession *session)
{
	session_free(session);
}

static ZklSession *
session_new(void)
{
	ZklSession *session = calloc(1, sizeof(ZklSession) + sizeof(ZklParts));

	if (session == NULL)
		return NULL;
	(void) __atomic_fetch_add(&n_open, 1, __ATOMIC_RELAXED);
	pthread_mutex_init(&session->mutex, NULL);
	session->parts = (ZklParts *) (session + 1);
	return session;
}

/* Fills in the configuration; returns false if out of memory. */
static bool
configure(ZklConfig *to, const ZklSessionConfig *from)
{
	to->node_names = from->node_names;
	to->max_nodes = from->max_nodes;
	to->sequence_limit = from->sequence_limit ? from->sequence_limit : ZKL_SEQUENCE_LIMIT;
	to->server_tag = from->server_tag;
	to->on_loss_io = from->on_loss_io;
	to->on_revoke_io = from->on_revoke_io;
	to->root = strdup(from->root);
	to->locks_path = zkl__path(from->root, "locks");
	to->semaphores_path = zkl__path(from->root, "semaphores");
	to->waiting_path = zkl__path(from->root, "waiting");
	to->bells_path = zkl__path(from->root, "bells");
	return to->root && to->locks_path && to->semaphores_path && to->waiting_path &&
		to->bells_path;
}

ZklSession *
zkl_session_open(const ZklSessionConfig *config)
{
	ZklSession *session = session_new();

	if (session == NULL)
		return NULL;
	session->creator_acl = config->creator_acl;
	if (zkl__wait_fd_open(session) && configure(&session->config, config))
	{
		/* Events, which may come before this is set, wait for the mutex. */
		zkl__session_lock(session);
		session->client = zkl_client_open(config, session->wait_fd, session);
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
	bool		goes_on;

	zkl__session_lock(session);
	zkl__on_close(session);
	if (!zkl__is_final(session))
		session->state = ZKL_SESSION_EXPIRED;
	goes_on = !session->client_connected && !session->is_gone && !session->is_ending &&
		session->connection.session_id != 0;
	session->is_left = goes_on;
	session->is_ending = !goes_on;
	zkl__session_unlock(session);
	if (!goes_on && zkl_client_close(session->client, timeout_ms))
		session_free(session);
}
