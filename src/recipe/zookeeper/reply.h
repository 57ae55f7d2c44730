/*-------------------------------------------------------------------------
 *
 * reply.h
 *		Checks that the messages of a ZooKeeper server are valid answers or events.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_REPLY_H
#define ZKL_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest message accepted: the children of a znode with a million of them. */
#define ZKL_MAX_REPLY (64 * 1024 * 1024)

typedef struct ZklExpected ZklExpected;

/* The unanswered requests of one connection. */
typedef struct ZklReplies
{
	bool		connect_sent;
	bool		connected;
	bool		resumes;		/* the connection requests an existing session */
	int			n_auths;		/* in flight */
	int			n_pings;
	int			n_set_watches;
	ZklExpected *first;
	ZklExpected *last;
	const void *owner;			/* of the request answered last; NULL: the library */
	int			n_parts;		/* of that request: a multi, or several reads */
} ZklReplies;

/*
 * Adds a request, without its length, that is sent; "owner" is NULL if the library sends
 * it.  Returns false when out of memory.
 */
extern bool zkl_replies_expect(ZklReplies *replies, const unsigned char *frame,
							   size_t size, const void *owner);

/* Removes the oldest request, as if it were answered; returns false if there is none. */
extern bool zkl_replies_drop_first(ZklReplies *replies);

/*
 * Checks a message of the server, without its length.  Returns NULL if a server may send
 * it now and all its parts lie within it, otherwise what is wrong.
 */
extern const char *zkl_replies_check(ZklReplies *replies,
									 const unsigned char *frame, size_t size);

extern void zkl_replies_free(ZklReplies *replies);

extern int32_t zkl_get_int(const unsigned char *bytes);

/* Returns the end of what was written. */
extern unsigned char *zkl_put_int(unsigned char *bytes, int32_t value);

#endif							/* ZKL_REPLY_H */
