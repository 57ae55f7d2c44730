/*-------------------------------------------------------------------------
 *
 * filter.c
 *		Passes and checks the bytes between the client library and its connection.
 *
 * The library has one end of a socket pair in place of its connection, and the thread
 * that drives the library passes the bytes on.  So what the library writes in pieces
 * leaves in one packet, and what the server sends is checked (reply.c) before the
 * library reads it.  An invalid message ends the connection; to the library it is lost.
 * Of an answer that is too long only the header is passed on, with an error; if it answers
 * a request of zk_reads.c, all of it is dropped, and the request fails.
 *
 * Nothing here blocks.  Called with the library's mutex held, or without it on the I/O
 * thread after the library has closed its end (zk_client.c).
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "filter.h"

#define BUFFER_SIZE 8192
#define KEPT_SIZE 65536			/* a larger buffer is freed when empty */
#define LENGTH_SIZE 4
#define HEADER_SIZE 16			/* request number, last transaction, error */
#define MARSHALLING_ERROR (-5)	/* ZMARSHALLINGERROR */

/* Makes room at the end of the buffer; returns false when out of memory. */
static bool
make_room(ZklBuffer *buffer, size_t room)
{
	size_t		used = buffer->end - buffer->start;
	size_t		size = buffer->size ? buffer->size : BUFFER_SIZE;
	unsigned char *bytes;

	if (buffer->size - buffer->end >= room)
		return true;
	if (buffer->start > 0)
		memmove(buffer->bytes, buffer->bytes + buffer->start, used);
	buffer->start = 0;
	buffer->end = used;
	while (size - used < room)
		size *= 2;
	if (size == buffer->size)
		return true;
	bytes = realloc(buffer->bytes, size);
	if (bytes == NULL)
		return false;
	buffer->bytes = bytes;
	buffer->size = size;
	return true;
}

static void
consume(ZklBuffer *buffer, size_t size)
{
	buffer->start += size;
	if (buffer->start < buffer->end)
		return;
	buffer->start = buffer->end = 0;
	if (buffer->size <= KEPT_SIZE)
		return;
	free(buffer->bytes);
	buffer->bytes = NULL;
	buffer->size = 0;
}

/* Returns the size of the first message and its length, or 0 if it is incomplete. */
static size_t
whole_message(const ZklBuffer *buffer, size_t start)
{
	size_t		used = buffer->end - start;
	int32_t		length;

	if (used < LENGTH_SIZE)
		return 0;
	length = zkl_get_int(buffer->bytes + start);
	if (length < 0 || used - LENGTH_SIZE < (size_t) length)
		return 0;
	return LENGTH_SIZE + (size_t) length;
}

bool
zkl_filter_install(ZklFilter *filter, int fd, int library_fd, bool connect_sent)
{
	int			pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
		return false;
	if (dup3(pair[1], library_fd, O_CLOEXEC) < 0)
	{
		close(pair[0]);
		close(pair[1]);
		return false;
	}
	close(pair[1]);
	memset(filter, 0, sizeof(*filter));
	filter->fd = fd;
	filter->pair = pair[0];
	filter->replies.connect_sent = connect_sent;
	filter->replies.resumes = connect_sent;
	return true;
}

void
zkl_filter_end(ZklFilter *filter)
{
	if (!filter->ended)
		shutdown(filter->pair, SHUT_WR);
	filter->ended = true;
}

/* Receives more bytes from the server; returns false if the connection has ended. */
static bool
receive(ZklFilter *filter, int *reads)
{
	ssize_t		n;

	--*reads;
	if (!make_room(&filter->in, BUFFER_SIZE / 2))
		return false;
	n = recv(filter->fd, filter->in.bytes + filter->in.end,
			 filter->in.size - filter->in.end, MSG_DONTWAIT);
	if (n > 0)
	{
		if ((size_t) n < filter->in.size - filter->in.end)
			*reads = 0;
		filter->in.end += (size_t) n;
		return true;
	}
	*reads = 0;
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Drops what has arrived of an answer that was too long. */
static void
skip_in(ZklFilter *filter)
{
	size_t		used = filter->in.end - filter->in.start;
	size_t		size = filter->skip < used ? filter->skip : used;

	if (size > 0)
		consume(&filter->in, size);
	filter->skip -= size;
}

static void
put_int(unsigned char *bytes, int32_t value)
{
	uint32_t	big_endian = htonl((uint32_t) value);

	memcpy(bytes, &big_endian, sizeof(big_endian));
}

/* Makes the first message an answer without a body, with an error. */
static void
shorten(ZklFilter *filter, size_t length)
{
	unsigned char *message = filter->in.bytes + filter->in.start;

	put_int(message, HEADER_SIZE);
	put_int(message + LENGTH_SIZE + HEADER_SIZE - 4, MARSHALLING_ERROR);
	filter->skip_next = length - HEADER_SIZE;
}

/*
 * Treats a first message that is too long.  Returns true if it is dropped or has ended
 * the connection.
 */
static bool
refuse_too_long(ZklFilter *filter)
{
	size_t		used = filter->in.end - filter->in.start;
	int32_t		length = used < LENGTH_SIZE ? 0
		: zkl_get_int(filter->in.bytes + filter->in.start);

	if (filter->skip > 0 || (uint32_t) length <= ZKL_MAX_REPLY)
		return false;
	if (length > 0 && zkl_replies_drop_owned(&filter->replies))
		filter->skip = LENGTH_SIZE + (size_t) length;
	else if (length > 0 && filter->replies.connected)
	{
		if (used >= LENGTH_SIZE + HEADER_SIZE)
			shorten(filter, (size_t) length);
		return false;
	}
	else
	{
		filter->refused = "a message that is too long";
		zkl_filter_end(filter);
	}
	return true;
}

/* The first message has been passed on. */
static void
consume_message(ZklFilter *filter, size_t size)
{
	consume(&filter->in, size);
	filter->passed = 0;
	filter->skip = filter->skip_next;
	filter->skip_next = 0;
}

/*
 * Returns whether there is a message to pass on, or one that is dropped because it is too
 * long; checks each message once.
 */
static bool
next_message(ZklFilter *filter, int *reads)
{
	ZklBuffer  *in = &filter->in;
	size_t		size;

	for (;;)
	{
		skip_in(filter);
		if (refuse_too_long(filter))
			return !filter->ended;
		size = filter->skip > 0 ? 0 : whole_message(in, in->start);
		if (size > 0)
			break;
		if (*reads <= 0)
			return false;
		if (!receive(filter, reads))
		{
			zkl_filter_end(filter);
			return false;
		}
	}
	if (filter->passed > 0)
		return true;
	filter->refused = zkl_replies_check(&filter->replies, in->bytes + in->start + LENGTH_SIZE,
										size - LENGTH_SIZE);
	if (filter->refused)
		zkl_filter_end(filter);
	return filter->refused == NULL;
}

bool
zkl_filter_pass_in(ZklFilter *filter, int *reads)
{
	size_t		size;
	ssize_t		n;

	if (filter->ended)
		return false;
	if (!next_message(filter, reads))
		return filter->ended;
	if (filter->skip > 0)
		return true;
	size = whole_message(&filter->in, filter->in.start);
	if (filter->replies.owner)
	{
		filter->kept = filter->in.bytes + filter->in.start + LENGTH_SIZE;
		filter->kept_size = size - LENGTH_SIZE;
		return true;
	}
	n = send(filter->pair, filter->in.bytes + filter->in.start + filter->passed,
			 size - filter->passed, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
		return true;			/* the library must read first */
	filter->passed += (size_t) n;
	if (filter->passed == size)
		consume_message(filter, size);
	return true;
}

void
zkl_filter_drop_kept(ZklFilter *filter)
{
	if (filter->kept)
		consume(&filter->in, LENGTH_SIZE + filter->kept_size);
	filter->kept = NULL;
	filter->replies.owner = NULL;
}

bool
zkl_filter_skip_in(ZklFilter *filter)
{
	int			reads = 1;

	filter->ended = false;
	while (next_message(filter, &reads))
		if (filter->skip == 0)
			consume_message(filter, whole_message(&filter->in, filter->in.start));
	return !filter->ended && filter->replies.first != NULL;
}

/* Adds the complete requests among the bytes taken to the expected answers. */
static void
note_requests(ZklFilter *filter)
{
	size_t		size;

	while ((size = whole_message(&filter->out, filter->out.start + filter->noted)) > 0)
	{
		const unsigned char *frame = filter->out.bytes + filter->out.start +
			filter->noted + LENGTH_SIZE;

		if (!zkl_replies_expect(&filter->replies, frame, size - LENGTH_SIZE))
			zkl_filter_end(filter);
		filter->noted += size;
	}
}

bool
zkl_filter_take_out(ZklFilter *filter)
{
	size_t		room;
	ssize_t		n;

	if (!make_room(&filter->out, BUFFER_SIZE / 2))
	{
		zkl_filter_end(filter);
		return false;
	}
	room = filter->out.size - filter->out.end;
	n = recv(filter->pair, filter->out.bytes + filter->out.end, room, MSG_DONTWAIT);
	if (n <= 0)
		return false;
	filter->out.end += (size_t) n;
	note_requests(filter);
	return (size_t) n == room || filter->out.end - filter->out.start > filter->noted;
}

bool
zkl_filter_add_out(ZklFilter *filter, const unsigned char *bytes, size_t size)
{
	unsigned char *at;

	if (!make_room(&filter->out, size))
		return false;
	at = filter->out.bytes + filter->out.start + filter->noted;
	memmove(at + size, at, filter->out.end - filter->out.start - filter->noted);
	memcpy(at, bytes, size);
	filter->out.end += size;
	filter->noted += size;
	return true;
}

/* Sends only complete requests; the rest of an incomplete one is still to come. */
bool
zkl_filter_pass_out(ZklFilter *filter)
{
	while (filter->noted > 0)
	{
		ssize_t		n = send(filter->fd, filter->out.bytes + filter->out.start,
							 filter->noted, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
		{
			/* Reading will report the error; these bytes get no answer. */
			n = (ssize_t) filter->noted;
		}
		if (n < 0)
			return false;
		filter->noted -= (size_t) n;
		consume(&filter->out, (size_t) n);
	}
	return true;
}

void
zkl_filter_free(ZklFilter *filter)
{
	if (filter->pair >= 0)
		close(filter->pair);
	free(filter->in.bytes);
	free(filter->out.bytes);
	zkl_replies_free(&filter->replies);
	memset(filter, 0, sizeof(*filter));
	filter->fd = -1;
	filter->pair = -1;
}
