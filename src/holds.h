/*-------------------------------------------------------------------------
 *
 * holds.h
 *		What this session holds: counts by mode, level and nesting.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOLDS_H
#define ZKLOCK_HOLDS_H

#include "lib/ilist.h"
#include "utils/timestamp.h"

#include "names.h"
#include "recipe/recipe.h"

typedef enum ZklockScope
{
	ZKLOCK_SESSION,
	ZKLOCK_TRANSACTION
} ZklockScope;

typedef struct ZklockLevelCount
{
	int			level;			/* transaction nest level */
	int64		count;
} ZklockLevelCount;

typedef enum ZklockKind
{
	ZKLOCK_LOCK,
	ZKLOCK_SEMAPHORE
} ZklockKind;

/* How often one mode of one lock is held. */
typedef struct ZklockModeCounts
{
	int64		session;
	int			n_levels;
	int			capacity;
	ZklockLevelCount *levels;	/* ascending by level */
	bool		local;			/* the first tier is held in this mode */
} ZklockModeCounts;

/*
 * One lock that this session holds or is about to; or one permit, which is held
 * exclusively and counted once.
 */
typedef struct ZklockHold
{
	dlist_node	link;
	ZklockKind	kind;
	int			size;			/* of the semaphore */
	ZklockName	name;
	ZklockModeCounts shared;
	ZklockModeCounts exclusive;
	uint64		local_key;		/* of the first tier, while that is held */
	ZklMode		mode;			/* what "lock" is held in */
	ZklLock    *lock;			/* NULL when not held in the ensemble */
	int64		token;
	TimestampTz acquired_at;
	int			revocations_told;	/* of those of "lock" */
	bool		lost;			/* as loss.c found when it last looked */
	int			pins;			/* calls that use this entry now */
} ZklockHold;

/* For dlist_foreach(). */
extern dlist_head zklock_holds;

/* The entry for a lock's name, or NULL.  Neither throws nor allocates. */
extern ZklockHold *zklock_hold_find(const ZklockName *name);

/*
 * The entry for a name, made if missing, with room for one more count, and
 * pinned.  May throw for lack of memory; changes no count.
 */
extern ZklockHold *zklock_hold_prepare(const ZklockName *name, ZklMode mode);

/* A new entry for a permit, pinned.  May throw for lack of memory. */
extern ZklockHold *zklock_hold_prepare_permit(const ZklockName *name, int size);

/* Is this the entry of a permit of the semaphore? */
extern bool zklock_hold_is_permit_of(const ZklockHold *hold, const ZklockName *name);

/* Are both about one lock, or about permits of one semaphore? */
extern bool zklock_hold_is_alike(const ZklockHold *a, const ZklockHold *b);

extern ZklockModeCounts *zklock_hold_counts(ZklockHold *hold, ZklMode mode);

/* Is anything held in the ensemble? */
extern bool zklock_holds_any(void);

/* A lock that is held, or counted, at transaction level; or NULL. */
extern ZklockHold *zklock_holds_in_transaction(void);

/* The functions below neither throw nor allocate. */

/* Counts one more; at transaction level, for this nest level. */
extern void zklock_hold_add(ZklockHold *hold, ZklMode mode, ZklockScope scope,
							int level);

extern int64 zklock_counts_in_transaction(const ZklockModeCounts *counts);

/* The strongest mode that is still counted. */
extern ZklMode zklock_hold_needed(const ZklockHold *hold);

/* A subtransaction committed: its counts become its parent's. */
extern void zklock_hold_inherit(ZklockHold *hold, int level);

/* Forgets transaction-level counts of this nest level and above. */
extern void zklock_hold_forget_levels(ZklockHold *hold, int level);

/* Forgets session-level counts. */
extern void zklock_hold_forget_session(ZklockHold *hold);

/* Frees an entry that counts nothing, unless it is pinned. */
extern void zklock_hold_free_if_unused(ZklockHold *hold);

#endif							/* ZKLOCK_HOLDS_H */
