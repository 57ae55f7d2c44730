/*-------------------------------------------------------------------------
 *
 * revoke.c
 *		Requests by others to release a lock, and what the holder does.
 *
 * The recipe layer detects revocations, in whichever thread it runs, and requests a cancel
 * (cancel.c), which comes only under zklock.on_revoke = cancel.  All else waits until the
 * backend calls here: from the hooks of lifecycle.c, or from the wait loop of wait.c.
 *
 * Never releases anything by itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/session/session.h"

#define CANCEL_ONE "canceling statement because release of lock %s was requested"
#define CANCEL_SEVERAL "canceling statement because release of locks %s was requested"
#define CANCEL_HINT "Release session-level locks with zk_unlock(): they are still held."

/* A request for release may be unreported. */
static bool
is_pending(void)
{
	return zklock_cancel_is_requested(ZKLOCK_CANCEL_REVOCATION);
}

static bool
cancels(void)
{
	return zklock_on_revoke == ZKLOCK_ON_REVOKE_CANCEL;
}

static bool
is_unreported(const ZklockHold *hold)
{
	return hold->lock != NULL &&
		zkl_lock_revocations(hold->lock) > hold->revocations_reported;
}

static bool
is_any_unreported(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
	{
		if (is_unreported(dlist_container(ZklockHold, link, iter.cur)))
			return true;
	}
	return false;
}

/* A report to the client. */
typedef struct Unreported
{
	ZklockNameList names;
	bool		in_transaction; /* some locks are held at transaction level */
	bool		cancelling;		/* a cancel was pending for them */
} Unreported;

static void
take_hold(Unreported *unreported, ZklockHold *hold)
{
	int			revocations = zkl_lock_revocations(hold->lock);

	zklock_list_hold(&unreported->names, hold);
	if (hold->n_levels > 0)
		unreported->in_transaction = true;
	zklock_count(ZKLOCK_STAT_REVOCATIONS, revocations - hold->revocations_reported);
	hold->revocations_reported = revocations;
}

/*
 * Collects the unreported revocations, and marks them as reported.  PostgreSQL itself
 * drops a cancel that comes while a session is idle.
 */
static Unreported
take_unreported(void)
{
	Unreported	unreported = {0};
	dlist_iter	iter;

	do
	{
		unreported.cancelling |= zklock_cancel_settle(ZKLOCK_CANCEL_REVOCATION);
		dlist_foreach(iter, &zklock_holds)
		{
			ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

			if (is_unreported(hold))
				take_hold(&unreported, hold);
		}
	} while (is_pending());
	return unreported;
}

static void
notify(const Unreported *unreported)
{
	if (unreported->names.n == 0 || zklock_on_revoke == ZKLOCK_ON_REVOKE_IGNORE)
		return;
	ereport(NOTICE,
			(errmsg_plural("release of lock %s was requested", "release of locks %s was requested",
						   unreported->names.n, zklock_list_text(&unreported->names)),
			 errhint("Release session-level locks with zk_unlock(); end the transaction to release transaction-level locks.")));
}

static void
raise_cancel(const Unreported *unreported)
{
	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg_plural(CANCEL_ONE, CANCEL_SEVERAL, unreported->names.n, zklock_list_text(&unreported->names)),
			 errhint(CANCEL_HINT)));
}

void
zklock_report_revocation(void)
{
	Unreported	unreported;

	if (!is_pending() || cancels())
		return;
	unreported = take_unreported();
	notify(&unreported);
}

/*
 * Under "cancel", a transaction that holds a revoked lock gets the error with its next
 * statement, if release was requested during idle time: only the end of the transaction
 * releases the lock.  For a session-level lock there is only a notice, because the next
 * statement may be the one that releases it.
 */
void
zklock_process_revocation(bool is_cancelled)
{
	Unreported	unreported;

	if (!is_pending())
		return;
	unreported = take_unreported();
	if (unreported.names.n > 0 && cancels() &&
		(is_cancelled || unreported.cancelling || unreported.in_transaction))
		raise_cancel(&unreported);
	notify(&unreported);
}

void
zklock_rewrite_revoked(ErrorData *error)
{
	Unreported	unreported;

	if (error->elevel != ERROR || error->sqlerrcode != ERRCODE_QUERY_CANCELED ||
		!is_pending() || !cancels())
		return;
	unreported = take_unreported();
	if (unreported.names.n == 0)
		return;
	error->message = psprintf(unreported.names.n == 1 ? CANCEL_ONE : CANCEL_SEVERAL,
							  zklock_list_text(&unreported.names));
	error->hint = pstrdup(CANCEL_HINT);
}

void
zklock_drop_revocation(void)
{
	if (!is_pending() || is_any_unreported())
		return;
	(void) zklock_cancel_settle(ZKLOCK_CANCEL_REVOCATION);
	if (is_any_unreported())	/* requested just now */
		zklock_on_revoke_io();
}

bool
zklock_is_revoked(const ZklockName *name)
{
	ZklockHold *hold = zklock_hold_find(name);

	return hold && hold->lock && zkl_lock_revocations(hold->lock) > 0;
}
