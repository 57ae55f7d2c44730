/*-------------------------------------------------------------------------
 *
 * check_request.c
 *		Asserts what lock.h says of each state of a request and of a lock.
 *
 * Compiled in only with ZKL_CHECKS.
 *
 *-------------------------------------------------------------------------
 */
#include "internal.h"

#ifdef ZKL_CHECKS

static void
check_lock(const ZklLock *lock)
{
	const ZklNode *anchor = lock->anchor;
	const ZklNode *writer = lock->writer_node;

	ZKL_ASSERT(lock->base == (lock->lost ? NULL : anchor));
	ZKL_ASSERT(lock->lost || anchor != NULL);
	ZKL_ASSERT(anchor == NULL || (anchor->lock == lock && !anchor->is_upgrade &&
								  (anchor->state == NODE_HELD || anchor->state == NODE_DOWNGRADING)));
	ZKL_ASSERT(writer == NULL || (writer->lock == lock && writer->is_upgrade &&
								  writer->state == NODE_HELD));
	ZKL_ASSERT(lock->token > 0);
}

static void
check_pending(const ZklRequest *request)
{
	for (int i = 0; i < request->n; i++)
	{
		const ZklNode *node = request->nodes[i];
		const ZklLock *lock = request->locks[i];

		ZKL_ASSERT(node->request == request && node->index == i);
		ZKL_ASSERT(node->state < NODE_LEAVING && node->state != NODE_DOWNGRADING);
		ZKL_ASSERT(lock != NULL && lock->taken == node->is_upgrade);
		ZKL_ASSERT(lock->taken || (lock->anchor == NULL && !lock->lost));
		ZKL_ASSERT(request->create_call == NULL || node->state == NODE_CREATING);
		ZKL_ASSERT(request->verify_call == NULL || node->state == NODE_HELD);
	}
	ZKL_ASSERT(request->permit_node == NULL ||
			   (request->permit && request->permit_node->request == request &&
				request->permit_node->state < NODE_HELD));
	ZKL_ASSERT(!request->reacquires ||
			   (request->n == 1 && request->nodes[0]->state == NODE_HELD && !request->permit));
}

/* A request that is decided has left its nodes to their locks, or given them up. */
static void
check_decided(const ZklRequest *request)
{
	ZKL_ASSERT(request->permit_node == NULL);
	for (int i = 0; i < request->n && request->status != ZKL_OK; i++)
		ZKL_ASSERT(request->locks[i] == NULL);
	for (int i = 0; i < request->n && request->status == ZKL_OK; i++)
		if (request->locks[i])
			check_lock(request->locks[i]);
}

void
zkl__check_request(const ZklRequest *request)
{
	ZKL_ASSERT(request->n > 0 && (!request->permit || request->n == 1));
	ZKL_ASSERT(request->attempts >= 0 && request->culprit >= -1 && request->culprit < request->n);
	if (request->status == ZKL_PENDING)
		check_pending(request);
	else
		check_decided(request);
}

/* The youngest locks and requests; and what is counted of all locks, if these are all. */
void
zkl__check_locks(const ZklSession *session)
{
	const ZklLocks *locks = zkl__locks(session);
	const ZklLock *lock = locks->first_lock;
	const ZklRequest *request = locks->first_request;
	int			n_lost = 0;

	for (int i = 0; lock && i < ZKL_N_CHECKED; i++, lock = lock->next)
	{
		check_lock(lock);
		ZKL_ASSERT(lock->next == NULL || lock->next->prev == lock);
		n_lost += lock->lost;
	}
	ZKL_ASSERT(lock || n_lost == locks->n_lost);
	for (int n = 0; request && n < ZKL_N_CHECKED; n += request->n, request = request->next)
	{
		zkl__check_request(request);
		ZKL_ASSERT(!request->is_marked);
	}
	ZKL_ASSERT(locks->first_marked == NULL);
	ZKL_ASSERT(locks->confirm_call == NULL || zkl__is_final(session) || locks->confirm_status == ZKL_PENDING);
}

#endif
