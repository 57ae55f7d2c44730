/*-------------------------------------------------------------------------
 *
 * zk_client.c
 *		Opens and closes clients (client.h) with libzookeeper_st.
 *
 * Each client has an I/O thread (io_thread.c).  This thread opens the library's handle
 * (zk_passes.c) and closes it, so that the owner does not wait for that, and drives the connection
 * while the owner does not (zk_drive.c).  The operations are in zk_calls.c.
 *
 *-------------------------------------------------------------------------
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "zk_library.h"

/* How long the last answers may take, including the answer to the close request. */
#define LAST_ANSWER_MS 1500

static struct ACL creator_acls[] = {
	{0x1f, {"auth", ""}},		/* all rights */
	{0x01, {"world", "anyone"}},	/* read, for other sessions' waiters and views */
};
static struct ACL_vector creator_acl = {2, creator_acls};

/* Returns the milliseconds until then, at least 0. */
static int
left_until(int64_t until_ms)
{
	int64_t		left = until_ms - zkl_io_thread_now();

	return left > 0 ? (int) left : 0;
}

/* Waits without the library's mutex until the server has sent something. */
static void
await_message(ZklClient *client, int64_t until_ms)
{
	struct pollfd readable = {client->fd, POLLIN, 0};

	zkl_zk_leave();
	(void) poll(&readable, 1, left_until(until_ms));
	zkl_zk_enter(client);
}

/*
 * The library sends its close request and waits for an answer, for a second and a half,
 * and everybody else in the process for the library.  So it waits only if the server has
 * answered everything else.
 */
static void
close_handle(ZklClient *client, int64_t until_ms)
{
	int			off = 0;

	zkl_zk_exchange_io(client);
	while (client->n_unanswered > 0 && client->connected && zkl_zk_is_open(client) &&
		   left_until(until_ms) > 0)
	{
		await_message(client, until_ms);
		zkl_zk_exchange_io(client);
	}
	(void) setsockopt(client->fd, IPPROTO_TCP, TCP_CORK, &off, sizeof(off));
	if (client->n_unanswered > 0)
		shutdown(client->fd, SHUT_RD);	/* makes poll() return at once */
	zookeeper_close(client->zh);
	client->zh = NULL;
}

/*
 * Closing a connection while answers arrive resets it, and a server that cannot answer
 * drops what it has not read yet: deletes and the close request.  Then the session's
 * nodes would stay until the session times out.  So our duplicate of the connection stays
 * open until the server has closed it.
 */
static void
read_to_end(int fd, int64_t until_ms)
{
	char		bytes[4096];
	struct pollfd readable = {fd, POLLIN, 0};

	while (poll(&readable, 1, left_until(until_ms)) > 0 &&
		   recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

/*
 * Ends the session at the ensemble if connected.  Without memory, the handle cannot be
 * closed: the session ends when it times out.
 */
static void
client_close_io(ZklClient *client)
{
	int64_t		until_ms = zkl_io_thread_now() + LAST_ANSWER_MS;

	zkl_zk_enter(client);
	client->due_ms = ZKL_IO_THREAD_NEVER;	/* a close request may be late */
	if (client->zh && !zkl_zk_has_memory(client, 0))
		zkl_peek_abort(client->fd);
	else if (client->zh && client->connected)
	{
		close_handle(client, until_ms);
		zkl_zk_leave();
		read_to_end(client->fd, until_ms);
		zkl_zk_enter(client);
	}
	else if (client->zh)
		zookeeper_close(client->zh);
	client->zh = NULL;
	zkl_zk_drop_connection(client);
	zkl_zk_leave();
}

static void
client_free_io(ZklClient *client)
{
	ZklSubmission *submission;

	while ((submission = zkl_zk_take_first(client)) != NULL)
		free(submission);
	pthread_mutex_destroy(&client->queue_mutex);
	if (client->digest)
		explicit_bzero(client->digest, strlen(client->digest));
	free(client->digest);
	free(client->tls);
	free(client->connect_string);
	if (client->handshake_fd >= 0)
		close(client->handshake_fd);
	free(client);
	(void) zkl_zk_count_clients(-1);
}

/* The I/O thread. */
static void *
client_main_io(void *arg)
{
	ZklClient  *client = arg;
	ZklIoThreadWatch watch = {.fd = -1};
	ZklIoThreadStep step;

	while ((step = zkl_io_thread_next(client->io_thread, &watch)) != ZKL_IO_THREAD_STOP)
		if (step == ZKL_IO_THREAD_TIMER)
			client->events->timer_io(client->session);
		else
			zkl_zk_pass_io(client, &watch);
	client_close_io(client);
	if (zkl_io_thread_stopped(client->io_thread))
	{
		client->events->closed_io(client->session);
		client_free_io(client);
	}
	return NULL;
}

/* A client is freed after its session, or right before. */
int
zkl_sessions_open(void)
{
	return zkl_zk_count_clients(0);
}

bool
zkl_threads_are_running(void)
{
	return zkl_sessions_open() > 0 || zkl_zk_lookups() > 0;
}

ZklClient *
zkl_client_open(const ZklSessionConfig *config, int wait_fd, const ZklClientEvents *events,
				ZklSession *session)
{
	ZklClient  *client = calloc(1, sizeof(ZklClient));

	if (client == NULL)
		return NULL;
	(void) zkl_zk_count_clients(1);
	pthread_mutex_init(&client->queue_mutex, NULL);
	client->events = events;
	client->session = session;
	client->session_timeout_ms = config->session_timeout_ms;
	client->wait_fd = wait_fd;
	client->resumed.client_id = config->resumed.id;
	memcpy(client->resumed.passwd, config->resumed.password, sizeof(client->resumed.passwd));
	client->fd = -1;
	client->handshake_fd = config->tls ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
	client->seed = ((uint32_t) getpid() ^ (uint32_t) zkl_now_ms() ^
					(uint32_t) ((uintptr_t) client >> 4)) * 2654435761u;
	client->pause_seed = client->seed;
	client->acl = config->creator_acl ? &creator_acl : &ZOO_OPEN_ACL_UNSAFE;
	client->connect_string = strdup(config->connect_string);
	if (config->digest)
		client->digest = strdup(config->digest);
	if (config->tls)
		client->tls = strdup(config->tls);
	if (client->connect_string && (config->digest == NULL || client->digest) &&
		(config->tls == NULL || (client->tls && client->handshake_fd >= 0)))
		zkl_io_thread_start(&client->io_thread, client_main_io, client);
	if (client->io_thread == NULL)
	{
		client_free_io(client);
		return NULL;
	}
	return client;
}

void
zkl_client_end(ZklClient *client)
{
	zkl_io_thread_end(client->io_thread);
	if (client->tls)
		(void) eventfd_write(client->handshake_fd, 1);
}

bool
zkl_client_close(ZklClient *client, int timeout_ms)
{
	zkl_client_end(client);
	if (!zkl_io_thread_stop(client->io_thread, timeout_ms))
		return false;
	client_free_io(client);
	return true;
}
