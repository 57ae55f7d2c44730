/*-------------------------------------------------------------------------
 *
 * lock_waiters.h
 *		The sessions that wait for this backend in PostgreSQL's lock manager.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_WAITERS_H
#define ZKLOCK_LOCK_WAITERS_H

#include "recipe/recipe.h"

/*
 * Returns a number that identifies the set of all waits in the lock manager that have
 * lasted for deadlock_timeout; 0 if there are none.  Cheap, takes no locks.
 */
extern uint64 zklock_long_waits(void);

/*
 * Returns the sessions that wait for this backend there, directly or through others, all
 * for longer than deadlock_timeout, and hold something.  Palloc'd.
 */
extern int	zklock_waiting_for_me(ZklLocalWaiter **local_waiters);

#endif							/* ZKLOCK_LOCK_WAITERS_H */
