/*-------------------------------------------------------------------------
 *
 * lock_queue_order.h
 *		The order of the waiters in a queue of PostgreSQL's lock manager.
 *
 * Pure functions on numbers, without PostgreSQL, so that unit tests can call them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_QUEUE_ORDER_H
#define ZKLOCK_LOCK_QUEUE_ORDER_H

/* Modes are 1 to 9, like LOCKMODE; in masks, one bit each. */
#define ZKLOCK_QUEUE_MODES 10

/* Waiters, by index. */
typedef struct LockQueueOrder
{
	int			first;			/* in the queue; -1: none */
	int			last;
	int		   *next;			/* of each waiter; -1 for the last one */
	int		   *previous;

	/* awaited modes, in the order of the first waiter of each */
	int			modes[ZKLOCK_QUEUE_MODES];
	int			first_of[ZKLOCK_QUEUE_MODES];
	int			n_modes;
} LockQueueOrder;

/* Starts an empty queue; "room" has two integers for each of n waiters. */
extern void zklock_queue_order_begin(LockQueueOrder *order, int *room, int n);

/*
 * Adds the next waiter, in the order in which they started to wait.  It goes ahead of the
 * first waiter for a mode of the mask "conflicting": the modes that conflict with what
 * the new waiter already holds of the lock (see ProcSleep()).
 */
extern void zklock_queue_order_add(LockQueueOrder *order, int waiter, int mode,
								   int conflicting);

#endif							/* ZKLOCK_LOCK_QUEUE_ORDER_H */
