/*-------------------------------------------------------------------------
 *
 * semaphore_names.h
 *		Names below a semaphore, and its capacity.
 *
 * There are two layouts:
 *
 *						Curator's InterProcessSemaphoreV2	kazoo's Semaphore
 *		mutex queue		<semaphore>/locks					<semaphore>-__lock__
 *		permits parent	<semaphore>/leases					<semaphore>
 *		permit nodes	ephemeral sequential				ephemeral
 *
 * In both the data of <semaphore> are the capacity, as a decimal number.  Pure
 * functions, like those of node.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SEMAPHORE_NAMES_H
#define ZKL_SEMAPHORE_NAMES_H

#include "recipe/queue/node.h"

#define ZKL_CURATOR_QUEUE "locks"
#define ZKL_CURATOR_PERMITS "leases"
#define ZKL_KAZOO_QUEUE "-__lock__"

/* Room for the escape and a NUL, beside the encoded name. */
#define ZKL_SEMAPHORE_NAME_EXTRA 3

/*
 * Writes the path component of a semaphore for an encoded name: the name itself,
 * except that a name like that of a kazoo queue has its last character escaped.
 */
extern void zkl_semaphore_name(const char *name, char *out);

/* Returns the length of the component of a semaphore in that of its kazoo queue; else 0. */
extern size_t zkl_kazoo_name_length(const char *queue);

/* The reverse of zkl_semaphore_name(): a path component to the encoded name, in place. */
extern void zkl_semaphore_name_of(char *component);

/* Both return whether a child of a semaphore shows that the layout is in use. */
extern bool zkl_is_curators(const char *child);
extern bool zkl_is_kazoos(const char *child);

/*
 * Sets "owners" to the owners of these permit nodes except "self", in ascending order,
 * each once for each node; 0 if the name contains none.  "owners" has room for all.
 * Returns their number.
 */
extern int	zkl_permit_owners(const char *const *children, int n_children,
							  uint64_t self, uint64_t *owners);

#endif							/* ZKL_SEMAPHORE_NAMES_H */
