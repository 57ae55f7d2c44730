/*-------------------------------------------------------------------------
 *
 * peek.h
 *		Looks at the next message of a connection before the client library reads it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_PEEK_H
#define ZKL_PEEK_H

#include <stdbool.h>
#include <stddef.h>

/* Longest message accepted: the children of a znode with a million of them. */
#define ZKL_MAX_MESSAGE (64 * 1024 * 1024)

#define ZKL_PEEK_SIZE 2048

/* What a server may send now. */
typedef struct ZklDue
{
	bool		handshake;		/* the answer to the connection, and nothing else */
	bool		resumes;		/* ... which may refuse the session */
	bool		answer;			/* a request is unanswered */
	bool		auth;			/* there are credentials */
} ZklDue;

/* Bytes that have arrived; they stay in the connection.  Zeroed for a new connection. */
typedef struct ZklPeek
{
	bool		awaits_header;	/* poll() is silent until it is complete */
	bool		has_more;		/* bytes may have arrived that were not looked at */
	size_t		start;			/* of the next message */
	size_t		end;
	unsigned char bytes[ZKL_PEEK_SIZE];
} ZklPeek;

typedef enum ZklPeekResult
{
	ZKL_PEEK_NOTHING,
	ZKL_PEEK_MESSAGE,			/* a message begins that may come now */
	ZKL_PEEK_END,				/* of the connection, or an error */
	ZKL_PEEK_REFUSED
} ZklPeekResult;

/* What is wrong with a message above the limit: a server may send that. */
extern const char zkl_message_too_long[];

/*
 * Judges the beginning of a message.  Returns NULL if it may come now, or what is wrong
 * with it.  *size is the size of the message with its length, or 0 if too few bytes are
 * there; *needed is how many are needed then.
 */
extern const char *zkl_judge_message(const unsigned char *bytes, size_t n,
									 const ZklDue *due, size_t *size, size_t *needed);

/* Before the first zkl_peek_next() of an exchange. */
extern void zkl_peek_begin(ZklPeek *peek);

/*
 * Looks at the next message.  The message that the last call has reported must have been
 * read by now.  *size is set for MESSAGE, *problem for REFUSED.  Never blocks.
 */
extern ZklPeekResult zkl_peek_next(int fd, ZklPeek *peek, const ZklDue *due,
								   size_t *size, const char **problem);

/* Ends the connection.  What has arrived is dropped: nobody reads it. */
extern void zkl_peek_abort(int fd);

#endif							/* ZKL_PEEK_H */
