/*-------------------------------------------------------------------------
 *
 * lock_table.h
 *		PostgreSQL's lock table: who waits in it for this backend.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_TABLE_H
#define ZKLOCK_LOCK_TABLE_H

#include "recipe/recipe.h"

/*
 * Lets other backends of this server see which ZooKeeper session this one has,
 * as they may find it waiting elsewhere.  May throw, as any lock that is taken.
 */
extern void zklock_show_session(ZklSession *session);

/*
 * What is left of a session that is over, until the ensemble knows it, is
 * waited for, but not this backend.
 */
extern void zklock_hide_session(void);

/*
 * A number for the set of all waits in the lock manager that have lasted for
 * deadlock_timeout; 0: there are none.  Cheap, takes no locks.
 */
extern uint64 zklock_long_waits(void);

/*
 * The sessions that wait for this backend there, directly or through others,
 * each wait of them for longer than deadlock_timeout; ascending, palloc'd.
 */
extern int	zklock_waiting_for_me(ZklDependent **dependents);

#endif							/* ZKLOCK_LOCK_TABLE_H */
