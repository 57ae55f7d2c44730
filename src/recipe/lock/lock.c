/*-------------------------------------------------------------------------
 *
 * lock.c
 *		The locks that a session holds: release, downgrade, confirmation, loss.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Marks the lock as lost, and informs its owner. */
void
zkl__lock_lose(ZklLock *lock)
{
	if (lock->taken && !lock->lost)
		zkl__config(lock->session)->on_loss_io();
	zkl__count_relied(lock->session, -(lock->taken && !lock->lost));
	zkl__locks(lock->session)->n_lost += !lock->lost;
	lock->lost = true;
	lock->base = NULL;
}

/* Handles the loss of a held node: another client deleted it. */
void
zkl__lock_node_lost(ZklNode *node)
{
	ZklLock    *lock = node->lock;

	if (lock == NULL)
		return;
	zkl__lock_lose(lock);
	if (lock->anchor == node)
		lock->anchor = NULL;
	if (lock->writer_node == node)
		lock->writer_node = NULL;
	node->lock = NULL;
	zkl__wake_at_unlock(node->session);
}

static void
node_release(ZklNode **node)
{
	if (*node)
		zkl__node_leave(*node);
	*node = NULL;
}

/* Returns a lock that is not granted yet, or NULL if out of memory. */
ZklLock *
zkl__lock_new(ZklSession *session)
{
	ZklLock    *lock = malloc(sizeof(ZklLock));

	if (lock)
		*lock = (ZklLock)
	{
		.session = session
	};
	return lock;
}

/* The lock, or the upgrade of a lock held before, is granted with this node. */
void
zkl__lock_granted(ZklLock *lock, ZklNode *node)
{
	ZklLocks   *locks = zkl__locks(lock->session);

	node->lock = lock;
	node->request = NULL;
	if (node->is_upgrade)
	{
		lock->writer_node = node;
		return;
	}
	lock->anchor = lock->base = node;
	lock->token = node->czxid;
	lock->next = locks->first_lock;
	if (lock->next)
		lock->next->prev = lock;
	locks->first_lock = lock;
	zkl__count_holds(lock->session, 1);
}

void
zkl__lock_free(ZklLock *lock)
{
	ZklLocks   *locks = zkl__locks(lock->session);

	zkl__count_holds(lock->session, -1);
	zkl__count_relied(lock->session, -(lock->taken && !lock->lost));
	if (lock->prev)
		lock->prev->next = lock->next;
	else
		locks->first_lock = lock->next;
	if (lock->next)
		lock->next->prev = lock->prev;
	locks->n_lost -= lock->lost;
	free(lock);
}

void
zkl__lock_reduce(ZklLock *lock, ZklMode mode)
{
	if (mode == ZKL_MODE_NONE)
	{
		node_release(&lock->writer_node);
		node_release(&lock->anchor);
		zkl__lock_free(lock);
	}
	else if (mode == ZKL_MODE_SHARED && lock->writer_node)
		node_release(&lock->writer_node);
	else if (mode == ZKL_MODE_SHARED && lock->anchor &&
			 lock->anchor->mode == ZKL_MODE_EXCLUSIVE)
		zkl__node_downgrade(lock->anchor);
}


/*
 * Confirmation: a proof that the leader has not expired the session (lease_clock.c), behind
 * reads of the nodes that are not watched yet.  A server reports the removal of a watched
 * node before it answers a later proof.  So when the proof is answered, and no watch is
 * being set again, all nodes existed when the leader executed the proof.
 */

/* Returns whether every node that has been removed is known: PENDING if a read is in flight. */
static ZklStatus
are_nodes_watched(const ZklSession *session)
{
	ZklStatus	status = ZKL_OK;

	for (const ZklNode *node = zkl__nodes(session); node; node = node->next)
	{
		if (node->lock == NULL || node->lock->lost || node->hold_watch == HOLD_WATCHED)
			continue;
		if (node->hold_watch == HOLD_UNREADABLE)
			return ZKL_SERVER_ERROR;
		status = ZKL_PENDING;
	}
	return status;
}

static void
on_confirmed(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklLocks   *locks = zkl__locks(session);

	if (locks->confirm_call != call)
		return;
	locks->confirm_call = NULL;
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		return;
	if (!zkl__proved(call, result))
		locks->confirm_status = ZKL_SERVER_ERROR;
	else if (call->is_backed)
		locks->confirm_status = are_nodes_watched(session);
	locks->confirmed_ms = call->submitted_ms;
	zkl__confirm_advance(session);
	zkl__wake_at_unlock(session);
}

/* Returns whether a node is being renamed: then neither name can be watched. */
static bool
is_moving(const ZklSession *session)
{
	for (const ZklNode *node = zkl__nodes(session); node; node = node->next)
		if (node->lock && zkl__node_is_moving(node))
			return true;
	return false;
}

void
zkl__confirm_advance(ZklSession *session)
{
	ZklLocks   *locks = zkl__locks(session);

	if (locks->confirm_status != ZKL_PENDING || locks->confirm_call || is_moving(session) ||
		!zkl__is_connected(session))
		return;
	zkl__hold_watch_now(session);
	locks->confirm_call = zkl__prove(session, on_confirmed);
}

/* Asks again; "fresh": a request that is in flight does not count. */
void
zkl__confirm_start(ZklSession *session, bool fresh)
{
	if (fresh)
		zkl__locks(session)->confirm_call = NULL;
	zkl__locks(session)->confirm_status = ZKL_PENDING;
	zkl__confirm_advance(session);
}

/* Returns the answer, or PENDING; an answer that came too late is asked for again. */
ZklStatus
zkl__confirm_status(ZklSession *session)
{
	const ZklLocks *locks = zkl__locks(session);

	if (locks->confirm_status == ZKL_OK && !zkl__is_final(session) &&
		!zkl__lease_suffices(session, locks->confirmed_ms))
		zkl__confirm_start(session, false);
	return zkl__is_final(session) ? zkl__final_status(session) : locks->confirm_status;
}

/* The session ends. */
void
zkl__locks_free(ZklSession *session)
{
	ZklLocks   *locks = zkl__locks(session);

	while (locks->first_lock)
	{
		ZklLock    *lock = locks->first_lock;

		locks->first_lock = lock->next;
		free(lock);
	}
}
