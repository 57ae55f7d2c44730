/*-------------------------------------------------------------------------
 *
 * loss.c
 *		Locks that were lost, and the check at commit.
 *
 * The client's threads notice a loss.  They may not touch PostgreSQL, so they
 * set a flag and send this process the signal that cancels statements; the
 * hooks of lifecycle.c then call here, to raise what really happened.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"

#include "holds.h"
#include "locks.h"
#include "loss.h"
#include "revoke.h"
#include "session.h"
#include "settings.h"
#include "stats.h"
#include "wait.h"

#define LOST_ONE "lock %s was lost"
#define LOST_SEVERAL "locks %s were lost"
#define LOST_DETAIL "The ZooKeeper session that held it is over, or its znode was removed: others may have held the lock since."
#define LOST_HINT "Retry the transaction."

/* A lock was lost in this transaction: whatever caught the error, it can't commit. */
static bool doomed = false;

/*
 * The ZooKeeper session in which this transaction released a lock when the
 * lease was over, so that it is not known whether it still held it; else 0.
 */
static int64 unproven = 0;

/* What is marked as lost was told already, in place of a cancel. */
static bool rewritten = false;

volatile sig_atomic_t zklock_loss_noticed = false;

void
zklock_on_loss_io(void)
{
	zklock_loss_noticed = true;
	if (!zklock_committing)
		(void) kill(getpid(), SIGINT);
}

/*
 * What was noticed will be looked at now: the statement need not be cancelled
 * for it any more.  A thread that has set the flag has sent its signal by the
 * time it lets go of the session, which is asked something here; and a signal
 * that was sent arrives with the next system call.
 */
static void
take_notice(ZklSession *session)
{
	if (!zklock_loss_noticed)
		return;
	zklock_loss_noticed = false;
	if (session)
		(void) zkl_session_state(session);
	(void) getppid();
	QueryCancelPending = false;
}

/* Marks what is lost; returns how many they are. */
static int
mark_lost(bool session_is_over)
{
	int			n = 0;
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		hold->lost = hold->lock != NULL &&
			(session_is_over || zkl_lock_is_lost(hold->lock));
		n += hold->lost;
	}
	return n;
}

static bool
is_listed(const ZklockHold *hold, bool lost_only)
{
	return lost_only ? hold->lost : hold->lock != NULL;
}

/* Is the name listed already, for another permit of the semaphore? */
static bool
is_repeated(ZklockHold *hold, bool lost_only)
{
	dlist_node *node = &hold->link;

	while (dlist_has_prev(&zklock_holds, node))
	{
		ZklockHold *before;

		node = dlist_prev_node(&zklock_holds, node);
		before = dlist_container(ZklockHold, link, node);
		if (is_listed(before, lost_only) && zklock_hold_is_alike(before, hold))
			return true;
	}
	return false;
}

/* The names of the locks that are held, or of those marked as lost; and how many. */
static char *
list_locks(bool lost_only, int *n)
{
	StringInfoData names;
	dlist_iter	iter;

	*n = 0;
	initStringInfo(&names);
	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		if (is_listed(hold, lost_only) && !is_repeated(hold, lost_only))
			appendStringInfo(&names, "%s\"%s\"", (*n)++ > 0 ? ", " : "",
							 hold->name.display);
	}
	return names.data;
}

static void
forget_lost(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		if (!hold->lost)
			continue;
		zklock_lose(hold);
		zklock_count(ZKLOCK_STAT_LOCKS_LOST, 1);
	}
}

void
zklock_check_loss(void)
{
	ZklSession *session = zklock_session_current();
	char	   *names = NULL;
	bool		over;
	int			n;

	take_notice(session);
	if (session == NULL || zkl_session_is_intact(session))
		return;

	/*
	 * The session can end at any moment, on a thread of its own.  It may be
	 * closed only if everything that was held in it has been marked as lost.
	 */
	over = zklock_session_is_over(session);
	n = mark_lost(over);
	if (!over && n > 0 && zklock_session_is_over(session))
	{
		over = true;
		n = mark_lost(over);
	}
	if (n > 0)
	{
		names = list_locks(true, &n);
		doomed = true;
		forget_lost();
	}
	if (over)
		zklock_session_close(ZKLOCK_CLOSE_MS);
	if (n > 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg_plural(LOST_ONE, LOST_SEVERAL, n, names),
				 errdetail(LOST_DETAIL), errhint(LOST_HINT)));
}

void
zklock_doom(void)
{
	doomed = true;
}

void
zklock_translate_cancel(MemoryContext context)
{
	ErrorData  *cancel;

	if (geterrcode() != ERRCODE_QUERY_CANCELED ||
		!(zklock_loss_noticed || zklock_revocation_cancels()))
		return;
	MemoryContextSwitchTo(context);
	cancel = CopyErrorData();
	FlushErrorState();
	zklock_check_loss();
	zklock_raise_revoked();
	ReThrowError(cancel);
}

void
zklock_rewrite_cancel(ErrorData *cancel)
{
	ZklSession *session = zklock_session_current();
	int			n = session ? mark_lost(zklock_session_is_over(session)) : 0;
	char	   *names;

	if (n == 0)
		return;
	cancel->sqlerrcode = ERRCODE_T_R_SERIALIZATION_FAILURE;
	names = list_locks(true, &n);
	cancel->message = psprintf(n == 1 ? LOST_ONE : LOST_SEVERAL, names);
	cancel->detail = pstrdup(LOST_DETAIL);
	cancel->hint = pstrdup(LOST_HINT);
	rewritten = true;
}

void
zklock_drop_notice(void)
{
	if (zklock_loss_noticed && !zklock_holds_any())
		take_notice(zklock_session_current());
	zklock_drop_revocation();
}

/* What the wait for a confirmation needs to know. */
typedef struct Confirmation
{
	ZklSession *session;
	int64		deadline;
} Confirmation;

static bool
is_confirmed(void *arg, int64 *look_again)
{
	Confirmation *c = arg;

	*look_again = c->deadline;
	return zkl_session_confirmed(c->session) != ZKL_PENDING ||
		zklock_now() >= c->deadline;
}

/* Asks the ensemble whether everything that is held is held. */
static void
confirm(ZklSession *session, int session_timeout_ms)
{
	Confirmation c = {session, zklock_now() + session_timeout_ms};
	ZklStatus	status;
	int			n;
	MemoryContext context = CurrentMemoryContext;

	zkl_session_confirm(session);
	PG_TRY();
	{
		zklock_wait_at_commit(session, is_confirmed, &c);
	}
	PG_CATCH();
	{
		zklock_translate_cancel(context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	status = zkl_session_confirmed(session);
	zklock_check_loss();		/* closes a session that is over */
	if (status == ZKL_OK)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 zklock_holds_any()
			 ? errmsg("could not make sure that this session still holds %s",
					  list_locks(false, &n))
			 : errmsg("could not make sure that this session held its locks until it released them"),
			 status == ZKL_PENDING
			 ? errdetail("The ZooKeeper ensemble did not answer within %d ms.", session_timeout_ms)
			 : errdetail_internal("%s", zkl_status_text(status)),
			 errhint("Retry the transaction when the ensemble is back.")));
}

void
zklock_note_release(void)
{
	ZklSession *session = zklock_session_current();
	ZklLease	lease;

	if (session == NULL || zklock_commit_check == ZKLOCK_COMMIT_CHECK_OFF)
		return;
	lease = zkl_session_lease(session);
	if (lease.left_ms == 0 || zklock_commit_check == ZKLOCK_COMMIT_CHECK_ALWAYS)
		unproven = lease.session_id;
}

static void
check_commit(void)
{
	ZklSession *session;
	ZklLease	lease = {0};
	bool		must_prove = unproven != 0 &&
		TransactionIdIsValid(GetTopTransactionIdIfAny());

	if (!doomed && !must_prove && !zklock_holds_any())
		return;
	if (!doomed)
		zklock_check_loss();
	session = zklock_session_current();
	if (session)
		lease = zkl_session_lease(session);
	if (doomed || (must_prove && lease.session_id != unproven))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not commit because a lock that this transaction relied on was lost"),
				 errhint(LOST_HINT)));
	if (zklock_commit_check == ZKLOCK_COMMIT_CHECK_OFF)
		return;

	/* Half of the lease is left for what lies between here and the commit record. */
	if (must_prove || zklock_commit_check == ZKLOCK_COMMIT_CHECK_ALWAYS ||
		lease.left_ms < lease.session_timeout_ms / 6)
		confirm(session, lease.session_timeout_ms);
}

void
zklock_check_commit(void)
{
	PG_TRY();
	{
		check_commit();
	}
	PG_CATCH();
	{
		zklock_count(ZKLOCK_STAT_COMMITS_REFUSED, 1);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

void
zklock_forget_doom(void)
{
	doomed = false;
	unproven = 0;
	if (rewritten)
		forget_lost();
	rewritten = false;
}
