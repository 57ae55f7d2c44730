/*-------------------------------------------------------------------------
 *
 * test_reply.c
 *		Promises of the filter between the client library and its connection.
 *
 * This file plays both the server and the library, at the ends of socket pairs.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "recipe/zookeeper/filter.h"
#include "tap.h"

#define STAT "\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1" \
	"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1"
#define HEAD(xid) xid "\0\0\0\0\0\0\0\1\0\0\0\0"
#define MINUS_1 "\377\377\377\377"
#define XID "\0\0\0\7"
#define BYTES(text) (const unsigned char *) (text), sizeof(text) - 1

static ZklReplies replies;

static void
request(const unsigned char *frame, size_t size)
{
	if (!zkl_replies_expect(&replies, frame, size, NULL))
		abort();
}

/* A connection after its handshake. */
static void
connected(void)
{
	unsigned char hello[45] = {0};
	unsigned char welcome[37] = {0};

	zkl_replies_free(&replies);
	request(hello, sizeof(hello));
	welcome[6] = 0x75;			/* 30 seconds */
	welcome[8] = 1;
	welcome[19] = 16;
	if (zkl_replies_check(&replies, welcome, sizeof(welcome)) != NULL)
		abort();
}

/* Accepts this answer only after this request, and no truncated answer. */
static void
accepts(const char *promise, const unsigned char *asked, size_t asked_size,
		const unsigned char *frame, size_t size)
{
	bool		cut_is_refused = true;

	for (size_t i = 0; i < size; i++)
	{
		unsigned char *cut = malloc(i + 1);

		memcpy(cut, frame, i);
		connected();
		request(asked, asked_size);
		cut_is_refused = cut_is_refused && zkl_replies_check(&replies, cut, i) != NULL;
		free(cut);
	}
	connected();
	request(asked, asked_size);
	ok(zkl_replies_check(&replies, frame, size) == NULL, "%s", promise);
	ok(cut_is_refused, "%s: no truncated answer is accepted", promise);
	ok(zkl_replies_check(&replies, frame, size) != NULL, "%s: no second answer is accepted", promise);
}

static void
refuses(const char *promise, const unsigned char *asked, size_t asked_size,
		const unsigned char *frame, size_t size)
{
	connected();
	if (asked_size > 0)
		request(asked, asked_size);
	ok(zkl_replies_check(&replies, frame, size) != NULL, "%s is refused", promise);
}

#define ASK(op) BYTES(XID "\0\0\0" op)
#define NOTHING BYTES("")

static void
test_answers(void)
{
	accepts("the answer to a create", ASK("\17"), BYTES(HEAD(XID) "\0\0\0\2/a" STAT));
	accepts("the answer to a delete", ASK("\2"), BYTES(HEAD(XID)));
	accepts("the answer to a read", ASK("\4"), BYTES(HEAD(XID) "\0\0\0\1x" STAT));
	accepts("the answer to a read, without data", ASK("\4"), BYTES(HEAD(XID) MINUS_1 STAT));
	accepts("the answer to a write", ASK("\5"), BYTES(HEAD(XID) STAT));
	accepts("the answer to a list", ASK("\10"), BYTES(HEAD(XID) "\0\0\0\2\0\0\0\1a\0\0\0\2bc"));
	accepts("the answer to a list, without children", ASK("\10"), BYTES(HEAD(XID) "\0\0\0\0"));
	accepts("the answer to a sync", ASK("\11"), BYTES(HEAD(XID) "\0\0\0\2/a"));
	accepts("an error", ASK("\17"), BYTES(XID "\0\0\0\0\0\0\0\1" "\377\377\377\233"));
	refuses("a child longer than the message", ASK("\10"), BYTES(HEAD(XID) "\0\0\0\1\0\0\0\3ab"));
	refuses("a count of children greater than the message", ASK("\10"), BYTES(HEAD(XID) "\177\377\377\377\0\0\0\1a"));
	refuses("a negative count of children", ASK("\10"), BYTES(HEAD(XID) MINUS_1));
	refuses("a negative length", ASK("\11"), BYTES(HEAD(XID) "\200\0\0\0/a"));
	refuses("data of a negative length", ASK("\4"), BYTES(HEAD(XID) "\377\377\377\376" STAT));
	refuses("a path that does not begin with a slash", ASK("\17"), BYTES(HEAD(XID) "\0\0\0\2aa" STAT));
	refuses("a path that contains a NUL", ASK("\17"), BYTES(HEAD(XID) "\0\0\0\3/\0a" STAT));
	refuses("a positive error code", ASK("\2"), BYTES(XID "\0\0\0\0\0\0\0\1" "\0\0\0\1"));
	refuses("an answer without a request", NOTHING, BYTES(HEAD(XID)));
	refuses("the answer to another request", ASK("\2"), BYTES(HEAD("\0\0\0\10")));
	refuses("an answer to an unknown request", ASK("\143"), BYTES(HEAD(XID)));
}

#define CREATE_PART "\0\0\0\1\0" MINUS_1 "\0\0\0\2/a\0\0\0\1x\0\0\0\1\0\0\0\37" \
	"\0\0\0\5world\0\0\0\6anyone\0\0\0\0"
#define DELETE_PART "\0\0\0\2\0" MINUS_1 "\0\0\0\2/b" MINUS_1
#define DONE MINUS_1 "\1" MINUS_1
#define MULTI BYTES(XID "\0\0\0\16" CREATE_PART DELETE_PART DONE)

static void
test_multi(void)
{
	accepts("the answer to a multi", MULTI,
			BYTES(HEAD(XID) "\0\0\0\1\0\0\0\0\0\0\0\0\2/a" "\0\0\0\2\0\0\0\0\0" DONE));
	accepts("the answer to a failed multi", MULTI,
			BYTES(HEAD(XID) MINUS_1 "\0\0\0\0\0\0\0\0\0" MINUS_1 "\0\377\377\377\233\377\377\377\233" DONE));
	refuses("a multi with one result too many", MULTI,
			BYTES(HEAD(XID) "\0\0\0\1\0\0\0\0\0\0\0\0\2/a" "\0\0\0\2\0\0\0\0\0" "\0\0\0\2\0\0\0\0\0" DONE));
	refuses("a multi with one result too few", MULTI, BYTES(HEAD(XID) "\0\0\0\1\0\0\0\0\0\0\0\0\2/a" DONE));
	refuses("a multi with the result of another operation", MULTI,
			BYTES(HEAD(XID) "\0\0\0\2\0\0\0\0\0" "\0\0\0\2\0\0\0\0\0" DONE));
}

#define EVENT HEAD(MINUS_1)

static void
test_unasked(void)
{
	connected();
	ok(zkl_replies_check(&replies, BYTES(EVENT "\0\0\0\2\0\0\0\3\0\0\0\2/a")) == NULL,
	   "an event needs no request");
	refuses("an event of unknown kind", NOTHING, BYTES(EVENT "\0\0\0\11\0\0\0\3\0\0\0\2/a"));
	refuses("an event about the session", NOTHING, BYTES(EVENT MINUS_1 "\377\377\377\220\0\0\0\2/a"));
	refuses("an event whose path is longer than the event", NOTHING,
			BYTES(EVENT "\0\0\0\2\0\0\0\3\177\377\377\377/a"));
	refuses("an event without a path", NOTHING, BYTES(EVENT "\0\0\0\2\0\0\0\3"));
	refuses("an answer to a heartbeat that was not sent", NOTHING, BYTES(HEAD("\377\377\377\376")));
	refuses("an answer to credentials that were not sent", NOTHING, BYTES(HEAD("\377\377\377\374")));
	refuses("an answer to watches that were not sent", NOTHING, BYTES(HEAD("\377\377\377\370")));
	connected();
	request(BYTES("\377\377\377\376\0\0\0\13"));
	ok(zkl_replies_check(&replies, BYTES(HEAD("\377\377\377\376"))) == NULL,
	   "the answer to a heartbeat that was sent is accepted");
}

static void
test_connecting(void)
{
	unsigned char hello[45] = {0};
	unsigned char welcome[37] = {0};

	zkl_replies_free(&replies);
	ok(zkl_replies_check(&replies, welcome, sizeof(welcome)) != NULL,
	   "a server that sends the first message is refused");
	request(hello, sizeof(hello));
	welcome[8] = 1;
	welcome[19] = 16;
	ok(zkl_replies_check(&replies, welcome, sizeof(welcome)) != NULL, "a session without a timeout is refused");
	welcome[6] = 0x75;
	welcome[19] = 17;
	ok(zkl_replies_check(&replies, welcome, sizeof(welcome)) != NULL,
	   "a password of another length is refused");
	welcome[19] = 16;
	welcome[8] = 0;
	ok(zkl_replies_check(&replies, welcome, sizeof(welcome)) != NULL, "a session without an id is refused");
	welcome[8] = 1;
	welcome[36] = 1;
	ok(zkl_replies_check(&replies, welcome, sizeof(welcome)) != NULL,
	   "a read-only server is refused");
	welcome[8] = welcome[36] = 0;
	zkl_replies_free(&replies);
	hello[20] = 1;
	request(hello, sizeof(hello));
	ok(zkl_replies_check(&replies, welcome, 36) == NULL,
	   "a session that has expired is accepted");
	zkl_replies_free(&replies);
}

/*
 * The filter
 */

static ZklFilter filter;
static int	library;
static int	server;

static void
install(void)
{
	int			pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
		abort();
	server = pair[0];
	library = pair[1];
	if (!zkl_filter_install(&filter, fcntl(library, F_DUPFD_CLOEXEC, 0), library, false))
		abort();
}

static void
uninstall(void)
{
	close(filter.fd);
	zkl_filter_free(&filter);
	close(library);
	close(server);
}

static void
put(int fd, const char *bytes, size_t size)
{
	if (write(fd, bytes, size) != (ssize_t) size)
		abort();
}

static const char hello[49] = "\0\0\0\55";
static const char welcome[41] = "\0\0\0\45\0\0\0\0\0\0\165\60\1\0\0\0\0\0\0\0\0\0\0\20";

static void
test_passing(void)
{
	char		bytes[200];
	int			reads = 1;

	install();
	put(library, hello, 4);
	ok(zkl_filter_take_out(&filter), "an incomplete request is kept");
	ok(zkl_filter_pass_out(&filter) && recv(server, bytes, sizeof(bytes), MSG_DONTWAIT) < 0,
	   "no part of the request is sent");
	put(library, hello + 4, sizeof(hello) - 4);
	(void) zkl_filter_take_out(&filter);
	(void) zkl_filter_pass_out(&filter);
	is_int((int) recv(server, bytes, sizeof(bytes), MSG_DONTWAIT), sizeof(hello),
		   "the complete request is sent at once");

	put(server, welcome, 20);
	ok(!zkl_filter_pass_in(&filter, &reads), "an incomplete message is kept");
	put(server, welcome + 20, sizeof(welcome) - 20);
	reads = 1;
	ok(zkl_filter_pass_in(&filter, &reads), "the complete message is passed to the library");
	is_int((int) recv(library, bytes, sizeof(bytes), MSG_DONTWAIT), sizeof(welcome),
		   "the library receives the whole message");

	close(server);
	server = dup(library);
	reads = 1;
	ok(zkl_filter_pass_in(&filter, &reads) && filter.refused == NULL,
	   "the end of the connection is passed on");
	is_int((int) recv(library, bytes, sizeof(bytes), MSG_DONTWAIT), 0, "the library receives the end of the connection");
	uninstall();
}

static void
test_refusing(void)
{
	char		bytes[200];
	int			reads = 9;

	install();
	put(library, hello, sizeof(hello));
	(void) zkl_filter_take_out(&filter);
	put(server, welcome, sizeof(welcome));
	(void) zkl_filter_pass_in(&filter, &reads);
	is_int((int) recv(library, bytes, sizeof(bytes), MSG_DONTWAIT), sizeof(welcome), "connected");
	put(server, "\0\0\0\20" "\0\0\0\1" "\0\0\0\0\0\0\0\1\0\0\0\0", 20);
	reads = 9;
	ok(zkl_filter_pass_in(&filter, &reads), "an answer without a request ends the connection");
	ok(filter.refused != NULL, "the reason is stored");
	is_int((int) recv(library, bytes, sizeof(bytes), MSG_DONTWAIT), 0, "the library does not receive this answer");
	ok(!zkl_filter_pass_in(&filter, &reads), "the connection stays refused");
	uninstall();

	install();
	put(server, "\4\0\0\1", 4);
	reads = 9;
	ok(zkl_filter_pass_in(&filter, &reads) && filter.refused,
	   "a length beyond the bound is refused before the rest arrives");
	uninstall();
	install();
	put(server, "\377\377\377\377", 4);
	reads = 9;
	ok(zkl_filter_pass_in(&filter, &reads) && filter.refused, "a negative length is refused");
	uninstall();
}

/* After the library has closed its end, the answers to its last requests are read. */
static void
test_last_answers(void)
{
	install();
	filter.replies.connect_sent = true;
	filter.replies.connected = true;
	put(library, "\0\0\0\10" XID "\0\0\0\2" "\0\0\0\10" "\0\0\0\10\377\377\377\365", 24);
	zkl_filter_end(&filter);
	close(library);
	while (zkl_filter_take_out(&filter))
		;
	ok(zkl_filter_pass_out(&filter) && zkl_filter_skip_in(&filter), "answers are due");
	put(server, "\0\0\0\20" HEAD(XID), 20);
	ok(zkl_filter_skip_in(&filter), "the rest of an answer is due");
	put(server, "\0\0\0\20" HEAD("\0\0\0\10"), 20);
	ok(!zkl_filter_skip_in(&filter), "no answer is due after the last one");
	library = dup(server);
	uninstall();

	install();
	filter.replies.connect_sent = true;
	filter.replies.connected = true;
	put(library, "\0\0\0\10" XID "\0\0\0\2", 12);
	(void) zkl_filter_take_out(&filter);
	zkl_filter_end(&filter);
	close(library);
	shutdown(server, SHUT_WR);
	ok(!zkl_filter_skip_in(&filter), "no answer is due on a broken connection");
	library = dup(server);
	uninstall();
}

/* A message larger than all buffers in between. */
static void
test_large(void)
{
	size_t		size = 3000000;
	char	   *data = calloc(1, size);
	size_t		sent = 0;
	size_t		got = 0;
	int			last_grants = 0;

	install();
	fcntl(server, F_SETFL, O_NONBLOCK);
	filter.replies.connect_sent = true;
	filter.replies.connected = true;
	if (!zkl_replies_expect(&filter.replies, BYTES(XID "\0\0\0\4"), NULL))
		abort();
	size -= 4;
	data[0] = (char) (size >> 24);
	data[1] = (char) (size >> 16);
	data[2] = (char) (size >> 8);
	data[3] = (char) size;
	size += 4;
	memcpy(data + 4, HEAD(XID), 16);
	data[21] = 45;				/* less than 3 million: STAT and more follow */
	while (got < size && last_grants++ < 100000)
	{
		ssize_t		n = send(server, data + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
		int			reads = 8;
		char		bytes[65536];

		sent += n > 0 ? (size_t) n : 0;
		while (zkl_filter_pass_in(&filter, &reads))
			while ((n = recv(library, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
				got += (size_t) n;
	}
	ok(got == size, "a large message is passed on");
	free(data);
	uninstall();
}

/* The library does not read, because it is out of memory. */
static void
test_unread(void)
{
	static const char ping[] = "\0\0\0\20" HEAD("\377\377\377\376");
	static const char large[1000000] = "\0\17\102\74" HEAD(XID);
	size_t		sent = 0;
	int			passes = 0;
	int			reads = 9;

	install();
	filter.replies.connect_sent = filter.replies.connected = true;
	filter.replies.n_pings = 1;
	while (send(filter.pair, large, 100, MSG_DONTWAIT) > 0)
		;
	put(server, ping, sizeof(ping) - 1);
	ok(zkl_filter_pass_in(&filter, &reads) && filter.ended && filter.refused == NULL,
	   "the connection ends if the library has no room for a message");
	ok(!zkl_filter_pass_in(&filter, &reads), "this message is not checked again");
	uninstall();

	install();
	filter.replies.connect_sent = filter.replies.connected = true;
	if (!zkl_replies_expect(&filter.replies, BYTES(XID "\0\0\0\2"), NULL))
		abort();
	for (bool more = true; passes < 1000 && (sent < sizeof(large) || more); passes++)
	{
		ssize_t		n = send(server, large + sent, sizeof(large) - sent, MSG_DONTWAIT);

		sent += n > 0 ? (size_t) n : 0;
		reads = 8;
		more = zkl_filter_pass_in(&filter, &reads);
	}
	ok(sent == sizeof(large) && filter.ended, "the connection also ends if the library has no room for the rest of a large message");
	uninstall();
}

/* The recipe layer's own reads: two lists in one request, one of which fails. */
#define OWN_READS(xid) BYTES(xid "\0\0\0\26" "\0\0\0\10\0" MINUS_1 "\0\0\0\2/a\0" \
							 "\0\0\0\10\0" MINUS_1 "\0\0\0\2/b\0" DONE)

static void
test_own_reads(void)
{
	static const unsigned char answer[] = HEAD(XID) "\0\0\0\10\0" MINUS_1 "\0\0\0\1\0\0\0\1x"
	MINUS_1 "\0" "\377\377\377\233" "\377\377\377\233" MINUS_1 "\1" MINUS_1;
	int			owner;
	bool		cut_is_refused = true;

	for (size_t i = 0; i < sizeof(answer) - 1; i++)
	{
		unsigned char *cut = malloc(i + 1);

		memcpy(cut, answer, i);
		connected();
		if (!zkl_replies_expect(&replies, OWN_READS(XID), &owner))
			abort();
		cut_is_refused = cut_is_refused && zkl_replies_check(&replies, cut, i) != NULL;
		free(cut);
	}
	ok(cut_is_refused, "a truncated answer to several reads is refused");
	connected();
	if (!zkl_replies_expect(&replies, OWN_READS(XID), &owner))
		abort();
	request(BYTES("\0\0\0\10\0\0\0\2/a"));
	ok(zkl_replies_check(&replies, answer, sizeof(answer) - 1) == NULL &&
	   replies.owner == &owner, "the whole answer to several reads is accepted, and is not passed to the library");
	ok(zkl_replies_check(&replies, BYTES(HEAD("\377\377\377\377") "\0\0\0\2\0\0\0\3\0\0\0\2/a")) == NULL &&
	   replies.owner == NULL, "the next message is passed to the library");
	ok(zkl_replies_drop_first(&replies) && replies.owner == NULL && replies.first == NULL &&
	   replies.last == NULL && !zkl_replies_drop_first(&replies),
	   "requests without an answer can be withdrawn");
	zkl_replies_free(&replies);
}

/* An answer to the recipe layer's own reads that is longer than any message may be. */
static void
test_own_reads_too_long(void)
{
	static const char event[] = "\0\0\0\36" EVENT "\0\0\0\2\0\0\0\3\0\0\0\2/a";
	size_t		left = ZKL_MAX_REPLY + 1 - 16;
	char	   *bytes = calloc(1, 65536);
	int			owner;
	int			reads = 9;
	bool		is_quiet = true;

	install();
	filter.replies.connect_sent = true;
	filter.replies.connected = true;
	if (!zkl_replies_expect(&filter.replies, OWN_READS(XID), &owner))
		abort();
	put(server, "\4\0\0\1" HEAD(XID), 20);
	ok(zkl_filter_pass_in(&filter, &reads) && filter.replies.owner == &owner &&
	   zkl_get_int(filter.in.bytes + filter.in.start + 16) != 0,
	   "the reads fail if the answer to several reads is too long");
	zkl_filter_drop_message(&filter);
	for (size_t n; is_quiet && left > 0; left -= n)
	{
		n = left < 65536 ? left : 65536;
		put(server, bytes, n);
		reads = 100;
		is_quiet = !zkl_filter_pass_in(&filter, &reads);
	}
	ok(is_quiet && !filter.ended && filter.refused == NULL, "the connection stays");
	put(server, event, sizeof(event) - 1);
	reads = 9;
	ok(zkl_filter_pass_in(&filter, &reads), "the next message is passed on");
	is_int((int) recv(library, bytes, 65536, MSG_DONTWAIT), sizeof(event) - 1, "the library receives the whole next message");

	put(server, "\4\0\0\1" HEAD(XID), 20);
	reads = 9;
	ok(zkl_filter_pass_in(&filter, &reads) && filter.refused,
	   "an answer that is too long and belongs to no request ends the connection");
	free(bytes);
	uninstall();
}

/* An answer to the library that is longer than any message may be. */
static void
test_too_long(void)
{
	static const char error[] = "\0\0\0\20" XID "\0\0\0\0\0\0\0\1\377\377\377\373";
	static const char ping[] = "\0\0\0\20" HEAD("\377\377\377\376");
	size_t		left = ZKL_MAX_REPLY + 1 - 16;
	char	   *bytes = calloc(1, 65536);
	int			reads = 9;
	bool		is_quiet = true;

	install();
	filter.replies.connect_sent = true;
	filter.replies.connected = true;
	filter.replies.n_pings = 1;
	if (!zkl_replies_expect(&filter.replies, BYTES(XID "\0\0\0\10\0\0\0\2/a\0"), NULL))
		abort();
	put(server, "\4\0\0\1" XID, 8);
	ok(!zkl_filter_pass_in(&filter, &reads), "an incomplete header of an answer that is too long is kept");
	put(server, "\0\0\0\0\0\0\0\1\0\0\0\0", 12);
	reads = 9;
	ok(zkl_filter_pass_in(&filter, &reads), "the complete header is passed on");
	ok(recv(library, bytes, 65536, MSG_DONTWAIT) == sizeof(error) - 1 &&
	   memcmp(bytes, error, sizeof(error) - 1) == 0, "the library receives an error");
	memset(bytes, 0, 65536);
	for (size_t n; is_quiet && left > 0; left -= n)
	{
		n = left < 65536 ? left : 65536;
		put(server, bytes, n);
		reads = 100;
		is_quiet = !zkl_filter_pass_in(&filter, &reads);
	}
	ok(is_quiet && !filter.ended && filter.in.size <= 65536, "its body is dropped as it arrives");
	put(server, ping, sizeof(ping) - 1);
	reads = 9;
	ok(zkl_filter_pass_in(&filter, &reads), "the next message is passed on");
	is_int((int) recv(library, bytes, 65536, MSG_DONTWAIT), sizeof(ping) - 1, "the library receives the whole next message");
	free(bytes);
	uninstall();
}

int
main(void)
{
	test_answers();
	test_multi();
	test_own_reads();
	test_unasked();
	test_connecting();
	zkl_replies_free(&replies);
	test_passing();
	test_refusing();
	test_last_answers();
	test_large();
	test_unread();
	test_own_reads_too_long();
	test_too_long();
	return done();
}
