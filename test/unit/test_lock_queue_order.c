/*-------------------------------------------------------------------------
 *
 * test_lock_queue_order.c
 *		The order of waiters in PostgreSQL's lock queues, computed with one step for
 *		each waiter, is the order of inserting them one by one as ProcSleep() does.
 *
 * Prints how long that takes for many waiters, each of which already holds the
 * lock; no test depends on the time.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../src/backend/local/lock_queue_order.h"
#include "tap.h"

#define MAX_WAITERS 12
#define N_MODES 8

typedef struct Waiter
{
	int			mode;
	int			conflicting;
} Waiter;

/* The definition: goes before the first waiter that waits for a conflicting mode. */
static void
insert_all(const Waiter *waiters, int n, int *queue)
{
	for (int i = 0; i < n; i++)
	{
		int			place = 0;

		while (place < i && !(waiters[i].conflicting & 1 << waiters[queue[place]].mode))
			place++;
		memmove(&queue[place + 1], &queue[place], sizeof(int) * (size_t) (i - place));
		queue[place] = i;
	}
}

static void
order_all(const Waiter *waiters, int n, int *queue)
{
	int		   *room = malloc(sizeof(int) * 2 * (size_t) n);
	LockQueueOrder order;
	int			k = 0;

	zklock_queue_order_begin(&order, room, n);
	for (int i = 0; i < n; i++)
		zklock_queue_order_add(&order, i, waiters[i].mode, waiters[i].conflicting);
	for (int i = order.first; i >= 0 && k < n; i = order.next[i])
		queue[k++] = i;
	free(room);
}

static void
test_random(void)
{
	int			wrong = 0;

	srand(1);
	for (int round = 0; round < 20000; round++)
	{
		Waiter		waiters[MAX_WAITERS];
		int			expected[MAX_WAITERS + 1];
		int			found[MAX_WAITERS + 1];
		int			n = 1 + rand() % MAX_WAITERS;

		for (int i = 0; i < n; i++)
			waiters[i] = (Waiter)
		{
			1 + rand() % N_MODES, rand() % 2 ? 0 : (rand() & rand() & 0x1ff) & ~1
		};
		insert_all(waiters, n, expected);
		order_all(waiters, n, found);
		wrong += memcmp(expected, found, sizeof(int) * (size_t) n) != 0;
	}
	is_int(wrong, 0, "queues with sessions that already hold the lock have the right order");
}

/* Each waiter is inserted at the front, which is the worst case. */
static void
measure(int n)
{
	Waiter	   *waiters = calloc((size_t) n, sizeof(Waiter));
	int		   *queue = calloc((size_t) n + 1, sizeof(int));
	struct timespec start;
	struct timespec end;

	for (int i = 0; i < n; i++)
		waiters[i] = (Waiter)
	{
		i == 0 ? N_MODES : 1, 1 << N_MODES
	};
	clock_gettime(CLOCK_MONOTONIC, &start);
	order_all(waiters, n, queue);
	clock_gettime(CLOCK_MONOTONIC, &end);
	diag("%d waiters: %.3f ms", n, (double) (end.tv_sec - start.tv_sec) * 1e3 +
		 (double) (end.tv_nsec - start.tv_nsec) / 1e6);
	is_int(queue[n - 1], 0, "%d waiters go before one waiter", n);
	free(waiters);
	free(queue);
}

int
main(void)
{
	test_random();
	measure(2000);
	measure(20000);
	return done();
}
