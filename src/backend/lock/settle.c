/*-------------------------------------------------------------------------
 *
 * settle.c
 *		Makes the ensemble and the local lock hold what is counted, and no more.
 *
 * The counts in the hold table (holds.c) change first.  Settling an entry then
 * releases in the ensemble and in PostgreSQL's lock manager what is no longer counted.
 * Nothing here waits for the network.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/base/holds.h"
#include "backend/base/settings.h"
#include "backend/local/local.h"
#include "backend/lock/lock.h"
#include "backend/session/interrupt.h"
#include "backend/session/session.h"
#include "backend/session/shared_memory.h"
#include "recipe/recipe.h"

/* Returns whether the place in the ensemble's queue can stay: no session here wants the lock. */
static bool
can_keep(const ZklockHold *hold, ZklMode needed)
{
	return zklock_keep_time > 0 && needed == ZKL_MODE_NONE && hold->kind == ZKLOCK_LOCK &&
		!(hold->exclusive.local && zklock_local_has_waiters(hold->local_key, ZKL_MODE_EXCLUSIVE)) &&
		!(hold->shared.local && zklock_local_has_waiters(hold->local_key, ZKL_MODE_SHARED));
}

/* Cheap, unless something is lost. */
bool
zklock_is_lost(const ZklockHold *hold)
{
	return zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS) && hold->lock != NULL &&
		(zklock_session_is_lost(zklock_session_current()) || zkl_lock_is_lost(hold->lock));
}

static void
settle_remote(ZklockHold *hold)
{
	ZklMode		needed;

	/* A call uses it, perhaps in a subtransaction of its own that has failed. */
	if (hold->pins > 0 || hold->lock == NULL)
		return;
	needed = zklock_hold_needed(hold);
	if (needed >= hold->mode)
		return;
	if (needed == ZKL_MODE_NONE && zklock_is_lost(hold))
		zklock_count(ZKLOCK_STAT_LOCKS_LOST, 1);
	if (can_keep(hold, needed))
		zkl_lock_keep(hold->lock, zklock_keep_time);
	else
		zkl_lock_reduce(hold->lock, needed);
	hold->mode = needed;
	if (needed == ZKL_MODE_NONE)
		zklock_hold_ended(hold);
}

static void
settle_local(ZklockHold *hold)
{
	if (hold->pins > 0)
		return;
	if (hold->exclusive.local && zklock_hold_needed(hold) != ZKL_MODE_EXCLUSIVE)
	{
		hold->exclusive.local = false;
		zklock_local_release(hold->local_key, ZKL_MODE_EXCLUSIVE);
	}
	if (hold->shared.local && hold->shared.session == 0 && hold->shared.transaction == 0)
	{
		hold->shared.local = false;
		zklock_local_release(hold->local_key, ZKL_MODE_SHARED);
	}
	if (hold->kind == ZKLOCK_SEMAPHORE && zklock_hold_needed(hold) == ZKL_MODE_NONE)
		zklock_withdraw_permit(hold);
	zklock_hold_free_if_unused(hold);
}

/* The ensemble first, so that the next local waiter finds the release already sent. */
void
zklock_settle(ZklockHold *hold)
{
	settle_remote(hold);
	settle_local(hold);
}

void
zklock_settle_every(void)
{
	ZklSession *session = zklock_session_current();
	bool		several = session && zklock_holds_count() > 1;
	dlist_iter	iter;
	dlist_mutable_iter next;

	if (several)
		zkl_releases_begin(session);
	dlist_foreach(iter, &zklock_holds)
		settle_remote(dlist_container(ZklockHold, link, iter.cur));
	if (several)
		zkl_releases_end(session);
	dlist_foreach_modify(next, &zklock_holds)
		settle_local(dlist_container(ZklockHold, link, next.cur));
}

void
zklock_lose(ZklockHold *hold)
{
	zklock_hold_forget_levels(hold, 0);
	zklock_hold_forget_session(hold);
	zkl_lock_reduce(hold->lock, ZKL_MODE_NONE);
	zklock_hold_ended(hold);
	zklock_settle(hold);
}

void
zklock_release_locally(ZklockHold *hold)
{
	if (hold->exclusive.local)
		zklock_local_release(hold->local_key, ZKL_MODE_EXCLUSIVE);
	if (hold->shared.local)
		zklock_local_release(hold->local_key, ZKL_MODE_SHARED);
	hold->exclusive.local = false;
	hold->shared.local = false;
}

void
zklock_inherit_level(int level)
{
	dlist_iter	iter;

	if (!zklock_holds_end_level(level))
		return;
	dlist_foreach(iter, &zklock_holds)
		zklock_hold_inherit(dlist_container(ZklockHold, link, iter.cur), level);
}
