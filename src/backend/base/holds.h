/*-------------------------------------------------------------------------
 *
 * holds.h
 *		The hold table: what this session holds, by mode, level and nesting (holds.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOLDS_H
#define ZKLOCK_HOLDS_H

#include "lib/ilist.h"
#include "utils/timestamp.h"

#include "backend/base/fence_rule.h"
#include "backend/base/names.h"
#include "recipe/recipe.h"


typedef enum ZklockScope
{
	ZKLOCK_SESSION,
	ZKLOCK_TRANSACTION
} ZklockScope;

typedef enum ZklockKind
{
	ZKLOCK_LOCK,
	ZKLOCK_SEMAPHORE
} ZklockKind;

/* How often one mode of one lock is held. */
typedef struct ZklockModeCounts
{
	int64		session;
	int64		transaction;	/* at all nest levels */
	bool		local;			/* the local lock is held in this mode */
} ZklockModeCounts;

/* How often a transaction of this nest level holds one lock. */
typedef struct ZklockLevel
{
	int			level;
	int64		shared;
	int64		exclusive;
} ZklockLevel;

/*
 * One lock that this session holds or is acquiring; or one permit, which is held
 * exclusively and counted once.
 */
typedef struct ZklockHold
{
	dlist_node	link;			/* in zklock_holds */
	struct ZklockHold *next;	/* older, with the same hash value */
	ZklockKind	kind;
	int			capacity;		/* capacity of the semaphore */
	int			pins;			/* calls that use this entry */
	bool		published;		/* as a permit, to other backends (shared_memory.c) */
	bool		lost;			/* set by the last check in loss.c */
	ZklockName	name;
	uint64		key;			/* zklock_name_hash() */
	ZklockModeCounts shared;
	ZklockModeCounts exclusive;
	ZklockLevel *levels;		/* ascending; only those with counts */
	int			n_levels;
	int			max_levels;
	uint64		local_key;		/* of the local lock, while that is held */
	ZklMode		mode;			/* in which "lock" is held */
	int			revocations_reported;	/* revocations of "lock" */
	ZklLock    *lock;			/* NULL when not held in the ensemble; set by holds.c */
	int64		token;
	TimestampTz acquired_at;
	ZklockFenceMark fence;		/* of "lock"; see fence.c */
	uint64		acquired;		/* last call that acquired an array with it (locks.c) */
	uint64		released;		/* last call of zklock_release() that found it */
} ZklockHold;

/* For dlist_foreach(). */
extern dlist_head zklock_holds;

/* Returns the entry for a lock's name, or NULL.  Neither throws nor allocates. */
extern ZklockHold *zklock_hold_find(const ZklockName *name);

/*
 * Returns the entry for a name, pinned, with room for one more count; creates it if
 * missing.  May run out of memory; changes no count.
 */
extern ZklockHold *zklock_hold_prepare(const ZklockName *name);

/* Returns a new entry for a permit, pinned.  May run out of memory. */
extern ZklockHold *zklock_hold_prepare_permit(const ZklockName *name, int capacity);

/*
 * Returns the youngest entry for a permit of the semaphore, or the next older one than
 * "after"; NULL after the oldest.  Neither throws nor allocates.
 */
extern ZklockHold *zklock_hold_find_permit(const ZklockName *name,
										   const ZklockHold *after);

extern ZklockModeCounts *zklock_hold_counts(ZklockHold *hold, ZklMode mode);

/* Number of entries, and of those held in the ensemble. */
extern int	zklock_holds_entries(void);
extern int	zklock_holds_count(void);

/* Returns whether anything is held in the ensemble. */
extern bool zklock_holds_any(void);

/* Returns a lock that is counted at transaction level, or NULL. */
extern ZklockHold *zklock_holds_in_transaction(void);

/* The functions below neither throw nor allocate. */

/* Called when the ensemble has granted the lock, or an upgrade of it. */
extern void zklock_hold_granted(ZklockHold *hold, ZklLock *lock, ZklMode mode,
								TimestampTz now);

/* Called when the lock is no longer held in the ensemble. */
extern void zklock_hold_ended(ZklockHold *hold);

/* Adds one count; at transaction level, for this nest level. */
extern void zklock_hold_add(ZklockHold *hold, ZklMode mode, ZklockScope scope,
							int level);

/* Returns the strongest mode that is still counted. */
extern ZklMode zklock_hold_needed(const ZklockHold *hold);

/*
 * Called before all counts of this nest level and deeper are inherited or removed.
 * Returns whether there can be any.
 */
extern bool zklock_holds_end_level(int level);

/* Passes the counts of a committed subtransaction to its parent. */
extern void zklock_hold_inherit(ZklockHold *hold, int level);

/* Removes the transaction-level counts of this nest level and deeper. */
extern void zklock_hold_forget_levels(ZklockHold *hold, int level);

/* Removes the session-level counts. */
extern void zklock_hold_forget_session(ZklockHold *hold);

/* Frees an entry without counts, unless it is pinned. */
extern void zklock_hold_free_if_unused(ZklockHold *hold);

/* The names of locks in a message: the first one, and how many more. */

/* Of one name: as a znode it is longer than in any server encoding. */
#define ZKLOCK_LIST_NAME_BYTES ZKL_ENCODED_SIZE(ZKLOCK_MAX_NAME_BYTES)

typedef struct ZklockNameList
{
	int			n;				/* selects singular or plural */
	const char *name;			/* the first one */
} ZklockNameList;

/* A list that needs no hold. */
typedef struct ZklockKeptNames
{
	ZklockNameList list;
	char		name[ZKLOCK_LIST_NAME_BYTES];
} ZklockKeptNames;

/*
 * Adds a hold, whose name must stay as long as the list is used.  Permits of the first
 * semaphore are counted once.  A name that the client's encoding may lack is added as that
 * of the znode, because PostgreSQL would replace the error that has it by 22P05.
 */
extern void zklock_list_hold(ZklockNameList *list, const ZklockHold *hold);

/* Copies a list, unless one is kept already.  Neither throws nor allocates. */
extern void zklock_keep_names(ZklockKeptNames *kept, const ZklockNameList *list);

/* Returns the name of a hold for a message.  Neither throws nor allocates. */
extern const char *zklock_hold_display(const ZklockHold *hold);

/*
 * Returns the text: "a" and 3 others.  Valid until the next call.  Does not allocate, so
 * that it can be used where an error would be a PANIC.
 */
extern const char *zklock_list_text(const ZklockNameList *list);

#endif							/* ZKLOCK_HOLDS_H */
