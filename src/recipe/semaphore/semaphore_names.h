/*-------------------------------------------------------------------------
 *
 * semaphore_names.h
 *		Names below a semaphore, and its capacity.
 *
 * The layout is that of Curator's InterProcessSemaphoreV2:
 *
 *		<semaphore>			the capacity, as a decimal number
 *		<semaphore>/locks	the queue of the mutex
 *		<semaphore>/leases	the permits parent; ephemeral sequential nodes
 *
 * Pure functions, like those of node.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SEMAPHORE_NAMES_H
#define ZKL_SEMAPHORE_NAMES_H

#include "recipe/queue/node.h"

#define ZKL_PERMITS_QUEUE "locks"
#define ZKL_PERMITS "leases"

/*
 * Sets "owners" to the owners of these permit nodes except "self", in ascending order,
 * each once for each node; 0 if the name contains none.  "owners" has room for all.
 * Returns their number.
 */
extern int	zkl_permit_owners(const char *const *children, int n_children,
							  uint64_t self, uint64_t *owners);

#endif							/* ZKL_SEMAPHORE_NAMES_H */
