/*-------------------------------------------------------------------------
 *
 * filter.h
 *		Passes and checks the bytes between the client library and its connection.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_FILTER_H
#define ZKL_FILTER_H

#include "reply.h"

typedef struct ZklBuffer
{
	unsigned char *bytes;
	size_t		start;
	size_t		end;
	size_t		size;
} ZklBuffer;

typedef struct ZklFilter
{
	int			fd;				/* the connection; belongs to the caller */
	int			pair;			/* our end of the library's socket pair */
	bool		ended;			/* the library sees end of file */
	const char *refused;		/* why a message was refused, or NULL */
	ZklBuffer	in;				/* from the server */
	size_t		valid;			/* size of its first message, once that is checked */
	size_t		passed;			/* bytes of this message given to the library */
	size_t		skip;			/* bytes to drop behind it: the rest of a long answer */
	ZklBuffer	out;			/* from the library */
	size_t		noted;			/* bytes of its complete requests, added to "replies" */
	ZklReplies	replies;
} ZklFilter;

/*
 * Replaces the connection in the library's descriptor by a socket pair; "fd" is a
 * duplicate of the connection.  Returns false, without effect, when out of descriptors.
 * "connect_sent": the library has already written its first message.
 */
extern bool zkl_filter_install(ZklFilter *filter, int fd, int library_fd,
							   bool connect_sent);

/*
 * Queues a request, with its length, that does not come from the library: before an
 * incomplete one of the library.  Returns false, without effect, when out of memory.
 */
extern bool zkl_filter_add_out(ZklFilter *filter, const unsigned char *bytes,
							   size_t size, const void *owner);

/*
 * Checks what the server has sent and passes some of it, or the end of the connection,
 * to the library, which must read it before the next call.  Returns false if there is
 * nothing now.  Reads from the connection at most "*reads" times, which it counts down; to
 * 0 once the connection is empty.
 *
 * If replies.owner is set then, the message stays at in.start, with its length, for the
 * owner, until zkl_filter_drop_message().
 */
extern bool zkl_filter_pass_in(ZklFilter *filter, int *reads);
extern void zkl_filter_drop_message(ZklFilter *filter);

/* Takes what the library has written; returns whether it may have more. */
extern bool zkl_filter_take_out(ZklFilter *filter);

/* Sends what was taken; returns false if the connection does not take all now. */
extern bool zkl_filter_pass_out(ZklFilter *filter);

/*
 * Reads and drops answers after the library has closed its end; returns whether more
 * are due.
 */
extern bool zkl_filter_skip_in(ZklFilter *filter);

/* Lets the library read end of file, after which it writes nothing more. */
extern void zkl_filter_end(ZklFilter *filter);

extern void zkl_filter_free(ZklFilter *filter);

#endif							/* ZKL_FILTER_H */
