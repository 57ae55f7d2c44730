/*-------------------------------------------------------------------------
 *
 * release.c
 *		Releases locks and permits of the session, and of transactions that end.
 *
 * Changes the counts, then settles the entries.  Nothing here waits for the network.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/base/holds.h"
#include "backend/base/names.h"
#include "backend/lock/lock.h"
#include "backend/lock/loss.h"
#include "backend/session/session.h"
#include "recipe/recipe.h"

/* The last call of zklock_release(), which marked the entries that it found. */
static uint64 last_call = 0;

/*
 * Marks the entries of the names that have a session-level count in this mode; returns their
 * number, and one of them.
 */
static int
mark_to_release(ZklockNames *names, ZklMode mode, bool *released, ZklockHold **marked)
{
	int			n = 0;

	last_call++;
	for (int i = 0; i < names->n; i++)
	{
		const ZklockName *name = zklock_names_get(names, i);
		ZklockHold *hold = zklock_hold_find(name);

		released[i] = hold != NULL && zklock_hold_counts(hold, mode)->session > 0;
		if (!released[i])
			ereport(WARNING,
					(errcode(ERRCODE_WARNING),
					 errmsg("you don't own %s lock \"%s\" at session level",
							mode == ZKL_MODE_EXCLUSIVE ? "exclusive" : "shared",
							name->display),
					 errhint("See zk_held_locks for the locks of this session.")));
		else if (hold->released != last_call)
		{
			hold->released = last_call;
			*marked = hold;
			n++;
		}
	}
	return n;
}

/* A lock that stays held in its mode is checked when it is released, or at commit. */
static void
check_if_released(const ZklockHold *hold)
{
	if (zklock_hold_needed(hold) < hold->mode)
		zklock_check_release(hold);
}

static void
release_one(ZklockHold *hold, ZklMode mode)
{
	zklock_hold_counts(hold, mode)->session--;
	check_if_released(hold);
}

/* An error in the first step, which converts names, releases nothing. */
void
zklock_release(ZklockNames *names, ZklMode mode, bool *released)
{
	ZklockHold *marked = NULL;
	int			n = mark_to_release(names, mode, released, &marked);
	dlist_iter	iter;

	if (n == 1)
	{
		release_one(marked, mode);
		zklock_settle(marked);
	}
	else if (n > 1)
	{
		dlist_foreach(iter, &zklock_holds)
		{
			ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

			if (hold->released == last_call)
				release_one(hold, mode);
		}
		zklock_settle_every();
	}
	zklock_withdraw_cancels();
}

void
zklock_release_session(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		zklock_hold_forget_session(hold);
		check_if_released(hold);
	}
	zklock_settle_every();
	if (zklock_session_current())
		zkl_session_leave_kept(zklock_session_current());
	zklock_withdraw_cancels();
}

/* Returns the youngest session-level permit, or NULL. */
static ZklockHold *
find_session_permit(const ZklockName *name)
{
	ZklockHold *hold = NULL;

	while ((hold = zklock_hold_find_permit(name, hold)) != NULL)
		if (hold->exclusive.session > 0)
			return hold;
	return NULL;
}

bool
zklock_release_permit(const ZklockName *name)
{
	ZklockHold *hold = find_session_permit(name);

	if (hold == NULL)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("you don't own a permit of semaphore \"%s\" at session level",
						name->display),
				 errhint("See zk_held_locks for the permits of this session.")));
	else
	{
		hold->exclusive.session--;
		check_if_released(hold);
		zklock_settle(hold);
	}
	zklock_withdraw_cancels();
	return hold != NULL;
}

void
zklock_release_levels(int level)
{
	ZklockNameList lost = {0};
	dlist_iter	iter;

	if (!zklock_holds_end_level(level))
		return;
	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		zklock_hold_forget_levels(hold, level);
		if (level == 1 || zklock_hold_needed(hold) >= hold->mode)
			continue;
		if (zklock_is_lost(hold))
			zklock_list_hold(&lost, hold);
		else
			zklock_check_release(hold);
	}
	if (lost.n > 0)
		zklock_fail_later(&lost);
	zklock_settle_every();
}
