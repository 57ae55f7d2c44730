/*-------------------------------------------------------------------------
 *
 * fence.c
 *		Fencing: an earlier holder cannot commit after a later one has fenced.
 *
 * A transaction that fences first takes a heavyweight lock on the name until its
 * end, in the mode in which it holds the ZooKeeper lock, and only then reads the
 * table.  So the row that it reads is committed or its own, and no other holder can
 * record a token before this transaction ends.  This does not depend on snapshots,
 * hence not on isolation levels.  It needs no row, so shared holders can fence too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "backend/base/holds.h"
#include "backend/lock/loss.h"
#include "backend/session/backend_session.h"
#include "backend/transaction/fence.h"
#include "backend/transaction/fence_table.h"
#include "compat.h"

static _Noreturn void
raise_fenced_off(const ZklockName *name, int64 token, int64 recorded)
{
	ZklockNameList list = {.n = 1, .name = name->display};

	zklock_fail_transaction(&list);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("lock \"%s\" was fenced off by a later holder", name->display),
			 errdetail("This session holds it with token " INT64_FORMAT "; token " INT64_FORMAT " is recorded in this database.",
					   token, recorded),
			 errhint("Release the lock, acquire it again, and retry the transaction. If the ZooKeeper ensemble was rebuilt empty, its tokens restarted: an administrator must call zk_fence_reset(%s).",
					 quote_literal_cstr(name->display))));
}

int64
zklock_fence(const ZklockName *name, Oid function)
{
	ZklockHold *hold;
	int64		token;
	bool		exclusive;
	Relation	fences;
	int64		recorded;

	zklock_check_loss();
	hold = zklock_hold_find(name);
	if (hold == NULL || hold->lock == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is not held by this session", name->display),
				 errhint("Acquire it first, for example with zk_lock(%s).",
						 quote_literal_cstr(name->display))));
	token = hold->token;
	exclusive = hold->mode == ZKL_MODE_EXCLUSIVE;
	if (exclusive)
		PreventCommandIfReadOnly("zk_fence()");

	zklock_fences_lock_name(name->encoded, exclusive ? ExclusiveLock : ShareLock);
	fences = zklock_fences_open(function, exclusive ? RowExclusiveLock : RowShareLock);
	recorded = exclusive ? zklock_fences_record(fences, name->encoded, token)
		: zklock_fences_token(fences, name->encoded);
	if (recorded > token)
		raise_fenced_off(name, token, recorded);
	table_close(fences, NoLock);
	return token;
}

void
zklock_fence_reset(const ZklockName *name, Oid function)
{
	Relation	fences;

	PreventCommandIfReadOnly("zk_fence_reset()");
	zklock_fences_lock_name(name->encoded, ExclusiveLock);
	fences = zklock_fences_open(function, RowExclusiveLock);
	zklock_fences_remove(fences, name->encoded);
	table_close(fences, NoLock);
}

/* Waits for all transactions that have fenced: each keeps its lock on the table. */
void
zklock_fences_forget(Oid function)
{
	Relation	fences;

	PreventCommandIfReadOnly("zk_fence_reset()");
	fences = zklock_fences_open(function, ExclusiveLock);
	(void) zklock_fences_remove_until(fences, DT_NOEND);
	table_close(fences, NoLock);
}

/* Returns when the oldest session of this database started. */
static TimestampTz
oldest_session_start(void)
{
	TimestampTz oldest = GetCurrentTimestamp();
	int			n = pgstat_fetch_stat_numbackends();

	for (int i = 0; i < n; i++)
	{
		LocalPgBackendStatus *session = zklock_backend_status(i);

		if (session && session->backendStatus.st_databaseid == MyDatabaseId)
			oldest = Min(oldest, session->backendStatus.st_proc_start_timestamp);
	}
	return oldest;
}

/*
 * A session that could still fence with a smaller token acquired its lock before the row
 * was recorded, so the session started before that.
 */
int64
zklock_fences_vacuum(TimestampTz until, Oid function)
{
	Relation	fences;
	int64		n_removed;

	PreventCommandIfReadOnly("zk_fence_vacuum()");
	fences = zklock_fences_open(function, RowExclusiveLock);
	n_removed = zklock_fences_remove_until(fences,
										   Min(until, oldest_session_start()));
	table_close(fences, NoLock);
	return n_removed;
}
