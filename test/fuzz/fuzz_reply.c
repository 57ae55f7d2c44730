/*-------------------------------------------------------------------------
 *
 * fuzz_reply.c
 *		Fuzzes the filter that checks a server's messages before the client library
 *		reads them.
 *
 * A message that passes must be readable as the library reads it: each
 * number, string and vector lies within the message.  test/fuzz/hostile_server.c
 * does the same with the library itself.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"
#include "recipe/zookeeper/reply.h"

#define STAT_SIZE 68

/* The request: its operation, and how the library reads the answer. */
static const struct
{
	int			op;
	const char *form;			/* p path, S stat, d data, c children, a acl, m multi */
}			requests[] = {
	{9, "p"}, {2, ""}, {5, "S"}, {4, "dS"}, {5, "S"}, {6, "aS"}, {8, "c"}, {9, "p"},
	{15, "pS"}, {19, "pS"}, {14, "m"},
};

#define N_REQUESTS (sizeof(requests) / sizeof(requests[0]))

/* A create and a delete. */
static const unsigned char multi[] =
"\0\0\0\7\0\0\0\16" "\0\0\0\1\0\377\377\377\377\0\0\0\2/a\0\0\0\1x\0\0\0\1\0\0\0\37"
"\0\0\0\5world\0\0\0\6anyone\0\0\0\0" "\0\0\0\2\0\377\377\377\377\0\0\0\2/b\377\377\377\377"
"\377\377\377\377\1\377\377\377\377";

typedef struct Reader
{
	const uint8_t *bytes;
	size_t		size;
	size_t		at;
} Reader;

static void
node_set(Reader *r, int64_t size)
{
	must(size >= 0 && r->at + (uint64_t) size <= r->size, "%lld bytes at %zu of %zu",
		 (long long) size, r->at, r->size);
	r->at += (size_t) size;
}

static int32_t
read_int(Reader *r)
{
	const uint8_t *b = r->bytes + r->at;

	node_set(r, 4);
	return (int32_t) ((uint32_t) b[0] << 24 | (uint32_t) b[1] << 16 | (uint32_t) b[2] << 8 | b[3]);
}

static void
read_text(Reader *r)
{
	node_set(r, read_int(r));
}

static void
read_vector(Reader *r, bool acl)
{
	int32_t		count = read_int(r);

	must(count >= 0, "%d elements", count);
	for (int32_t i = 0; i < count; i++)
	{
		if (acl)
		{
			(void) read_int(r);
			read_text(r);
		}
		read_text(r);
	}
}

static void
read_multi(Reader *r)
{
	static const int32_t ops[] = {1, 2};

	for (int i = 0;; i++)
	{
		int32_t		type = read_int(r);
		bool		done;

		node_set(r, 1);
		done = r->bytes[r->at - 1] != 0;
		(void) read_int(r);
		if (done)
		{
			must(i == 2, "%d results", i);
			return;
		}
		must(i < 2, "a third result");
		must(type == -1 || type == ops[i], "type %d", type);
		if (type == -1)
			(void) read_int(r);
		else if (type == 1)
			read_text(r);
	}
}

static void
read_form(Reader *r, const char *form)
{
	for (; *form; form++)
		switch (*form)
		{
			case 'p':
				read_text(r);
				break;
			case 'S':
				node_set(r, STAT_SIZE);
				break;
			case 'd':
				{
					int32_t		length = read_int(r);

					if (length != -1)
						node_set(r, length);
					break;
				}
			case 'c':
			case 'a':
				read_vector(r, *form == 'a');
				break;
			case 'm':
				read_multi(r);
				break;
		}
}

/* Reads a message as zookeeper_process() does. */
static void
check_readable(const uint8_t *message, size_t size, const char *form)
{
	Reader		r = {message, size, 0};
	int32_t		xid = read_int(&r);
	int32_t		err;

	node_set(&r, 8);
	err = read_int(&r);
	if (xid == -1)
	{
		int32_t		type = read_int(&r);

		must(type >= 1 && type <= 4, "event %d", type);
		(void) read_int(&r);
		read_text(&r);
		return;
	}
	must(xid == 7, "an answer to %d", xid);
	if (err == 0)
		read_form(&r, form);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ZklReplies	replies = {.connect_sent = true,.connected = true};
	Input		input = {data, size};
	unsigned	kind = take(&input) % (N_REQUESTS + 1);
	unsigned char request[8] = {0, 0, 0, 7, 0, 0, 0, 0};
	uint8_t    *message;
	const char *wrong;

	if (kind == N_REQUESTS)
		replies.connected = false;
	else if (requests[kind].op == 14)
		must(zkl_replies_expect(&replies, multi, sizeof(multi) - 1, NULL), "out of memory");
	else
	{
		request[7] = (unsigned char) requests[kind].op;
		must(zkl_replies_expect(&replies, request, sizeof(request), NULL), "out of memory");
	}
	message = malloc(input.left + 1);
	memcpy(message, input.data, input.left);
	message = realloc(message, input.left > 0 ? input.left : 1);
	wrong = zkl_replies_check(&replies, message, input.left);
	if (wrong == NULL && kind < N_REQUESTS)
		check_readable(message, input.left, requests[kind].form);
	else if (wrong == NULL)
		must(input.left == 36 || input.left == 37, "a handshake of %zu bytes", input.left);
	zkl_replies_free(&replies);
	free(message);
	return 0;
}
