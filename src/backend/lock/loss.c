/*-------------------------------------------------------------------------
 *
 * loss.c
 *		Finds lost locks, and reports them: to a statement or, after a rollback, in the server log.
 *
 * The recipe layer detects a loss, in any thread, and requests a cancel of the
 * running statement (cancel.c).  The hooks of hooks.c then call the functions
 * here, to raise the error of the loss.  From then on the transaction has failed, even if it
 * catches the error: commit_check.c refuses its commit.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "backend/base/holds.h"
#include "backend/lock/lock.h"
#include "backend/lock/loss.h"
#include "backend/session/interrupt.h"
#include "backend/session/session.h"
#include "backend/session/shared_memory.h"
#include "recipe/recipe.h"

#define LOST_ONE "lock %s was lost"
#define LOST_SEVERAL "locks %s were lost"
#define LOST_HINT "Acquire the lock again, then retry the transaction."

/* What losses mean for the current transaction. */
static struct
{
	bool		failed;			/* it cannot commit, even if the error was caught */
	bool		reported;		/* an error has named the locks because of which "failed" was set */
	ZklockKeptNames affected;	/* the first ones */
}			transaction;

/*
 * Marks the lost locks, and returns their names.  The session can end at any moment, in its own
 * thread: *session_is_lost is what the marks are based on.
 */
static ZklockNameList
mark_lost(bool *session_is_lost)
{
	ZklSession *session = zklock_session_current();
	ZklockNameList list = {0};
	dlist_iter	iter;

	*session_is_lost = session != NULL && zklock_session_is_lost(session);
	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		hold->lost = hold->lock != NULL && (*session_is_lost || zkl_lock_is_lost(hold->lock));
		if (hold->lost)
			zklock_list_hold(&list, hold);
	}
	return list;
}

ZklockNameList
zklock_mark_lost(void)
{
	bool		session_is_lost;

	return mark_lost(&session_is_lost);
}

/* Returns why "n" locks are lost, for DETAIL. */
static char *
lost_detail(bool session_is_lost, int n)
{
	ZklSession *session = zklock_session_current();
	const char *reason = n == 1 ? "The znode was removed" : "The znodes were removed";

	if (session_is_lost)
		reason = zkl_session_state(session) == ZKL_SESSION_AUTH_FAILED
			? "The ZooKeeper ensemble refused the session's credentials"
			: zkl_session_info(session).is_unproven
			? "The ZooKeeper ensemble did not confirm the session in time"
			: "The ZooKeeper session expired";
	return psprintf("%s: others may have held the %s since.", reason, n == 1 ? "lock" : "locks");
}

/* Removes the locks that are marked as lost. */
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

static bool
is_unreported_failure(void)
{
	return transaction.failed && !transaction.reported;
}

/*
 * Raises the loss, and forgets it; or, with "keep", raises it again later.  The author of an
 * index expression must not hide a loss from the session's user.  So code in a
 * security-restricted operation cannot make it forgotten by catching the error: the cancel goes on until
 * a statement outside of the operation raises the loss.
 */
static void
raise_loss(bool keep)
{
	ZklSession *session = zklock_session_current();
	ZklockNameList lost;
	ZklockNameList named;
	const char *names = NULL;
	const char *detail = NULL;
	bool		session_lost;

	/* First: what is lost after the question leaves its cancel pending. */
	zklock_cancel_settle(ZKLOCK_CANCEL_LOSS);
	if (session == NULL || zkl_session_is_intact(session))
		return;
	/* This check ends a session whose lease has expired, and so requests a cancel. */
	zklock_cancel_settle(ZKLOCK_CANCEL_LOSS);

	/* The next check reports what is not marked here, and closes a session that ends now. */
	lost = mark_lost(&session_lost);
	keep = keep && lost.n > 0;
	named = lost;
	if (lost.n > 0)
	{
		if (!keep && is_unreported_failure())
			named.n += transaction.affected.list.n;
		names = zklock_list_text(&named);
		detail = lost_detail(session_lost, named.n);
		zklock_fail_transaction(&lost);
		transaction.reported = true;
	}
	if (keep)
		zklock_on_loss_io();
	else
		forget_lost();
	if (session_lost && !keep)
		zklock_session_close(ZKLOCK_CLOSE_MS);
	if (lost.n > 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg_plural(LOST_ONE, LOST_SEVERAL, named.n, names),
				 errdetail_internal("%s", detail), errhint(LOST_HINT)));
}

void
zklock_check_loss(void)
{
	raise_loss(InSecurityRestrictedOperation());
}

void
zklock_report_loss(void)
{
	if (zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS) && !zklock_is_irreversible())
		zklock_check_loss();
}

static void
fail_transaction(const ZklockNameList *list, bool is_reported)
{
	bool		adds = !is_reported && is_unreported_failure();

	/* The next error names what none has named. */
	if (transaction.reported && !is_reported)
		transaction.affected.list.n = 0;
	transaction.reported = is_reported && !is_unreported_failure();
	transaction.failed = true;
	zklock_keep_names(&transaction.affected, list);
	if (adds)
		transaction.affected.list.n += list->n;
}

void
zklock_fail_transaction(const ZklockNameList *list)
{
	fail_transaction(list, true);
}

void
zklock_fail_later(const ZklockNameList *list)
{
	fail_transaction(list, false);
}

bool
zklock_has_failed(void)
{
	return transaction.failed;
}

void
zklock_raise_failure(void)
{
	if (!transaction.failed)
		return;
	transaction.reported = true;
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not commit because a lock that this transaction relied on was lost"),
			 errdetail("Affected: %s.", zklock_list_text(&transaction.affected.list)),
			 errhint(LOST_HINT)));
}

/*
 * The cancel of a loss has ended a subtransaction, whose rollback has released the lock: PL/pgSQL
 * rolls back its block before it looks for a handler.
 */
static void
raise_released(void)
{
	if (!is_unreported_failure())
		return;
	transaction.reported = true;
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg_plural(LOST_ONE, LOST_SEVERAL, transaction.affected.list.n,
						   zklock_list_text(&transaction.affected.list)),
			 errdetail("What was lost has been released since."),
			 errhint(LOST_HINT)));
}

void
zklock_translate_cancel(MemoryContext context, bool is_nested, bool is_restricted)
{
	ErrorData  *error;
	bool		is_loss;

	switch (geterrcode())
	{
		case ERRCODE_EXTERNAL_ROUTINE_EXCEPTION:	/* of a program that a cancel has ended */
		case ERRCODE_QUERY_CANCELED:	/* a handler for 40001 must not catch a user's */
			is_loss = !is_nested || zklock_cancel_is_ours();
			break;
		case ERRCODE_T_R_SERIALIZATION_FAILURE: /* perhaps raised and kept */
			is_loss = !is_restricted;
			break;
		default:
			is_loss = false;
	}
	if (!is_loss || !(zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS) || is_unreported_failure()))
		return;
	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	raise_loss(is_restricted);
	raise_released();
	ReThrowError(error);
}

void
zklock_release_lost_locally(void)
{
	dlist_iter	iter;

	if (!zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS) || zklock_mark_lost().n == 0)
		return;
	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		if (hold->lost)
			zklock_release_locally(hold);
	}
}

void
zklock_withdraw_cancels(void)
{
	if (zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS) && zklock_mark_lost().n == 0)
	{
		zklock_cancel_withdraw_loss();
		if (zklock_mark_lost().n > 0)	/* lost just now */
			zklock_on_loss_io();
	}
}

/*
 * Returns the lost locks that the end of this transaction releases, and that no error has named: a
 * cancel has ended its last statement outside of our hooks, the client has rolled it back, or it
 * belongs to a command that cannot be undone.
 */
static ZklockNameList
unreported_losses(void)
{
	ZklockNameList list = {0};
	dlist_iter	iter;

	if (is_unreported_failure())
		list = transaction.affected.list;
	if (!zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS))
		return list;
	(void) zklock_mark_lost();
	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		if (hold->lost && hold->exclusive.session == 0 && hold->shared.session == 0)
			zklock_list_hold(&list, hold);
	}
	return list;
}

/* Nobody else would learn why: the program has got an error of a cancel at most. */
void
zklock_log_unreported_losses(bool aborted)
{
	ZklockNameList lost = unreported_losses();

	if (lost.n == 0)
		return;
	ereport(LOG_SERVER_ONLY,
			(aborted
			 ? errmsg_plural("lock %s was lost, and the transaction that held it was rolled back",
							 "locks %s were lost, and the transaction that held them was rolled back",
							 lost.n, zklock_list_text(&lost))
			 : errmsg_plural("lock %s was lost, and the transaction that held it was committed",
							 "locks %s were lost, and the transaction that held them was committed",
							 lost.n, zklock_list_text(&lost)),
			 aborted ? errdetail("No error has named the loss.")
			 : errdetail("The transaction belongs to a command that cannot be undone.")));
}

void
zklock_forget_failure(void)
{
	transaction.failed = transaction.reported = false;
	transaction.affected.list.n = 0;
}
