/*-------------------------------------------------------------------------
 *
 * loss.c
 *		Reports lost locks, and refuses commits that relied on them.
 *
 * The recipe layer detects a loss, in any thread, and requests a cancel of the
 * running statement (cancel.c).  The hooks of hooks.c then call the functions
 * here, to raise the error of the loss.  Only this file refuses commits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "backend/base/holds.h"
#include "backend/base/settings.h"
#include "backend/lock/lock.h"
#include "backend/lock/loss.h"
#include "backend/session/interrupt.h"
#include "backend/session/session.h"
#include "backend/session/shared_memory.h"
#include "backend/session/wait.h"
#include "recipe/recipe.h"
#include "compat.h"

#define LOST_ONE "lock %s was lost"
#define LOST_SEVERAL "locks %s were lost"
#define LOST_HINT "Acquire the lock again, then retry the transaction."

/* What losses mean for the current transaction. */
typedef struct LossState
{
	/*
	 * It cannot commit, even if the error was caught: a lock was lost, or the ensemble has
	 * not confirmed the locks at commit.
	 */
	bool		failed;

	/*
	 * The first ZooKeeper session in which it released a lock after the lease had expired,
	 * so that it is unknown whether the lock was still held; or 0.
	 */
	int64		unproven;

	bool		reported;		/* an error has named the locks because of which "failed" was set */
	bool		at_commit;		/* the check of the commit has begun */
} LossState;

static LossState transaction;

/* The first locks because of which "failed" was set, or "unproven" if it is not, for errors. */
static ZklockNameList affected;
static char affected_name[ZKLOCK_LIST_NAME_BYTES];

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

/* Marks the lost locks, and returns whether there are any. */
static bool
mark_any_lost(void)
{
	bool		session_is_lost;

	return mark_lost(&session_is_lost).n > 0;
}

static ZklockNameList
list_held(void)
{
	ZklockNameList list = {0};
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		if (hold->lock)
			zklock_list_hold(&list, hold);
	}
	return list;
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
	if (lost.n > 0)
	{
		names = zklock_list_text(&lost);
		detail = lost_detail(session_lost, lost.n);
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
				 errmsg_plural(LOST_ONE, LOST_SEVERAL, lost.n, names),
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
	if (zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS))
		zklock_check_loss();
}

static void
keep_affected(const ZklockNameList *list)
{
	if (affected.n > 0 || list->n == 0)
		return;
	strlcpy(affected_name, list->name, sizeof(affected_name));
	affected = (ZklockNameList) {.n = list->n, .name = affected_name};
}

static void
fail_transaction(const ZklockNameList *list, bool is_reported)
{
	if (!transaction.failed)
	{
		affected.n = 0;
		transaction.reported = is_reported;
	}
	transaction.failed = true;
	keep_affected(list);
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

void
zklock_translate_cancel(MemoryContext context, bool is_restricted)
{
	ErrorData  *error;
	bool		is_loss;

	switch (geterrcode())
	{
		case ERRCODE_QUERY_CANCELED:
		case ERRCODE_EXTERNAL_ROUTINE_EXCEPTION:	/* of a program that a cancel has ended */
			is_loss = true;
			break;
		case ERRCODE_T_R_SERIALIZATION_FAILURE: /* perhaps raised and kept */
			is_loss = !is_restricted;
			break;
		default:
			is_loss = false;
	}
	if (!is_loss || !zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS))
		return;
	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	raise_loss(is_restricted);
	ReThrowError(error);
}

void
zklock_release_lost_locally(void)
{
	dlist_iter	iter;

	if (!zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS) || !mark_any_lost())
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
	if (zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS) && !mark_any_lost())
	{
		zklock_cancel_settle(ZKLOCK_CANCEL_LOSS);
		if (mark_any_lost())	/* lost just now */
			zklock_on_loss_io();
	}
}

/* State of the wait for a confirmation. */
typedef struct Confirmation
{
	ZklSession *session;
	int64		deadline;
	int64		statement_deadline;
	ZklStatus	status;			/* at the last check */
} Confirmation;

static bool
is_confirmed(void *arg, int64 *check_again)
{
	Confirmation *c = arg;

	*check_again = Min(c->deadline, c->statement_deadline);
	if (transaction.at_commit)
		zklock_wait_is_for(ZKLOCK_WAIT_COMMIT_CHECK);
	c->status = zkl_session_confirmed(c->session);
	if (c->status == ZKL_PENDING && zkl_now_ms() >= c->statement_deadline)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceling statement due to statement timeout")));
	return c->status != ZKL_PENDING || zkl_now_ms() >= c->deadline;
}

/*
 * Asks the ensemble to confirm that everything that the session holds is still held.  Returns the
 * reason if it does not, for DETAIL.
 */
static const char *
confirm(bool fresh)
{
	ZklSession *session = zklock_session_current();
	int			timeout_ms = Min(zkl_session_info(session).session_timeout_ms,
								 Max(zklock_session_timeout, zklock_ensemble_timeout));
	Confirmation c = {
		session, zkl_now_ms() + timeout_ms, zklock_statement_deadline(), ZKL_PENDING
	};
	MemoryContext context = CurrentMemoryContext;

	zkl_session_confirm(session, fresh);
	PG_TRY();
	{
		zklock_wait(session, is_confirmed, &c);
	}
	PG_CATCH();
	{
		zklock_translate_cancel(context, InSecurityRestrictedOperation());
		PG_RE_THROW();
	}
	PG_END_TRY();
	zklock_check_loss();		/* closes a lost session */
	if (c.status == ZKL_OK)
		return NULL;
	return c.status == ZKL_PENDING
		? psprintf("The ZooKeeper ensemble did not answer within %d ms.", timeout_ms)
		: c.status == ZKL_SERVER_ERROR ? "The ZooKeeper ensemble gave an unexpected answer."
		: "The ZooKeeper session has ended.";
}

static _Noreturn void
raise_unconfirmed(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 !transaction.at_commit || transaction.unproven == 0
			 ? errmsg("could not verify that this session still holds %s", zklock_list_text(&affected))
			 : errmsg("could not verify that this session held %s until the release or the commit",
					  zklock_list_text(&affected)),
			 errdetail_internal("%s", detail),
			 errhint("Acquire the lock again when the ensemble is reachable, then retry the transaction.")));
}

/* At commit.  A wait that is interrupted refuses the commit, too. */
static void
confirm_all(void)
{
	ZklockNameList held;
	const char *problem;

	transaction.failed = transaction.reported = true;	/* until it is confirmed */
	problem = confirm(zklock_commit_check == ZKLOCK_COMMIT_CHECK_ALWAYS);
	transaction.failed = problem != NULL;
	if (problem == NULL)
		return;
	held = list_held();
	keep_affected(&held);
	raise_unconfirmed(problem);
}

void
zklock_confirm_hold(const ZklockHold *hold)
{
	ZklockNameList list = {0};
	const char *problem = confirm(true);

	if (problem == NULL)
		return;
	zklock_list_hold(&list, hold);
	zklock_fail_transaction(&list);
	raise_unconfirmed(problem);
}

void
zklock_check_release(const ZklockHold *released)
{
	ZklSession *session = zklock_session_current();
	ZklockNameList list = {0};

	if (session == NULL || released->lock == NULL)
		return;
	if (zklock_is_lost(released))
	{
		zklock_list_hold(&list, released);
		zklock_fail_later(&list);
		return;
	}
	if (zklock_commit_check == ZKLOCK_COMMIT_CHECK_OFF)
		return;
	if (zklock_commit_check != ZKLOCK_COMMIT_CHECK_ALWAYS && zkl_session_lease_lasts(session, false))
		return;
	if (transaction.unproven == 0)
		transaction.unproven = zkl_session_info(session).key.id;
	zklock_list_hold(&list, released);
	keep_affected(&list);
}

/*
 * Throws 40001 unless the locks are held as surely as zklock.commit_check requires.  A
 * transaction without an ID can have effects, too: NOTIFY, writes through postgres_fdw.
 */
static void
prove_locks(void)
{
	ZklSession *session;
	bool		must_prove = transaction.unproven != 0;

	if (!transaction.failed && !must_prove && !zklock_holds_any())
		return;
	zklock_check_loss();		/* also if it was kept, and the error caught */
	session = zklock_session_current();
	if (must_prove && (session == NULL || zkl_session_info(session).key.id != transaction.unproven))
		transaction.failed = true;
	transaction.reported = true;
	if (transaction.failed)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not commit because a lock that this transaction relied on was lost"),
				 errdetail("Affected: %s.", zklock_list_text(&affected)),
				 errhint(LOST_HINT)));
	if (zklock_commit_check == ZKLOCK_COMMIT_CHECK_OFF)
		return;

	if (must_prove || zklock_commit_check == ZKLOCK_COMMIT_CHECK_ALWAYS ||
		!zkl_session_lease_lasts(session, true))
		confirm_all();
}

void
zklock_check_irreversible(void)
{
	transaction.at_commit = true;
	prove_locks();
	transaction.at_commit = false;
}

void
zklock_check_commit(void)
{
	transaction.at_commit = true;
	prove_locks();
}

void
zklock_log_late_losses(void)
{
	ZklockNameList lost;
	bool		session_lost;

	/* A loss in a command that cannot fail is reported by the next statement. */
	if (!transaction.at_commit || !zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS))
		return;
	lost = mark_lost(&session_lost);
	if (lost.n == 0)
		return;

	/* Not to the client: a name that its encoding does not have would be an error. */
	ereport(LOG_SERVER_ONLY,
			(errmsg_plural("lock %s was lost while a transaction that held it was being committed",
						   "locks %s were lost while a transaction that held them was being committed",
						   lost.n, zklock_list_text(&lost)),
			 errdetail("The loss was detected too late to refuse the commit.")));
}

/*
 * Returns the lost locks that the end of this transaction releases, and that no error has named: a
 * cancel has ended its last statement outside of our hooks, or the client has rolled it back.
 */
static ZklockNameList
unreported_losses(void)
{
	ZklockNameList list = {0};
	dlist_iter	iter;

	if (transaction.failed && !transaction.reported)
		return affected;
	if (!zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS))
		return list;
	(void) mark_any_lost();
	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		if (hold->lost && hold->exclusive.session == 0 && hold->shared.session == 0)
			zklock_list_hold(&list, hold);
	}
	return list;
}

/* After a rollback.  Nobody else would learn why: the program has got an error of a cancel at most. */
static void
log_unreported_losses(void)
{
	ZklockNameList lost = unreported_losses();

	if (lost.n == 0)
		return;
	ereport(LOG_SERVER_ONLY,
			(errmsg_plural("lock %s was lost, and the transaction that held it was rolled back",
						   "locks %s were lost, and the transaction that held them was rolled back",
						   lost.n, zklock_list_text(&lost)),
			 errdetail("No error has named the loss.")));
}

void
zklock_end_transaction(bool aborted)
{
	if (aborted)
		log_unreported_losses();
	if (aborted && transaction.at_commit &&
		(transaction.failed || (zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS) && mark_any_lost())))
		zklock_count(ZKLOCK_STAT_COMMITS_REFUSED, 1);
	transaction = (LossState) {0};
	affected.n = 0;
}
