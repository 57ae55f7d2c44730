/*-------------------------------------------------------------------------
 *
 * local_lock.c
 *		The local lock: the part of a lock in PostgreSQL's own lock manager.
 *
 * Sessions of one server queue in its lock table before any of them queues in the
 * ensemble.  This gives them deadlock detection, lock_timeout, pg_locks and
 * pg_blocking_pids(), and keeps the ensemble's queues short.
 *
 * The locks are advisory locks at session level, with a tag of their own.
 * pg_advisory_unlock_all() and DISCARD ALL release them without notice.  Then
 * sessions wait in the ensemble instead of here, and exclusion holds, because the
 * ensemble is the authority.  The same is true of two names with one key.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/timeout.h"

#include "backend/local/local.h"
#include "backend/session/call.h"
#include "backend/session/interrupt.h"
#include "recipe/recipe.h"
#include "compat.h"

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
 * Releases a lock that was granted just when the wait ended with an error, a cancel or a
 * timeout.  The rollback keeps it, because it is at session level.  A session that waits
 * for a lock did not hold it before.  PostgreSQL notes such a grant when it cleans up the
 * wait: before it raises the error of a cancel; after any other error, in the rollback.
 */
static void
drop_stray_grant(const LOCKTAG *tag, LOCKMODE mode)
{
	/* A rollback begins with these two, too. */
	LWLockReleaseAll();
	LockErrorCleanup();
	if (zklock_lock_held_by_me(tag, mode))
		LockRelease(tag, mode, true);
}

/*
 * The timeout of a timed attempt.  LOCK_TIMEOUT is not usable for it: it ends a wait with
 * a cancel, and PostgreSQL would not report whether a user's cancel came as well.
 */
static TimeoutId attempt_timeout = MAX_TIMEOUTS;

static void
end_wait(void)
{
	zklock_cancel_request_io(ZKLOCK_CANCEL_TIMEOUT);
}

/* Registers the timeout, once per backend. */
static void
register_attempt_timeout(void)
{
	zklock_cancel_init();
	if (attempt_timeout == MAX_TIMEOUTS)
		attempt_timeout = RegisterTimeout(USER_TIMEOUT, end_wait);
}

/* Returns whether the error in flight is one that an attempt answers with false. */
static bool
is_expected(bool catch_deadlock)
{
	if (geterrcode() == ERRCODE_QUERY_CANCELED)
		return zklock_is_timeout();
	return catch_deadlock && geterrcode() == ERRCODE_T_R_DEADLOCK_DETECTED;
}

/*
 * Starts the timeout.  lock_timeout does not apply meanwhile: it could pass before this one is
 * handled, and PostgreSQL reports a user's cancel, or statement_timeout, that comes with
 * lock_timeout as lock_timeout.  The caller has begun a nest level of settings for it, as
 * PostgreSQL does for a function with a SET clause.
 */
static void
start_timeout(int64 timeout_ms)
{
	register_attempt_timeout();
	zklock_cancel_begin();
	(void) set_config_option("lock_timeout", "0", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	enable_timeout_after(attempt_timeout, (int) Min(timeout_ms, INT_MAX));
}

static void
end_timeout(int nest_level)
{
	AtEOXact_GUC(true, nest_level);
	if (attempt_timeout == MAX_TIMEOUTS)
		return;
	disable_timeout(attempt_timeout, false);
	zklock_cancel_settle(ZKLOCK_CANCEL_TIMEOUT);
}

/*
 * Waits until PostgreSQL grants the lock; after an error, or if it returns false, nothing is
 * held.  Catches the error of the timeout; with "catch_deadlock", for a caller that does
 * not want to wait, also that of a deadlock.  A wait for a lock leaves nothing else to clean
 * up, so this needs no subtransaction; inside of one, a recovery conflict would end the
 * connection.
 */
static bool
wait_for_grant(const LOCKTAG *tag, LOCKMODE mode, int64 timeout_ms, bool catch_deadlock)
{
	MemoryContext context = CurrentMemoryContext;
	int			nest_level = NewGUCNestLevel();
	volatile bool acquired = false;

	if (timeout_ms != ZKLOCK_NO_TIMEOUT)
		start_timeout(timeout_ms);
	PG_TRY();
	{
		(void) LockAcquire(tag, mode, true, false);
		acquired = true;
	}
	PG_CATCH();
	{
		bool		expected = is_expected(catch_deadlock);

		end_timeout(nest_level);
		drop_stray_grant(tag, mode);
		if (!expected)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	if (acquired)
		end_timeout(nest_level);
	/* A timeout has been answered.  A loss that has come meanwhile may cancel again. */
	zklock_cancel_begin();
	zklock_cancel_retry();
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

/*
 * A session that holds the lock goes ahead of its waiters, but only if it waits itself; then
 * the lock is granted at once, or there are other holders.
 */
#define OWN_WAIT_MS 1

bool
zklock_local_try(uint64 key, ZklMode mode, bool is_attempt)
{
	LOCKTAG		tag;

	set_tag(&tag, key);
	if (LockAcquire(&tag, lock_mode(mode), true, true) != LOCKACQUIRE_NOT_AVAIL)
		return true;
	return zklock_local_is_held(key) &&
		wait_for_grant(&tag, lock_mode(mode), OWN_WAIT_MS, is_attempt);
}

bool
zklock_local_wait(uint64 key, ZklMode mode, int64 until)
{
	LOCKTAG		tag;

	set_tag(&tag, key);
	return wait_for_grant(&tag, lock_mode(mode), until == ZKLOCK_NEVER ? ZKLOCK_NO_TIMEOUT
						  : Max(until - zkl_now_ms(), 1), false);
}

bool
zklock_local_has_waiters(uint64 key, ZklMode mode)
{
	LOCKTAG		tag;

	set_tag(&tag, key);
	return zklock_lock_held_by_me(&tag, lock_mode(mode)) &&
		LockHasWaiters(&tag, lock_mode(mode), true);
}

void
zklock_local_release(uint64 key, ZklMode mode)
{
	LOCKTAG		tag;

	set_tag(&tag, key);
	if (zklock_lock_held_by_me(&tag, lock_mode(mode)))
		LockRelease(&tag, lock_mode(mode), true);
}
