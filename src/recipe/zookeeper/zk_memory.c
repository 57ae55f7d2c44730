/*-------------------------------------------------------------------------
 *
 * zk_memory.c
 *		Makes sure that the client library does not run out of memory.
 *
 * The library does not check its allocations: it frees pointers that it has not set, and
 * queues NULL.  So before it is entered, as much as it may need is allocated and freed.
 * Memory that a thread has freed stays with this thread, unless it is much: then, in a
 * process at its limit, another thread may take it first.
 *
 *-------------------------------------------------------------------------
 */
#include <malloc.h>
#include <stdlib.h>

#include "zk_library.h"

/* What the library allocates while it does anything, and for the loss of each request. */
#define BASE_MEMORY 32768
#define MEMORY_PER_REQUEST 512

/* More than the caches of a thread keep, and much less than a page. */
#define SMALL_MEMORY 1100
#define PAGE_MEMORY 4000

/*
 * glibc gives each thread an arena of 64 MB of address space.  A thread that finds no room
 * for one gets a page of its own for each allocation, however small, so that no probe
 * would suffice.  From then on, all threads of such a process share one arena.
 */
void
zkl_zk_prepare_memory(void)
{
	void	   *volatile probe = malloc(SMALL_MEMORY);

	if (probe && malloc_usable_size(probe) >= PAGE_MEMORY)
		(void) mallopt(M_ARENA_MAX, 1);
	free(probe);
}

bool
zkl_zk_has_memory(const ZklClient *client, size_t size)
{
	void	   *volatile probe = malloc(BASE_MEMORY + size +
										MEMORY_PER_REQUEST * (size_t) client->n_unanswered);

	free(probe);
	return probe != NULL;
}
