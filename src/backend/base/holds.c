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

/*
 * Hash table of the entries by name.  A lock has one entry of its name; the entries for
 * the permits of a semaphore follow each other, youngest first.  The number of buckets is
 * a power of two.  It only grows, when an entry is created.
 */
#define FIRST_BUCKETS 64

static dlist_head *buckets = NULL;
static uint32 n_buckets = 0;
static uint32 n_entries = 0;

/* Number of entries held in the ensemble. */
static int	n_held = 0;

/* No entry has a count for a nest level deeper than this. */
static int	deepest_level = 0;

static bool
is_named(const ZklockHold *hold, ZklockKind kind, const ZklockName *name)
{
	return hold->kind == kind && hold->name.hash == name->hash &&
		strcmp(hold->name.encoded, name->encoded) == 0;
}

static dlist_head *
bucket_of(uint32 hash)
{
	return &buckets[hash & (n_buckets - 1)];
}

/* Returns the first entry of this name from "node" on, or NULL. */
static ZklockHold *
find_from(dlist_head *bucket, dlist_node *node, ZklockKind kind,
		  const ZklockName *name)
{
	for (; node != &bucket->head; node = node->next)
	{
		ZklockHold *hold = dlist_container(ZklockHold, alike, node);

		if (is_named(hold, kind, name))
			return hold;
	}
	return NULL;
}

ZklockHold *
zklock_hold_find(const ZklockName *name)
{
	dlist_head *bucket;

	if (n_entries == 0)
		return NULL;
	bucket = bucket_of(name->hash);
	return find_from(bucket, bucket->head.next, ZKLOCK_LOCK, name);
}

ZklockHold *
zklock_hold_find_permit(const ZklockName *name, const ZklockHold *after)
{
	dlist_head *bucket;

	if (n_entries == 0)
		return NULL;
	bucket = bucket_of(name->hash);
	return find_from(bucket, after ? after->alike.next : bucket->head.next,
					 ZKLOCK_SEMAPHORE, name);
}

/* Makes room for one more entry, without changing the results of searches. */
static void
make_room(void)
{
	uint32		n = n_buckets == 0 ? FIRST_BUCKETS : 2 * n_buckets;
	dlist_head *old = buckets;
	dlist_head *fresh;
	dlist_iter	iter;

	if (n_entries < n_buckets)
		return;
	fresh = MemoryContextAlloc(TopMemoryContext, sizeof(dlist_head) * n);
	for (uint32 i = 0; i < n; i++)
		dlist_init(&fresh[i]);
	buckets = fresh;
	n_buckets = n;

	/* The list has the youngest first, so the youngest must be pushed last. */
	dlist_reverse_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		dlist_push_head(bucket_of(hold->name.hash), &hold->alike);
	}
	if (old)
		pfree(old);
}

int
zklock_holds_entries(void)
{
	return (int) n_entries;
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
hold_new(const ZklockName *name)
{
	ZklockHold *hold;

	make_room();
	hold = MemoryContextAllocZero(TopMemoryContext, sizeof(ZklockHold));
	PG_TRY();
	{
		hold->name.encoded = MemoryContextStrdup(TopMemoryContext, name->encoded);
		hold->name.display = MemoryContextStrdup(TopMemoryContext, name->display);
		hold->name.hash = name->hash;
		hold->key = zklock_name_hash(name->encoded, strlen(name->encoded));
		first_levels(&hold->shared);
		first_levels(&hold->exclusive);
	}
	PG_CATCH();
	{
		hold_free(hold);
		PG_RE_THROW();
	}
	PG_END_TRY();
	dlist_push_head(&zklock_holds, &hold->link);
	dlist_push_head(bucket_of(name->hash), &hold->alike);
	n_entries++;
	return hold;
}

ZklockHold *
zklock_hold_prepare(const ZklockName *name, ZklMode mode)
{
	ZklockHold *hold = zklock_hold_find(name);
	ZklockModeCounts *counts;

	if (hold == NULL)
		hold = hold_new(name);
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
	ZklockHold *hold = hold_new(name);

	hold->kind = ZKLOCK_SEMAPHORE;
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
	dlist_delete(&hold->alike);
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
