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

typedef struct ZklockName
{
	char	   *encoded;		/* one component of a znode path */
	char	   *display;		/* for messages and views, in the database encoding */
	uint64		hash;			/* of "encoded" */
} ZklockName;

/*
 * All allocate in the current memory context and raise 22004 for NULL array
 * elements, 22023 for an empty or too long name, 22021 for invalid bytes.
 */
extern void zklock_name_from_text(text *value, ZklockName *name);
extern void zklock_name_from_int8(int64 key, ZklockName *name);
extern void zklock_name_from_int4(int32 key1, int32 key2, ZklockName *name);
extern ZklockName *zklock_names_from_array(ArrayType *array, int *n);

/* A copy in the order of the first tier, without repetitions; *n is updated. */
extern ZklockName *zklock_names_distinct(const ZklockName *names, int *n);

#endif							/* ZKLOCK_NAMES_H */
