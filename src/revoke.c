/*-------------------------------------------------------------------------
 *
 * revoke.c
 *		Locks that others ask back, and what the holder does then.
 *
 * The client's threads notice a revocation, and count it.  Under
 * zklock.on_revoke = cancel or terminate they also send this process the signal
 * that does so; everything else waits for the next moment at which the backend
 * passes here: the hooks of lifecycle.c, the wait of wait.c.
 *
 * Never lets go of anything by itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "lib/stringinfo.h"
#include "miscadmin.h"

#include "holds.h"
#include "loss.h"
#include "revoke.h"
#include "session.h"
#include "settings.h"
#include "stats.h"

#define CANCEL_ONE "canceling statement because lock %s was asked back"
#define CANCEL_SEVERAL "canceling statement because locks %s were asked back"
#define CANCEL_HINT "What is held at session level stays held: release it with zk_unlock()."
#define END_ONE "terminating connection because lock %s was asked back"
#define END_SEVERAL "terminating connection because locks %s were asked back"

/* Counted by the threads, which do so with the session's mutex held. */
static volatile sig_atomic_t noticed = 0;
static volatile sig_atomic_t cancels_sent = 0;

/* How many of them are dealt with. */
static sig_atomic_t heeded = 0;
static sig_atomic_t cancels_settled = 0;

volatile sig_atomic_t zklock_committing = false;

/* The counts at some moment. */
typedef struct Seen
{
	sig_atomic_t noticed;
	sig_atomic_t cancels;
} Seen;

void
zklock_on_revoke_io(void)
{
	noticed++;
	if (zklock_committing)
		return;
	if (zklock_on_revoke == ZKLOCK_ON_REVOKE_CANCEL)
	{
		cancels_sent++;
		(void) kill(getpid(), SIGINT);
	}
	else if (zklock_on_revoke == ZKLOCK_ON_REVOKE_TERMINATE)
		(void) kill(getpid(), SIGTERM);
}

bool
zklock_revocation_pending(void)
{
	return noticed != heeded;
}

bool
zklock_revocation_cancels(void)
{
	return cancels_sent != cancels_settled;
}

/*
 * What is counted can be seen in the locks when this returns, and its signals
 * have arrived: a thread has sent them by the time it lets go of the session,
 * and they come in with the next system call.
 */
static Seen
look(void)
{
	Seen		seen = {noticed, cancels_sent};
	ZklSession *session = zklock_session_current();

	if (session)
		(void) zkl_session_state(session);
	(void) getppid();
	return seen;
}

/*
 * All that was seen is dealt with.  Drops its cancel, unless another reason for
 * one has come; tells whether there was one to drop: PostgreSQL itself drops
 * those that come while a session idles.
 */
static bool
settle(Seen seen)
{
	bool		cancelling = false;

	heeded = seen.noticed;
	if (seen.cancels != cancels_settled)
	{
		cancelling = QueryCancelPending;
		if (!zklock_loss_noticed && cancels_sent == seen.cancels)
			QueryCancelPending = false;
		cancels_settled = seen.cancels;
	}
	return cancelling;
}

static bool
is_untold(const ZklockHold *hold)
{
	return hold->lock != NULL &&
		zkl_lock_revocations(hold->lock) > hold->revocations_told;
}

static bool
is_any_untold(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
	{
		if (is_untold(dlist_container(ZklockHold, link, iter.cur)))
			return true;
	}
	return false;
}

/* What is being told. */
typedef struct Untold
{
	int			n;
	StringInfoData names;
	bool		in_transaction; /* some are held at transaction level */
	bool		cancelling;		/* and were about to cancel something */
} Untold;

static void
take_hold(Untold *untold, ZklockHold *hold)
{
	int			revocations = zkl_lock_revocations(hold->lock);

	appendStringInfo(&untold->names, "%s\"%s\"", untold->n++ > 0 ? ", " : "",
					 hold->name.display);
	if (hold->exclusive.n_levels > 0 || hold->shared.n_levels > 0)
		untold->in_transaction = true;
	zklock_count(ZKLOCK_STAT_REVOCATIONS, revocations - hold->revocations_told);
	hold->revocations_told = revocations;
}

/* From now on all of it counts as told. */
static Untold
take_untold(void)
{
	Untold		untold = {0};
	dlist_iter	iter;
	Seen		seen;

	initStringInfo(&untold.names);
	do
	{
		seen = look();
		dlist_foreach(iter, &zklock_holds)
		{
			ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

			if (is_untold(hold))
				take_hold(&untold, hold);
		}
	} while (seen.noticed != noticed);
	untold.cancelling = settle(seen);
	return untold;
}

static void
notify(const Untold *untold)
{
	if (untold->n == 0 || zklock_on_revoke == ZKLOCK_ON_REVOKE_IGNORE)
		return;
	ereport(NOTICE,
			(errmsg_plural("lock %s was asked back", "locks %s were asked back",
						   untold->n, untold->names.data),
			 errhint("Release what is held at session level with zk_unlock(); end the transaction for what it holds.")));
}

static void
raise_cancel(const Untold *untold)
{
	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg_plural(CANCEL_ONE, CANCEL_SEVERAL, untold->n, untold->names.data),
			 errhint(CANCEL_HINT)));
}

void
zklock_tell_revocation(void)
{
	Untold		untold;

	if (!zklock_revocation_pending() ||
		zklock_on_revoke == ZKLOCK_ON_REVOKE_CANCEL ||
		zklock_on_revoke == ZKLOCK_ON_REVOKE_TERMINATE)
		return;
	untold = take_untold();
	notify(&untold);
}

/*
 * Under "cancel" a transaction that holds what was asked back while it idled is
 * refused its next statement, as it would have been cancelled if it had run:
 * only its end lets go.  A session that holds it beyond transactions is told,
 * because its next statement may be the one that lets go.
 */
void
zklock_heed_revocation(void)
{
	Untold		untold;

	if (!zklock_revocation_pending())
		return;
	if (zklock_on_revoke == ZKLOCK_ON_REVOKE_TERMINATE)
	{
		zklock_drop_revocation();
		CHECK_FOR_INTERRUPTS();
		return;
	}
	untold = take_untold();
	if (untold.n > 0 && zklock_on_revoke == ZKLOCK_ON_REVOKE_CANCEL &&
		(untold.cancelling || untold.in_transaction))
		raise_cancel(&untold);
	notify(&untold);
}

void
zklock_raise_revoked(void)
{
	Untold		untold;

	if (!zklock_revocation_cancels())
		return;
	untold = take_untold();
	if (untold.n > 0)
		raise_cancel(&untold);
}

void
zklock_rewrite_revoked(ErrorData *error)
{
	bool		cancels = error->elevel == ERROR &&
		error->sqlerrcode == ERRCODE_QUERY_CANCELED && zklock_revocation_cancels();
	bool		ends = error->elevel == FATAL &&
		error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN && zklock_revocation_pending() &&
		zklock_on_revoke == ZKLOCK_ON_REVOKE_TERMINATE;
	Untold		untold;

	if (!cancels && !ends)
		return;
	untold = take_untold();
	if (untold.n == 0)
		return;
	error->message = psprintf(ends ? (untold.n == 1 ? END_ONE : END_SEVERAL)
							  : (untold.n == 1 ? CANCEL_ONE : CANCEL_SEVERAL),
							  untold.names.data);
	if (cancels)
		error->hint = pstrdup(CANCEL_HINT);
}

void
zklock_drop_revocation(void)
{
	Seen		seen;

	if (!zklock_revocation_pending())
		return;
	seen = look();
	if (!is_any_untold())
		(void) settle(seen);
	else if (zklock_on_revoke == ZKLOCK_ON_REVOKE_TERMINATE)
		(void) kill(getpid(), SIGTERM);
}

void
zklock_begin_commit(void)
{
	zklock_committing = true;
	if (!zklock_holds_any())
		return;
	(void) look();
	if (zklock_loss_noticed)
		zklock_check_loss();
	if (zklock_revocation_cancels())
		CHECK_FOR_INTERRUPTS();
}

void
zklock_end_commit(void)
{
	zklock_committing = false;
}

bool
zklock_is_revoked(const ZklockName *name)
{
	ZklockHold *hold = zklock_hold_find(name);

	return hold && hold->lock && zkl_lock_revocations(hold->lock) > 0;
}
