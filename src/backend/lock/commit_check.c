/*-------------------------------------------------------------------------
 *
 * commit_check.c
 *		Refuses the commit of a transaction unless it is certain that it has held its locks.
 *
 * It is certain while the lease lasts; after that, or if zklock.commit_check is "always", the
 * ensemble is asked, and the commit waits for the answer.  Only this file refuses commits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

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

/* The check of the current transaction. */
static struct
{
	/*
	 * The first ZooKeeper session in which it released a lock after the lease had expired,
	 * so that it is unknown whether the lock was still held, and the first of these locks; or 0.
	 */
	int64		unproven;
	ZklockKeptNames released;

	bool		begun;
	bool		is_nested;		/* in a procedure, which may catch the error */
	bool		unconfirmed;	/* the ensemble was asked, and has not confirmed the locks */
}			check;

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
	if (check.begun)
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
	zklock_cancel_begin();
	PG_TRY();
	{
		zklock_wait(session, is_confirmed, &c);
	}
	PG_CATCH();
	{
		zklock_translate_cancel(context, !check.begun || check.is_nested, InSecurityRestrictedOperation());
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
raise_unconfirmed(const ZklockNameList *list, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 !check.begun || check.unproven == 0
			 ? errmsg("could not verify that this session still holds %s", zklock_list_text(list))
			 : errmsg("could not verify that this session held %s until the release or the commit",
					  zklock_list_text(list)),
			 errdetail_internal("%s", detail),
			 errhint("Acquire the lock again when the ensemble is reachable, then retry the transaction.")));
}

/* At commit.  A wait that is interrupted refuses the commit, too. */
static void
confirm_all(void)
{
	ZklockNameList held;
	const char *problem;

	check.unconfirmed = true;
	problem = confirm(zklock_commit_check == ZKLOCK_COMMIT_CHECK_ALWAYS);
	if (problem)
	{
		held = list_held();
		raise_unconfirmed(check.unproven != 0 ? &check.released.list : &held, problem);
	}
	check.unconfirmed = false;
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
	raise_unconfirmed(&list, problem);
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
	if (check.unproven == 0)
		check.unproven = zkl_session_info(session).key.id;
	zklock_list_hold(&list, released);
	zklock_keep_names(&check.released, &list);
}

/*
 * Throws 40001 unless the locks are held as surely as zklock.commit_check requires.  A
 * transaction without an ID can have effects, too: NOTIFY, writes through postgres_fdw.
 */
static void
prove_locks(void)
{
	ZklSession *session;
	bool		must_prove = check.unproven != 0;

	if (!zklock_has_failed() && !must_prove && !zklock_holds_any())
		return;
	zklock_check_loss();		/* also if it was kept, and the error caught */
	session = zklock_session_current();
	if (must_prove && (session == NULL || zkl_session_info(session).key.id != check.unproven))
		zklock_fail_later(&check.released.list);
	zklock_raise_failure();
	if (zklock_commit_check == ZKLOCK_COMMIT_CHECK_OFF)
		return;

	if (must_prove || zklock_commit_check == ZKLOCK_COMMIT_CHECK_ALWAYS ||
		!zkl_session_lease_lasts(session, true))
		confirm_all();
}

void
zklock_check_irreversible(void)
{
	check.begun = true;
	prove_locks();
	check.begun = false;
}

void
zklock_check_commit(bool is_nested)
{
	check.begun = true;
	check.is_nested = is_nested;
	prove_locks();
}

static ZklockNameList
noticed_losses(void)
{
	ZklockNameList none = {0};

	return zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS) ? zklock_mark_lost() : none;
}

/* Not to the client: a name that its encoding does not have would be an error. */
static void
log_late_losses(const ZklockNameList *lost)
{
	if (lost->n > 0)
		ereport(LOG_SERVER_ONLY,
				(errmsg_plural("lock %s was lost while a transaction that held it was being committed",
							   "locks %s were lost while a transaction that held them was being committed",
							   lost->n, zklock_list_text(lost)),
				 errdetail("The loss was detected too late to refuse the commit.")));
}

/*
 * The transaction was rolled back, or committed without a check, in a command that cannot fail: then
 * the next statement reports the loss of what stays held.
 */
static void
end_unchecked(bool aborted)
{
	zklock_log_unreported_losses(aborted);
	if (check.begun && (check.unconfirmed || zklock_has_failed() || noticed_losses().n > 0))
		zklock_count(ZKLOCK_STAT_COMMITS_REFUSED, 1);
}

void
zklock_end_transaction(bool aborted)
{
	if (check.begun && !aborted)
	{
		ZklockNameList lost = noticed_losses();

		log_late_losses(&lost);
	}
	else
		end_unchecked(aborted);
	zklock_forget_failure();
	check.unproven = 0;
	check.released.list.n = 0;
	check.begun = check.is_nested = check.unconfirmed = false;
}
