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

#include "common/string.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"

#include "backend/base/fence_rule.h"
#include "backend/base/holds.h"
#include "backend/base/names.h"
#include "recipe/recipe.h"

dlist_head	zklock_holds = DLIST_STATIC_INIT(zklock_holds);

/* Heads of the chains of entries, linked by "next".  A power of two. */
#define N_CHAINS 8192

static ZklockHold *chains[N_CHAINS];
static int	n_entries = 0;

/* Number of entries held in the ensemble. */
static int	n_held = 0;

/* Enough for most transactions: those with counts at one or two nest levels. */
#define FIRST_LEVELS 2

/* No entry has a count for a nest level deeper than this. */
static int	deepest_level = 0;

static ZklockHold **
chain_of(ZklockKind kind, const ZklockName *name)
{
	return &chains[(name->hash + kind) % N_CHAINS];
}

/* Returns the first entry of this name, from an entry of the chain on; or NULL. */
static ZklockHold *
find_from(ZklockHold *hold, const ZklockName *name, ZklockKind kind)
{
	while (hold && (hold->kind != kind || hold->name.hash != name->hash ||
					strcmp(hold->name.encoded, name->encoded) != 0))
		hold = hold->next;
	return hold;
}

ZklockHold *
zklock_hold_find(const ZklockName *name)
{
	return find_from(*chain_of(ZKLOCK_LOCK, name), name, ZKLOCK_LOCK);
}

ZklockHold *
zklock_hold_find_permit(const ZklockName *name, const ZklockHold *after)
{
	return find_from(after ? after->next : *chain_of(ZKLOCK_SEMAPHORE, name),
					 name, ZKLOCK_SEMAPHORE);
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

		if (hold->n_levels > 0)
			return hold;
	}
	return NULL;
}

ZklockModeCounts *
zklock_hold_counts(ZklockHold *hold, ZklMode mode)
{
	return mode == ZKL_MODE_EXCLUSIVE ? &hold->exclusive : &hold->shared;
}

/* Allocates an entry and the strings of its name as one piece; if both are the same, only one. */
static ZklockHold *
hold_new(ZklockKind kind, const ZklockName *name)
{
	uint64		key = zklock_name_hash(name->encoded, strlen(name->encoded));
	size_t		encoded_size = strlen(name->encoded) + 1;
	size_t		display_size = strcmp(name->display, name->encoded) == 0 ? 0 : strlen(name->display) + 1;
	ZklockHold **chain = chain_of(kind, name);
	ZklockHold *hold = MemoryContextAllocZero(TopMemoryContext, sizeof(ZklockHold) +
											  encoded_size + display_size);

	hold->kind = kind;
	hold->key = key;
	hold->name.hash = name->hash;
	hold->name.encoded = strcpy((char *) (hold + 1), name->encoded);
	hold->name.display = display_size == 0 ? hold->name.encoded
		: strcpy(hold->name.encoded + encoded_size, name->display);
	hold->next = *chain;
	*chain = hold;
	dlist_push_head(&zklock_holds, &hold->link);
	n_entries++;
	return hold;
}

/* Makes room for one more count. */
static void
reserve_level(ZklockHold *hold)
{
	if (hold->n_levels < hold->max_levels)
		return;
	if (hold->levels == NULL)
		hold->levels = MemoryContextAlloc(TopMemoryContext, FIRST_LEVELS * sizeof(ZklockLevel));
	else
		hold->levels = repalloc(hold->levels, 2 * hold->max_levels * sizeof(ZklockLevel));
	hold->max_levels = Max(2 * hold->max_levels, FIRST_LEVELS);
}

ZklockHold *
zklock_hold_prepare(const ZklockName *name)
{
	ZklockHold *hold = zklock_hold_find(name);

	if (hold == NULL)
		hold = hold_new(ZKLOCK_LOCK, name);
	else if (name->display == name->encoded)	/* client_encoding has changed since */
		hold->name.display = hold->name.encoded;
	reserve_level(hold);
	hold->pins++;
	return hold;
}

ZklockHold *
zklock_hold_prepare_permit(const ZklockName *name, int capacity)
{
	ZklockHold *hold = hold_new(ZKLOCK_SEMAPHORE, name);

	hold->capacity = capacity;
	reserve_level(hold);
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
	else
		zklock_fence_rule_upgraded(&hold->fence);
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
	if (hold->n_levels == 0 || hold->levels[hold->n_levels - 1].level < level)
	{
		Assert(hold->n_levels < hold->max_levels);
		hold->levels[hold->n_levels++] = (ZklockLevel)
		{
			.level = level
		};
	}
	if (mode == ZKL_MODE_EXCLUSIVE)
		hold->levels[hold->n_levels - 1].exclusive++;
	else
		hold->levels[hold->n_levels - 1].shared++;
	counts->transaction++;
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

static bool
is_counted(const ZklockModeCounts *counts)
{
	return counts->session > 0 || counts->transaction > 0;
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

void
zklock_hold_inherit(ZklockHold *hold, int level)
{
	ZklockLevel *last;

	if (hold->n_levels == 0)
		return;
	last = &hold->levels[hold->n_levels - 1];
	if (last->level < level)
		return;
	if (hold->n_levels > 1 && last[-1].level == level - 1)
	{
		last[-1].shared += last->shared;
		last[-1].exclusive += last->exclusive;
		hold->n_levels--;
	}
	else
		last->level = level - 1;
}

void
zklock_hold_forget_levels(ZklockHold *hold, int level)
{
	while (hold->n_levels > 0 && hold->levels[hold->n_levels - 1].level >= level)
	{
		ZklockLevel *last = &hold->levels[--hold->n_levels];

		hold->shared.transaction -= last->shared;
		hold->exclusive.transaction -= last->exclusive;
	}
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
	ZklockHold **link = chain_of(hold->kind, &hold->name);

	if (hold->pins > 0 || zklock_hold_needed(hold) != ZKL_MODE_NONE)
		return;
	while (*link != hold)
		link = &(*link)->next;
	*link = hold->next;
	dlist_delete(&hold->link);
	n_entries--;
	if (hold->levels)
		pfree(hold->levels);
	pfree(hold);
}


/*
 * Names of locks in a message
 */

/* Does not ask for the conversion itself: that reads catalogs, and can fail. */
static bool
needs_no_conversion(const char *text)
{
	int			encoding = pg_get_client_encoding();

	return encoding == PG_UTF8 || encoding == PG_SQL_ASCII ||
		encoding == GetDatabaseEncoding() || pg_is_ascii(text);
}

const char *
zklock_hold_display(const ZklockHold *hold)
{
	return needs_no_conversion(hold->name.display) ? hold->name.display : hold->name.encoded;
}

void
zklock_list_hold(ZklockNameList *list, const ZklockHold *hold)
{
	const char *name = zklock_hold_display(hold);

	if (list->n > 0 && hold->kind == ZKLOCK_SEMAPHORE && strcmp(name, list->name) == 0)
		return;
	if (list->n++ == 0)
		list->name = name;
}

void
zklock_keep_names(ZklockKeptNames *kept, const ZklockNameList *list)
{
	if (kept->list.n > 0 || list->n == 0)
		return;
	strlcpy(kept->name, list->name, sizeof(kept->name));
	kept->list = (ZklockNameList) {.n = list->n, .name = kept->name};
}

const char *
zklock_list_text(const ZklockNameList *list)
{
	static char text[ZKLOCK_LIST_NAME_BYTES + 32];
	int			length = snprintf(text, sizeof(text), "\"%s\"", list->n > 0 ? list->name : "");

	if (list->n > 1)
		snprintf(text + length, sizeof(text) - length, " and %d %s",
				 list->n - 1, list->n == 2 ? "other" : "others");
	return text;
}
