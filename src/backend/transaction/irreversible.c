/*-------------------------------------------------------------------------
 *
 * irreversible.c
 *		Commands that cannot be undone.
 *
 * PostgreSQL refuses a command inside a transaction block if a rollback would not
 * undo its effects, or if it commits several times.  If the commit of such a
 * command were refused because a lock was lost, the client would get an error
 * although the command is done, or half done.  So the locks are checked before the
 * command starts.  From then on a lost lock does not cancel the command, and none
 * of its commits is refused; the next statement reports the loss.
 *
 * PostgreSQL identifies these commands after they have started:
 * PreventInTransactionBlock() marks the transaction.  Only the check before the
 * start needs a list.  The list is coarse, because options and catalogs decide: a
 * listed command that is not marked is checked again at its commit.
 *
 * Called by lifecycle.c, and by the signal handler that cancels statements.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "nodes/parsenodes.h"

#include "backend/lock/loss.h"
#include "backend/session/cancel.h"
#include "backend/transaction/irreversible.h"

/* A listed command is running at top level. */
static volatile sig_atomic_t running = false;

/*
 * A transaction that PostgreSQL has marked commits or has committed, and further commits
 * of the same command may follow.  Stays set until the last commit of the command, which
 * comes after the command has returned.
 */
static volatile sig_atomic_t committed = false;

/* Can PostgreSQL refuse this command inside a transaction block, with some options? */
static bool
may_be_irreversible(Node *command)
{
	switch (nodeTag(command))
	{
		case T_TransactionStmt:
			return ((TransactionStmt *) command)->kind == TRANS_STMT_COMMIT_PREPARED;
		case T_AlterDatabaseStmt:
		case T_AlterSubscriptionStmt:
		case T_AlterSystemStmt:
		case T_AlterTableStmt:
		case T_ClusterStmt:
		case T_CreateSubscriptionStmt:
		case T_CreateTableSpaceStmt:
		case T_CreatedbStmt:
		case T_DropStmt:
		case T_DropSubscriptionStmt:
		case T_DropTableSpaceStmt:
		case T_DropdbStmt:
		case T_IndexStmt:
		case T_ReindexStmt:
		case T_VacuumStmt:
			return true;
		default:
			return false;
	}
}

/* Returns whether PreventInTransactionBlock() has marked the transaction. */
static bool
is_marked(void)
{
	return (*(volatile int *) &MyXactFlags & XACT_FLAGS_NEEDIMMEDIATECOMMIT) != 0;
}

bool
zklock_irreversible_start(Node *command, bool is_top_level)
{
	if (!may_be_irreversible(command) || IsInTransactionBlock(is_top_level))
		return false;
	zklock_check_irreversible();

	/* A cancel must not end COMMIT PREPARED's wait for a synchronous standby. */
	if (IsA(command, TransactionStmt))
		zklock_cancel_restrict(true);
	running = true;
	return true;
}

void
zklock_irreversible_finished(void)
{
	running = false;
}

bool
zklock_irreversible_commits(void)
{
	if (is_marked())
		committed = true;
	return committed;
}

void
zklock_irreversible_forget(void)
{
	if (!running)
		committed = false;
}

bool
zklock_irreversible_runs(void)
{
	return committed || is_marked();
}
