/*-------------------------------------------------------------------------
 *
 * name_list.h
 *		The names of locks in a message: the first few, and how many more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAME_LIST_H
#define ZKLOCK_NAME_LIST_H

#define ZKLOCK_LISTED_NAMES 5

typedef struct ZklockNameList
{
	int			n;				/* number of names; selects singular or plural */
	int			n_listed;
	const char *listed[ZKLOCK_LISTED_NAMES];
} ZklockNameList;

/*
 * Adds a display name, which must stay valid as long as the list is used.  A name that is
 * already listed, for another permit of the semaphore, is not counted again.
 */
extern void zklock_list_name(ZklockNameList *list, const char *display);

/*
 * Returns the text: "a", "b" and 3 others.  Valid until the next call.  Does not
 * allocate, so that it can be used where an error would be a PANIC.
 */
extern const char *zklock_list_text(const ZklockNameList *list);

#endif							/* ZKLOCK_NAME_LIST_H */
