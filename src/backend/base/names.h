/*-------------------------------------------------------------------------
 *
 * names.h
 *		Percent-encoded text: names of locks, and the holder in the data of its znodes
 *		(names.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAMES_H
#define ZKLOCK_NAMES_H

#include "recipe/recipe.h"


#define ZKLOCK_MAX_NAME_BYTES 512

typedef struct ZklockName
{
	char	   *encoded;		/* one component of a znode path */
	char	   *display;		/* for messages: as given, or encoded if the client's encoding does not have it */
	uint32		hash;			/* for hash tables of this backend */
} ZklockName;

/*
 * Memory for the strings of a name, so that a call with one name allocates nothing.  No
 * server encoding needs more than twice the bytes of UTF-8.
 */
typedef struct ZklockNameRoom
{
	char		display[2 * ZKLOCK_MAX_NAME_BYTES + 1];
	char		encoded[ZKL_ENCODED_SIZE(ZKLOCK_MAX_NAME_BYTES)];
} ZklockNameRoom;

/* Raises 22023 for an empty or too long name, 22021 for invalid bytes. */
extern void zklock_name_from_text(text *value, ZklockNameRoom *room, ZklockName *name);

/* The names of one call.  Contains pointers into itself: must not be copied. */
typedef struct ZklockNames
{
	int			n;				/* including repetitions */
	Datum	   *values;			/* the elements of an array; NULL: "name" is the only one */
	bool	   *nulls;
	int64	   *tokens;			/* of an array: NULL, or zklock_acquire() stores them here */
	ZklockName	name;
	ZklockNameRoom room;
} ZklockNames;

/*
 * Returns the first eight bytes of the SHA-256 hash of an encoded name, the same on all
 * servers.  It stands for the name in PostgreSQL's lock table and in wait reports.  May
 * throw.
 */
extern uint64 zklock_name_hash(const char *encoded, size_t length);

/* Converts text between encodings, palloc'd; NULL if impossible. */
extern char *zklock_convert(const char *text, int length, int from, int to);

/* Returns the name that was given for a znode's, in the database encoding; palloc'd. */
extern char *zklock_given_name(const char *encoded);

/*
 * Returns a name, valid until the next call.  Raises 22004 for NULL, and the errors of
 * zklock_name_from_text().  Checks for interrupts in an array, which can have a
 * hundred million elements.
 */
extern const ZklockName *zklock_names_get(ZklockNames *names, int i);

/*
 * Returns the data of this session's znodes, with the members pid, server, datname,
 * usename and application_name.  Palloc'd; only inside a transaction.
 */
extern char *zklock_identity(void);

/* Returns host:port of this server, as in "server". */
extern const char *zklock_server_name(void);

/*
 * Reads a member of any bytes; palloc'd, in UTF-8 unless another program wrote it.  NULL
 * if there is none, or if it is empty.  No errors.
 */
extern char *zklock_identity_member(const char *data, int length, const char *member);

#endif							/* ZKLOCK_NAMES_H */
