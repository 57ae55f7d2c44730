/*-------------------------------------------------------------------------
 *
 * holds.c
 *		The hold table: what this session holds, by mode, level and nesting.
 *
 * Bookkeeping only: no I/O, no locks.  zklock_hold_prepare() allocates when a lock
 * is requested, so that nothing here allocates at the end of a transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "backend/base/holds.h"

dlist_head	zklock_holds = DLIST_STATIC_INIT(zklock_holds);

/* The entries of one name: a lock has one, a semaphore one for each permit. */
typedef struct Named
{
	const ZklockHold *key;		/* one of them, or an entry to search for */
	ZklockHold *youngest;
	char		status;
} Named;

static bool
is_same(const ZklockHold *a, const ZklockHold *b)
{
	return a->kind == b->kind && a->name.hash == b->name.hash &&
		strcmp(a->name.encoded, b->name.encoded) == 0;
}

#define SH_PREFIX named
#define SH_ELEMENT_TYPE Named
#define SH_KEY_TYPE const ZklockHold *
#define SH_KEY key
#define SH_HASH_KEY(set, key) ((key)->name.hash)
#define SH_EQUAL(set, a, b) is_same(a, b)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static named_hash *table = NULL;
static int	n_entries = 0;

/* Number of entries held in the ensemble. */
static int	n_held = 0;

/* No entry has a count for a nest level deeper than this. */
static int	deepest_level = 0;

static ZklockHold *
find_youngest(ZklockKind kind, const ZklockName *name)
{
	ZklockHold	key = {.kind = kind, .name = *name};
	Named	   *named = table ? named_lookup(table, &key) : NULL;

	return named ? named->youngest : NULL;
}

ZklockHold *
zklock_hold_find(const ZklockName *name)
{
	return find_youngest(ZKLOCK_LOCK, name);
}

ZklockHold *
zklock_hold_find_permit(const ZklockName *name, const ZklockHold *after)
{
	return after ? after->older : find_youngest(ZKLOCK_SEMAPHORE, name);
}

/* May run out of memory, and then changes nothing. */
static void
add_to_table(ZklockHold *hold)
{
	bool		found;
	Named	   *named;

	if (table == NULL)
		table = named_create(TopMemoryContext, 64, NULL);
	named = named_insert(table, hold, &found);
	hold->older = found ? named->youngest : NULL;
	named->youngest = hold;
}

static void
remove_from_table(ZklockHold *hold)
{
	Named	   *named = named_lookup(table, hold);
	ZklockHold **link = &named->youngest;

	while (*link != hold)
		link = &(*link)->older;
	*link = hold->older;
	if (named->youngest)
		named->key = named->youngest;
	else
		named_delete(table, hold);
}

int
zklock_holds_entries(void)
{
	return n_entries;
}

int
zklock_holds_count(void)
{
	return n_held;
}

bool
zklock_holds_any(void)
{
	return n_held > 0;
}

ZklockHold *
zklock_holds_in_transaction(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		if (hold->shared.n_levels > 0 || hold->exclusive.n_levels > 0)
			return hold;
	}
	return NULL;
}

ZklockModeCounts *
zklock_hold_counts(ZklockHold *hold, ZklMode mode)
{
	return mode == ZKL_MODE_EXCLUSIVE ? &hold->exclusive : &hold->shared;
}

/* Enough for the usual number of nested transaction levels. */
#define FIRST_CAPACITY 4

static void
first_levels(ZklockModeCounts *counts)
{
	counts->levels = MemoryContextAlloc(TopMemoryContext,
										FIRST_CAPACITY * sizeof(ZklockLevelCount));
	counts->capacity = FIRST_CAPACITY;
}

static void
hold_free(ZklockHold *hold)
{
	if (hold->shared.levels)
		pfree(hold->shared.levels);
	if (hold->exclusive.levels)
		pfree(hold->exclusive.levels);
	if (hold->name.encoded)
		pfree(hold->name.encoded);
	if (hold->name.display)
		pfree(hold->name.display);
	pfree(hold);
}

static ZklockHold *
hold_new(ZklockKind kind, const ZklockName *name)
{
	ZklockHold *hold = MemoryContextAllocZero(TopMemoryContext, sizeof(ZklockHold));

	hold->kind = kind;
	PG_TRY();
	{
		hold->name.encoded = MemoryContextStrdup(TopMemoryContext, name->encoded);
		hold->name.display = MemoryContextStrdup(TopMemoryContext, name->display);
		hold->name.hash = name->hash;
		hold->key = zklock_name_hash(name->encoded, strlen(name->encoded));
		first_levels(&hold->shared);
		first_levels(&hold->exclusive);
		add_to_table(hold);
	}
	PG_CATCH();
	{
		hold_free(hold);
		PG_RE_THROW();
	}
	PG_END_TRY();
	dlist_push_head(&zklock_holds, &hold->link);
	n_entries++;
	return hold;
}

ZklockHold *
zklock_hold_prepare(const ZklockName *name, ZklMode mode)
{
	ZklockHold *hold = zklock_hold_find(name);
	ZklockModeCounts *counts;

	if (hold == NULL)
		hold = hold_new(ZKLOCK_LOCK, name);
	counts = zklock_hold_counts(hold, mode);
	if (counts->n_levels == counts->capacity)
	{
		counts->levels = repalloc(counts->levels, 2 * counts->capacity *
								  sizeof(ZklockLevelCount));
		counts->capacity *= 2;
	}
	hold->pins++;
	return hold;
}

ZklockHold *
zklock_hold_prepare_permit(const ZklockName *name, int capacity)
{
	ZklockHold *hold = hold_new(ZKLOCK_SEMAPHORE, name);

	hold->capacity = capacity;
	hold->pins++;
	return hold;
}

/* "acquired_at" is when the session first held the lock, so an upgrade keeps it. */
void
zklock_hold_granted(ZklockHold *hold, ZklLock *lock, ZklMode mode,
					TimestampTz now)
{
	if (hold->lock == NULL)
	{
		n_held++;
		hold->acquired_at = now;
		hold->revocations_reported = 0;
	}
	hold->lock = lock;
	hold->token = zkl_lock_token(lock);
	hold->mode = mode;
}

void
zklock_hold_ended(ZklockHold *hold)
{
	n_held -= hold->lock != NULL;
	hold->lock = NULL;
	hold->mode = ZKL_MODE_NONE;
	hold->lost = false;
}

void
zklock_hold_add(ZklockHold *hold, ZklMode mode, ZklockScope scope, int level)
{
	ZklockModeCounts *counts = zklock_hold_counts(hold, mode);

	if (scope == ZKLOCK_SESSION)
	{
		counts->session++;
		return;
	}
	/* Deeper levels have ended, so this level is the last one or a new one. */
	if (counts->n_levels == 0 || counts->levels[counts->n_levels - 1].level < level)
	{
		Assert(counts->n_levels < counts->capacity);
		counts->levels[counts->n_levels].level = level;
		counts->levels[counts->n_levels].count = 0;
		counts->n_levels++;
	}
	counts->levels[counts->n_levels - 1].count++;
	deepest_level = Max(deepest_level, level);
}

bool
zklock_holds_end_level(int level)
{
	if (deepest_level < level)
		return false;
	deepest_level = level - 1;
	return true;
}

int64
zklock_counts_in_transaction(const ZklockModeCounts *counts)
{
	int64		sum = 0;

	for (int i = 0; i < counts->n_levels; i++)
		sum += counts->levels[i].count;
	return sum;
}

static bool
is_counted(const ZklockModeCounts *counts)
{
	return counts->session > 0 || counts->n_levels > 0;
}

ZklMode
zklock_hold_needed(const ZklockHold *hold)
{
	if (is_counted(&hold->exclusive))
		return ZKL_MODE_EXCLUSIVE;
	if (is_counted(&hold->shared))
		return ZKL_MODE_SHARED;
	return ZKL_MODE_NONE;
}

static void
inherit(ZklockModeCounts *counts, int level)
{
	ZklockLevelCount *last;

	if (counts->n_levels == 0)
		return;
	last = &counts->levels[counts->n_levels - 1];
	if (last->level < level)
		return;
	if (counts->n_levels > 1 && last[-1].level == level - 1)
	{
		last[-1].count += last->count;
		counts->n_levels--;
	}
	else
		last->level = level - 1;
}

void
zklock_hold_inherit(ZklockHold *hold, int level)
{
	inherit(&hold->shared, level);
	inherit(&hold->exclusive, level);
}

static void
forget_levels(ZklockModeCounts *counts, int level)
{
	while (counts->n_levels > 0 &&
		   counts->levels[counts->n_levels - 1].level >= level)
		counts->n_levels--;
}

void
zklock_hold_forget_levels(ZklockHold *hold, int level)
{
	forget_levels(&hold->shared, level);
	forget_levels(&hold->exclusive, level);
}

void
zklock_hold_forget_session(ZklockHold *hold)
{
	hold->shared.session = 0;
	hold->exclusive.session = 0;
}

void
zklock_hold_free_if_unused(ZklockHold *hold)
{
	if (hold->pins > 0 || is_counted(&hold->shared) || is_counted(&hold->exclusive))
		return;
	dlist_delete(&hold->link);
	remove_from_table(hold);
	n_entries--;
	hold_free(hold);
}

void
zklock_refuse_worker(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
			 errmsg("zklock cannot be used in a parallel worker"),
			 errdetail("The locks of a session belong to its leader process."),
			 errhint("Declare functions that call zklock PARALLEL RESTRICTED or PARALLEL UNSAFE.")));
}
