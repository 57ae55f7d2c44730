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

#include "backend/local/local.h"
#include "backend/lock/lock.h"

/* Returns whether the place in the ensemble's queue can stay: no session here wants the lock. */
static bool
can_keep(const ZklockHold *hold, ZklMode needed)
{
	return zklock_keep > 0 && needed == ZKL_MODE_NONE && hold->kind == ZKLOCK_LOCK &&
		!zklock_local_has_waiters(hold->key, ZKL_MODE_EXCLUSIVE) &&
		!zklock_local_has_waiters(hold->key, ZKL_MODE_SHARED);
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
	if (can_keep(hold, needed))
		zkl_lock_keep(hold->lock, zklock_keep);
	else
		zkl_lock_reduce(hold->lock, needed);
	hold->mode = needed;
	if (needed == ZKL_MODE_NONE)
		zklock_hold_ended(hold);
}

/* Releases the modes of the local lock above the one that is needed. */
static void
release_local(const ZklockHold *hold, ZklMode needed)
{
	if (hold->kind != ZKLOCK_LOCK)
		return;
	if (needed < ZKL_MODE_EXCLUSIVE)
		zklock_local_release(hold->key, ZKL_MODE_EXCLUSIVE);
	if (needed < ZKL_MODE_SHARED)
		zklock_local_release(hold->key, ZKL_MODE_SHARED);
}

static void
settle_local(ZklockHold *hold)
{
	ZklMode		needed = zklock_hold_needed(hold);

	if (hold->pins > 0)
		return;
	release_local(hold, needed);
	if (needed == ZKL_MODE_NONE)
		zklock_hide_permit(hold);
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
	release_local(hold, ZKL_MODE_NONE);
}

void
zklock_release_levels(int level)
{
	dlist_iter	iter;

	if (!zklock_holds_end_level(level))
		return;
	dlist_foreach(iter, &zklock_holds)
		zklock_hold_forget_levels(dlist_container(ZklockHold, link, iter.cur), level);
	zklock_settle_every();
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
