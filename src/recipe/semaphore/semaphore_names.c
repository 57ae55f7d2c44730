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


/* Returns the length of the text before a suffix; 0 if the text does not end with it. */
static size_t
length_before(const char *text, const char *suffix)
{
	size_t		length = strlen(text);
	size_t		n = strlen(suffix);

	return length > n && strcmp(text + length - n, suffix) == 0 ? length - n : 0;
}

size_t
zkl_kazoo_name_length(const char *queue)
{
	return length_before(queue, ZKL_KAZOO_QUEUE);
}

void
zkl_semaphore_name(const char *name, char *out)
{
	strcpy(out, name);
	if (zkl_kazoo_name_length(name) > 0)
		strcpy(out + strlen(name) - 1, ESCAPED_UNDERSCORE);
}

void
zkl_semaphore_name_of(char *component)
{
	size_t		length = length_before(component, ESCAPED_UNDERSCORE);

	if (length > 0)
		strcpy(component + length, "_");
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
