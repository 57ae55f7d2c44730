/*-------------------------------------------------------------------------
 *
 * shared_memory.h
 *		The shared memory of zklock: its counters, and what the backends show.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SHARED_MEMORY_H
#define ZKLOCK_SHARED_MEMORY_H

/* Called once, from _PG_init(), in the postmaster. */
extern void zklock_install_shared_memory(void);

#endif							/* ZKLOCK_SHARED_MEMORY_H */
