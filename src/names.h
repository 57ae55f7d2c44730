/*-------------------------------------------------------------------------
 *
 * names.h
 *		From an SQL key to the name of a lock.
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
	char	   *display;		/* for messages and views, in the database encoding */
	uint64		hash;			/* of "encoded" */
} ZklockName;

/* Room for what a name points to, so that a call with one name allocates nothing. */
typedef struct ZklockNameRoom
{
	char		display[ZKLOCK_MAX_NAME_BYTES + 1];
	char		encoded[ZKL_ENCODED_SIZE(ZKLOCK_MAX_NAME_BYTES)];
} ZklockNameRoom;

/*
 * All raise 22004 for NULL array elements, 22023 for an empty or too long name,
 * 22021 for invalid bytes.  What does not fit into the room, or must be converted
 * to UTF-8 first, is allocated in the current memory context; so are arrays, and
 * a text without room.
 */
extern void zklock_name_from_text(text *value, ZklockNameRoom *room, ZklockName *name);
extern void zklock_name_from_int8(int64 key, ZklockNameRoom *room, ZklockName *name);
extern void zklock_name_from_int4(int32 key1, int32 key2, ZklockNameRoom *room,
								  ZklockName *name);
extern ZklockName *zklock_names_from_array(ArrayType *array, int *n);

/*
 * In the order of the first tier, without repetitions; *n is updated.  A copy
 * if there are several.
 */
extern const ZklockName *zklock_names_distinct(const ZklockName *names, int *n);

#endif							/* ZKLOCK_NAMES_H */
