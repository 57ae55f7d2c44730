/*-------------------------------------------------------------------------
 *
 * session.c
 *		Opens and closes sessions, and follows the state of their connection.
 *
 * Owns the client.  What an event means for the higher layers is in engine.c.
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
void
zkl__acls_read(ZklSession *session)
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
	zkl__proofs_connected(session);
	zkl__wake_at_unlock(session);
}

/* The connection has changed; returns whether there is a new one. */
bool
zkl__session_event(ZklSession *session, ZklConnectionEvent event, const ZklConnectionInfo *info)
{
	session->client_connected = event == ZKL_EVENT_CONNECTED;
	session->is_gone = event == ZKL_EVENT_EXPIRED || event == ZKL_EVENT_AUTH_FAILED;
	zkl__lease_check(session);
	if (zkl__is_final(session))
		return false;			/* nothing changes any more */
	if (event == ZKL_EVENT_CONNECTED)
	{
		session_connected(session, info);
		return true;
	}
	if (session->is_gone)
		zkl__session_end(session, event == ZKL_EVENT_EXPIRED ? ZKL_SESSION_EXPIRED
						 : ZKL_SESSION_AUTH_FAILED);
	else if (session->state == ZKL_SESSION_CONNECTED)
	{
		session->state = ZKL_SESSION_SUSPENDED;
		zkl__wake_at_unlock(session);
	}
	return false;
}

/*
 * Unlocks the session, and ends its client if it is time.  A session that a timer has declared
 * lost, or that was closed while disconnected, may still exist at the ensemble, with its nodes:
 * no session expires while there is no quorum, or while its client is connected.  So the client
 * stays until it is connected again, or the session has expired, and then closes the session.
 * If its owner has closed it, that also frees it.
 */
void
zkl__session_unlock_and_end(ZklSession *session)
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

/* Sets the timer for what is due next in this folder. */
void
zkl__session_arm(ZklSession *session)
{
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

/* The timer has fired; returns whether the session goes on. */
bool
zkl__session_rings(ZklSession *session, int64_t now)
{
	session->timer_ms = 0;
	if (!zkl__is_final(session) && has_outlived(session, now))
		zkl__session_give_up(session);
	return !zkl__is_final(session);
}


/*
 * Opening and closing
 */

void
zkl__session_free(ZklSession *session)
{
	zkl__batches_free(session);
	if (session->wakeup_fd >= 0)
		close(session->wakeup_fd);
	if (session->wait_fd >= 0)
		close(session->wait_fd);
	pthread_mutex_destroy(&session->mutex);
	free(session);
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
	to->server_tag = from->server_tag & ZKL_MAX_SERVER_TAG;
	to->pending_deletes = from->pending_deletes;
	to->on_loss_io = from->on_loss_io ? from->on_loss_io : do_nothing_io;
	to->on_revoke_io = from->on_revoke_io ? from->on_revoke_io : do_nothing_io;
	to->root = strcpy(room, from->root);
	room += strlen(room) + 1;
	to->locks_path = zkl__put_path(&room, to->root, "locks");
	to->semaphores_path = zkl__put_path(&room, to->root, "semaphores");
	to->waiting_path = zkl__put_path(&room, to->root, "waiting");
	to->bells_path = zkl__put_path(&room, to->root, "bells");
}

/*
 * Returns a session that is not open; NULL if out of memory.  What the higher layers keep,
 * of these sizes, and the paths are in the same chunk of memory.
 */
ZklSession *
zkl__session_new(const ZklSessionConfig *config, size_t queues_size, size_t locks_size)
{
	size_t		paths_size = ZKL_N_PARENTS * (strlen(config->root) + sizeof("/semaphores"));
	ZklSession *session = calloc(1, sizeof(ZklSession) + queues_size + locks_size + paths_size);

	if (session == NULL)
		return NULL;
	pthread_mutex_init(&session->mutex, NULL);
	session->queues = (ZklQueues *) (session + 1);
	session->locks = (ZklLocks *) ((char *) session->queues + queues_size);
	session->creator_acl = config->creator_acl;
	session->wakeup_fd = session->wait_fd = -1;
	configure(&session->config, config, (char *) session->locks + locks_size);
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

/* Starts the client; returns false when descriptors, threads or memory are exhausted. */
bool
zkl__session_open(ZklSession *session, const ZklSessionConfig *config,
				  const ZklClientEvents *events)
{
	if (!open_wait_fd(session))
		return false;
	/* Events, which may come before this is set, wait for the mutex. */
	zkl__session_lock(session);
	session->client = zkl_client_open(config, session->wait_fd, events, session);
	zkl__session_unlock(session);
	return session->client != NULL;
}

/*
 * The owner closes the session.  Returns whether the client goes on alone, and frees the
 * session.
 */
bool
zkl__session_leave(ZklSession *session)
{
	bool		goes_on = !session->client_connected && !session->is_gone &&
		!session->is_ending && session->connection.key.id != 0;

	session->config.pending_deletes = NULL; /* its owner may use it for another session */
	if (!zkl__is_final(session))
		session->state = ZKL_SESSION_EXPIRED;
	session->is_left = goes_on;
	session->is_ending = !goes_on;
	return goes_on;
}

/* Closes the client; returns whether the session is to be freed.  Without the mutex. */
bool
zkl__session_close(ZklSession *session, int timeout_ms)
{
	return zkl_client_close(session->client, timeout_ms);
}


/*
 * For the owner
 */

ZklSessionInfo
zkl_session_info(ZklSession *session)
{
	int64_t		now = zkl_now_ms();
	ZklSessionInfo info = {0};

	zkl__session_lock(session);
	info.state = session->state;
	info.is_unproven = session->is_unproven;
	info.key = session->connection.key;
	info.session_timeout_ms = session->connection.session_timeout_ms;
	memcpy(info.server, session->connection.server, sizeof(info.server));
	info.connected_ms = session->opened_ms ? now - session->opened_ms : 0;
	info.lease_ms = zkl__lease_left(session);
	info.n_locks = session->n_holds;
	info.n_answers = session->n_answers;
	info.has_open_parents = session->has_open_parents;
	zkl__session_unlock(session);
	return info;
}
