/*-------------------------------------------------------------------------
 *
 * zk_connection.c
 *		When a connection, or an attempt to connect, is given up, and when the next attempt begins.
 *
 * The client library gives a connection up when its server was silent for two thirds of the session
 * timeout, or has closed it.  zklock gives it up earlier if
 *
 *		the server does not answer an attempt		zkl_zk_end_silent_attempt()
 *		it sends what is no message of ZooKeeper	zkl_zk_refuse_server()
 *		this process was late with a heartbeat		zkl_zk_end_if_late()
 *		it does not answer a proof in time			zkl_zk_end_if_dropped(), for session/proofs.c
 *
 * and if memory, a descriptor or a thread is missing that the connection needs now, or a TLS handshake
 * takes too long (zk_drive.c, zk_passes.c).  All shut the connection down, with the library's mutex
 * held: the library notices that, tells it as an event, and connects to another server after the
 * pause that is due.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "zk_library.h"

/* Upper limit for the first attempt to connect, which has a third of the session timeout. */
#define MAX_CONNECT_MS 3000

/* A connection that is lost earlier has died young; the first pause after one. */
#define YOUNG_MS 1000
#define PAUSE_MS 250

/* A session timeout that is longer does not make the pauses longer. */
#define LONGEST_TIMEOUT_MS 15000


/*
 * Pauses before an attempt
 */

int
zkl_zk_timeout_part(const ZklClient *client, int part)
{
	int			timeout_ms = zoo_recv_timeout(client->zh);

	return (timeout_ms < LONGEST_TIMEOUT_MS ? timeout_ms : LONGEST_TIMEOUT_MS) / part;
}

void
zkl_zk_pause(ZklClient *client, int least_ms, int random_ms)
{
	int64_t		until_ms = zkl_io_thread_now() + least_ms +
		rand_r(&client->pause_seed) % (random_ms + 1);

	if (until_ms > client->pause_until_ms)
		client->pause_until_ms = until_ms;
}

/*
 * Delays the next connection: each time for longer, but never so long that the session
 * expires.  The random part keeps the clients of a server apart.
 */
static void
delay_connection(ZklClient *client)
{
	int			longest_ms = zkl_zk_timeout_part(client, 6);
	int			pause_ms = client->pause_ms == 0 ? PAUSE_MS : client->pause_ms * 2;

	client->pause_ms = pause_ms < longest_ms ? pause_ms : longest_ms;
	zkl_zk_pause(client, client->pause_ms / 2, client->pause_ms / 2);
}

/* All sessions of a server lose their connections at once: they do not come back at once. */
static void
spread_connection(ZklClient *client)
{
	client->pause_ms = 0;
	zkl_zk_pause(client, 0, zkl_zk_timeout_part(client, 10));
}

/*
 * The server has closed the connection: mostly the ensemble chooses a leader.  All sessions
 * try again then.
 */
void
zkl_zk_pause_after_refusal(ZklClient *client)
{
	int			least_ms = zkl_zk_timeout_part(client, 20);

	zkl_zk_pause(client, least_ms, least_ms);
}


/*
 * What the library tells
 */

/* Removes the connection from wait_fd, on which the owner sleeps. */
static void
disconnected(ZklClient *client)
{
	if (!client->connected)
		return;
	if (client->zh == NULL || client->connected_ms == 0)	/* it was closed, or dropped here */
		client->pause_ms = 0;
	else if (zkl_io_thread_now() >= client->connected_ms + YOUNG_MS)
		spread_connection(client);
	else
		delay_connection(client);
	__atomic_store_n(&client->connected, false, __ATOMIC_RELAXED);
	(void) epoll_ctl(client->wait_fd, EPOLL_CTL_DEL, client->fd, NULL);
}

void
zkl_zk_drop_connection(ZklClient *client)
{
	disconnected(client);
	zkl_watches_forget(client, zkl_zk_watched_io);
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
	client->phase = PHASE_NONE;
	memset(&client->peek, 0, sizeof(client->peek));
	client->is_inside = false;
	client->is_too_long = false;
	client->is_corked = false;
	client->out_is_full = false;
	client->in_is_full = false;
}

/* One line ends an outage that was logged. */
static void
log_connected(ZklClient *client, const char *server)
{
	char		line[128];

	snprintf(line, sizeof(line), ":ZOO_WARN@connected to the server at %s", server);
	if (client->is_muted)
		zkl_log_keep_io(line);
	client->is_muted = false;
	zkl_log_note_problem_io("");
}

static void
connected(ZklClient *client, ZklConnectionInfo *info)
{
	struct epoll_event event = {.events = EPOLLIN};

	info->key.id = zoo_client_id(client->zh)->client_id;
	memcpy(info->key.password, zoo_client_id(client->zh)->passwd, sizeof(info->key.password));
	info->session_timeout_ms = zoo_recv_timeout(client->zh);
	zkl_zk_describe_server(client, info->server, sizeof(info->server));
	log_connected(client, info->server);
	info->asked_ms = client->asked_ms;
	client->received_ms = zkl_io_thread_now();
	client->due_ms = client->asked_ms + info->session_timeout_ms / 3;
	client->connect_ms = 0;
	client->has_tried = false;
	client->connected_ms = zkl_io_thread_now();
	if (epoll_ctl(client->wait_fd, EPOLL_CTL_ADD, client->fd, &event) == 0)
		__atomic_store_n(&client->connected, true, __ATOMIC_RELAXED);
}

void
zkl_zk_session_io(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	ZklClient  *client = context;
	ZklConnectionInfo info = {0};
	ZklConnectionEvent event = ZKL_EVENT_DISCONNECTED;

	(void) zh;
	(void) path;
	if (type != ZOO_SESSION_EVENT)
		return;
	disconnected(client);
	if (state == ZOO_CONNECTED_STATE)
	{
		event = ZKL_EVENT_CONNECTED;
		connected(client, &info);
	}
	else if (state == ZOO_EXPIRED_SESSION_STATE)
		event = ZKL_EVENT_EXPIRED;
	else if (state == ZOO_AUTH_FAILED_STATE)
		event = ZKL_EVENT_AUTH_FAILED;
	client->events->event_io(client->session, event, &info);
}


/*
 * The end of an attempt
 */

int
zkl_zk_first_connect_ms(const ZklClient *client)
{
	int			ms = zoo_recv_timeout(client->zh) / 3;

	return ms < MAX_CONNECT_MS ? ms : MAX_CONNECT_MS;
}

/*
 * Sets the time of the attempt to connect that begins.  A session that is resumed expires
 * soon, and what is held in it is lost before that: mostly between half of the session timeout
 * and two thirds of it after the last answer of the server.  So the attempt takes at most half of what
 * is left: a server that accepts connections and does not answer must leave time for others.
 * But no server answers at once, so the last attempts are not shortened any more.
 */
void
zkl_zk_begin_attempt(ZklClient *client, int64_t now)
{
	int			timeout_ms = zoo_recv_timeout(client->zh);
	int64_t		left_ms = client->received_ms + timeout_ms / 2 - now;

	if (client->connect_ms == 0)
		client->connect_ms = zkl_zk_first_connect_ms(client);
	if (client->received_ms != 0 && left_ms > timeout_ms / 10 && client->connect_ms > left_ms / 2)
		client->connect_ms = (int) (left_ms / 2);
	client->connect_by_ms = now + client->connect_ms;
}

/*
 * Ends an attempt to connect without an answer, so that the library tries the next
 * server: by itself it waits for two thirds of the session timeout.  Each time the next
 * attempts may take twice as long, because the whole ensemble may be slow.
 */
void
zkl_zk_end_silent_attempt(ZklClient *client, int64_t now)
{
	char		server[ZKL_ADDRESS_SIZE];
	char		line[256];

	if (now < client->connect_by_ms)
		return;
	zkl_zk_describe_server(client, server, sizeof(server));
	/* The library's own message would mean that the server has closed the connection. */
	snprintf(line, sizeof(line), ":ZOO_ERROR@the server at %s did not answer within %d ms",
			 server, client->connect_ms);
	zkl_zk_log_io(line);
	shutdown(client->fd, SHUT_RDWR);
	client->connect_by_ms = ZKL_IO_THREAD_NEVER;
	if (client->connect_ms < zoo_recv_timeout(client->zh))
		client->connect_ms *= 2;
}


/*
 * The end of a connection
 */

/* Logs a refused message.  Delays the next connection if that is all that the server has sent. */
void
zkl_zk_refuse_server(ZklClient *client, const char *problem)
{
	char		server[64];
	char		line[256];

	if (!client->connected)
		delay_connection(client);
	zkl_zk_describe_server(client, server, sizeof(server));
	snprintf(line, sizeof(line), ":ZOO_ERROR@the server at %s sent %s", server, problem);
	zkl_zk_log_io(line);
	client->is_too_long = problem == zkl_message_too_long;
	zkl_peek_abort(client->fd);
}

bool
zkl_zk_is_late(const ZklClient *client, int64_t now)
{
	return zoo_state(client->zh) == ZOO_CONNECTED_STATE &&
		now - client->due_ms > zoo_recv_timeout(client->zh) / 12;
}

/*
 * Ends a connection whose heartbeat is late because the process was stopped or got no
 * processor.  The leader may be about to end the session then, and still executes its writes, so
 * an answer to one would prove nothing (doc/design/lease.md).  The next connection
 * extends the session.  The library itself does not notice that it is late if something is
 * there to read.
 */
void
zkl_zk_end_if_late(ZklClient *client, int64_t now)
{
	char		line[128];

	if (!zkl_zk_is_late(client, now))
		return;
	snprintf(line, sizeof(line), ":ZOO_WARN@this process was %lld ms late with a heartbeat and connects again",
			 (long long) (now - client->due_ms));
	zkl_zk_log_io(line);
	client->connected_ms = 0;	/* no pause follows */
	zkl_peek_abort(client->fd);
}

void
zkl_client_drop(ZklClient *client)
{
	__atomic_store_n(&client->drop_wanted, true, __ATOMIC_RELAXED);
	zkl_io_thread_want_pass(client->io_thread);
}

/* Ends the connection that the session does not want any more. */
void
zkl_zk_end_if_dropped(ZklClient *client)
{
	if (!__atomic_exchange_n(&client->drop_wanted, false, __ATOMIC_RELAXED) ||
		zoo_state(client->zh) != ZOO_CONNECTED_STATE)	/* not client->connected: epoll may have refused it */
		return;
	client->connected_ms = 0;	/* no pause follows */
	shutdown(client->fd, SHUT_RDWR);
}
