/*-------------------------------------------------------------------------
 *
 * semaphore_names.c
 *		Names below a semaphore, and its capacity.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "semaphore_names.h"

/* The most digits that always fit into an int. */
#define MAX_CAPACITY_DIGITS 9

static int
compare_owners(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

int
zkl_permit_owners(const char *const *children, int n_children,
				  uint64_t self, uint64_t *owners)
{
	int			n = 0;

	for (int i = 0; i < n_children; i++)
	{
		if (!zkl_parse_owner(children[i], &owners[n]))
			owners[n] = 0;
		n += owners[n] != self;
	}
	qsort(owners, (size_t) n, sizeof(uint64_t), compare_owners);
	return n;
}

bool
zkl_parse_capacity(const char *data, int data_len, int *capacity)
{
	int			number = 0;

	if (data_len == 0 || data_len > MAX_CAPACITY_DIGITS)
		return false;
	for (int i = 0; i < data_len; i++)
	{
		if (data[i] < '0' || data[i] > '9')
			return false;
		number = number * 10 + (data[i] - '0');
	}
	*capacity = number;
	return true;
}
