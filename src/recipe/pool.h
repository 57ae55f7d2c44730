/*-------------------------------------------------------------------------
 *
 * pool.h
 *		Names below a semaphore, and its size.
 *
 * Two layouts.  Curator's InterProcessSemaphoreV2 has the queue of its mutex in
 * <pool>/locks and the permits as ephemeral sequential children of
 * <pool>/leases; kazoo's Semaphore has the queue beside the pool, in
 * <pool>-__lock__, and the permits as ephemeral children of the pool itself.
 * In both the size is the pool's data, as a decimal number.
 *
 * Pure functions, as those of node.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_POOL_H
#define ZKL_POOL_H

#include "node.h"

#define ZKL_CURATOR_QUEUE "locks"
#define ZKL_CURATOR_LEASES "leases"
#define ZKL_KAZOO_QUEUE "-__lock__"

/* Room for the escape in a pool's name, beside the encoded name and a NUL. */
#define ZKL_POOL_NAME_EXTRA 3

/*
 * The component of the pool's path for an encoded name: the name itself,
 * unless that is how kazoo names the queue of another semaphore.
 */
extern void zkl_pool_name(const char *name, char *out);

/* Begins the name of a permit's node; in kazoo's layout it is all of it. */
extern void zkl_lease_prefix(ZklDialect dialect, int64_t session_id,
							 uint64_t counter, char out[ZKL_CHILD_NAME_SIZE]);

/* Among the children, the one made of the prefix and perhaps a number, or NULL. */
extern const char *zkl_find_lease(const char *const *children, int n_children,
								  const char *prefix);

/* Whose layout does a child of a pool belong to? */
extern bool zkl_is_curators(const char *child);
extern bool zkl_is_kazoos(const char *child);

/*
 * Whose are the permits?  The owners of these nodes, each once and in ascending
 * order, but for "self", the number of whose nodes is set.  "owners" has room for
 * all.  Returns how many they are, or -1 if a node does not tell its owner.
 */
extern int	zkl_permit_owners(const char *const *children, int n_children,
							  uint64_t self, uint64_t *owners, int *n_own);

typedef enum ZklSizeKind
{
	ZKL_SIZE_EMPTY,				/* nobody has said it */
	ZKL_SIZE_NUMBER,
	ZKL_SIZE_FOREIGN			/* the data are something else */
} ZklSizeKind;

/* Sets *size for a number only. */
extern ZklSizeKind zkl_parse_size(const char *data, int data_len, int *size);

#endif							/* ZKL_POOL_H */
