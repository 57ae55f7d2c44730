/*-------------------------------------------------------------------------
 *
 * transaction_locks.c
 *		The heavyweight locks that this transaction holds until its end.
 *
 * PostgreSQL's lock table shows which locks a process holds, but not at which level.  At
 * session level there are only locks of the advisory method, apart from commands that run in
 * several transactions, such as VACUUM, and call no function like this.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/guc.h"
#include "utils/resowner.h"

#include "backend/local/local.h"

/*
 * LockRelease() warns if the owner does not have the lock, which is what we ask.  Returns a
 * nest level for AtEOXact_GUC().
 */
static int
mute_warnings(void)
{
	int			nest_level = NewGUCNestLevel();

	(void) set_config_option("client_min_messages", "error", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("log_min_messages", "panic", PGC_SUSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	return nest_level;
}

/*
 * Returns whether the transaction holds this advisory lock.  Only a release can tell.  It is
 * not the last one, because of the additional lock at session level; the transaction's count
 * is not restored, because the caller raises an error.
 */
static bool
is_at_transaction_level(const LOCKTAG *tag, LOCKMODE mode)
{
	ResourceOwner owner = CurrentResourceOwner;
	bool		is_held;
	int			nest_level;

	/* The open portal of an earlier command of the client may own it, which no function tells. */
	if (MyXactFlags & XACT_FLAGS_PIPELINING)
		return true;
	nest_level = mute_warnings();
	(void) LockAcquire(tag, mode, true, true);
	is_held = LockRelease(tag, mode, false);
	CurrentResourceOwner = TopTransactionResourceOwner; /* it inherits from closed portals */
	is_held = is_held || LockRelease(tag, mode, false);
	CurrentResourceOwner = owner;
	(void) LockRelease(tag, mode, true);
	AtEOXact_GUC(true, nest_level);
	return is_held;
}

/* Returns a mode in which this transaction holds the lock, or NoLock. */
static LOCKMODE
transaction_mode(const LockInstanceData *entry)
{
	uint64		unused;

	if (entry->pid != MyProcPid || entry->locktag.locktag_type == LOCKTAG_VIRTUALTRANSACTION ||
		zklock_local_key(&entry->locktag, &unused))
		return NoLock;
	for (LOCKMODE mode = 1; mode < MAX_LOCKMODES; mode++)
		if ((entry->holdMask & LOCKBIT_ON(mode)) &&
			(entry->locktag.locktag_lockmethodid != USER_LOCKMETHOD ||
			 is_at_transaction_level(&entry->locktag, mode)))
			return mode;
	return NoLock;
}

const char *
zklock_transaction_lock(void)
{
	LockData   *table = GetLockStatusData();
	StringInfoData text = {0};

	for (int i = 0; i < table->nelements && text.data == NULL; i++)
	{
		const LockInstanceData *entry = &table->locks[i];
		LOCKMODE	mode = transaction_mode(entry);

		if (mode == NoLock)
			continue;
		initStringInfo(&text);
		appendStringInfo(&text, "%s on ", GetLockmodeName(entry->locktag.locktag_lockmethodid, mode));
		DescribeLockTag(&text, &entry->locktag);
	}
	pfree(table->locks);
	pfree(table);
	return text.data;
}
