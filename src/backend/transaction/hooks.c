/*-------------------------------------------------------------------------
 *
 * hooks.c
 *		The hooks into PostgreSQL that release locks and report lost ones.
 *
 * All callbacks of transactions, subtransactions, resource owners and statements are
 * here:
 *
 *	moment						throw/wait		action
 *	------						----------		------
 *	executor, utility command	yes				raise a pending loss, report a revocation
 *	irreversible command		yes				check the locks before it starts
 *	PRE_COMMIT					yes				refuse a client's commit if a lock is lost
 *	PRE_PREPARE					yes				refuse transaction-level locks; then the same
 *	PreCommit_Notify() etc.		yes				a loss cancels waits for heavyweight locks
 *	commit record, visible		no				a loss only sets a flag
 *	COMMIT, PREPARE				no				log locks that were lost since the check
 *	ABORT						no				log lost locks that no error has named
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
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "replication/logicalworker.h"
#include "storage/ipc.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/backend_status.h"
#include "utils/resowner.h"

#include "backend/base/holds.h"
#include "backend/lock/lock.h"
#include "backend/lock/loss.h"
#include "backend/session/interrupt.h"
#include "backend/session/session.h"
#include "backend/session/wait.h"
#include "backend/transaction/hooks.h"
#include "compat.h"

/* Hooks of libraries loaded before, or PostgreSQL's functions; called by our hooks. */
static struct
{
	ExecutorStart_hook_type start;
	ExecutorRun_hook_type run;
	ExecutorFinish_hook_type finish;
	ProcessUtility_hook_type utility;
}			previous;

/* The commit check of this transaction has begun. */
static bool commit_checked = false;

/* This backend has been granted something. */
static bool has_granted = false;

/* zklock_before_participants() is in PostgreSQL's list. */
static bool is_registered = false;

/* A statement of this transaction has called a hook of ours. */
static bool is_used = false;

/*
 * The start of the client's message in which the last transaction ended.  A transaction that ends
 * in another message was begun by the client, even if it has called no hook: by a fast-path call, for
 * example.  While a session idles, PostgreSQL runs transactions without a message.
 */
static TimestampTz last_message = 0;

/* How many statements run, one inside the other. */
static int	depth = 0;

/*
 * Commands that cannot be undone.  PostgreSQL refuses a command inside a transaction block
 * if a rollback would not undo its effects, or if it commits several times.  If the commit
 * of such a command were refused because a lock was lost, the client would get an error
 * although the command is done, or half done.  So the locks are checked before a command
 * that runs outside of a block.  PostgreSQL marks the transaction of one that cannot be undone
 * (PreventInTransactionBlock()).  From then on a lost lock does not cancel the command, and
 * none of its commits is refused, which the phase MUTED remembers until the last one; the next
 * statement reports the loss.
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

static void
check_before_irreversible(Node *command, bool is_top_level)
{
	if (!needs_no_check(command) && !IsInTransactionBlock(is_top_level))
		zklock_check_irreversible();
}

/*
 * A message that calls no hook is a fast-path call, or prepares or binds a statement.  The error of a loss
 * at the end of the latter would follow the answer that the statement is prepared: psycopg, for
 * one, does not expect two answers.  It has read and written nothing, so the next statement
 * reports the loss.  Without track_activities they look the same.  A fast-path call in a pipeline
 * leaves the session idle in a transaction, which a later message commits.  Every other way into
 * that state has called a hook.
 */
static bool
may_be_fast_path(void)
{
	return MyBEEntry == NULL || MyBEEntry->st_state == STATE_FASTPATH ||
		MyBEEntry->st_state == STATE_IDLEINTRANSACTION || MyBEEntry->st_state == STATE_DISABLED;
}

/*
 * At PRE_COMMIT: does the commit belong to a command that cannot be undone?  The last one comes after
 * the end of the command, in a pipeline at its Sync.  A fast-path call in between uses the transaction for
 * something else; a statement ends the phase.
 */
static bool
is_irreversible_commit(void)
{
	return zklock_is_irreversible() &&
		(depth > 0 || zklock_phase() != ZKLOCK_MUTED ||
		 GetCurrentStatementStartTimestamp() == last_message || !may_be_fast_path());
}

/* A cancel that a handler has caught does not concern the next part of a statement. */
static void
forget_cancels(void)
{
	if (has_granted)
		zklock_cancel_begin();
}

/*
 * A statement begins.  A command that could not be undone has ended when the client's next message
 * comes: the transaction that ends the command may fire deferred triggers, whose statements are part of it.
 */
static void
mark_used(void)
{
	is_used = true;
	forget_cancels();
	if (depth == 0 && zklock_phase() == ZKLOCK_MUTED &&
		GetCurrentStatementStartTimestamp() != last_message)
		zklock_set_phase(ZKLOCK_IDLE);
}


/*
 * The transaction has ended.  A procedure that commits goes on, and so does a command that cannot be
 * undone.
 */
static void
end_phase(bool is_abort)
{
	if (depth == 0)
		zklock_set_phase(ZKLOCK_IDLE);
	else if (is_abort || zklock_phase() != ZKLOCK_MUTED)
		zklock_set_phase(ZKLOCK_RUNNING);
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
 * Returns whether the transaction is one of the client.  While a session idles, PostgreSQL runs
 * transactions of its own, to read notifications and invalidations.  They do not rely on
 * locks, and an error there would end the connection.  At exit it drops the session's
 * temporary tables.  A procedure can use a transaction without a hook: PL/pgSQL evaluates simple
 * expressions itself.
 */
static bool
is_of_client(void)
{
	if (proc_exit_inprogress)
		return false;
	return is_used || depth > 0 || TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		(GetCurrentStatementStartTimestamp() != last_message && may_be_fast_path());
}

/*
 * Checks the locks once, in whichever of the two callbacks below is called first.  After the check
 * a cancel only ends a wait for a heavyweight lock, such as the queue lock of NOTIFY.
 * Everything else before the commit record either does not check for cancels, or is another
 * extension's commit on another server.
 */
static void
check_at_commit(XactEvent event)
{
	bool		is_irreversible = is_irreversible_commit();
	bool		can_fail = event == XACT_EVENT_PRE_PREPARE || (!is_irreversible && is_of_client());

	if (commit_checked)
		return;
	commit_checked = true;
	if (event == XACT_EVENT_PRE_PREPARE)
		zklock_at_pre_prepare();
	if (can_fail)
		zklock_check_commit(depth > 0);
	zklock_set_phase(is_irreversible ? ZKLOCK_MUTED : ZKLOCK_RESTRICTED);
	if (can_fail && zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS))
		zklock_check_loss();
}

/* Runs before callbacks that commit elsewhere, for example those of postgres_fdw. */
static void
zklock_before_participants(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
		check_at_commit(event);
}

/*
 * Moves zklock_before_participants() to the front of PostgreSQL's list of callbacks.  The one
 * that was registered last is called first, and an extension may register one in the middle
 * of a transaction.  So this runs after each grant, and from the first one on at the end of each
 * statement, nested ones included: a procedure commits in the middle of its own, and a deferred
 * trigger runs behind the COMMIT.
 *
 * PostgreSQL must not be walking the list meanwhile.  It walks it only at the end of a transaction;
 * then ours is the first, so "commit_checked" is true while it calls the others, whose SQL
 * ends statements, too.  The first grant of a backend may come from SQL that another callback
 * runs at PRE_COMMIT.  Before the check it only adds an item to the front, and what moves from then on
 * is this item, which the walk has passed; behind the check nothing moves before the next transaction.
 *
 * What remains is a callback that C code registers when no statement or grant follows, in a deferred
 * trigger or in an expression of a procedure.  It is called before the check; and if it runs SQL at
 * PRE_COMMIT, the list changes while PostgreSQL walks it.
 */
static void
stay_first(void)
{
	has_granted = true;
	if (commit_checked)
		return;
	if (is_registered)
		UnregisterXactCallback(zklock_before_participants, NULL);
	RegisterXactCallback(zklock_before_participants, NULL);
	is_registered = true;
}

/* Called at the end of each statement. */
static void
prepare_for_commit(void)
{
	if (commit_checked || !has_granted)
		return;
	zklock_keep_statement_deadline();
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
	last_message = GetCurrentStatementStartTimestamp();
	end_phase(is_abort);
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
		zklock_withdraw_cancels();
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
	if (phase == RESOURCE_RELEASE_LOCKS && CurrentResourceOwner == TopTransactionResourceOwner)
	{
		zklock_release_levels(1);
		if (zklock_holds_any())
			zklock_release_lost_locally();
		zklock_withdraw_cancels();
	}
}

/*
 * Statements.  A statement that is cancelled because a lock was lost fails with the error of
 * the loss; so does a statement that starts after a loss during idle time.  The innermost
 * hook replaces the error of the cancel, so no other PG_CATCH sees it.
 */

/* What a statement has found when it began, and leaves as it was. */
typedef struct StatementState
{
	MemoryContext context;
	int			depth;
	ZklockPhase phase;
	bool		is_restricted;	/* in a security-restricted operation */
} StatementState;

static StatementState
begin_statement(bool may_be_cancelled)
{
	StatementState before = {
		CurrentMemoryContext, depth, zklock_phase(), InSecurityRestrictedOperation()
	};

	if (may_be_cancelled && before.phase == ZKLOCK_IDLE)
		zklock_set_phase(ZKLOCK_RUNNING);
	depth++;
	return before;
}

/* A loss may be left that the statement has not reported, as ROLLBACK and BEGIN do not. */
static void
leave_statement(const StatementState *before, bool keeps_muted)
{
	depth = before->depth;
	if (!keeps_muted)
		zklock_set_phase(before->phase);
	if (depth == 0)
		zklock_cancel_retry();
}

/*
 * Can a function of the client catch the error?  Statements of a deferred trigger, of a function that is
 * called by the fast path or evaluated while a statement is planned, run inside no other one, but
 * not in a portal of the client's text.
 */
static bool
is_nested(void)
{
	return depth > 0 || ActivePortal == NULL || debug_query_string == NULL ||
		strcmp(ActivePortal->sourceText, debug_query_string) != 0;
}

/* Runs a part of a statement. */
#define ZKLOCK_STATEMENT(part, may_be_cancelled) \
	do { \
		StatementState before = begin_statement(may_be_cancelled); \
		PG_TRY(); \
		{ \
			part; \
			zklock_report_revocations(); \
		} \
		PG_CATCH(); \
		{ \
			leave_statement(&before, false); \
			zklock_translate_cancel(before.context, is_nested(), before.is_restricted); \
			PG_RE_THROW(); \
		} \
		PG_END_TRY(); \
		leave_statement(&before, zklock_phase() == ZKLOCK_MUTED); \
	} while (0)

/* Each statement passes this, so the question comes before the call. */
static void
raise_pending_loss(void)
{
	if (zklock_cancel_is_requested(ZKLOCK_CANCEL_LOSS))
		zklock_report_loss();
}

static void
zklock_at_executor_start(QueryDesc *query, int flags)
{
	mark_used();
	raise_pending_loss();
	zklock_report_revocations();
	ZKLOCK_STATEMENT(previous.start(query, flags), true);
}

/* A portal that is fetched from in parts was started long before. */
static void
zklock_at_executor_run(ZKLOCK_RUN_PARAMETERS)
{
	forget_cancels();
	raise_pending_loss();
	ZKLOCK_STATEMENT(previous.run(ZKLOCK_RUN_ARGUMENTS), true);
}

/* Runs what modifies data, and triggers; of a query that only reads, nothing. */
static void
zklock_at_executor_finish(QueryDesc *query)
{
	if (query->operation == CMD_SELECT && !query->plannedstmt->hasModifyingCTE)
		previous.finish(query);
	else
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
	bool		discards_all = is_discard_all(statement);

	if (!is_aborted)
		mark_used();
	if (!is_exempt && !is_aborted)
	{
		raise_pending_loss();
		zklock_report_revocations();
	}
	/* First, because PostgreSQL releases the local locks even if the command then fails. */
	if (discards_all && !IsInTransactionBlock(level == PROCESS_UTILITY_TOPLEVEL))
	{
		zklock_release_session();
		zklock_forget_failure();
	}
	check_before_irreversible(statement, level == PROCESS_UTILITY_TOPLEVEL);
	ZKLOCK_STATEMENT(previous.utility(pstmt, text, read_only_tree, level, params,
									  environment, dest, completion),
					 !is_exempt);
	if (discards_all)
		zklock_release_session();

	/*
	 * PostgreSQL calls no callback at the end of a transaction that has already aborted.  A procedure
	 * may have committed, and used its last transaction without a hook.
	 */
	if (is_aborted)
		last_message = GetCurrentStatementStartTimestamp();
	else if (zklock_phase() != ZKLOCK_MUTED)
		is_used = true;
	prepare_for_commit();
}

void
zklock_install_hooks(void)
{
	zklock_after_grant = stay_first;
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
}
