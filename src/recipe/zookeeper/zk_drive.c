/*-------------------------------------------------------------------------
 *
 * zk_drive.c
 *		Drives the client library: passes queued operations to it, and to the
 *		callbacks what the server sends.
 *
 * The thread that holds the library's mutex drives: the I/O thread in its passes, and
 * the owner when it has submitted something and when it wakes from its sleep.  The owner only exchanges
 * messages over an established connection; the I/O thread's passes do the rest
 * (zk_passes.c).
 *
 *-------------------------------------------------------------------------
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "zk_library.h"

/* Pause of an owner that cannot read now: the connection would wake it again at once. */
#define NAP_NS 250000

/* Limit of one exchange, so that a flood of messages does not block others. */
#define MAX_MESSAGES 100

/* The library copies strings into allocations of their own. */
#define MEMORY_PER_BYTE 10

/* With TLS a message cannot be looked at; most are smaller. */
#define TLS_MESSAGE_SIZE 65536

/* A connection that is lost earlier has died young; the first pause after one. */
#define YOUNG_MS 1000
#define PAUSE_MS 250

/* A session timeout that is longer does not make the pauses longer. */
#define LONGEST_TIMEOUT_MS 15000

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

/* Does not wait. */
static bool
try_enter(ZklClient *client)
{
	if (pthread_mutex_trylock(&library_mutex) != 0)
		return false;
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

static int	log_level;

void
zkl_log_set_level(ZklLogLevel level)
{
	__atomic_store_n(&log_level, level, __ATOMIC_RELAXED);
	zoo_set_debug_level((ZooLogLevel) level);
}

/* What a warning or an error of the library tells. */
typedef enum LineKind
{
	LINE_PROBLEM,
	LINE_CONSEQUENCE,			/* an earlier line, perhaps ours about a silent server, says why */
	LINE_NOISE					/* nothing: the library is not called at the times that it expects */
} LineKind;

static LineKind
kind_of(const char *line)
{
	if (strstr(line, ": Exceeded deadline by ") != NULL)
		return LINE_NOISE;
	if (strstr(line, ": Delaying connection ") != NULL ||
		(driven && driven->connect_by_ms == ZKL_IO_THREAD_NEVER))
		return LINE_CONSEQUENCE;
	return LINE_PROBLEM;
}

/*
 * Returns whether a warning or an error of the library is kept.  The library's lines have no
 * context, but the driven client is known.  Each outage is logged with one line; the other
 * warnings until the session is connected again appear only at higher log levels.
 */
static bool
must_be_kept(const char *line)
{
	LineKind	kind = kind_of(line);

	if (kind == LINE_PROBLEM)
		zkl_log_note_problem_io(line);
	if (driven == NULL || __atomic_load_n(&log_level, __ATOMIC_RELAXED) > ZKL_LOG_WARNING)
		return true;
	if (driven->is_muted || kind == LINE_NOISE)
		return false;
	driven->is_muted = true;
	return true;
}

void
zkl_zk_log_io(const char *line)
{
	const char *text;

	if (zkl_log_parse(line, &text) > ZKL_LOG_WARNING || must_be_kept(line))
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
 * Messages
 */

/* Logs a refused message.  Delays the next connection if the server refused the session. */
static void
refuse_server(ZklClient *client, const char *problem)
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

/* Sends what the library has written, in one packet.  tcp(7): this also flushes a cork. */
static void
push(ZklClient *client)
{
	int			on = 1;

	if (!client->is_corked)
		(void) setsockopt(client->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
	client->is_corked = true;
	(void) setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

bool
zkl_zk_is_late(const ZklClient *client, int64_t now)
{
	return zoo_state(client->zh) == ZOO_CONNECTED_STATE &&
		now - client->due_ms > zoo_recv_timeout(client->zh) / 12;
}

/* Sends what the library has written; the I/O thread sends what does not go now. */
void
zkl_zk_flush_out(ZklClient *client)
{
	int64_t		now = zkl_io_thread_now();
	bool		is_late = zkl_zk_is_late(client, now);
	struct timeval due;
	int			library_fd;
	int			events = 0;

	if (zkl_zk_is_open(client) && zkl_zk_has_memory(client, 0) &&
		zookeeper_interest(client->zh, &library_fd, &events, &due) == ZOK)
	{
		client->out_is_full = (events & ZOOKEEPER_WRITE) != 0;
		if (!is_late)			/* else end_if_late() still finds that */
			client->due_ms = now + zkl_zk_to_ms(&due);
	}
	push(client);
}

/* Passes queued operations to the library, and sends them. */
static void
send_all(ZklClient *client)
{
	if (zkl_zk_send_all_io(client) && client->phase == PHASE_OPEN)
		zkl_zk_flush_out(client);
}

/*
 * Ends a connection whose heartbeat is late because the process was stopped or got no
 * processor.  The leader may be about to end the session then, and still executes its writes, so
 * an answer to one would prove nothing (doc/design/lease.md).  The next connection
 * extends the session.  The library itself does not notice that it is late if something is
 * there to read.
 */
static void
end_if_late(ZklClient *client, int64_t now)
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

/*
 * Returns whether the library has something to read.  Without TLS only what is, by its
 * header, a message of ZooKeeper; the rest of a message that it has begun in any case.
 */
static bool
may_read(ZklClient *client)
{
	bool		connected = zoo_state(client->zh) == ZOO_CONNECTED_STATE;
	ZklDue		due = {
		.handshake = !connected,
		.resumes = zoo_client_id(client->zh)->client_id != 0,
		.answer = client->n_unanswered > 0,
		.auth = client->digest != NULL,
	};
	const char *problem = NULL;
	ZklPeekResult found = ZKL_PEEK_MESSAGE;

	if (client->tls)
		return zkl_zk_has_memory(client, TLS_MESSAGE_SIZE);
	if (!client->is_inside)
		found = zkl_peek_next(client->fd, &client->peek, &due, &client->message_size,
							  &problem);
	if (found == ZKL_PEEK_REFUSED)
		refuse_server(client, problem);
	if (found == ZKL_PEEK_MESSAGE &&
		!zkl_zk_has_memory(client, MEMORY_PER_BYTE * client->message_size))
		zkl_peek_abort(client->fd);
	return found != ZKL_PEEK_NOTHING && zkl_zk_has_memory(client, 0);
}

/* Passes on what the server has sent.  With TLS, the library may have read more. */
static void
receive_all(ZklClient *client)
{
	int			rc = ZOK;

	zkl_peek_begin(&client->peek);
	for (int i = 0; i < MAX_MESSAGES && rc == ZOK && zkl_zk_is_open(client); i++)
	{
		int64_t		now = zkl_io_thread_now();

		end_if_late(client, now);
		if (!may_read(client))
			break;
		rc = zookeeper_process(client->zh, ZOOKEEPER_READ);
		client->is_inside = rc == ZNOTHING;
		if (rc == ZOK)
			client->received_ms = now;
		send_all(client);
	}
	client->in_is_full = client->tls && rc == ZOK;
}

/* Sends queued operations, and passes on what the server has sent, without waiting. */
void
zkl_zk_exchange_io(ZklClient *client)
{
	send_all(client);
	if (client->phase == PHASE_OPEN)
		receive_all(client);
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

	if (!zkl_zk_has_queued(client) || is_driving)
		return;
	if (try_enter(client))
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
zkl_client_exchange(ZklClient *client)
{
	static const struct timespec nap = {0, NAP_NS};
	bool		can_read;
	bool		pass_due = false;

	if (!__atomic_load_n(&client->connected, __ATOMIC_RELAXED))
		return;
	can_read = try_enter(client);
	if (can_read)
	{
		can_read = zkl_zk_has_memory(client, 0);
		if (client->connected && can_read)
		{
			zkl_zk_exchange_io(client);
			pass_due = is_pass_due(client);
		}
		zkl_zk_leave();
	}
	if (pass_due)
		zkl_io_thread_want_pass(client->io_thread);
	if (!can_read)
		nanosleep(&nap, NULL);
}

void
zkl_client_waits(ZklClient *client, bool waits)
{
	zkl_io_thread_owner_waits(client->io_thread, waits);
}

void
zkl_client_drop(ZklClient *client)
{
	__atomic_store_n(&client->drop_wanted, true, __ATOMIC_RELAXED);
	zkl_io_thread_want_pass(client->io_thread);
}

void
zkl_client_set_timer(ZklClient *client, int64_t at_ms)
{
	zkl_io_thread_set_timer(client->io_thread, at_ms);
}

int64_t
zkl_now_ms(void)
{
	return zkl_io_thread_now();
}
