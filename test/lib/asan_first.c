/*-------------------------------------------------------------------------
 *
 * asan_first.c
  *		Preloaded into a server after AddressSanitizer's library, to initialize
  *		that library first.
 *
  * The first allocation initializes it.  In PostgreSQL that is an allocation of
  * bindtextdomain(), which holds a lock that the sanitizer then acquires again for
  * an error message: the process hangs forever.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

__attribute__((constructor)) static void
allocate_first(void)
{
	free(malloc(1));
}
