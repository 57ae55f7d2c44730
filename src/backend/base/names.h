/*-------------------------------------------------------------------------
 *
 * names.h
 *		Converts an SQL key into the name of a lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAMES_H
#define ZKLOCK_NAMES_H

#include "utils/array.h"

#include "recipe/recipe.h"

#define ZKLOCK_MAX_NAME_BYTES 512

typedef struct ZklockName
{
	char	   *encoded;		/* one component of a znode path */
	char	   *display;		/* for messages: as given, or encoded if the client's encoding does not have it */
	uint32		hash;			/* for hash tables of this backend */
} ZklockName;

/* Memory for the strings of a name, so that a call with one name allocates nothing. */
typedef struct ZklockNameRoom
{
	char		display[ZKLOCK_MAX_NAME_BYTES + 1];
	char		encoded[ZKL_ENCODED_SIZE(ZKLOCK_MAX_NAME_BYTES)];
} ZklockNameRoom;

/*
 * All raise 22004 for NULL array elements, 22023 for an empty or too long name, 22021 for
 * invalid bytes.  Strings that do not fit into the room, or must be converted to UTF-8
 * first, are allocated in the current memory context.
 */
extern void zklock_name_from_text(text *value, ZklockNameRoom *room, ZklockName *name);

/* The names of one call.  Contains pointers into itself: must not be copied. */
typedef struct ZklockNames
{
	int			n;				/* including repetitions */
	ArrayType  *array;			/* NULL: "name" is the only one */
	ArrayIterator iterator;		/* NULL: before the first name */
	bool		passed;			/* the only name was returned */
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
 * Returns the next name, valid until the next call.  Returns NULL after the last name,
 * and then starts again with the first.  Checks for interrupts, because an array can have
 * a hundred million elements.
 */
extern const ZklockName *zklock_names_next(ZklockNames *names);

#endif							/* ZKLOCK_NAMES_H */
