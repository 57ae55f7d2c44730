/*-------------------------------------------------------------------------
 *
 * name_set.c
 *		The distinct names of a call that locks several.
 *
 * An array may name more locks than a session can hold.  Names are counted while
 * they are read, so that such a call fails before it works or allocates for more
 * names than the session could hold.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/base/holds.h"
#include "backend/lock/name_set.h"
#include "backend/session/backend_session.h"
#include "backend/session/errors.h"

typedef struct Entry
{
	ZklockName	name;
	char		status;
} Entry;

static bool
is_same(const ZklockName *a, const ZklockName *b)
{
	return a->hash == b->hash && strcmp(a->encoded, b->encoded) == 0;
}

#define SH_PREFIX name_set
#define SH_ELEMENT_TYPE Entry
#define SH_KEY_TYPE ZklockName
#define SH_KEY name
#define SH_HASH_KEY(set, key) ((key).hash)
#define SH_EQUAL(set, a, b) is_same(&(a), &(b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static int
compare(const void *a, const void *b)
{
	return strcmp(((const ZklockName *) a)->encoded,
				  ((const ZklockName *) b)->encoded);
}

static ZklockName *
to_sorted_array(name_set_hash *set)
{
	ZklockName *sorted = palloc(sizeof(ZklockName) * (set->members + 1));
	int			n = 0;
	name_set_iterator iterator;
	Entry	   *entry;

	name_set_start_iterate(set, &iterator);
	while ((entry = name_set_iterate(set, &iterator)) != NULL)
		sorted[n++] = entry->name;
	qsort(sorted, n, sizeof(ZklockName), compare);
	return sorted;
}

const ZklockName *
zklock_names_to_lock(ZklockNames *names, ZklMode mode, int *n)
{
	name_set_hash *set = name_set_create(CurrentMemoryContext, 32, NULL);
	int			room = zklock_session_max_locks() - zklock_holds_count();

	for (int i = 0; i < names->n; i++)
	{
		const ZklockName *name = zklock_names_get(names, i);
		const ZklockHold *hold = zklock_hold_find(name);
		bool		found;
		Entry	   *entry = name_set_insert(set, *name, &found);

		if (found)
			continue;
		if ((hold == NULL || hold->mode < mode) && --room < 0)
			zklock_raise(ZKL_TOO_MANY, &ZKLOCK_ACTION_LOCK(name->display), 0);
		entry->name.encoded = pstrdup(name->encoded);
		entry->name.display = pstrdup(name->display);
	}
	*n = set->members;
	return to_sorted_array(set);
}
