/*-------------------------------------------------------------------------
 *
 * holds.c
 *		What this session holds: counts by mode, level and nesting.
 *
 * Bookkeeping only: no I/O, no locks.  Room is made when a lock is asked for
 * (zklock_hold_prepare), so that nothing here allocates at the end of a
 * transaction.  Used by locks.c, lifecycle.c, loss.c and views.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "holds.h"

dlist_head	zklock_holds = DLIST_STATIC_INIT(zklock_holds);

/* The lock found last, or NULL: mostly the one that is asked for next. */
static ZklockHold *found_last = NULL;


static bool
is_named(const ZklockHold *hold, ZklockKind kind, const ZklockName *name)
{
	return hold->kind == kind && hold->name.hash == name->hash &&
		strcmp(hold->name.encoded, name->encoded) == 0;
}

bool
zklock_hold_is_permit_of(const ZklockHold *hold, const ZklockName *name)
{
	return is_named(hold, ZKLOCK_SEMAPHORE, name);
}

bool
zklock_hold_is_alike(const ZklockHold *a, const ZklockHold *b)
{
	return is_named(a, b->kind, &b->name);
}

ZklockHold *
zklock_hold_find(const ZklockName *name)
{
	dlist_iter	iter;

	if (found_last && is_named(found_last, ZKLOCK_LOCK, name))
		return found_last;
	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		if (is_named(hold, ZKLOCK_LOCK, name))
			return found_last = hold;
	}
	return NULL;
}

bool
zklock_holds_any(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
	{
		if (dlist_container(ZklockHold, link, iter.cur)->lock != NULL)
			return true;
	}
	return false;
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

/* Room for as many nested transaction levels as are common. */
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
	ZklockHold *hold = MemoryContextAllocZero(TopMemoryContext, sizeof(ZklockHold));

	PG_TRY();
	{
		hold->name.encoded = MemoryContextStrdup(TopMemoryContext, name->encoded);
		hold->name.display = MemoryContextStrdup(TopMemoryContext, name->display);
		hold->name.hash = name->hash;
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
zklock_hold_prepare_permit(const ZklockName *name, int size)
{
	ZklockHold *hold = hold_new(name);

	hold->kind = ZKLOCK_SEMAPHORE;
	hold->size = size;
	hold->pins++;
	return hold;
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
	/* Deeper levels have ended before, so this one is the last or a new one. */
	if (counts->n_levels == 0 || counts->levels[counts->n_levels - 1].level < level)
	{
		Assert(counts->n_levels < counts->capacity);
		counts->levels[counts->n_levels].level = level;
		counts->levels[counts->n_levels].count = 0;
		counts->n_levels++;
	}
	counts->levels[counts->n_levels - 1].count++;
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
	if (found_last == hold)
		found_last = NULL;
	hold_free(hold);
}
