/*-------------------------------------------------------------------------
 *
 * ids.c
 *		Sorted arrays of session ids.
 *
 * Declared in node.h.  Pure functions, called on any thread.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "node.h"

static int
compare_ids(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

void
zkl_sort_ids(uint64_t *ids, int n)
{
	if (n > 1)
		qsort(ids, (size_t) n, sizeof(uint64_t), compare_ids);
}

int
zkl_unique_ids(uint64_t *ids, int n)
{
	int			unique = 0;

	zkl_sort_ids(ids, n);
	for (int i = 0; i < n; i++)
		if (i == 0 || ids[i] != ids[i - 1])
			ids[unique++] = ids[i];
	return unique;
}

int
zkl_find_id(const uint64_t *ids, int n, uint64_t id)
{
	const uint64_t *found = n > 0 ? bsearch(&id, ids, (size_t) n, sizeof(id), compare_ids) : NULL;

	return found ? (int) (found - ids) : -1;
}
