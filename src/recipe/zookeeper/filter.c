/*-------------------------------------------------------------------------
 *
 * filter.c
 *		Passes and checks the bytes between the client library and its connection.
 *
 * The library has one end of a socket pair in place of its connection, and the thread
 * that drives the library passes the bytes on.  So what the library writes in pieces
 * leaves in one packet, and what the server sends is checked (reply.c) before the
 * library reads it.  An invalid message ends the connection; to the library it is lost.
 * Of an answer that is too long only the header is passed on, with an error.
 *
 * Nothing here blocks.  Called with the library's mutex held, or without it on the I/O
 * thread after the library has closed its end (zk_client.c).
 *
 *-------------------------------------------------------------------------
 */
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

/* Drops what has arrived of the rest of a long answer. */
static void
drop_rest(ZklFilter *filter)
{
	size_t		used = filter->in.end - filter->in.start;
	size_t		size = filter->skip < used ? filter->skip : used;

	if (size > 0)
		consume(&filter->in, size);
	filter->skip -= size;
}

/*
 * Returns the size of the first message, or 0 if it is incomplete or refused.  Cuts an
 * answer that is too long down to its header, with an error.
 */
static size_t
first_message(ZklFilter *filter)
{
	ZklBuffer  *in = &filter->in;
	size_t		used = in->end - in->start;
	int32_t		length = used < LENGTH_SIZE ? 0 : zkl_get_int(in->bytes + in->start);
	unsigned char *bytes;

	if (length < 0 || (length > ZKL_MAX_REPLY && !filter->replies.connected))
		filter->refused = "a message that is too long";
	if (filter->refused || length <= ZKL_MAX_REPLY)
		return whole_message(in, in->start);
	if (used < LENGTH_SIZE + HEADER_SIZE)
		return 0;
	bytes = in->bytes + in->start;
	(void) zkl_put_int(bytes, HEADER_SIZE);
	(void) zkl_put_int(bytes + LENGTH_SIZE + HEADER_SIZE - 4, MARSHALLING_ERROR);
	filter->skip = (size_t) length - HEADER_SIZE;
	return LENGTH_SIZE + HEADER_SIZE;
}

/* Returns whether the first message is complete and valid; checks it once. */
static bool
check_message(ZklFilter *filter)
{
	size_t		size;

	if (filter->valid > 0)
		return true;
	drop_rest(filter);
	size = filter->skip > 0 ? 0 : first_message(filter);
	if (size == 0 || filter->refused)
		return false;
	filter->refused = zkl_replies_check(&filter->replies, filter->in.bytes +
										filter->in.start + LENGTH_SIZE, size - LENGTH_SIZE);
	if (filter->refused == NULL)
		filter->valid = size;
	return filter->valid > 0;
}

/* Reads until a valid message is there.  Returns false if none is there, or none can come. */
static bool
next_message(ZklFilter *filter, int *reads)
{
	while (!check_message(filter))
	{
		if (filter->refused == NULL && *reads <= 0)
			return false;
		if (filter->refused || !receive(filter, reads))
		{
			zkl_filter_end(filter);
			return false;
		}
	}
	return true;
}

void
zkl_filter_drop_message(ZklFilter *filter)
{
	consume(&filter->in, filter->valid);
	filter->valid = 0;
	filter->passed = 0;
	filter->replies.owner = NULL;
}

bool
zkl_filter_pass_in(ZklFilter *filter, int *reads)
{
	ssize_t		n;

	if (filter->ended)
		return false;
	if (!next_message(filter, reads))
		return filter->ended;
	if (filter->replies.owner)
		return true;
	n = send(filter->pair, filter->in.bytes + filter->in.start + filter->passed,
			 filter->valid - filter->passed, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
	{
		/* The library has not read: it is out of memory, or has closed its end. */
		zkl_filter_end(filter);
		return true;
	}
	filter->passed += (size_t) n;
	if (filter->passed == filter->valid)
		zkl_filter_drop_message(filter);
	return true;
}

bool
zkl_filter_skip_in(ZklFilter *filter)
{
	int			reads = 1;

	filter->ended = false;
	while (next_message(filter, &reads))
		zkl_filter_drop_message(filter);
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

		if (!zkl_replies_expect(&filter->replies, frame, size - LENGTH_SIZE, NULL))
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
zkl_filter_add_out(ZklFilter *filter, const unsigned char *bytes, size_t size,
				   const void *owner)
{
	unsigned char *at;

	if (!make_room(&filter->out, size) ||
		!zkl_replies_expect(&filter->replies, bytes + LENGTH_SIZE, size - LENGTH_SIZE, owner))
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
	close(filter->pair);
	free(filter->in.bytes);
	free(filter->out.bytes);
	zkl_replies_free(&filter->replies);
	memset(filter, 0, sizeof(*filter));
}
