/*-------------------------------------------------------------------------
 *
 * revocations.c
 *		Requests by others to release a lock, and what the holder does.
 *
 * The recipe layer detects revocations, in whichever thread it runs, and sets a flag.  All
 * else waits until the backend calls here: from the hooks of hooks.c, or from the
 * wait loop of wait.c.
 *
 * Never releases anything by itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "backend/base/holds.h"
#include "backend/base/names.h"
#include "backend/session/interrupt.h"
#include "backend/session/shared_memory.h"
#include "recipe/recipe.h"

/* A request for release may be unreported.  Set by any thread, cleared by the backend's. */
static volatile sig_atomic_t is_requested = false;

void
zklock_on_revoke_io(void)
{
	is_requested = true;
}

static bool
is_unreported(const ZklockHold *hold)
{
	return hold->lock != NULL &&
		zkl_lock_revocations(hold->lock) > hold->revocations_reported;
}

static pg_noinline void
report_unreported(void)
{
	ZklockNameList names = {0};
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);
		int			revocations;

		if (!is_unreported(hold))
			continue;
		revocations = zkl_lock_revocations(hold->lock);
		zklock_count(ZKLOCK_STAT_REVOCATIONS, revocations - hold->revocations_reported);
		hold->revocations_reported = revocations;
		zklock_list_hold(&names, hold);
	}
	if (names.n > 0)
		ereport(NOTICE,
				(errmsg_plural("release of lock %s was requested", "release of locks %s was requested",
							   names.n, zklock_list_text(&names)),
				 errhint("Release session-level locks with zk_unlock(); end the transaction to release transaction-level locks.")));
}

/* Called several times for each statement of every session. */
void
zklock_report_revocations(void)
{
	if (!is_requested)
		return;
	is_requested = false;
	report_unreported();
}

bool
zklock_is_revoked(const ZklockName *name)
{
	ZklockHold *hold = zklock_hold_find(name);

	return hold && hold->lock && zkl_lock_revocations(hold->lock) > 0;
}
