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
#include <sys/socket.h>
#include <time.h>

#include "zk_library.h"

/* Pause of an owner that cannot read now: the connection would wake it again at once. */
#define NAP_NS 250000

/* Limit of one exchange, so that a flood of messages does not block others. */
#define MAX_MESSAGES 100

/* The library copies strings into allocations of their own. */
#define MEMORY_PER_BYTE 10

/* With TLS a message cannot be looked at; most are smaller. */
#define TLS_MESSAGE_SIZE 65536


/*
 * Messages
 */

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
		if (!is_late)			/* else zkl_zk_end_if_late() still finds that */
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
		zkl_zk_refuse_server(client, problem);
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

		zkl_zk_end_if_late(client, now);
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

	if (!zkl_zk_has_queued(client) || zkl_zk_is_driving())
		return;
	if (zkl_zk_try_enter(client))
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
	can_read = zkl_zk_try_enter(client);
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
zkl_client_set_timer(ZklClient *client, int64_t at_ms)
{
	zkl_io_thread_set_timer(client->io_thread, at_ms);
}

int64_t
zkl_now_ms(void)
{
	return zkl_io_thread_now();
}
