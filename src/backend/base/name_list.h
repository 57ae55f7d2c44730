/*-------------------------------------------------------------------------
 *
 * name_list.h
 *		The names of locks in a message: the first one, and how many more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAME_LIST_H
#define ZKLOCK_NAME_LIST_H

#include "backend/base/holds.h"

/* Of one name: as a znode it is longer than in any server encoding. */
#define ZKLOCK_LIST_NAME_BYTES ZKL_ENCODED_SIZE(ZKLOCK_MAX_NAME_BYTES)

typedef struct ZklockNameList
{
	int			n;				/* selects singular or plural */
	const char *name;			/* the first one */
} ZklockNameList;

/*
 * Adds a hold, whose name must stay as long as the list is used.  Permits of the first
 * semaphore are counted once.  A name that the client's encoding may lack is added as that
 * of the znode, because PostgreSQL would replace the error that has it by 22P05.
 */
extern void zklock_list_hold(ZklockNameList *list, const ZklockHold *hold);

/*
 * Returns the text: "a" and 3 others.  Valid until the next call.  Does not allocate, so
 * that it can be used where an error would be a PANIC.
 */
extern const char *zklock_list_text(const ZklockNameList *list);

#endif							/* ZKLOCK_NAME_LIST_H */
