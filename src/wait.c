/*-------------------------------------------------------------------------
 *
 * wait.c
 *		The only loop that sleeps.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "revoke.h"
#include "syntax.h"
#include "wait.h"

/* What ends a sleep.  Kept as long as the session: to make it takes five system calls. */
static WaitEventSet *wait_set = NULL;

int64
zklock_now(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MILLISEC(now);
}

void
zklock_drain_client_log(void)
{
	ZklLogLevel level;
	char		line[512];

	while (zkl_log_take(&level, line, sizeof(line)))
	{
		/*
		 * It may hold names that others gave, and be cut within a character;
		 * a client that wants to see log lines must not fail over it.
		 */
		zklock_make_plain(line);
		ereport(LOG,
				(errmsg("ZooKeeper client: %s", line),
				 errhidestmt(true), errhidecontext(true)));
	}
}

static void
make_wait_set(ZklSession *session)
{
	WaitEventSet *set = ZKLOCK_CREATE_WAIT_SET(3);

	PG_TRY();
	{
		AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
		AddWaitEventToSet(set, WL_SOCKET_READABLE, zkl_session_fd(session), NULL, NULL);
		if (IsUnderPostmaster)
			AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	}
	PG_CATCH();
	{
		FreeWaitEventSet(set);
		PG_RE_THROW();
	}
	PG_END_TRY();
	wait_set = set;
}

void
zklock_drop_wait_set(void)
{
	if (wait_set)
		FreeWaitEventSet(wait_set);
	wait_set = NULL;
}

/* Until the latch is set, the session has changed, or the time has come. */
static void
sleep_until(int64 look_again)
{
	WaitEvent	unused;
	long		timeout = -1;

	if (look_again != ZKLOCK_NEVER)
	{
		int64		now = zklock_now();

		timeout = look_again <= now ? 0 : (long) Min(look_again - now, INT_MAX);
	}
	(void) WaitEventSetWait(wait_set, timeout, &unused, 1, zklock_wait_event());
}

void
zklock_wait(ZklSession *session, ZklockWaitOver over, void *arg)
{
	/* Vacuum shall not wait for a sleeper that has merely looked into the catalog. */
	InvalidateCatalogSnapshotConditionally();
	for (;;)
	{
		int64		look_again = ZKLOCK_NEVER;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		zkl_session_clear_wakeup(session);
		zklock_drain_client_log();
		zklock_tell_revocation();
		if (over(arg, &look_again))
			return;
		if (wait_set == NULL)
			make_wait_set(session);
		sleep_until(look_again);
	}
}

/*
 * The indicator is kept when disarming: if the timer has just fired, its cancel
 * must be told as that timeout.
 */
static void
wait_and_disarm(ZklSession *session, ZklockWaitOver over, void *arg, TimeoutId armed)
{
	PG_TRY();
	{
		zklock_wait(session, over, arg);
	}
	PG_CATCH();
	{
		disable_timeout(armed, true);
		PG_RE_THROW();
	}
	PG_END_TRY();
	disable_timeout(armed, true);

	/* Not later: who arms that timer next forgets whose cancel it was. */
	CHECK_FOR_INTERRUPTS();
}

void
zklock_wait_for_lock(ZklSession *session, ZklockWaitOver over, void *arg,
					 int64 spent_ms)
{
	if (LockTimeout <= 0)
	{
		zklock_wait(session, over, arg);
		return;
	}

	/* As ProcSleep() does. */
	enable_timeout_after(LOCK_TIMEOUT, (int) Max(LockTimeout - spent_ms, 1));
	wait_and_disarm(session, over, arg, LOCK_TIMEOUT);
}

void
zklock_wait_at_commit(ZklSession *session, ZklockWaitOver over, void *arg)
{
	if (StatementTimeout <= 0 || get_timeout_active(STATEMENT_TIMEOUT))
	{
		zklock_wait(session, over, arg);
		return;
	}
	enable_timeout_at(STATEMENT_TIMEOUT,
					  TimestampTzPlusMilliseconds(GetCurrentStatementStartTimestamp(),
												  StatementTimeout));
	wait_and_disarm(session, over, arg, STATEMENT_TIMEOUT);
}
