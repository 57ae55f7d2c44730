/*-------------------------------------------------------------------------
 *
 * name_list.h
 *		The names of locks in a message: the first few, and how many more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAME_LIST_H
#define ZKLOCK_NAME_LIST_H

#include "backend/base/holds.h"

#define ZKLOCK_LIST_NAMES 5

/* Of one name: as a znode it is longer than in any server encoding. */
#define ZKLOCK_LIST_NAME_BYTES ZKL_ENCODED_SIZE(ZKLOCK_MAX_NAME_BYTES)

/* Of the whole text. */
#define ZKLOCK_LIST_BYTES (ZKLOCK_LIST_NAMES * (ZKLOCK_LIST_NAME_BYTES + 4) + 32)

typedef struct ZklockNameList
{
	uint64		id;				/* 0: empty */
	int			n;				/* number of names; selects singular or plural */
	int			n_names;
	const char *names[ZKLOCK_LIST_NAMES];
} ZklockNameList;

/*
 * Adds the name of a hold, which must stay as long as the list is used.  Several permits
 * of one semaphore are counted once.  A name that the client's encoding may lack is added
 * as that of the znode, because PostgreSQL would replace the error that has it by 22P05.
 */
extern void zklock_list_hold(ZklockNameList *list, ZklockHold *hold);

/*
 * Returns the text: "a", "b" and 3 others.  Valid until the next call.  Does not
 * allocate, so that it can be used where an error would be a PANIC.
 */
extern const char *zklock_list_text(const ZklockNameList *list);

#endif							/* ZKLOCK_NAME_LIST_H */
