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
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

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
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		call->session->are_acls_read = false;
	else if (result->code == ZKL_RC_NO_AUTH ||
			 (result->code == ZKL_RC_OK && result->is_open))
		call->session->has_open_parents = true;
}

/* Missing znodes will be created with the right ACL. */
static void
read_acls(ZklSession *session)
{
	const char *const paths[ZKL_N_PARENTS] = {
		session->config.root, session->config.locks_path,
		session->config.semaphores_path, session->config.waiting_path,
		session->config.bells_path
	};

	if (!session->creator_acl || session->are_acls_read)
		return;
	session->are_acls_read = true;
	for (int i = 0; i < ZKL_N_PARENTS; i++)
	{
		ZklOp		op = {.kind = ZKL_OP_GET_ACL, .path = paths[i]};

		if (!zkl__send(zkl__call_new(session, on_acl_read, NULL, NULL), &op))
			session->are_acls_read = false;
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

/*
 * Unlocks the session, and ends its client if it is time.  A session that a timer has declared
 * lost, or that was closed while disconnected, may still exist at the ensemble, with its nodes:
 * no session expires while there is no quorum, or while its client is connected.  So the client
 * stays until it is connected again, or the session has expired, and then closes the session.
 * If its owner has closed it, that also frees it.
 */
static void
unlock_and_end(ZklSession *session)
{
	ZklClient  *client = session->client;
	bool		is_left = session->is_left;
	bool		ends = zkl__is_final(session) && !session->is_ending &&
		(session->client_connected || session->is_gone);

	session->is_ending = session->is_ending || ends;
	zkl__session_unlock(session);
	if (ends && is_left)
		(void) zkl_client_close(client, 0);
	else if (ends)
		zkl_client_end(client);
}


/*
 * The timer
 *
 * It retries what could not be sent, sends proofs, and keepalive reads to a server that
 * forgot to answer, declares a session lost that cannot be trusted any more, and serves the
 * higher layers.  All of them share the one timer of the client.
 */

/*
 * The client library fails every call within two thirds of the session timeout.  A call
 * that is twice as old was forgotten, as happens to requests that race the expiry of
 * their session (ZOOKEEPER-2802).
 */
static int64_t
call_deadline_ms(const ZklCall *call)
{
	return call->submitted_ms +
		(int64_t) call->session->connection.session_timeout_ms * 4 / 3;
}

static void
arm_next_timer(ZklSession *session)
{
	if (session->retry_ms)
		zkl__arm_timer(session, session->retry_ms);
	zkl__lease_arm(session);
	if (session->calls)
		zkl__arm_timer(session, call_deadline_ms(session->calls));
	zkl__arm_keepalive(session);
}

/* Returns whether held locks cannot be trusted any more, or a call was forgotten. */
static bool
has_outlived(const ZklSession *session, int64_t now)
{
	return zkl__lease_has_expired(session, now) ||
		(session->calls && now >= call_deadline_ms(session->calls));
}

/* Runs what is due when the timer fires. */
static void
run_timers(ZklSession *session)
{
	int64_t		now = zkl_now_ms();

	session->timer_ms = 0;
	if (!zkl__is_final(session) && has_outlived(session, now))
		zkl__session_give_up(session);
	if (zkl__is_final(session))
		return;
	if (session->retry_ms && now >= session->retry_ms)
	{
		session->retry_ms = 0;
		zkl__on_advance(session);
		zkl__batches_retry(session);
	}
	zkl__lease_run(session, now);
	zkl__on_timer(session);
	zkl__keepalive(session, now);
	arm_next_timer(session);
}

static void
timer_io(ZklSession *session)
{
	zkl__session_lock(session);
	run_timers(session);
	unlock_and_end(session);
}


/*
 * Other events of the client
 */

static void
event_io(ZklSession *session, ZklConnectionEvent event, const ZklConnectionInfo *info)
{
	zkl__session_lock(session);
	session->client_connected = event == ZKL_EVENT_CONNECTED;
	session->is_gone = event == ZKL_EVENT_EXPIRED || event == ZKL_EVENT_AUTH_FAILED;
	zkl__lease_check(session);
	if (zkl__is_final(session))
		;						/* nothing changes any more */
	else if (event == ZKL_EVENT_CONNECTED)
		session_connected(session, info);
	else if (session->is_gone)
		zkl__session_end(session, event == ZKL_EVENT_EXPIRED ? ZKL_SESSION_EXPIRED
						 : ZKL_SESSION_AUTH_FAILED);
	else if (session->state == ZKL_SESSION_CONNECTED)
	{
		session->state = ZKL_SESSION_SUSPENDED;
		zkl__wake(session);
	}
	unlock_and_end(session);
}

static void
watch_io(ZklSession *session, const char *path)
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

static void
session_free(ZklSession *session)
{
	while (session->calls)
		zkl__call_free(session->calls);
	zkl__sweep(session);
	zkl__on_free(session);
	zkl__batches_free(session);
	if (session->wakeup_fd >= 0)
		close(session->wakeup_fd);
	if (session->wait_fd >= 0)
		close(session->wait_fd);
	pthread_mutex_destroy(&session->mutex);
	free(session);
}

static const ZklClientEvents client_events = {
	.event_io = event_io,
	.answer_io = zkl__answer_io,
	.watch_io = watch_io,
	.timer_io = timer_io,
	.closed_io = session_free,
};

/* Appends a path to *room, and moves that behind it. */
static char *
put_path(char **room, const char *root, const char *name)
{
	char	   *path = *room;

	*room = stpcpy(stpcpy(path, root), name) + 1;
	return path;
}

static void
do_nothing_io(void)
{
}

static void
configure(ZklConfig *to, const ZklSessionConfig *from, char *room)
{
	to->node_names = from->node_names;
	to->max_nodes = from->max_nodes;
	to->sequence_limit = from->sequence_limit ? from->sequence_limit : ZKL_SEQUENCE_LIMIT;
	to->server_tag = from->server_tag;
	to->on_loss_io = from->on_loss_io ? from->on_loss_io : do_nothing_io;
	to->on_revoke_io = from->on_revoke_io ? from->on_revoke_io : do_nothing_io;
	to->root = put_path(&room, from->root, "");
	to->locks_path = put_path(&room, from->root, "/locks");
	to->semaphores_path = put_path(&room, from->root, "/semaphores");
	to->waiting_path = put_path(&room, from->root, "/waiting");
	to->bells_path = put_path(&room, from->root, "/bells");
}

/* Returns a session with its parts and paths in one chunk of memory; NULL if out of memory. */
static ZklSession *
session_new(const ZklSessionConfig *config)
{
	size_t		paths_size = ZKL_N_PARENTS * (strlen(config->root) + sizeof("/semaphores"));
	ZklSession *session = calloc(1, sizeof(ZklSession) + sizeof(ZklParts) + paths_size);

	if (session == NULL)
		return NULL;
	pthread_mutex_init(&session->mutex, NULL);
	session->parts = (ZklParts *) (session + 1);
	session->creator_acl = config->creator_acl;
	configure(&session->config, config, (char *) (session->parts + 1));
	return session;
}

/* Creates the descriptor for the owner: wakeup_fd, and what the client adds to it. */
static bool
open_wait_fd(ZklSession *session)
{
	struct epoll_event event = {.events = EPOLLIN};

	session->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	session->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	return session->wakeup_fd >= 0 && session->wait_fd >= 0 &&
		epoll_ctl(session->wait_fd, EPOLL_CTL_ADD, session->wakeup_fd, &event) == 0;
}

ZklSession *
zkl_session_open(const ZklSessionConfig *config)
{
	ZklSession *session = session_new(config);

	if (session == NULL)
		return NULL;
	if (open_wait_fd(session))
	{
		/* Events, which may come before this is set, wait for the mutex. */
		zkl__session_lock(session);
		session->client = zkl_client_open(config, session->wait_fd, &client_events, session);
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
		session->connection.key.id != 0;
	session->is_left = goes_on;
	session->is_ending = !goes_on;
	zkl__session_unlock(session);
	if (!goes_on && zkl_client_close(session->client, timeout_ms))
		session_free(session);
}
