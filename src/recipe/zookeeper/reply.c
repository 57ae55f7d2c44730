/*-------------------------------------------------------------------------
 *
 * reply.c
 *		Checks that the messages of a ZooKeeper server are valid answers or events.
 *
 * The client library trusts the server: a wrong count, length or xid makes it abort or
 * read beyond its memory, and PostgreSQL then restarts with all its sessions.  So each
 * message is checked before the library sees it: it must answer the oldest request, or
 * be one that needs no request, and all strings, buffers and vectors of the answer must
 * lie within the message.  Bytes behind them are ignored; later versions of the server
 * may add some.
 *
 * Parses the requests of client.h, and uses no sockets.  Called only by
 * filter.c and zk_reads.c, on the thread that uses the filter.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "reply.h"

/* Numbers of ZooKeeper's protocol. */
#define XID_WATCH (-1)
#define XID_PING (-2)
#define XID_AUTH (-4)
#define XID_SET_WATCHES (-8)

#define OP_CREATE 1
#define OP_DELETE 2
#define OP_EXISTS 3
#define OP_GET 4
#define OP_SET 5
#define OP_GET_ACL 6
#define OP_LIST 8
#define OP_SYNC 9
#define OP_MULTI 14
#define OP_CREATE2 15
#define OP_CREATE_CONTAINER 19
#define OP_MULTI_READ 22
#define OP_CLOSE (-11)

#define STATE_CONNECTED 3
#define FIRST_EVENT 1			/* created */
#define LAST_EVENT 4			/* children changed */

#define STAT_SIZE 68
#define PASSWORD_SIZE 16
#define LAST_ERROR (-1000)

/* Limits of a session timeout, in milliseconds. */
#define MIN_TIMEOUT 10
#define MAX_TIMEOUT 1000000000

/* A request without an answer, and the form of its answer. */
struct ZklExpected
{
	ZklExpected *next;
	int32_t		xid;
	int32_t		op;
	const void *owner;			/* NULL: the library */
	int			n_parts;		/* operations of a multi, or several reads */
	int32_t		parts[];
};

/* The bytes left to read; "bad" once something did not fit. */
typedef struct Cursor
{
	const unsigned char *at;
	size_t		left;
	bool		bad;
} Cursor;


int32_t
zkl_get_int(const unsigned char *bytes)
{
	return (int32_t) ((uint32_t) bytes[0] << 24 | (uint32_t) bytes[1] << 16 |
					  (uint32_t) bytes[2] << 8 | (uint32_t) bytes[3]);
}

unsigned char *
zkl_put_int(unsigned char *bytes, int32_t value)
{
	for (int i = 0; i < 4; i++)
		bytes[i] = (unsigned char) ((uint32_t) value >> (24 - 8 * i));
	return bytes + 4;
}

static void
skip(Cursor *c, size_t size)
{
	if (c->left < size)
	{
		c->bad = true;
		c->left = 0;
		return;
	}
	c->at += size;
	c->left -= size;
}

static int32_t
take_int(Cursor *c)
{
	const unsigned char *at = c->at;

	skip(c, 4);
	return c->bad ? 0 : zkl_get_int(at);
}

static bool
take_bool(Cursor *c)
{
	const unsigned char *at = c->at;

	skip(c, 1);
	return !c->bad && *at != 0;
}

/* Accepts a string of its stated length, without a NUL in it. */
static void
take_string(Cursor *c)
{
	int32_t		length = take_int(c);
	const unsigned char *at = c->at;

	if (length < 0)
		c->bad = true;
	if (c->bad)
		return;
	skip(c, (size_t) length);
	if (!c->bad && memchr(at, '\0', (size_t) length))
		c->bad = true;
}

static void
take_path(Cursor *c)
{
	const unsigned char *at = c->at;

	take_string(c);
	if (!c->bad && (zkl_get_int(at) < 1 || at[4] != '/'))
		c->bad = true;
}

/* A znode without data has length -1. */
static void
take_buffer(Cursor *c)
{
	int32_t		length = take_int(c);

	if (length < -1)
		c->bad = true;
	if (!c->bad && length > 0)
		skip(c, (size_t) length);
}

/* Each element takes at least "least_size" bytes, which must be there. */
static int32_t
take_count(Cursor *c, size_t least_size)
{
	int32_t		count = take_int(c);

	if (count < 0 || (size_t) count > c->left / least_size)
		c->bad = true;
	return c->bad ? 0 : count;
}

static void
take_children(Cursor *c)
{
	int32_t		count = take_count(c, 4);

	for (int32_t i = 0; i < count && !c->bad; i++)
		take_string(c);
}

static void
take_acl(Cursor *c)
{
	int32_t		count = take_count(c, 12);

	for (int32_t i = 0; i < count && !c->bad; i++)
	{
		(void) take_int(c);
		take_string(c);
		take_string(c);
	}
}

/* Reads the answer to one operation, alone or in a multi. */
static void
take_part(Cursor *c, int32_t op)
{
	switch (op)
	{
		case OP_CREATE:
		case OP_CREATE_CONTAINER:
			take_path(c);
			break;
		case OP_EXISTS:
		case OP_SET:
			skip(c, STAT_SIZE);
			break;
		case OP_LIST:
			take_children(c);
			break;
		case OP_GET:
			take_buffer(c);
			skip(c, STAT_SIZE);
	}
}

static void
take_multi(Cursor *c, const ZklExpected *expected)
{
	for (int i = 0;; i++)
	{
		int32_t		type = take_int(c);
		bool		done = take_bool(c);

		(void) take_int(c);
		if (done || c->bad)
		{
			c->bad |= i != expected->n_parts;
			return;
		}
		if (i == expected->n_parts || (type != -1 && type != expected->parts[i]))
		{
			c->bad = true;
			return;
		}
		if (type == -1)
			(void) take_int(c);
		else
			take_part(c, type);
	}
}

static void
take_answer(Cursor *c, const ZklExpected *expected)
{
	switch (expected->op)
	{
		case OP_SYNC:
			take_path(c);
			break;
		case OP_CREATE2:
		case OP_CREATE_CONTAINER:
			take_path(c);
			skip(c, STAT_SIZE);
			break;
		case OP_EXISTS:
		case OP_SET:
		case OP_GET:
		case OP_LIST:
			take_part(c, expected->op);
			break;
		case OP_GET_ACL:
			take_acl(c);
			skip(c, STAT_SIZE);
			break;
		case OP_MULTI:
		case OP_MULTI_READ:
			take_multi(c, expected);
			break;
		case OP_DELETE:
		case OP_CLOSE:
			break;
		default:				/* never sent here */
			c->bad = true;
	}
}

static const char *
check_watch(Cursor *c)
{
	int32_t		type = take_int(c);
	int32_t		state = take_int(c);

	take_path(c);
	return c->bad || type < FIRST_EVENT || type > LAST_EVENT || state != STATE_CONNECTED
		? "an invalid event" : NULL;
}

/* Returns the counter for requests whose answers are only counted, or NULL. */
static int *
counter_of(ZklReplies *replies, int32_t xid)
{
	return xid == XID_PING ? &replies->n_pings
		: xid == XID_AUTH ? &replies->n_auths
		: xid == XID_SET_WATCHES ? &replies->n_set_watches : NULL;
}

bool
zkl_replies_drop_first(ZklReplies *replies)
{
	ZklExpected *expected = replies->first;

	if (expected == NULL)
		return false;
	replies->owner = expected->owner;
	replies->n_parts = expected->n_parts;
	replies->first = expected->next;
	if (replies->first == NULL)
		replies->last = NULL;
	free(expected);
	return true;
}

static const char *
check_answer(ZklReplies *replies, Cursor *c, int32_t xid, int32_t err)
{
	ZklExpected *expected = replies->first;

	if (expected == NULL)
		return "an answer without a request";
	if (expected->xid != xid)
		return "the answer to another request";
	if (err == 0)
		take_answer(c, expected);
	if (c->bad)
		return "a broken answer";
	(void) zkl_replies_drop_first(replies);
	return NULL;
}

/*
 * The last byte reports a read-only server; old servers omit it.  A read-only server is
 * refused: the library would look for another one with calls that block, and leak a
 * descriptor with each.  An expired session has id and timeout 0.
 */
static const char *
check_connected(ZklReplies *replies, const unsigned char *frame, size_t size)
{
	static const unsigned char none[8] = {0};
	int32_t		timeout = size < 36 ? -1 : zkl_get_int(frame + 4);
	bool		has_session = size >= 36 && memcmp(frame + 8, none, sizeof(none)) != 0;

	if ((size != 36 && size != 37) || (size == 37 && frame[36] != 0) ||
		zkl_get_int(frame + 16) != PASSWORD_SIZE ||
		(!has_session && !replies->resumes) ||
		(has_session && (timeout < MIN_TIMEOUT || timeout > MAX_TIMEOUT)))
		return "a broken answer to the connection";
	replies->connected = true;
	return NULL;
}

const char *
zkl_replies_check(ZklReplies *replies, const unsigned char *frame, size_t size)
{
	Cursor		c = {frame, size, false};
	int32_t		xid;
	int32_t		err;
	int		   *counter;

	replies->owner = NULL;
	if (!replies->connect_sent)
		return "an answer without a request";
	if (!replies->connected)
		return check_connected(replies, frame, size);
	xid = take_int(&c);
	skip(&c, 8);				/* the server's last transaction */
	err = take_int(&c);
	if (c.bad || err > 0 || err < LAST_ERROR)
		return "a broken answer";
	if (xid == XID_WATCH)
		return check_watch(&c);
	counter = counter_of(replies, xid);
	if (counter == NULL)
		return check_answer(replies, &c, xid, err);
	if (*counter == 0)
		return "an answer without a request";
	--*counter;
	return NULL;
}

/* Skips an operation of a multi or of several reads. */
static void
skip_part(Cursor *c, int32_t op)
{
	take_string(c);				/* path */
	if (op == OP_CREATE || op == OP_CREATE_CONTAINER)
	{
		take_buffer(c);
		take_acl(c);
	}
	if (op == OP_GET || op == OP_LIST)
		(void) take_bool(c);	/* watch */
	else
		(void) take_int(c);		/* flags, or version */
}

static void
take_parts(Cursor *c, ZklExpected *expected)
{
	for (;;)
	{
		int32_t		op = take_int(c);
		bool		done = take_bool(c);

		(void) take_int(c);
		if (done || c->bad)
			return;
		expected->parts[expected->n_parts++] = op;
		skip_part(c, op);
	}
}

/* Adds a request whose answer must come in its turn; "c" is behind its header. */
static bool
append(ZklReplies *replies, Cursor *c, int32_t xid, int32_t op, const void *owner)
{
	bool		has_parts = op == OP_MULTI || op == OP_MULTI_READ;
	size_t		max_parts = has_parts ? c->left / 9 : 0;	/* nine bytes or more */
	ZklExpected *expected = calloc(1, sizeof(ZklExpected) + max_parts * sizeof(int32_t));

	if (expected == NULL)
		return false;
	expected->xid = xid;
	expected->op = op;
	expected->owner = owner;
	if (has_parts)
		take_parts(c, expected);
	if (replies->last)
		replies->last->next = expected;
	else
		replies->first = expected;
	replies->last = expected;
	return true;
}

bool
zkl_replies_expect(ZklReplies *replies, const unsigned char *frame, size_t size,
				   const void *owner)
{
	static const unsigned char none[8] = {0};
	Cursor		c = {frame, size, false};
	int32_t		xid;
	int32_t		op;
	int		   *counter;

	if (!replies->connect_sent)
	{
		replies->connect_sent = true;
		replies->resumes = size >= 24 && memcmp(frame + 16, none, sizeof(none)) != 0;
		return true;
	}
	xid = take_int(&c);
	op = take_int(&c);
	counter = counter_of(replies, xid);
	if (counter == NULL)
		return append(replies, &c, xid, op, owner);
	++*counter;
	return true;
}

void
zkl_replies_free(ZklReplies *replies)
{
	while (zkl_replies_drop_first(replies))
		;
	memset(replies, 0, sizeof(*replies));
}
