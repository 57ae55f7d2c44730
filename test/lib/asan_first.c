/*-------------------------------------------------------------------------
 *
 * asan_first.c
 *		Preloaded into a server beside AddressSanitizer's library, to have
 *		that set up first of all.
 *
 * It is set up by the first allocation.  In PostgreSQL's process that would be
 * one of bindtextdomain()'s, with a lock held that the sanitizer then takes
 * again for an error message: the process hangs for ever.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

__attribute__((constructor)) static void
allocate_first(void)
{
	free(malloc(1));
}
