/*-------------------------------------------------------------------------
 *
 * wait.c
 *		The one loop in which a backend sleeps.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "backend/base/syntax.h"
#include "backend/session/call.h"
#include "backend/session/interrupt.h"
#include "backend/session/wait.h"
#include "recipe/recipe.h"
#include "compat.h"

/* Kept as long as the session, because creating it takes five system calls. */
static WaitEventSet *wait_set = NULL;
static bool wait_set_is_complete = false;

/* Writes the client library's log lines to the server log. */
static void
log_client_messages(void)
{
	char		line[512];

	while (zkl_log_take(line, sizeof(line)))
	{
		/*
		 * The line may hold names that others chose, and may be cut within a character; a
		 * client that receives log lines must not fail because of that.
		 */
		zklock_make_plain(line);
		ereport(LOG,
				(errmsg("ZooKeeper client: %s", line),
				 errhidestmt(true), errhidecontext(true)));
	}
}

void
zklock_drop_wait_set(void)
{
	if (wait_set)
		FreeWaitEventSet(wait_set);
	wait_set = NULL;
	wait_set_is_complete = false;
}

/* An error leaves it incomplete. */
static void
make_wait_set(ZklSession *session)
{
	zklock_drop_wait_set();
	wait_set = ZKLOCK_CREATE_WAIT_SET(3);
	AddWaitEventToSet(wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(wait_set, WL_SOCKET_READABLE, zkl_session_fd(session), NULL, NULL);
	if (IsUnderPostmaster)
		AddWaitEventToSet(wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	wait_set_is_complete = true;
}

static ZklockWaitEvent waits_for = ZKLOCK_WAIT_ANSWER;

void
zklock_wait_is_for(ZklockWaitEvent event)
{
	waits_for = event;
}

static uint32
wait_event(void)
{
	static struct
	{
		const char *name;
		uint32		event;
	}			events[] = {
		[ZKLOCK_WAIT_ANSWER] = {"ZkAnswer", 0},
		[ZKLOCK_WAIT_CONNECT] = {"ZkConnect", 0},
		[ZKLOCK_WAIT_LOCK] = {"ZkLock", 0},
		[ZKLOCK_WAIT_COMMIT_CHECK] = {"ZkCommitCheck", 0},
	};

	return zklock_wait_event(events[waits_for].name, &events[waits_for].event);
}

/* Sleeps until the latch is set, the session changes, or the time is reached. */
static void
sleep_until(int64 check_again)
{
	WaitEvent	unused;
	long		timeout = -1;

	if (check_again != ZKLOCK_NEVER)
		timeout = (long) Min(Max(check_again - zkl_now_ms(), 0), INT_MAX);
	(void) WaitEventSetWait(wait_set, timeout, &unused, 1, wait_event());
}

void
zklock_wait(ZklSession *session, ZklockWaitIsDone is_done, void *arg)
{
	/* A wait must not hold back VACUUM only because of a catalog snapshot. */
	InvalidateCatalogSnapshotConditionally();
	zkl_session_waits(session, true);
	for (;;)
	{
		int64		check_again = ZKLOCK_NEVER;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		zkl_session_receive(session);
		log_client_messages();
		zklock_report_revocations();
		waits_for = ZKLOCK_WAIT_ANSWER;
		if (is_done(arg, &check_again))
			break;
		if (!wait_set_is_complete)
			make_wait_set(session);
		sleep_until(check_again);
	}
	zkl_session_waits(session, false);
}

/* When statement_timeout was to end which statement; 0: it was not running. */
static TimestampTz statement_ends = 0;
static TimestampTz statement_started = 0;

void
zklock_keep_statement_deadline(void)
{
	if (!get_timeout_active(STATEMENT_TIMEOUT))
		return;
	statement_ends = get_timeout_finish_time(STATEMENT_TIMEOUT);
	statement_started = GetCurrentStatementStartTimestamp();
}

/*
 * Not with the value of the setting: PostgreSQL does not apply a change inside of the
 * statement to that statement.  A timeout that has passed has ended a part of the statement, whose error
 * was caught; PostgreSQL does not apply it a second time, either.
 */
int64
zklock_statement_deadline(void)
{
	long		left;

	if (statement_ends == 0 || statement_started != GetCurrentStatementStartTimestamp() ||
		get_timeout_active(STATEMENT_TIMEOUT))
		return ZKLOCK_NEVER;
	left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), statement_ends);
	return left > 0 ? zkl_now_ms() + left : ZKLOCK_NEVER;
}
