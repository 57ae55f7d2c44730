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
#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timeout.h"

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
 * The limit of a wait.  lock_timeout could not be lent for it: it ends a wait by a
 * cancel of its own, and PostgreSQL would not tell whether a user's came as well.
 * So our timeout asks for the cancel without a signal, and signals are counted.
 */
static TimeoutId limit_timeout = MAX_TIMEOUTS;
static struct sigaction handler_before;
static volatile sig_atomic_t n_cancels;
static volatile sig_atomic_t is_limit_over;

static void
count_cancel(SIGNAL_ARGS)
{
	n_cancels++;
	handler_before.sa_handler(postgres_signal_arg);
}

static void
end_wait(void)
{
	is_limit_over = true;
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

/* Once for a backend. */
static void
prepare_limits(void)
{
	struct sigaction action;

	if (limit_timeout != MAX_TIMEOUTS)
		return;
	limit_timeout = RegisterTimeout(USER_TIMEOUT, end_wait);
	sigaction(SIGINT, NULL, &handler_before);
	if (handler_before.sa_handler == SIG_IGN || handler_before.sa_handler == SIG_DFL)
		return;
	action = handler_before;
	action.sa_handler = count_cancel;
	sigaction(SIGINT, &action, NULL);
}

/* Has the limit, and nobody else, asked for a cancel since then? */
static bool
limit_alone_ended(sig_atomic_t n_cancels_before)
{
	return is_limit_over && n_cancels == n_cancels_before;
}

/* The wait is over before a cancel that only the limit asked for has struck. */
static void
take_cancel_back(sig_atomic_t n_cancels_before)
{
	if (!is_limit_over)
		return;
	QueryCancelPending = false;
	if (n_cancels != n_cancels_before)
	{
		InterruptPending = true;
		QueryCancelPending = true;
	}
}

/*
 * In a subtransaction that catches the error of the limit; and that of a deadlock,
 * for a caller that would not wait.
 */
static bool
acquire_with_limit(const LOCKTAG *tag, LOCKMODE mode, int limit_ms,
				   bool catch_deadlock)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	sig_atomic_t n_cancels_before = n_cancels;
	volatile bool acquired = false;

	prepare_limits();
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	is_limit_over = false;
	PG_TRY();
	{
		enable_timeout_after(limit_timeout, limit_ms);
		(void) LockAcquire(tag, mode, true, false);
		disable_timeout(limit_timeout, false);
		take_cancel_back(n_cancels_before);
		ReleaseCurrentSubTransaction();
		acquired = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;
		bool		is_expected;

		disable_timeout(limit_timeout, false);
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			is_expected = limit_alone_ended(n_cancels_before);
		else
		{
			is_expected = catch_deadlock &&
				error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED;
			take_cancel_back(n_cancels_before);
		}
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		drop_stray_grant(tag, mode);
		if (!is_expected)
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
