/*-------------------------------------------------------------------------
 *
 * zk_passes.c
 *		Passes of the I/O thread: connecting, and heartbeats.
 *
 * A pass may block in a TLS handshake, with the library's mutex held, and timers wait for
 * it: the backend reads the deadline of its locks by itself (cancel.c).
 *
 *-------------------------------------------------------------------------
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>

#include "log.h"
#include "zk_library.h"

/* What a handle allocates, with the addresses of its servers. */
#define HANDLE_MEMORY 262144

/* The longest pause after the library could not try to connect. */
#define RETRY_MS 500

/* What a TLS handshake allocates: most of it for the certificates of authorities. */
#define TLS_MEMORY (1024 * 1024)


int
zkl_zk_count_clients(int change)
{
	static int	n_clients;

	return __atomic_add_fetch(&n_clients, change, __ATOMIC_RELAXED);
}

/* In a handshake the library passes its descriptor to select(), which cannot take it. */
static void
refuse_descriptor(ZklClient *client)
{
	char		line[256];

	snprintf(line, sizeof(line), ":ZOO_ERROR@TLS needs a file descriptor below %d, and the lowest free one is %d",
			 FD_SETSIZE, client->library_fd);
	zkl_zk_log_io(line);
	shutdown(client->fd, SHUT_RDWR);	/* reconnect */
	client->pause_until_ms = zkl_io_thread_now() + RETRY_MS;
}

/* Ends a handshake that takes too long, or whose client closes. */
static void *
watch_handshake_io(void *arg)
{
	ZklClient  *client = arg;
	struct pollfd ended = {client->handshake_fd, POLLIN, 0};

	(void) poll(&ended, 1, client->handshake_ms);
	if (__atomic_load_n(&client->in_handshake, __ATOMIC_RELAXED))
		shutdown(client->fd, SHUT_RDWR);
	return NULL;
}

/*
 * The library waits for a silent server forever, so a second thread watches the handshake.
 * The library's mutex is held, so beside another client the handshake is shorter and a
 * pause follows: the other one must send its heartbeats.
 */
static void
shake_hands(ZklClient *client)
{
	bool		alone = zkl_zk_count_clients(0) == 1;
	int64_t		now = zkl_io_thread_now();
	int			timeout_ms = zkl_zk_first_connect_ms(client) / (alone ? 1 : 2);
	pthread_t	watcher;
	eventfd_t	count;

	client->handshake_ms = timeout_ms;
	if (client->connect_by_ms - now < timeout_ms)
		client->handshake_ms = client->connect_by_ms > now ? (int) (client->connect_by_ms - now) : 0;
	__atomic_store_n(&client->in_handshake, true, __ATOMIC_RELAXED);
	if (!zkl_io_thread_begin(&watcher, watch_handshake_io, client))
	{
		shutdown(client->fd, SHUT_RDWR);	/* reconnect */
		return;
	}
	(void) zookeeper_process(client->zh, ZOOKEEPER_WRITE);
	__atomic_store_n(&client->in_handshake, false, __ATOMIC_RELAXED);
	(void) eventfd_write(client->handshake_fd, 1);
	pthread_join(watcher, NULL);
	(void) eventfd_read(client->handshake_fd, &count);
	if (!zkl_zk_is_open(client) && !alone)
		client->pause_until_ms = zkl_io_thread_now() + timeout_ms;
}

static void
finish_connecting(ZklClient *client)
{
	struct pollfd writable = {client->fd, POLLOUT, 0};

	if (poll(&writable, 1, 0) <= 0)
		return;
	if ((writable.revents & POLLERR) == 0)
		client->phase = PHASE_OPEN;
	client->asked_ms = zkl_io_thread_now();
	if (client->tls && client->library_fd >= FD_SETSIZE)
		refuse_descriptor(client);
	else if (client->tls)
		shake_hands(client);
	else
		(void) zookeeper_process(client->zh, ZOOKEEPER_WRITE);
	if (client->phase == PHASE_OPEN)
		zkl_zk_flush_out(client);
}

/* Updates our state to what the library has done with its connection. */
static void
follow_library(ZklClient *client, int library_fd)
{
	if (client->phase != PHASE_NONE && !zkl_zk_is_open(client))
	{
		/* The library reports no event if it closes the connection in a submission. */
		if (client->connected)
			zkl_zk_session_io(client->zh, ZOO_SESSION_EVENT, ZOO_CONNECTING_STATE, "", client);
		else if (client->phase == PHASE_OPEN && client->connect_ms != 0 &&
				 client->connect_by_ms != ZKL_IO_THREAD_NEVER)
			zkl_zk_pause_after_refusal(client);
		zkl_zk_drop_connection(client);
	}
	if (client->phase != PHASE_NONE || library_fd < 0 || !zkl_zk_is_open(client))
		return;
	client->library_fd = library_fd;
	(void) fcntl(library_fd, F_SETFD, FD_CLOEXEC);	/* programs that the backend starts */
	client->fd = fcntl(library_fd, F_DUPFD_CLOEXEC, 0);
	if (client->fd < 0)
	{
		shutdown(library_fd, SHUT_RDWR);
		return;
	}
	client->phase = PHASE_CONNECTING;
	zkl_zk_begin_attempt(client, zkl_io_thread_now());
	if (zoo_state(client->zh) == ZOO_ASSOCIATING_STATE)
		client->phase = PHASE_OPEN;
}

/*
 * Gives the library the next server.  It has one at a time: with a list, it would move to the
 * next one twice after a failure, and try new servers again before it goes on.  It takes
 * servers for the same if only their ports differ, so it gets another one in between.  After
 * a round without success a pause follows.
 */
static void
choose_server(ZklClient *client, int64_t now)
{
	bool		is_round;

	if (client->is_chosen || !zkl_zk_next_server(client, &is_round))
		return;
	(void) zoo_set_servers(client->zh, "0.0.0.0:1");
	client->is_chosen = zoo_set_servers(client->zh, client->address) == ZOK;
	if (!client->is_chosen)
		client->pause_until_ms = now + RETRY_MS;
	if (!is_round || !client->has_tried)
		return;
	client->has_tried = false;
	zkl_zk_pause(client, zkl_zk_timeout_part(client, 60), 0);
}

/* Ends a pause of the library: it takes its only server for the end of a round. */
static int
interest(ZklClient *client, int *library_fd, int *events, struct timeval *due)
{
	int			rc = zookeeper_interest(client->zh, library_fd, events, due);

	if (rc == ZOK && *library_fd < 0)
		rc = zookeeper_interest(client->zh, library_fd, events, due);
	return rc;
}

/* Heartbeats, silent servers, connecting.  Returns the time when it is due again. */
static int64_t
go_on(ZklClient *client)
{
	int64_t		now = zkl_io_thread_now();
	struct timeval due = {0, 0};
	int			library_fd = -1;
	int			events = 0;
	int64_t		due_ms;
	int			rc;

	if (client->phase == PHASE_NONE)
		choose_server(client, now);
	if (client->phase == PHASE_NONE && now < client->pause_until_ms)
		return client->pause_until_ms;
	if (client->phase == PHASE_NONE)
		client->asked_ms = now;
	rc = interest(client, &library_fd, &events, &due);
	if (client->phase == PHASE_NONE && (library_fd >= 0 || rc != ZOK))
	{
		client->is_chosen = false;
		client->has_tried = true;
	}
	if (rc == ZINVALIDSTATE)
		return ZKL_IO_THREAD_NEVER; /* the session has ended */
	follow_library(client, library_fd);
	if (rc != ZOK)
		return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT ? now : now + RETRY_MS;
	if ((events & ZOOKEEPER_WRITE) && client->phase == PHASE_OPEN)
		(void) zookeeper_process(client->zh, ZOOKEEPER_WRITE);
	if (client->phase == PHASE_OPEN)
		zkl_zk_flush_out(client);
	due_ms = now + zkl_zk_to_ms(&due);
	/* If a ping was sent late, zkl_zk_end_if_late() still finds that. */
	if (!zkl_zk_is_late(client, zkl_io_thread_now()))
		client->due_ms = due_ms;
	if (client->phase == PHASE_NONE || zoo_state(client->zh) == ZOO_CONNECTED_STATE)
		return due_ms;
	zkl_zk_end_silent_attempt(client, now);
	return due_ms < client->connect_by_ms ? due_ms : client->connect_by_ms;
}

static void
auth_answered_io(int rc, const void *data)
{
	(void) rc;					/* a refusal also comes as a session event */
	(void) data;
}

/* Never returns a handle without TLS if TLS is configured. */
static zhandle_t *
get_handle(ZklClient *client, const char *hosts)
{
	const clientid_t *resumed = client->resumed.client_id ? &client->resumed : NULL;

	if (client->tls == NULL)
		return zookeeper_init2(hosts, zkl_zk_session_io, client->session_timeout_ms,
							   resumed, client, ZOO_NO_LOG_CLIENTENV, zkl_zk_log_io);
#ifdef ZKLOCK_HAVE_TLS
	zoo_set_log_stream(zkl_log_stream(zkl_zk_log_io));
	return zookeeper_init_ssl(hosts, client->tls, zkl_zk_session_io,
							  client->session_timeout_ms, resumed, client,
							  ZOO_NO_LOG_CLIENTENV);
#else
	return NULL;
#endif
}

/* Tries once to get a handle, with the first server whose address is known. */
static bool
open_handle(ZklClient *client)
{
	const char *chroot = strchr(client->connect_string, '/');
	char	   *host = NULL;
	bool		is_round;

	zkl_zk_prepare_memory();
	if (!zkl_zk_next_server(client, &is_round) ||
		asprintf(&host, "%s%s", client->address, chroot ? chroot : "") < 0)
		return false;
	zkl_zk_enter(client);
	zoo_deterministic_conn_order(1);	/* else it reseeds the process's random numbers */
	if (zkl_zk_has_memory(client, HANDLE_MEMORY))
		client->zh = get_handle(client, host);
	client->is_chosen = client->zh != NULL;
	if (client->zh)
		zoo_set_servers_resolution_delay(client->zh, -1);
	if (client->zh && client->digest)
		zoo_add_auth(client->zh, "digest", client->digest,
					 (int) strlen(client->digest), auth_answered_io, NULL);
	zkl_zk_leave();
	free(host);
	return client->zh != NULL;
}

/* Nothing can be done now.  The pauses are short at first: most lookups take no time. */
static void
sleep_unconnected(ZklClient *client, ZklIoThreadWatch *watch)
{
	watch->fd = -1;
	watch->shared = false;
	if (client->retry_ms < RETRY_MS)
		client->retry_ms = client->retry_ms * 2 + 1;
	watch->until_ms = zkl_io_thread_now() + client->retry_ms;
}

void
zkl_zk_pass_io(ZklClient *client, ZklIoThreadWatch *watch)
{
	if (client->zh == NULL && !open_handle(client))
	{
		sleep_unconnected(client, watch);
		return;
	}
	zkl_zk_enter(client);
	zkl_zk_end_if_dropped(client);
	if (!zkl_zk_has_memory(client, client->tls ? TLS_MEMORY : 0))
	{
		zkl_zk_leave();
		sleep_unconnected(client, watch);
		return;
	}
	client->retry_ms = 0;
	if (client->phase == PHASE_CONNECTING)
		finish_connecting(client);
	zkl_zk_exchange_io(client);
	follow_library(client, -1);
	watch->until_ms = go_on(client);
	watch->fd = client->fd;
	watch->events = client->phase == PHASE_CONNECTING ? POLLOUT
		: client->out_is_full ? POLLIN | POLLOUT : POLLIN;
	watch->shared = client->connected && !client->out_is_full;
	if (client->in_is_full)
		watch->until_ms = 0;
	zkl_zk_leave();
}
