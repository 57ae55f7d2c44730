/*-------------------------------------------------------------------------
 *
 * hostile_server.c
 *		Sends broken answers to the real client library, behind the filter.
 *
 *	 hostile_server [MESSAGES [SEED]]
 *
 * Sends the given number of server messages to a handle of libzookeeper_st.  Most of
 * them are broken in one or several places: numbers that are too large or negative,
 * parts that are missing, repeated or exchanged, answers without a request.  Reads all
 * data that the library passes on.  A child process does this in portions; if it
 * crashes, the seed of its portion is printed, which reproduces the crash.  Prints
 * TAP.
 *
 * Needs the client library, and is linked with filter.c and reply.c.  With
 * ZKLOCK_NO_FILTER in its environment it shows what these files prevent.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zookeeper/zookeeper.h>

#include "recipe/zookeeper/filter.h"

#define PORTION 10000
#define MAX_REQUESTS 5
#define FRAME_SIZE 2048

typedef struct Frame
{
	unsigned char bytes[FRAME_SIZE];
	size_t		size;
} Frame;

static uint64_t state;
static int	listener;
static int	port;
static bool filtered;
static volatile unsigned touched;	/* sum of the bytes that the library passed on */
static unsigned long answers;
static unsigned long refusals;

static unsigned
chance(unsigned n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned) (state >> 16) % n;
}

/*
 * Reads answers, as a client does.
 */

static void
touch(const void *data, size_t size)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; data && i < size; i++)
		touched += bytes[i];
}

static void
touch_string(const char *string)
{
	if (string)
		touch(string, strlen(string));
}

static void
got_path(int rc, const char *path, const struct Stat *stat, const void *data)
{
	(void) data;
	answers++;
	if (rc != ZOK)
		return;
	touch_string(path);
	touch(stat, sizeof(*stat));
}

static void
got_string(int rc, const char *path, const void *data)
{
	(void) data;
	answers++;
	if (rc == ZOK)
		touch_string(path);
}

static void
got_data(int rc, const char *value, int size, const struct Stat *stat, const void *data)
{
	(void) data;
	answers++;
	if (rc != ZOK)
		return;
	touch(value, size > 0 ? (size_t) size : 0);
	touch(stat, sizeof(*stat));
}

static void
got_children(int rc, const struct String_vector *children, const void *data)
{
	(void) data;
	answers++;
	for (int i = 0; rc == ZOK && i < children->count; i++)
		touch_string(children->data[i]);
}

static void
got_stat(int rc, const struct Stat *stat, const void *data)
{
	(void) data;
	answers++;
	if (rc == ZOK)
		touch(stat, sizeof(*stat));
}

static void
got_nothing(int rc, const void *data)
{
	(void) rc;
	(void) data;
	answers++;
}

static void
watcher(zhandle_t *zh, int type, int what, const char *path, void *context)
{
	(void) zh;
	(void) type;
	(void) what;
	(void) context;
	touch_string(path);
}

/*
 * Messages
 */

static void
add(Frame *frame, const void *bytes, size_t size)
{
	if (frame->size + size > FRAME_SIZE)
		return;
	memcpy(frame->bytes + frame->size, bytes, size);
	frame->size += size;
}

static void
add_int(Frame *frame, int32_t number)
{
	uint32_t	net = htonl((uint32_t) number);

	add(frame, &net, sizeof(net));
}

static void
add_string(Frame *frame, const char *string)
{
	add_int(frame, (int32_t) strlen(string));
	add(frame, string, strlen(string));
}

static void
add_stat(Frame *frame)
{
	for (int i = 0; i < 17; i++)
		add_int(frame, i % 2);
}

static void
begin(Frame *frame, int32_t xid)
{
	frame->size = 0;
	add_int(frame, xid);
	add_int(frame, 0);
	add_int(frame, (int32_t) chance(1000));
	add_int(frame, chance(8) == 0 ? -101 : 0);
}

/* Composes the answer of a server to this request. */
static void
answer(Frame *frame, const unsigned char *request)
{
	begin(frame, zkl_get_int(request));
	switch (zkl_get_int(request + 4))
	{
		case 15:
			add_string(frame, "/zklock/locks/a/x0000000001");
			add_stat(frame);
			break;
		case 4:
			add_string(frame, "some data");
			add_stat(frame);
			break;
		case 5:
			add_stat(frame);
			break;
		case 8:
			add_int(frame, 3);
			add_string(frame, "a");
			add_string(frame, "_c_0100-lock-0000000001");
			add_string(frame, "c");
			break;
		case 9:
			add_string(frame, "/a");
			break;
		case 14:
			add_int(frame, 1);
			add(frame, "\0\0\0\0\0", 5);
			add_string(frame, "/a");
			add_int(frame, 2);
			add(frame, "\0\0\0\0\0", 5);
			add_int(frame, -1);
			add(frame, "\1\377\377\377\377", 5);
			break;
		default:
			break;
	}
}

static void
unasked(Frame *frame)
{
	static const int32_t xids[] = {-1, -1, -1, -2, -4, -8, 0, 77};

	begin(frame, xids[chance(8)]);
	add_int(frame, (int32_t) chance(7) - 1);
	add_int(frame, 3);
	add_string(frame, "/a");
}

static void
put_number(Frame *frame)
{
	static const int32_t numbers[] = {0, 1, -1, -2, 4, 255, 65536, INT32_MAX, INT32_MIN,
	INT32_MAX - 3, 0x40000000, -100000};
	uint32_t	net = htonl((uint32_t) numbers[chance(12)]);

	if (frame->size >= 4)
		memcpy(frame->bytes + chance((unsigned) frame->size - 3), &net, sizeof(net));
}

static void
mutate(Frame *frame)
{
	unsigned	at = frame->size ? chance((unsigned) frame->size) : 0;
	unsigned	n = 1 + chance(12);

	switch (chance(6))
	{
		case 0:
		case 1:
			put_number(frame);
			break;
		case 2:
			if (frame->size)
				frame->bytes[at] ^= (unsigned char) (1u << chance(8));
			break;
		case 3:
			frame->size = at;
			break;
		case 4:					/* removes a part */
			if (at + n < frame->size)
			{
				memmove(frame->bytes + at, frame->bytes + at + n, frame->size - at - n);
				frame->size -= n;
			}
			break;
		case 5:					/* repeats a part */
			if (at + n < frame->size && frame->size + n < FRAME_SIZE)
			{
				memmove(frame->bytes + at + n, frame->bytes + at, frame->size - at);
				frame->size += n;
			}
			break;
	}
}

/*
 * A connection
 */

static int	server;				/* server end of the filter's or the library's connection */
static int	library_fd;
static ZklFilter filter;
static unsigned char asked[65536];
static size_t asked_size;

static void
send_message(const Frame *frame, bool broken)
{
	uint32_t	length = htonl((uint32_t) frame->size);

	if (broken && chance(40) == 0)
		length = htonl(chance(2) ? (uint32_t) chance(3) - 1 : 0x7ffffff0);
	(void) !send(server, &length, sizeof(length), MSG_DONTWAIT | MSG_NOSIGNAL);
	(void) !send(server, frame->bytes, frame->size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Lets the library write and read everything pending; returns false when it closed. */
static bool
settle(zhandle_t *zh)
{
	for (int i = 0; i < 200; i++)
	{
		int			reads = 8;
		bool		any = true;

		if (filtered)
		{
			while (zkl_filter_take_out(&filter))
				(void) zookeeper_process(zh, ZOOKEEPER_WRITE);
			(void) zkl_filter_pass_out(&filter);
			any = zkl_filter_pass_in(&filter, &reads);
			refusals += filter.refused != NULL;
			filter.refused = NULL;
		}
		if (any && zookeeper_process(zh, ZOOKEEPER_READ) != ZOK)
			any = filtered;
		if (zoo_state(zh) <= 0 || zoo_state(zh) == ZOO_NOTCONNECTED_STATE)
			return false;
		if (!any)
			return true;
	}
	return true;
}

static size_t
read_requests(void)
{
	ssize_t		n = recv(server, asked + asked_size, sizeof(asked) - asked_size, MSG_DONTWAIT);

	if (n > 0)
		asked_size += (size_t) n;
	return asked_size;
}

/* Lets the library connect to a real port, then replaces its socket by a socket pair. */
static zhandle_t *
connect_library(void)
{
	char		host[32];
	struct timeval due;
	int			events;
	int			pair[2];
	zhandle_t  *zh;
	struct linger at_once = {1, 0};
	int			accepted;

	snprintf(host, sizeof(host), "127.0.0.1:%d", port);
	zh = zookeeper_init2(host, watcher, 60000, NULL, NULL, ZOO_NO_LOG_CLIENTENV, NULL);
	if (zh == NULL || zookeeper_interest(zh, &library_fd, &events, &due) != ZOK)
		abort();
	accepted = accept(listener, NULL, NULL);
	setsockopt(accepted, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(accepted);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0)
		abort();
	server = pair[0];
	if (filtered)
	{
		if (!zkl_filter_install(&filter, pair[1], library_fd, false))
			abort();
	}
	else
	{
		dup2(pair[1], library_fd);
		close(pair[1]);
	}
	asked_size = 0;
	(void) zookeeper_process(zh, ZOOKEEPER_WRITE);
	return zh;
}

static void
disconnect_library(zhandle_t *zh)
{
	if (filtered)
		zkl_filter_end(&filter);
	else
		shutdown(server, SHUT_RDWR);
	zookeeper_close(zh);
	if (filtered)
	{
		close(filter.fd);
		zkl_filter_free(&filter);
	}
	close(server);
}

static bool
welcome(zhandle_t *zh, bool broken)
{
	Frame		frame = {.size = 0};

	if (!settle(zh))
		return false;
	add_int(&frame, 0);
	add_int(&frame, 60000);
	add_int(&frame, 1);
	add_int(&frame, 1);
	add_int(&frame, 16);
	for (int i = 0; i < 4; i++)
		add_int(&frame, i);
	add(&frame, "", 1);
	if (broken)
		mutate(&frame);
	send_message(&frame, false);
	return settle(zh) && zoo_state(zh) == ZOO_CONNECTED_STATE;
}

static void
ask(zhandle_t *zh)
{
	static zoo_op_t ops[2];
	static zoo_op_result_t results[2];
	static char path[40];

	switch (chance(7))
	{
		case 0:
			zoo_acreate2(zh, "/a/x", "data", 4, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, got_path, NULL);
			break;
		case 1:
			zoo_adelete(zh, "/a", -1, got_nothing, NULL);
			break;
		case 2:
			zoo_awget(zh, "/a", watcher, NULL, got_data, NULL);
			break;
		case 3:
			zoo_aset(zh, "/a", "x", 1, -1, got_stat, NULL);
			break;
		case 4:
			zoo_awget_children(zh, "/a", watcher, NULL, got_children, NULL);
			break;
		case 5:
			zoo_async(zh, "/a", got_string, NULL);
			break;
		case 6:
			zoo_create_op_init(&ops[0], "/a", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof(path));
			zoo_delete_op_init(&ops[1], "/b", -1);
			zoo_amulti(zh, 2, ops, results, got_nothing, NULL);
			break;
	}
}

/* Answers most of the requests; returns the number of messages. */
static int
reply_to_all(void)
{
	size_t		at = 0;
	int			n = 0;
	Frame		frame;

	read_requests();
	while (at + 12 <= asked_size)
	{
		bool		broken = chance(3) == 0;

		if (chance(12) == 0)
			unasked(&frame);
		else
		{
			answer(&frame, asked + at + 4);
			at += 4 + (size_t) zkl_get_int(asked + at);
		}
		for (unsigned i = broken ? 1 + chance(3) : 0; i > 0; i--)
			mutate(&frame);
		send_message(&frame, broken);
		n++;
	}
	asked_size = 0;
	return n;
}

static void
portion(uint64_t seed, int messages)
{
	state = seed * 0x9e3779b97f4a7c15u + 1;
	while (messages > 0)
	{
		zhandle_t  *zh = connect_library();
		bool		open = welcome(zh, chance(10) == 0);

		messages--;
		read_requests();
		asked_size = 0;
		while (open && messages > 0)
		{
			for (unsigned i = 1 + chance(MAX_REQUESTS); i > 0; i--)
				ask(zh);
			open = settle(zh);
			messages -= 1 + reply_to_all();
			open = open && settle(zh);
		}
		disconnect_library(zh);
	}
}

static void
listen_here(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t	length = sizeof(address);

	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *) &address, length) != 0 || listen(listener, 16) != 0 ||
		getsockname(listener, (struct sockaddr *) &address, &length) != 0)
		abort();
	port = ntohs(address.sin_port);
}

/* Runs a portion in a child process; returns true if it does not crash. */
static bool
in_child(uint64_t seed, int messages)
{
	unsigned long counts[2] = {0, 0};
	int			ends[2];
	int			status;
	pid_t		pid;

	if (pipe(ends) != 0 || (pid = fork()) < 0)
		abort();
	if (pid == 0)
	{
		alarm(300);
		answers = refusals = 0;
		portion(seed, messages);
		counts[0] = answers;
		counts[1] = refusals;
		_exit(write(ends[1], counts, sizeof(counts)) != sizeof(counts));
	}
	close(ends[1]);
	if (read(ends[0], counts, sizeof(counts)) != sizeof(counts))
		counts[0] = counts[1] = 0;
	close(ends[0]);
	answers += counts[0];
	refusals += counts[1];
	if (waitpid(pid, &status, 0) != pid || status == 0)
		return true;
	printf("# seed %llu: %s %d\n", (unsigned long long) seed,
		   WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return false;
}

int
main(int argc, char **argv)
{
	long		messages = argc > 1 ? atol(argv[1]) : 20000;
	uint64_t	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	int			crashes = 0;

	filtered = getenv("ZKLOCK_NO_FILTER") == NULL;
	zoo_set_debug_level((ZooLogLevel) 0);
	zoo_deterministic_conn_order(1);
	listen_here();
	for (long done = 0; done < messages; done += PORTION)
		crashes += !in_child(seed++, PORTION);
	printf("# %lu answers reached the client, %lu messages were refused\n", answers, refusals);
	printf("%s 1 - %ld messages of a hostile server: %d crashes in portions of %d\n1..1\n",
		   crashes ? "not ok" : "ok", messages, crashes, PORTION);
	return crashes != 0;
}
