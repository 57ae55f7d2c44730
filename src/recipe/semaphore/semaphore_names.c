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

/* "_", which zkl_encode_name() never escapes */
#define ESCAPED_UNDERSCORE "%5F"

#define KAZOO_PERMIT_LENGTH 32

/* The most digits that always fit into an int. */
#define MAX_CAPACITY_DIGITS 9


void
zkl_semaphore_name(const char *name, char *out)
{
	size_t		length = strlen(name);
	size_t		n = strlen(ZKL_KAZOO_QUEUE);

	strcpy(out, name);
	if (length > n && strcmp(name + length - n, ZKL_KAZOO_QUEUE) == 0)
		strcpy(out + length - 1, ESCAPED_UNDERSCORE);
}

void
zkl_semaphore_name_of(char *component)
{
	size_t		length = strlen(component);
	size_t		n = strlen(ESCAPED_UNDERSCORE);

	if (length > n && strcmp(component + length - n, ESCAPED_UNDERSCORE) == 0)
		strcpy(component + length - n, "_");
}

int
zkl_permit_owners(const char *const *children, int n_children,
				  uint64_t self, uint64_t *owners)
{
	int			n = 0;

	for (int i = 0; i < n_children; i++)
	{
		uint64_t	owner;

		if (!zkl_parse_owner(children[i], &owner))
			return -1;
		if (owner != self)
			owners[n++] = owner;
	}
	zkl_sort_ids(owners, n);
	return n;
}

int
zkl_permits_of_others(const char *const *children, int n_children,
					  uint64_t self, uint64_t *owners)
{
	int			n = 0;

	for (int i = 0; i < n_children; i++)
		if (zkl_parse_owner(children[i], &owners[n]) && owners[n] != self)
			n++;
	zkl_sort_ids(owners, n);
	return n;
}

bool
zkl_is_curators(const char *child)
{
	return strcmp(child, ZKL_CURATOR_QUEUE) == 0 ||
		strcmp(child, ZKL_CURATOR_PERMITS) == 0;
}

bool
zkl_is_kazoos(const char *child)
{
	return strlen(child) == KAZOO_PERMIT_LENGTH &&
		strspn(child, "0123456789abcdef") == KAZOO_PERMIT_LENGTH;
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
