/*-------------------------------------------------------------------------
 *
 * lock_queue_order.c
 *		The order of the waiters in a queue of PostgreSQL's lock manager.
 *
 * A waiter that holds the lock in some mode goes ahead of others.  The first waiter
 * of each mode is stored, so that finding its place takes no walk along the queue.
 *
 *-------------------------------------------------------------------------
 */
#include "backend/local/lock_queue_order.h"

void
zklock_queue_order_begin(LockQueueOrder *order, int *room, int n)
{
	order->first = order->last = -1;
	order->next = room;
	order->previous = room + n;
	order->n_modes = 0;
}

/* Inserts the waiter before "next", or at the end if that is -1. */
static void
link_before(LockQueueOrder *order, int waiter, int next)
{
	int			before = next < 0 ? order->last : order->previous[next];

	order->previous[waiter] = before;
	order->next[waiter] = next;
	if (before < 0)
		order->first = waiter;
	else
		order->next[before] = waiter;
	if (next < 0)
		order->last = waiter;
	else
		order->previous[next] = waiter;
}

/* Returns the index in "modes" of the first mode of the mask, or n_modes. */
static int
find_mode(const LockQueueOrder *order, int mask)
{
	int			i = 0;

	while (i < order->n_modes && !(mask & 1 << order->modes[i]))
		i++;
	return i;
}

void
zklock_queue_order_add(LockQueueOrder *order, int waiter, int mode, int conflicting)
{
	int			new = find_mode(order, conflicting);
	int			old = find_mode(order, 1 << mode);

	link_before(order, waiter,
				new < order->n_modes ? order->first_of[order->modes[new]] : -1);
	if (old < new)
		return;					/* the first waiter of its mode is before it */
	if (old == order->n_modes)
		order->n_modes++;
	for (int i = old; i > new; i--)
		order->modes[i] = order->modes[i - 1];
	order->modes[new] = mode;
	order->first_of[mode] = waiter;
}
