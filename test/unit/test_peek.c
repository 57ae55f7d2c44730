/*-------------------------------------------------------------------------
 *
 * test_peek.c
 *		What is seen of a message before the client library reads it.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "recipe/zookeeper/peek.h"
#include "tap.h"

#define NO_ERROR "\0\0\0\0\0\0\0\1\0\0\0\0"
#define SESSION "\0\0\0\0\0\0\0\7\0\0\0\20" "0123456789abcdef"
#define WELCOME "\0\0\0\0\0\0\165\60" SESSION
#define EXPIRED "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\20" "0123456789abcdef"

static const ZklDue nothing_due = {0};
static const ZklDue answer_due = {.answer = true};
static const ZklDue auth_due = {.auth = true};
static const ZklDue first = {.handshake = true};
static const ZklDue resumed = {.handshake = true, .resumes = true};

typedef struct Case
{
	const char *what;
	const ZklDue *due;
	bool		may_come;
	size_t		size;
	const char *bytes;
} Case;

#define MESSAGE(bytes) sizeof(bytes) - 1, bytes

static const Case cases[] = {
	{"an event", &nothing_due, true, MESSAGE("\0\0\0\35\377\377\377\377" NO_ERROR)},
	{"a ping", &nothing_due, true, MESSAGE("\0\0\0\20\377\377\377\376" NO_ERROR)},
	{"an answer", &answer_due, true, MESSAGE("\0\0\0\20\0\0\0\1" NO_ERROR)},
	{"an answer without a request", &nothing_due, false, MESSAGE("\0\0\0\20\0\0\0\1" NO_ERROR)},
	{"an answer to credentials", &auth_due, true, MESSAGE("\0\0\0\20\377\377\377\374" NO_ERROR)},
	{"an answer to credentials that were not sent", &answer_due, false, MESSAGE("\0\0\0\20\377\377\377\374" NO_ERROR)},
	{"a length of -1", &answer_due, false, MESSAGE("\377\377\377\377")},
	{"a length of 2^31-1", &answer_due, false, MESSAGE("\177\377\377\377")},
	{"a length of 64 MB", &answer_due, true, MESSAGE("\4\0\0\0\0\0\0\1" NO_ERROR)},
	{"a byte more than 64 MB", &answer_due, false, MESSAGE("\4\0\0\1")},
	{"a length of 15", &answer_due, false, MESSAGE("\0\0\0\17")},
	{"the answer to the connection", &first, true, MESSAGE("\0\0\0\45" WELCOME "\0")},
	{"the answer of an old server", &first, true, MESSAGE("\0\0\0\44" WELCOME)},
	{"the answer of an old server, before another byte,", &first, true, MESSAGE("\0\0\0\44" WELCOME "\1")},
	{"the answer of a read-only server", &first, false, MESSAGE("\0\0\0\45" WELCOME "\1")},
	{"a session without a timeout", &first, false, MESSAGE("\0\0\0\45\0\0\0\0\0\0\0\0" SESSION "\0")},
	{"a session with a negative timeout", &first, false, MESSAGE("\0\0\0\45\0\0\0\0\377\377\377\377" SESSION "\0")},
	{"an expired session", &resumed, true, MESSAGE("\0\0\0\45" EXPIRED "\0")},
	{"no session", &first, false, MESSAGE("\0\0\0\45" EXPIRED "\0")},
	{"an answer before the connection is answered", &first, false, MESSAGE("\0\0\0\20\0\0\0\1" NO_ERROR)},
	{"the answer of an HTTP server", &first, false, MESSAGE("HTTP/1.1 400 Bad Request\r\n")},
	{"the answer of a PostgreSQL server", &first, false, MESSAGE("E\0\0\0\177SFATAL")},
};

static void
test_judge(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		const Case *c = &cases[i];
		bool		too_early = false;
		size_t		size;
		size_t		needed;
		const char *problem = NULL;

		for (size_t n = 0; n <= c->size && problem == NULL; n++)
		{
			problem = zkl_judge_message((const unsigned char *) c->bytes, n, c->due, &size, &needed);
			too_early |= problem == NULL && (size > 0) != (n >= needed);
			if (problem == NULL && size > 0)
				break;
		}
		ok(!too_early && (problem == NULL) == c->may_come && (!c->may_come || size > 0),
		   "%s %s", c->what, c->may_come ? "may come" : "is refused");
	}
}

/* A TCP connection. */
static void
connect_both(int *client, int *server)
{
	struct sockaddr_in address = {.sin_family = AF_INET,.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t	length = sizeof(address);
	int			listener = socket(AF_INET, SOCK_STREAM, 0);

	*client = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *) &address, length) != 0 || listen(listener, 1) != 0 ||
		getsockname(listener, (struct sockaddr *) &address, &length) != 0 ||
		connect(*client, (struct sockaddr *) &address, length) != 0 ||
		(*server = accept(listener, NULL, NULL)) < 0)
		abort();
	close(listener);
}

static void
send_bytes(int fd, const char *bytes, size_t size)
{
	if (write(fd, bytes, size) != (ssize_t) size)
		abort();
}

static bool
is_readable(int fd, int timeout_ms)
{
	struct pollfd readable = {fd, POLLIN, 0};

	return poll(&readable, 1, timeout_ms) > 0;
}

static void
drop(int fd, size_t size)
{
	char		bytes[64];

	while (size > 0)
	{
		ssize_t		n = recv(fd, bytes, size < sizeof(bytes) ? size : sizeof(bytes), 0);

		if (n <= 0)
			abort();
		size -= (size_t) n;
	}
}

static void
test_peek(void)
{
	static const char events[] = "\0\0\0\20\377\377\377\377" NO_ERROR "\0\0\0\20\377\377\377\376" NO_ERROR
	"\0\0\0\22\377\377\377\377" NO_ERROR "xy";
	static ZklPeek peek;
	const char *problem = NULL;
	size_t		size = 0;
	int			client;
	int			server;

	connect_both(&client, &server);
	zkl_peek_begin(&peek);
	is_int(zkl_peek_next(client, &peek, &nothing_due, &size, &problem), ZKL_PEEK_NOTHING, "nothing has arrived");
	send_bytes(server, events, 9);
	is_readable(client, 10000);
	zkl_peek_begin(&peek);
	is_int(zkl_peek_next(client, &peek, &nothing_due, &size, &problem), ZKL_PEEK_NOTHING, "a part of a header is no message");
	ok(!is_readable(client, 0), "a part of a header does not keep poll() from sleeping");
	send_bytes(server, events + 9, sizeof(events) - 1 - 9);
	ok(is_readable(client, 10000), "the whole header ends the sleep of poll()");
	zkl_peek_begin(&peek);
	is_int(zkl_peek_next(client, &peek, &nothing_due, &size, &problem), ZKL_PEEK_MESSAGE, "the header is complete");
	is_int(size, 20, "the header has the size of the message");
	drop(client, size);
	is_int(zkl_peek_next(client, &peek, &nothing_due, &size, &problem), ZKL_PEEK_MESSAGE, "the next message is seen");
	drop(client, size);
	is_int(zkl_peek_next(client, &peek, &nothing_due, &size, &problem), ZKL_PEEK_MESSAGE, "the last message is seen");
	drop(client, size - 1);
	ok(is_readable(client, 10000), "poll() reports the last byte of a message");
	drop(client, 1);
	is_int(zkl_peek_next(client, &peek, &nothing_due, &size, &problem), ZKL_PEEK_NOTHING, "nothing is left");

	send_bytes(server, "\377\377\377\377", 4);
	is_readable(client, 10000);
	zkl_peek_begin(&peek);
	is_int(zkl_peek_next(client, &peek, &nothing_due, &size, &problem), ZKL_PEEK_REFUSED, "a broken message is refused");
	ok(problem != NULL, "a broken message is refused with a reason");
	zkl_peek_abort(client);
	ok(recv(client, &server, 1, MSG_DONTWAIT) <= 0, "nobody can read a broken message after the abort");
	close(client);
	close(server);
}

static void
test_end(void)
{
	static ZklPeek peek;
	const char *problem;
	size_t		size;
	int			client;
	int			server;

	for (size_t n = 0; n < 20; n += 5)
	{
		memset(&peek, 0, sizeof(peek));
		connect_both(&client, &server);
		send_bytes(server, "\0\0\0\20\377\377\377\376\0\0\0\0\0\0\0\0\0\0\0\0", n);
		close(server);
		is_readable(client, 10000);
		for (int i = 0; i < 1000; i++)
		{
			zkl_peek_begin(&peek);
			if (zkl_peek_next(client, &peek, &nothing_due, &size, &problem) != ZKL_PEEK_NOTHING)
				break;
			is_readable(client, 10000);
		}
		zkl_peek_begin(&peek);
		is_int(zkl_peek_next(client, &peek, &nothing_due, &size, &problem), ZKL_PEEK_END,
			   "the end of the connection is seen behind %d bytes of a header", (int) n);
		close(client);
	}
}

int
main(void)
{
	test_judge();
	test_peek();
	test_end();
	return done();
}
