/*-------------------------------------------------------------------------
 *
 * lifecycle.c
 *		When locks end: the hooks into PostgreSQL.
 *
 * All callbacks of transactions, subtransactions, resource owners, utility
 * commands and process exit are here.
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
#include "nodes/parsenodes.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/resowner.h"

#include "holds.h"
#include "lifecycle.h"
#include "locks.h"
#include "loss.h"
#include "session.h"

static ProcessUtility_hook_type previous_process_utility = NULL;
static bool exit_registered = false;

static void
zklock_at_pre_prepare(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		if (hold->shared.n_levels > 0 || hold->exclusive.n_levels > 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has taken lock \"%s\"",
							hold->name.display),
					 errdetail("A lock at transaction level ends with the session that took it."),
					 errhint("Take the lock at session level with zk_lock(), or do not use PREPARE TRANSACTION.")));
	}
}

static void
zklock_at_transaction(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			zklock_check_commit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			zklock_at_pre_prepare();
			zklock_check_commit();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			zklock_forget_doom();
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
		zklock_release_levels(1);
}

static void
zklock_at_exit(int code, Datum arg)
{
	zklock_session_close(ZKLOCK_CLOSE_MS);
	zklock_forget_ensemble();
}

/* DISCARD ALL releases session-level locks, as it does native ones. */
static void
zklock_process_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
					   ProcessUtilityContext context, ParamListInfo params,
					   QueryEnvironment *environment, DestReceiver *dest,
					   QueryCompletion *completion)
{
	Node	   *statement = pstmt->utilityStmt;
	bool		discards_all = IsA(statement, DiscardStmt) &&
		((DiscardStmt *) statement)->target == DISCARD_ALL;

	if (previous_process_utility)
		previous_process_utility(pstmt, query, read_only_tree, context, params,
								 environment, dest, completion);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params,
								environment, dest, completion);
	if (discards_all)
		zklock_release_session();
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
	previous_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = zklock_process_utility;
}
