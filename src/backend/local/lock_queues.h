/*-------------------------------------------------------------------------
 *
 * lock_queues.h
 *		A copy of PostgreSQL's lock table, with the queues of its locks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_QUEUES_H
#define ZKLOCK_LOCK_QUEUES_H

#include "storage/lock.h"

typedef struct QueueWaiter
{
	const LockInstanceData *instance;
	int			position;		/* in the queue; see zklock_order_queue() */
} QueueWaiter;

/* The waiters of one lock. */
typedef struct LockQueue
{
	QueueWaiter *waiters;		/* by process, until they are ordered */
	int			n_waiters;
	bool		is_ordered;

	/* of lock_waiters.c */
	LOCKMASK	held;			/* modes held by reached processes */
	uint64		path;			/* identifies these processes' waits: the sum of theirs */
} LockQueue;

/* All memory is palloc'd. */
typedef struct LockQueues
{
	LockData   *data;			/* by lock, then by process */
	LockQueue  *queues;
	int			n_queues;
	int		   *queue_of;		/* for each entry */
	int		   *by_pid;			/* entries, by process */
} LockQueues;

extern void zklock_read_lock_queues(LockQueues *copy);

/* Returns the index of a process's first entry in by_pid. */
extern int	zklock_first_entry(const LockQueues *copy, int pid);

/*
 * Sorts the waiters as they are in the queue at the first call, without those that have
 * left it.  Interruptible.
 */
extern void zklock_order_queue(LockQueue *queue);

static inline bool
is_same_lock(const LockInstanceData *a, const LockInstanceData *b)
{
	return memcmp(&a->locktag, &b->locktag, sizeof(LOCKTAG)) == 0;
}

#endif							/* ZKLOCK_LOCK_QUEUES_H */
