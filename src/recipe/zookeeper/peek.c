/*-------------------------------------------------------------------------
 *
 * peek.c
 *		Looks at the next message of a connection before the client library reads it.
 *
 * The library trusts its server: it allocates what a length says, takes any answer to
 * the handshake for one, and aborts the process at an answer without a request.  So the
 * header of each message is looked at first.  This finds another program at the other
 * end.  What follows the header is not checked: a server of the ensemble is trusted.
 *
 * A header that has arrived in part stays in the connection.  SO_RCVLOWAT keeps poll()
 * from reporting it until the rest is there.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "peek.h"

#define LENGTH_SIZE 4
#define HEADER_SIZE 16			/* request number, last transaction, error */
#define HANDSHAKE_SIZE 36		/* one byte more since 3.4: the server is read-only */
#define PASSWORD_SIZE 16

/* Request numbers of messages that answer none of the numbered requests. */
#define XID_EVENT (-1)
#define XID_PING (-2)
#define XID_AUTH (-4)
#define XID_SET_WATCHES (-8)

/* Limits of a session timeout, in milliseconds. */
#define MIN_TIMEOUT 10
#define MAX_TIMEOUT 1000000000

const char	zkl_message_too_long[] = "a message that is too long";


static int32_t
get_int(const unsigned char *bytes)
{
	return (int32_t) ((uint32_t) bytes[0] << 24 | (uint32_t) bytes[1] << 16 |
					  (uint32_t) bytes[2] << 8 | (uint32_t) bytes[3]);
}

/*
 * A read-only server is refused: the library would look for another one with calls that
 * block, and leak a descriptor with each.  An expired session has id and timeout 0.
 */
static const char *
judge_handshake(const unsigned char *body, int32_t length, const ZklDue *due)
{
	static const unsigned char none[8] = {0};
	int32_t		timeout = get_int(body + 4);
	bool		has_session = memcmp(body + 8, none, sizeof(none)) != 0;

	if (get_int(body + 16) != PASSWORD_SIZE)
		return "a broken answer to the connection";
	if (length > HANDSHAKE_SIZE && body[HANDSHAKE_SIZE] != 0)
		return "that it is read-only";
	if (has_session ? timeout < MIN_TIMEOUT || timeout > MAX_TIMEOUT : !due->resumes)
		return "a broken answer to the connection";
	return NULL;
}

static const char *
judge_header(int32_t xid, const ZklDue *due)
{
	bool		may_come;

	switch (xid)
	{
		case XID_EVENT:
		case XID_PING:
		case XID_SET_WATCHES:
			may_come = true;
			break;
		case XID_AUTH:
			may_come = due->auth;
			break;
		default:
			may_come = due->answer;
	}
	return may_come ? NULL : "an answer without a request";
}

const char *
zkl_judge_message(const unsigned char *bytes, size_t n, const ZklDue *due,
				  size_t *size, size_t *needed)
{
	int32_t		length = n < LENGTH_SIZE ? 0 : get_int(bytes);

	*size = 0;
	*needed = LENGTH_SIZE + (due->handshake ? HANDSHAKE_SIZE : HEADER_SIZE);
	if (n >= LENGTH_SIZE && due->handshake)
	{
		if (length != HANDSHAKE_SIZE && length != HANDSHAKE_SIZE + 1)
			return "something else than ZooKeeper does";
		*needed = LENGTH_SIZE + (size_t) length;
	}
	else if (n >= LENGTH_SIZE && length < HEADER_SIZE)
		return "a message that is too short";
	else if (n >= LENGTH_SIZE && length > ZKL_MAX_MESSAGE)
		return zkl_message_too_long;
	if (n < *needed)
		return NULL;
	*size = LENGTH_SIZE + (size_t) length;
	return due->handshake ? judge_handshake(bytes + LENGTH_SIZE, length, due)
		: judge_header(get_int(bytes + LENGTH_SIZE), due);
}

/* From how many bytes on poll() reports the connection. */
static void
set_low_water(int fd, size_t bytes)
{
	int			value = (int) bytes;

	(void) setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value));
}

/* Looks at what has arrived behind the last message. */
static ZklPeekResult
peek_header(int fd, ZklPeek *peek)
{
	ssize_t		n = recv(fd, peek->bytes, sizeof(peek->bytes), MSG_PEEK | MSG_DONTWAIT);

	peek->has_more = n == (ssize_t) sizeof(peek->bytes);
	peek->start = 0;
	peek->end = n > 0 ? (size_t) n : 0;
	if (n > 0)
		return ZKL_PEEK_MESSAGE;
	return n < 0 && (errno == EAGAIN || errno == EINTR) ? ZKL_PEEK_NOTHING : ZKL_PEEK_END;
}

/* The rest of the header may come later, or never. */
static ZklPeekResult
await_header(int fd, ZklPeek *peek, size_t needed)
{
	struct pollfd ended = {fd, POLLRDHUP, 0};

	peek->awaits_header = true;
	set_low_water(fd, needed);
	if (poll(&ended, 1, 0) <= 0)
		return ZKL_PEEK_NOTHING;
	zkl_peek_abort(fd);
	return ZKL_PEEK_END;
}

void
zkl_peek_begin(ZklPeek *peek)
{
	peek->has_more = true;
	peek->start = peek->end = 0;
}

ZklPeekResult
zkl_peek_next(int fd, ZklPeek *peek, const ZklDue *due, size_t *size,
			  const char **problem)
{
	size_t		needed = 0;

	for (;;)
	{
		bool		is_used_up = peek->start >= peek->end;
		ZklPeekResult result = ZKL_PEEK_MESSAGE;

		/* poll() reports what has arrived since the last call. */
		if (is_used_up && !peek->has_more)
			return ZKL_PEEK_NOTHING;
		if (is_used_up || needed > 0)
			result = peek_header(fd, peek);
		if (result != ZKL_PEEK_MESSAGE)
			return result;
		*problem = zkl_judge_message(peek->bytes + peek->start, peek->end - peek->start,
									 due, size, &needed);
		if (*problem)
			return ZKL_PEEK_REFUSED;
		if (*size > 0)
			break;
		if (peek->start == 0)
			return await_header(fd, peek, needed);
	}
	if (peek->awaits_header)
		set_low_water(fd, 1);
	peek->awaits_header = false;
	peek->start += *size;
	return ZKL_PEEK_MESSAGE;
}

void
zkl_peek_abort(int fd)
{
	struct sockaddr nobody = {.sa_family = AF_UNSPEC};

	(void) connect(fd, &nobody, sizeof(nobody));
}
