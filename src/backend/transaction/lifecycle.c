/*-------------------------------------------------------------------------
 *
 * lifecycle.c
 *		The hooks into PostgreSQL that release locks and report lost ones.
 *
 * All callbacks of transactions, subtransactions, resource owners and statements are
 * here:
 *
 *	moment						throw/wait		action
 *	------						----------		------
 *	executor, utility command	yes				raise a pending loss, report a revocation
 *	report of an error			no				the same, for cancels outside the executor
 *	irreversible command		yes				check the locks before it starts
 *	PRE_COMMIT					yes				refuse a client's commit if a lock is lost
 *	PRE_PREPARE					yes				refuse transaction-level locks; then the same
 *	PreCommit_Notify() etc.		yes				a loss cancels waits for heavyweight locks
 *	commit record, visible		no				a loss only sets a flag
 *	COMMIT, PREPARE				no				log locks that were lost since the check
 *	COMMIT, PREPARE, ABORT		no				reset the state of the transaction
 *	resource release, LOCKS		no				release locks, as native locks are
 *	COMMIT_SUB					no				pass the locks to the parent
 *	ABORT_SUB					no				release locks of this level and deeper
 *	ABORT during exit			no				the session is already closed (backend_session.c)
 *
 * An error after the commit record is written would be a PANIC.  Callbacks are
 * registered once and never unregistered, except for the check that precedes the
 * callbacks of other extensions: see stay_first().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "executor/executor.h"
#include "nodes/parsenodes.h"
#include "replication/logicalworker.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/resowner.h"

#include "backend/lock/lock.h"
#include "backend/transaction/transaction.h"
#include "compat.h"

/* Hooks of libraries loaded before, or PostgreSQL's functions; called by our hooks. */
static struct
{
	ExecutorStart_hook_type start;
	ExecutorRun_hook_type run;
	ExecutorFinish_hook_type finish;
	ProcessUtility_hook_type utility;
	emit_log_hook_type error;
	object_access_hook_type access;
}			previous;

/* The commit check of this transaction has begun. */
static bool commit_checked = false;

/* The client has used this transaction: for a statement or a function call. */
static bool is_used = false;

/* A utility command runs at top level, outside of a transaction block. */
static bool runs_alone = false;


/*
 * Commands that cannot be undone.  PostgreSQL refuses a command inside a transaction block
 * if a rollback would not undo its effects, or if it commits several times.  If the commit
 * of such a command were refused because a lock was lost, the client would get an error
 * although the command is done, or half done.  So the locks are checked before a command
 * that runs outside of a block.  PostgreSQL marks the transaction of one that cannot be undone
 * (PreventInTransactionBlock()).  From then on a lost lock does not cancel the command, and
 * none of its commits is refused; the next statement reports the loss.
 */

/*
 * ROLLBACK PREPARED and DISCARD ALL release, or take back.  SET may change zklock.commit_check,
 * which then applies.  EXECUTE, CALL and DO run statements of the client, which may release a
 * lock, and none of which is at top level.
 */
static bool
needs_no_check(Node *command)
{
	if (IsA(command, TransactionStmt))
		return ((TransactionStmt *) command)->kind != TRANS_STMT_COMMIT_PREPARED;
	return IsA(command, DiscardStmt) || IsA(command, VariableSetStmt) ||
		IsA(command, ExecuteStmt) || IsA(command, CallStmt) || IsA(command, DoStmt);
}

static bool
start_alone(Node *command, bool is_top_level)
{
	if (needs_no_check(command) || IsInTransactionBlock(is_top_level))
		return false;
	zklock_check_irreversible();

	/* A cancel must not end COMMIT PREPARED's wait for a synchronous standby. */
	if (IsA(command, TransactionStmt))
		zklock_cancel_restrict(true);
	runs_alone = true;
	return true;
}

/* At PRE_COMMIT: does the commit belong to a command that cannot be undone? */
static bool
is_irreversible_commit(void)
{
	bool		is_irreversible = zklock_is_irreversible();

	if (is_irreversible)
		zklock_cancel_mute(true);	/* for the commits that follow, too */
	return is_irreversible;
}

/* Further commits do not belong to the command, unless it is still running. */
static void
forget_irreversible(void)
{
	if (!runs_alone)
		zklock_cancel_mute(false);
}

static void
note_use(void)
{
	is_used = true;
	forget_irreversible();
}

static void
zklock_at_pre_prepare(void)
{
	ZklockHold *hold = zklock_holds_in_transaction();

	if (hold)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 hold->kind == ZKLOCK_SEMAPHORE
				 ? errmsg("cannot PREPARE a transaction that has acquired a permit of semaphore \"%s\"",
						  zklock_hold_display(hold))
				 : errmsg("cannot PREPARE a transaction that has acquired lock \"%s\"",
						  zklock_hold_display(hold)),
				 errdetail("Transaction-level locks and permits cannot outlive the session that acquired them."),
				 IsLogicalWorker()
				 ? errhint("Create the subscription with two_phase = off, or acquire no locks in triggers of its tables.")
				 : errhint("Acquire it at session level with zk_lock() or zk_acquire_permit(), or do not use PREPARE TRANSACTION.")));
}

/*
 * Returns whether the client has used this transaction.  While a session idles,
 * PostgreSQL runs transactions of its own, to read notifications and invalidations.  They
 * do not rely on locks, and an error there would end the connection.  At exit it drops the
 * session's temporary tables.  A procedure can use a transaction without the executor:
 * PL/pgSQL evaluates simple expressions itself.
 */
static bool
is_of_client(void)
{
	if (proc_exit_inprogress)
		return false;
	return is_used || zklock_cancel_in_statement() ||
		TransactionIdIsValid(GetTopTransactionIdIfAny());
}

/* Checks the locks once, in whichever of the two callbacks below is called first. */
static void
check_at_commit(XactEvent event)
{
	if (commit_checked)
		return;
	commit_checked = true;
	if (event == XACT_EVENT_PRE_PREPARE)
		zklock_at_pre_prepare();
	zklock_check_commit(event == XACT_EVENT_PRE_PREPARE ||
						(!is_irreversible_commit() && is_of_client()));
}

/* Runs before callbacks that commit elsewhere, for example those of postgres_fdw. */
static void
zklock_before_participants(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
		check_at_commit(event);
}

/*
 * Moves zklock_before_participants() to the front of PostgreSQL's list of callbacks.  The
 * callback that was registered last is called first, and an extension may register one in
 * the middle of a transaction; so this runs at the end of each statement, and after each
 * grant: PL/pgSQL can acquire a lock and commit after its last statement.
 *
 * A statement can also end while PostgreSQL calls the callbacks, if an earlier one runs
 * SQL.  PostgreSQL 14 and 15 read the next item of the list after each call: moving this
 * item from behind the current one to the front leaves the rest as it was, and
 * zklock_at_transaction() makes the check.  Later versions read the next item before the
 * call.  If this item is the next one, its memory has been freed.  RegisterXactCallback()
 * gets the same memory back, because nothing else allocates in between.  So the item is
 * valid, but the callbacks registered since are called twice.  zklock cannot detect that
 * callbacks are being called; this affects only an extension that registers after the
 * last statement with a lock and runs SQL in PRE_COMMIT.  Once the check has begun, the
 * item stays where it is.
 */
static void
stay_first(void)
{
	UnregisterXactCallback(zklock_before_participants, NULL);
	RegisterXactCallback(zklock_before_participants, NULL);
}

/* Called at the end of each statement, and after each grant. */
static void
prepare_for_commit(void)
{
	if (commit_checked || !zklock_relies_on_locks())
		return;
	zklock_note_statement_timeout();
	stay_first();
}

static void
zklock_at_transaction(XactEvent event, void *arg)
{
	bool		is_abort = event == XACT_EVENT_ABORT;

	zklock_before_participants(event, arg);
	if (!is_abort && event != XACT_EVENT_COMMIT && event != XACT_EVENT_PREPARE)
		return;
	commit_checked = false;
	is_used = false;
	if (is_abort)
		runs_alone = false;
	forget_irreversible();
	if (!is_abort)
		zklock_note_late_loss();
	zklock_end_transaction(is_abort);
}

static void
zklock_at_subtransaction(SubXactEvent event, SubTransactionId my_id,
						 SubTransactionId parent_id, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		zklock_inherit_level(GetCurrentTransactionNestLevel());
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		zklock_release_levels(GetCurrentTransactionNestLevel());
		zklock_forget_reported();
		zklock_withdraw_requests();
	}
}

/*
 * Releases transaction-level locks when native locks are released: the transaction is
 * visible, and its invalidations are sent.  PostgreSQL calls this for every resource
 * owner; only the one of the transaction itself counts.
 */
static void
zklock_at_resource_release(ResourceReleasePhase phase, bool is_commit,
						   bool is_top_level, void *arg)
{
	if (phase == RESOURCE_RELEASE_LOCKS && is_top_level &&
		CurrentResourceOwner == TopTransactionResourceOwner)
	{
		zklock_release_levels(1);
		if (zklock_holds_any())
			zklock_release_lost_locally();
		zklock_withdraw_requests();
	}
}

/*
 * Statements.  A statement that is cancelled because a lock was lost fails with the error of
 * the loss; so does a statement that starts after a loss during idle time.  The innermost
 * hook replaces the error of the cancel, so no other PG_CATCH sees it.
 */

/* Runs a part of a statement. */
#define ZKLOCK_STATEMENT(part, may_be_cancelled) \
	do { \
		MemoryContext context = CurrentMemoryContext; \
		int			outer = zklock_cancel_enter(may_be_cancelled); \
		PG_TRY(); \
		{ \
			part; \
			zklock_report_revocation(); \
		} \
		PG_CATCH(); \
		{ \
			zklock_cancel_leave(outer); \
			zklock_translate_cancel(context); \
			PG_RE_THROW(); \
		} \
		PG_END_TRY(); \
		zklock_cancel_leave(outer); \
	} while (0)

/* Reports a loss, but not to a statement that a command that cannot be undone executes. */
static void
raise_pending_loss(void)
{
	if (zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS) && !zklock_is_irreversible())
		zklock_check_loss();
}

/* Reports a loss or a revocation that came during idle time, or just now. */
static void
raise_pending_error(void)
{
	raise_pending_loss();
	zklock_process_revocation(false);
}

static void
zklock_at_executor_start(QueryDesc *query, int flags)
{
	note_use();
	raise_pending_error();
	ZKLOCK_STATEMENT(previous.start(query, flags), true);
}

/* A portal that is fetched from in parts was started long before. */
static void
zklock_at_executor_run(ZKLOCK_RUN_PARAMETERS)
{
	raise_pending_loss();
	ZKLOCK_STATEMENT(previous.run(ZKLOCK_RUN_ARGUMENTS), true);
}

static void
zklock_at_executor_finish(QueryDesc *query)
{
	ZKLOCK_STATEMENT(previous.finish(query), true);
	prepare_for_commit();
}

static bool
is_discard_all(Node *statement)
{
	return IsA(statement, DiscardStmt) &&
		((DiscardStmt *) statement)->target == DISCARD_ALL;
}

/*
 * Returns whether the statement does not report lost locks.  ROLLBACK and DISCARD ALL
 * release them; COMMIT reports the loss at PRE_COMMIT, where it ends the transaction;
 * after a failed BEGIN a script would continue without a transaction block.
 */
static bool
ignores_loss(Node *statement)
{
	if (is_discard_all(statement))
		return true;
	if (!IsA(statement, TransactionStmt))
		return false;
	switch (((TransactionStmt *) statement)->kind)
	{
		case TRANS_STMT_BEGIN:
		case TRANS_STMT_START:
		case TRANS_STMT_ROLLBACK:
		case TRANS_STMT_ROLLBACK_TO:
		case TRANS_STMT_ROLLBACK_PREPARED:
		case TRANS_STMT_COMMIT:
		case TRANS_STMT_PREPARE:
			return true;
		default:
			return false;
	}
}

/* Runs a utility command.  DISCARD ALL releases session-level locks, like native ones. */
static void
zklock_at_utility(PlannedStmt *pstmt, const char *text, bool read_only_tree,
				  ProcessUtilityContext level, ParamListInfo params,
				  QueryEnvironment *environment, DestReceiver *dest,
				  QueryCompletion *completion)
{
	Node	   *statement = pstmt->utilityStmt;
	bool		is_exempt = ignores_loss(statement);
	bool		is_aborted = IsAbortedTransactionBlockState();
	volatile bool discards_all = is_discard_all(statement);
	volatile bool is_alone;

	/* PostgreSQL calls no callback at the end of a transaction that has already aborted. */
	if (!is_aborted)
		note_use();
	if (!is_exempt && !is_aborted)
		raise_pending_error();
	/* First, because PostgreSQL releases the local locks even if the command then fails. */
	if (discards_all && !IsInTransactionBlock(level == PROCESS_UTILITY_TOPLEVEL))
		zklock_release_session();
	is_alone = start_alone(statement, level == PROCESS_UTILITY_TOPLEVEL);
	ZKLOCK_STATEMENT(previous.utility(pstmt, text, read_only_tree, level, params,
									  environment, dest, completion),
					 !is_exempt);
	if (is_alone)
		runs_alone = false;
	if (discards_all)
		zklock_release_session();
	prepare_for_commit();
}

/*
 * Rewrites the error of a cancel.  Parsing and planning, which may wait for table locks,
 * have no hook around them, so the error is rewritten when it is reported.
 */
static void
zklock_at_error_report(ErrorData *error)
{
	zklock_rewrite_cancel(error);
	zklock_rewrite_revoked(error);
	if (previous.error)
		previous.error(error);
}

/* Notes fast-path calls, and expressions of PL/pgSQL, which call no other hook. */
static void
zklock_at_object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id,
						void *arg)
{
	if (previous.access)
		previous.access(access, class_id, object_id, sub_id, arg);
	if (access == OAT_FUNCTION_EXECUTE)
		note_use();
}

void
zklock_install_hooks(void)
{
	zklock_after_grant = prepare_for_commit;
	RegisterXactCallback(zklock_at_transaction, NULL);
	RegisterXactCallback(zklock_before_participants, NULL);
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
	previous.access = object_access_hook;
	object_access_hook = zklock_at_object_access;
}
