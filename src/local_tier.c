/*-------------------------------------------------------------------------
 *
 * local_tier.c
 *		The first tier of a lock: PostgreSQL's own lock manager.
 *
 * Sessions of one server meet in its lock table before any of them asks the
 * ensemble.  That gives deadlock detection, lock_timeout, pg_locks and
 * pg_blocking_pids() among them, and keeps the ensemble's queues short.
 *
 * The locks are advisory locks at session level, in a space of their own.
 * pg_advisory_unlock_all() and DISCARD ALL release them without telling us;
 * that costs nothing but a wait in the ensemble instead of here, because the
 * ensemble is the authority.  The same goes for two names
 * with one key.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/xact.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "compat.h"
#include "local_tier.h"

/* pg_advisory_lock() uses 1 and 2. */
#define ZKLOCK_LOCKTAG_FIELD4 0x5A4B

static void
set_tag(LOCKTAG *tag, uint64 key)
{
	SET_LOCKTAG_ADVISORY(*tag, InvalidOid, (uint32) (key >> 32), (uint32) key,
						 ZKLOCK_LOCKTAG_FIELD4);
}

bool
zklock_local_key(const LOCKTAG *tag, uint64 *key)
{
	*key = (uint64) tag->locktag_field2 << 32 | tag->locktag_field3;
	return tag->locktag_type == LOCKTAG_ADVISORY &&
		tag->locktag_field1 == InvalidOid &&
		tag->locktag_field4 == ZKLOCK_LOCKTAG_FIELD4;
}

static LOCKMODE
lock_mode(ZklMode mode)
{
	return mode == ZKL_MODE_EXCLUSIVE ? ExclusiveLock : ShareLock;
}

/*
 * A wait can end with an error, a cancel or a timeout, in the moment in which
 * the lock is granted; and the rollback leaves it, because it is at session
 * level.  Who waits for a lock did not hold it before.
 */
static void
drop_stray_grant(const LOCKTAG *tag, LOCKMODE mode)
{
	if (zklock_lock_held_by_me(tag, mode))
		LockRelease(tag, mode, true);
}

/* As long as it takes, or until an error. */
static void
acquire_patiently(const LOCKTAG *tag, LOCKMODE mode)
{
	PG_TRY();
	{
		(void) LockAcquire(tag, mode, true, false);
	}
	PG_CATCH();
	{
		drop_stray_grant(tag, mode);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/*
 * LockAcquire() knows no limit but lock_timeout, so that is lent our limit for
 * the time of the call, in a subtransaction that catches its error; and that
 * of a deadlock, for a caller that would not wait.  A cancel that arrives in
 * the moment in which the limit ends is taken for that, as by whoever catches
 * the error of lock_timeout: PostgreSQL has one flag for both.
 */
static bool
acquire_with_limit(const LOCKTAG *tag, LOCKMODE mode, int limit_ms,
				   bool catch_deadlock)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	int			users_limit = LockTimeout;
	volatile bool acquired = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		LockTimeout = limit_ms;
		(void) LockAcquire(tag, mode, true, false);
		LockTimeout = users_limit;
		ReleaseCurrentSubTransaction();
		acquired = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		LockTimeout = users_limit;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		drop_stray_grant(tag, mode);
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
			!(catch_deadlock && error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED))
			ReThrowError(error);
		FreeErrorData(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return acquired;
}

bool
zklock_local_is_held(uint64 key)
{
	LOCKTAG		tag;

	set_tag(&tag, key);
	return zklock_lock_held_by_me(&tag, ExclusiveLock) ||
		zklock_lock_held_by_me(&tag, ShareLock);
}

bool
zklock_local_acquire(uint64 key, ZklMode mode, int64 limit_ms, bool *waited)
{
	LOCKTAG		tag;

	set_tag(&tag, key);
	if (LockAcquire(&tag, lock_mode(mode), true, true) != LOCKACQUIRE_NOT_AVAIL)
		return true;

	/*
	 * Who holds the lock is let ahead of those that wait for it, but only if
	 * willing to wait; then it is granted at once or there are other holders.
	 */
	if (!IsInParallelMode() && zklock_local_is_held(key) &&
		acquire_with_limit(&tag, lock_mode(mode), 1, limit_ms == 0))
		return true;
	if (limit_ms == 0)
		return false;
	*waited = true;

	/* Where the user's lock_timeout ends first, its error is the right one. */
	if (limit_ms == ZKLOCK_NO_LIMIT || (LockTimeout > 0 && LockTimeout <= limit_ms))
	{
		acquire_patiently(&tag, lock_mode(mode));
		return true;
	}
	return acquire_with_limit(&tag, lock_mode(mode), (int) Min(limit_ms, INT_MAX),
							  false);
}

void
zklock_local_release(uint64 key, ZklMode mode)
{
	LOCKTAG		tag;

	set_tag(&tag, key);
	if (zklock_lock_held_by_me(&tag, lock_mode(mode)))
		LockRelease(&tag, lock_mode(mode), true);
}
