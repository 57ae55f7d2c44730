/*-------------------------------------------------------------------------
 *
 * release.c
 *		Releases session-level locks: one count of some names, or all counts.
 *
 * Nothing here waits for the network.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/lock/loss.h"
#include "backend/lock/release.h"
#include "backend/lock/settle.h"

/*
 * Finds the entries of the names that have a session-level count in this mode, once each;
 * returns their number.
 */
static int
find_to_release(ZklockNames *names, ZklMode mode, ZklockHold **found, bool *released)
{
	static uint64 release = 0;
	int			n = 0;

	release++;
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
		else if (hold->release != release)
		{
			hold->release = release;
			found[n++] = hold;
		}
	}
	return n;
}

void
zklock_release(ZklockNames *names, ZklMode mode, bool *released)
{
	ZklockHold *single;
	ZklockHold **found = &single;
	int			n;

	if (names->n > 1)
		found = palloc(sizeof(ZklockHold *) *
					   (Min(names->n, zklock_holds_entries()) + 1));
	n = find_to_release(names, mode, found, released);
	if (n > 0)
	{
		zklock_note_release(found, n);
		for (int i = 0; i < n; i++)
			zklock_hold_counts(found[i], mode)->session--;
		if (n == 1)
			zklock_settle(found[0]);
		else
			zklock_settle_several(found, n);
	}
	zklock_withdraw_requests();
}

void
zklock_release_session(void)
{
	dlist_iter	iter;

	if (zklock_holds_any())
		zklock_note_release(NULL, 0);
	dlist_foreach(iter, &zklock_holds)
		zklock_hold_forget_session(dlist_container(ZklockHold, link, iter.cur));
	zklock_settle_every();
	zklock_withdraw_requests();
}
