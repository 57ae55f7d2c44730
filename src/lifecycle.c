/*-------------------------------------------------------------------------
 *
 * lifecycle.c
 *		When locks end: the hooks into PostgreSQL.
 *
 * All callbacks of transactions, subtransactions, resource owners, statements
 * and process exit are here.
 *
 *	moment							may throw, wait		what happens
 *	------							---------------		------------
 *	PRE_COMMIT						yes					refuse if a lock was lost
 *	PRE_PREPARE						yes					refuse transaction-level locks
 *	commit record, visible
 *	resource release, phase LOCKS	no					release, as native locks are
 *	COMMIT, ABORT, PREPARE			no					forget that a lock was lost
 *	COMMIT_SUB						no					the parent inherits
 *	ABORT_SUB						no					release what is nested as deep
 *	executor, utility				yes					tell of a loss, of a revocation
 *	report of an error				no					the same, for what is in no executor
 *	before_shmem_exit				no, bounded			close the ZooKeeper session
 *	ABORT during exit				no					finds no session any more
 *
 * An error after PRE_COMMIT would be a PANIC of the whole server.  Callbacks
 * are registered once and never unregistered.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "nodes/parsenodes.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/resowner.h"

#include "compat.h"
#include "holds.h"
#include "lifecycle.h"
#include "locks.h"
#include "loss.h"
#include "revoke.h"
#include "session.h"

/* To be called by our hooks: those of whoever was loaded before, or PostgreSQL's own functions. */
static struct
{
	ExecutorStart_hook_type start;
	ExecutorRun_hook_type run;
	ExecutorFinish_hook_type finish;
	ProcessUtility_hook_type utility;
	emit_log_hook_type error;
}			previous;

static bool exit_registered = false;

static void
zklock_at_pre_prepare(void)
{
	ZklockHold *hold = zklock_holds_in_transaction();

	if (hold)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 hold->kind == ZKLOCK_SEMAPHORE
				 ? errmsg("cannot PREPARE a transaction that has taken a permit of semaphore \"%s\"",
						  hold->name.display)
				 : errmsg("cannot PREPARE a transaction that has taken lock \"%s\"",
						  hold->name.display),
				 errdetail("What is taken at transaction level ends with the session that took it."),
				 errhint("Take it at session level with zk_lock() or zk_acquire(), or do not use PREPARE TRANSACTION.")));
}

static void
zklock_at_transaction(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			zklock_check_commit();
			zklock_begin_commit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			zklock_at_pre_prepare();
			zklock_check_commit();
			zklock_begin_commit();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			zklock_forget_doom();
			zklock_end_commit();
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;
	}
}

static void
zklock_at_subtransaction(SubXactEvent event, SubTransactionId my_id,
						 SubTransactionId parent_id, void *arg)
{
	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			zklock_inherit_level(GetCurrentTransactionNestLevel());
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			zklock_release_levels(GetCurrentTransactionNestLevel());
			break;
		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
	}
}

/*
 * At the moment when native locks are released: the transaction is visible,
 * its catalog changes are published.  Called for every resource owner; the one
 * of the transaction itself is meant.
 */
static void
zklock_at_resource_release(ResourceReleasePhase phase, bool is_commit,
						   bool is_top_level, void *arg)
{
	if (phase == RESOURCE_RELEASE_LOCKS && is_top_level &&
		CurrentResourceOwner == TopTransactionResourceOwner)
	{
		zklock_release_levels(1);
		zklock_drop_notice();
	}
}

static void
zklock_at_exit(int code, Datum arg)
{
	zklock_session_close(ZKLOCK_CLOSE_MS);
	zklock_forget_ensemble();
}

/*
 * Statements.  One that was cancelled because a lock was lost fails with what
 * happened; one that begins hears of a loss that came while the session idled.
 * Nobody else's PG_CATCH sees the bare cancel, because the innermost hook
 * translates it.
 */

/* Runs a part of a statement. */
#define ZKLOCK_STATEMENT(part) \
	do { \
		MemoryContext context = CurrentMemoryContext; \
		PG_TRY(); \
		{ \
			part; \
			zklock_tell_revocation(); \
		} \
		PG_CATCH(); \
		{ \
			zklock_translate_cancel(context); \
			PG_RE_THROW(); \
		} \
		PG_END_TRY(); \
	} while (0)

/* What came while the session idled, or just now. */
static void
hear_news(void)
{
	if (zklock_loss_noticed)
		zklock_check_loss();
	zklock_heed_revocation();
}

static void
zklock_at_executor_start(QueryDesc *query, int flags)
{
	hear_news();
	ZKLOCK_STATEMENT(previous.start(query, flags));
}

static void
zklock_at_executor_run(ZKLOCK_RUN_PARAMETERS)
{
	ZKLOCK_STATEMENT(previous.run(ZKLOCK_RUN_ARGUMENTS));
}

static void
zklock_at_executor_finish(QueryDesc *query)
{
	ZKLOCK_STATEMENT(previous.finish(query));
}

static bool
is_discard_all(Node *statement)
{
	return IsA(statement, DiscardStmt) &&
		((DiscardStmt *) statement)->target == DISCARD_ALL;
}

/*
 * Statements that get rid of what is lost need not hear of it; those that commit
 * hear of it at PRE_COMMIT, so that they end the transaction as well.
 */
static bool
is_way_out(Node *statement)
{
	if (is_discard_all(statement))
		return true;
	if (!IsA(statement, TransactionStmt))
		return false;
	switch (((TransactionStmt *) statement)->kind)
	{
		case TRANS_STMT_ROLLBACK:
		case TRANS_STMT_ROLLBACK_TO:
		case TRANS_STMT_COMMIT:
		case TRANS_STMT_PREPARE:
			return true;
		default:
			return false;
	}
}

/* DISCARD ALL releases session-level locks, as it does native ones. */
static void
zklock_at_utility(PlannedStmt *pstmt, const char *text, bool read_only_tree,
				  ProcessUtilityContext level, ParamListInfo params,
				  QueryEnvironment *environment, DestReceiver *dest,
				  QueryCompletion *completion)
{
	Node	   *statement = pstmt->utilityStmt;
	volatile bool discards_all = is_discard_all(statement);

	if (!is_way_out(statement) && !IsAbortedTransactionBlockState())
		hear_news();
	ZKLOCK_STATEMENT(previous.utility(pstmt, text, read_only_tree, level, params,
									  environment, dest, completion));
	if (discards_all)
		zklock_release_session();
}

/*
 * Parsing and planning, which may wait for table locks, have no hook around
 * them: a cancel out of there is translated when it is reported.
 */
static void
zklock_at_error_report(ErrorData *error)
{
	if (zklock_loss_noticed && error->elevel == ERROR &&
		error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		zklock_rewrite_cancel(error);
	zklock_rewrite_revoked(error);
	if (previous.error)
		previous.error(error);
}

void
zklock_register_exit(void)
{
	if (exit_registered)
		return;
	before_shmem_exit(zklock_at_exit, (Datum) 0);
	exit_registered = true;
}

void
zklock_install_hooks(void)
{
	RegisterXactCallback(zklock_at_transaction, NULL);
	RegisterSubXactCallback(zklock_at_subtransaction, NULL);
	RegisterResourceReleaseCallback(zklock_at_resource_release, NULL);
	previous.start = ExecutorStart_hook ? ExecutorStart_hook : standard_ExecutorStart;
	ExecutorStart_hook = zklock_at_executor_start;
	previous.run = ExecutorRun_hook ? ExecutorRun_hook : standard_ExecutorRun;
	ExecutorRun_hook = zklock_at_executor_run;
	previous.finish = ExecutorFinish_hook ? ExecutorFinish_hook : standard_ExecutorFinish;
	ExecutorFinish_hook = zklock_at_executor_finish;
	previous.utility = ProcessUtility_hook ? ProcessUtility_hook : standard_ProcessUtility;
	ProcessUtility_hook = zklock_at_utility;
	previous.error = emit_log_hook;
	emit_log_hook = zklock_at_error_report;
}
