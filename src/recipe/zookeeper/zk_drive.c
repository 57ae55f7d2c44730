/*-------------------------------------------------------------------------
 *
 * zk_drive.c
 *		Drives the client library: passes queued operations to it, and to the
 *		callbacks what the server sends.
 *
 * The thread that holds the library's mutex drives: the I/O thread in its passes, and
 * the owner when it has submitted something and when it wakes from its sleep
 * (io_thread.c decides which of them polls the connection).  The owner only exchanges
 * messages over an established connection; the I/O thread's passes do the rest
 * (zk_passes.c).
 *
 *-------------------------------------------------------------------------
 */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "zk_library.h"

/* How long the owner waits for the library's mutex before it gives up reading. */
#define OWNER_NAPS 20
#define NAP_NS 250000

/* Limits of one exchange, so that a flood of messages does not block others. */
#define MAX_READS 8
#define MAX_MESSAGES 100

/* Pause before reconnecting after the first refused message. */
#define PAUSE_MS 250

static pthread_mutex_t library_mutex = PTHREAD_MUTEX_INITIALIZER;

/* The client that the mutex is held for, and whether this thread holds it. */
static ZklClient *driven;
static __thread bool is_driving;


static void
entered(ZklClient *client)
{
	driven = client;
	is_driving = true;
}

void
zkl_zk_enter(ZklClient *client)
{
	pthread_mutex_lock(&library_mutex);
	entered(client);
}

/* Waits for the mutex for at most this number of naps. */
static bool
try_enter(ZklClient *client, int naps)
{
	static const struct timespec nap = {0, NAP_NS};

	while (pthread_mutex_trylock(&library_mutex) != 0)
	{
		if (naps-- == 0)
			return false;
		nanosleep(&nap, NULL);
	}
	entered(client);
	return true;
}

void
zkl_zk_leave(void)
{
	driven = NULL;
	is_driving = false;
	pthread_mutex_unlock(&library_mutex);
}

static int	n_clients;

void
zkl_zk_count_client(int change)
{
	__atomic_add_fetch(&n_clients, change, __ATOMIC_RELAXED);
}

int
zkl_zk_clients(void)
{
	return __atomic_load_n(&n_clients, __ATOMIC_RELAXED);
}

static int	log_level;

void
zkl_log_set_level(ZklLogLevel level)
{
	__atomic_store_n(&log_level, level, __ATOMIC_RELAXED);
	zoo_set_debug_level((ZooLogLevel) level);
}

/* The library complains that it is not called at the times that it expects. */
static bool
is_noise(const char *line)
{
	return strstr(line, ": Exceeded deadline by ") != NULL;
}

/*
 * The library's lines have no context, but the driven client is known.  Each outage
 * is logged with one line; the other warnings until the session is connected again
 * appear only at higher log levels.
 */
void
zkl_zk_log_io(const char *line)
{
	ZklLogLevel level = zkl_log_level_of(line);

	if (driven && level <= ZKL_LOG_WARNING &&
		__atomic_load_n(&log_level, __ATOMIC_RELAXED) <= ZKL_LOG_WARNING)
	{
		if (driven->is_muted || is_noise(line))
		{
			zkl_log_count_io(line);
			return;
		}
		driven->is_muted = true;
	}
	zkl_log_keep_io(line);
}


/*
 * The connection
 */

bool
zkl_zk_is_open(const ZklClient *client)
{
	int			state = zoo_state(client->zh);

	return state > 0 && state != ZOO_NOTCONNECTED_STATE;
}

/* Removes the connection from wait_fd, on which the owner sleeps. */
static void
disconnected(ZklClient *client)
{
	if (!client->connected)
		return;
	__atomic_store_n(&client->connected, false, __ATOMIC_RELAXED);
	(void) epoll_ctl(client->wait_fd, EPOLL_CTL_DEL, client->fd, NULL);
}

void
zkl_zk_drop_connection(ZklClient *client)
{
	disconnected(client);
	if (client->filtered)
	{
		zkl_reads_fail_io(client);
		zkl_filter_free(&client->filter);
	}
	client->filtered = false;
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
	client->phase = PHASE_NONE;
	client->out_is_full = false;
	client->in_is_full = false;
}

/* Stores the peer of the connection as address:port. */
static void
describe_server(int fd, char *out, size_t size)
{
	struct sockaddr_storage address;
	socklen_t	length = sizeof(address);
	char		host[NI_MAXHOST];
	char		port[NI_MAXSERV];

	out[0] = '\0';
	if (getpeername(fd, (struct sockaddr *) &address, &length) == 0 &&
		getnameinfo((struct sockaddr *) &address, length, host, sizeof(host),
					port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(out, size, address.ss_family == AF_INET6 ? "[%.45s]:%.5s"
				 : "%.45s:%.5s", host, port);
}

static void
connected(ZklClient *client, ZklConnectionInfo *info)
{
	struct epoll_event event = {.events = EPOLLIN};

	info->session_id = zoo_client_id(client->zh)->client_id;
	info->session_timeout_ms = zoo_recv_timeout(client->zh);
	describe_server(client->fd, info->server, sizeof(info->server));
	client->is_muted = false;
	client->heard_ms = zkl_io_thread_now();
	client->connect_ms = 0;
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
	client->events.connection_io(client->context, event, &info);
}


/*
 * Messages
 */

/*
 * Logs a refused message, and delays the next connection: each time for longer, but never
 * so long that the session expires.
 */
static void
note_refused(ZklClient *client)
{
	int			longest_ms = zoo_recv_timeout(client->zh) / 4;
	int			pause_ms = client->pause_ms == 0 ? PAUSE_MS : client->pause_ms * 2;
	char		server[64];
	char		line[256];

	client->pause_ms = pause_ms < longest_ms ? pause_ms : longest_ms;
	client->pause_until_ms = zkl_io_thread_now() + client->pause_ms;
	describe_server(client->fd, server, sizeof(server));
	snprintf(line, sizeof(line), ":ZOO_ERROR@the server at %s sent %s", server,
			 client->filter.refused);
	zkl_zk_log_io(line);
	client->filter.refused = NULL;
}

/* Sends what the library has written; the I/O thread sends what does not go now. */
void
zkl_zk_flush_out(ZklClient *client)
{
	if (!client->filtered)
		return;
	while (zkl_filter_take_out(&client->filter))
		(void) zookeeper_process(client->zh, ZOOKEEPER_WRITE);
	client->out_is_full = !zkl_filter_pass_out(&client->filter);
}

/* Passes queued operations to the library, and sends them. */
static void
send_all(ZklClient *client)
{
	if (zkl_zk_send_all_io(client) && client->phase == PHASE_OPEN)
		zkl_zk_flush_out(client);
}

static void
exchange_filtered(ZklClient *client)
{
	int			reads = MAX_READS;

	while (zkl_zk_is_open(client) && zkl_filter_pass_in(&client->filter, &reads))
	{
		client->heard_ms = zkl_io_thread_now();
		if (client->filter.refused)
			note_refused(client);
		if (client->filter.replies.owner)
			zkl_reads_answer_io(client);
		else
			(void) zookeeper_process(client->zh, ZOOKEEPER_READ);
		send_all(client);
	}
}

/* With TLS, the library may have read more than the connection shows. */
static void
exchange_plain(ZklClient *client)
{
	int			rc = ZOK;

	for (int i = 0; i < MAX_MESSAGES && rc == ZOK && zkl_zk_is_open(client); i++)
	{
		rc = zookeeper_process(client->zh, ZOOKEEPER_READ);
		if (rc == ZOK)
			client->heard_ms = zkl_io_thread_now();
		send_all(client);
	}
	client->in_is_full = rc == ZOK;
}

/* Sends queued operations, and passes on what the server has sent, without waiting. */
void
zkl_zk_exchange_io(ZklClient *client)
{
	send_all(client);
	if (client->phase == PHASE_OPEN && client->filtered)
		exchange_filtered(client);
	else if (client->phase == PHASE_OPEN)
		exchange_plain(client);
}


/*
 * The owner's thread
 */

/* Returns whether there is work that the owner leaves to the I/O thread. */
static bool
is_pass_due(const ZklClient *client)
{
	return !client->connected || client->out_is_full || client->in_is_full ||
		!zkl_zk_is_open(client);
}

void
zkl_client_flush(ZklClient *client)
{
	bool		pass_due = true;

	if (is_driving || !zkl_zk_has_queued(client))
		return;
	if (try_enter(client, 0))
	{
		pass_due = false;
		if (client->zh)
		{
			send_all(client);
			pass_due = client->phase == PHASE_OPEN && is_pass_due(client);
		}
		zkl_zk_leave();
	}
	if (pass_due)
		zkl_io_thread_want_pass(client->io_thread);
}

void
zkl_client_sleeps(ZklClient *client)
{
	zkl_io_thread_owner_sleeps(client->io_thread);
}

void
zkl_client_woke(ZklClient *client)
{
	zkl_io_thread_owner_woke(client->io_thread);
}

void
zkl_client_exchange(ZklClient *client)
{
	bool		pass_due = false;

	if (!__atomic_load_n(&client->connected, __ATOMIC_RELAXED) ||
		!try_enter(client, OWNER_NAPS))
		return;
	if (client->connected)
	{
		zkl_zk_exchange_io(client);
		pass_due = is_pass_due(client);
	}
	zkl_zk_leave();
	if (pass_due)
		zkl_io_thread_want_pass(client->io_thread);
}
