/*-------------------------------------------------------------------------
 *
 * lock_queues.c
 *		A copy of PostgreSQL's lock table, with the queues of its locks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"

#include "backend/local/lock_queues.h"

static int
compare_entries(const void *a, const void *b)
{
	const LockInstanceData *x = a;
	const LockInstanceData *y = b;
	int			order = memcmp(&x->locktag, &y->locktag, sizeof(LOCKTAG));

	return order != 0 ? order : x->leaderPid < y->leaderPid ? -1 : x->leaderPid > y->leaderPid;
}

static int
compare_waiters(const void *a, const void *b)
{
	int			x = ((const QueueWaiter *) a)->instance->pid;
	int			y = ((const QueueWaiter *) b)->instance->pid;

	return x < y ? -1 : x > y;
}

static int
compare_positions(const void *a, const void *b)
{
	const QueueWaiter *x = a;
	const QueueWaiter *y = b;

	return x->position < y->position ? -1 : x->position > y->position;
}

static int
compare_pids(const void *a, const void *b, void *arg)
{
	const LockInstanceData *locks = arg;
	int			x = locks[*(const int *) a].leaderPid;
	int			y = locks[*(const int *) b].leaderPid;

	return x < y ? -1 : x > y;
}

/* Reads the entries of the next lock, from "start" on; returns where they end. */
static int
read_queue(LockQueues *copy, int start)
{
	LockQueue  *queue = &copy->queues[copy->n_queues];
	LockInstanceData *locks = copy->data->locks;
	int			end = start;

	for (; end < copy->data->nelements && is_same_lock(&locks[start], &locks[end]); end++)
	{
		copy->queue_of[end] = copy->n_queues;
		queue->n_waiters += locks[end].waitLockMode != NoLock;
	}
	if (queue->n_waiters > 0)
	{
		int			n = 0;

		queue->waiters = palloc(sizeof(QueueWaiter) * queue->n_waiters);
		for (int i = start; i < end; i++)
			if (locks[i].waitLockMode != NoLock)
				queue->waiters[n++].instance = &locks[i];
		qsort(queue->waiters, n, sizeof(QueueWaiter), compare_waiters);
	}
	copy->n_queues++;
	return end;
}

void
zklock_read_lock_queues(LockQueues *copy)
{
	int			n;

	copy->data = GetLockStatusData();
	n = copy->data->nelements;
	copy->queues = palloc0(sizeof(LockQueue) * (n + 1));
	copy->n_queues = 0;
	copy->queue_of = palloc(sizeof(int) * (n + 1));
	copy->by_pid = palloc(sizeof(int) * (n + 1));
	qsort(copy->data->locks, n, sizeof(LockInstanceData), compare_entries);
	for (int i = 0; i < n;)
	{
		CHECK_FOR_INTERRUPTS();
		i = read_queue(copy, i);
	}
	for (int i = 0; i < n; i++)
		copy->by_pid[i] = i;
	qsort_arg(copy->by_pid, n, sizeof(int), compare_pids, copy->data->locks);
}

int
zklock_first_entry(const LockQueues *copy, int pid)
{
	int			low = 0;
	int			high = copy->data->nelements;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (copy->data->locks[copy->by_pid[middle]].leaderPid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}


/*
 * The order of a queue
 *
 * A waiter that does not conflict with the holders waits for those ahead of it.  Only the
 * lock manager knows which these are: a waiter that holds the lock already starts ahead of
 * others, and the deadlock check rearranges queues.  GetBlockerStatusData() reads this, with
 * all partitions of the lock table locked; so it is called only where the order matters, and
 * as a rule once for a queue.
 */

#define UNKNOWN_POSITION (-1)
#define NOT_WAITING INT_MAX

/* Returns the last waiter by the start of its wait whose position is unknown, or NULL. */
static QueueWaiter *
latest_unknown(LockQueue *queue)
{
	QueueWaiter *latest = NULL;

	for (int i = 0; i < queue->n_waiters; i++)
	{
		QueueWaiter *waiter = &queue->waiters[i];

		if (waiter->position == UNKNOWN_POSITION &&
			(latest == NULL || waiter->instance->waitStart > latest->instance->waitStart))
			latest = waiter;
	}
	return latest;
}

static void
set_position(LockQueue *queue, int pid, int position)
{
	LockInstanceData instance = {.pid = pid};
	QueueWaiter key = {.instance = &instance};
	QueueWaiter *waiter = bsearch(&key, queue->waiters, queue->n_waiters, sizeof(QueueWaiter),
								  compare_waiters);

	if (waiter)
		waiter->position = position;
}

/* Sets the positions of a waiter and of all ahead of it. */
static void
read_positions(LockQueue *queue, QueueWaiter *waiter)
{
	const LockInstanceData *instance = waiter->instance;
	BlockedProcsData *data = GetBlockerStatusData(instance->pid);

	waiter->position = NOT_WAITING;
	for (int i = 0; i < data->nprocs; i++)
	{
		BlockedProcData *proc = &data->procs[i];
		const LockInstanceData *lock = &data->locks[proc->first_lock];

		/* It may wait for another lock meanwhile, and so may others of its lock group. */
		if (proc->pid != instance->pid || proc->num_locks == 0 ||
			!is_same_lock(lock, instance))
			continue;
		for (int k = 0; k < proc->num_waiters; k++)
			set_position(queue, data->waiter_pids[proc->first_waiter + k], k);
		waiter->position = proc->num_waiters;
	}
	pfree(data->procs);
	pfree(data->locks);
	pfree(data->waiter_pids);
	pfree(data);
}

void
zklock_order_queue(LockQueue *queue)
{
	QueueWaiter *waiter;

	if (queue->is_ordered)
		return;
	for (int i = 0; i < queue->n_waiters; i++)
		queue->waiters[i].position = UNKNOWN_POSITION;
	while ((waiter = latest_unknown(queue)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		read_positions(queue, waiter);
	}
	qsort(queue->waiters, queue->n_waiters, sizeof(QueueWaiter), compare_positions);
	while (queue->n_waiters > 0 &&
		   queue->waiters[queue->n_waiters - 1].position == NOT_WAITING)
		queue->n_waiters--;
	queue->is_ordered = true;
}
