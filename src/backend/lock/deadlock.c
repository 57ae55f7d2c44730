/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *		Detects deadlocks across servers.
 *
 * The recipe layer finds them.  This file passes it the sessions that wait for this
 * backend in PostgreSQL's lock manager (lock_waiters.c), and raises the error.
 * Nothing happens before a wait in the ensemble has lasted for deadlock_timeout.
 * Called only by remote_wait.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "backend/base/identity.h"
#include "backend/base/names.h"
#include "backend/base/settings.h"
#include "backend/base/syntax.h"
#include "backend/local/lock_table.h"
#include "backend/local/lock_waiters.h"
#include "backend/lock/deadlock.h"
#include "backend/session/stats.h"
#include "backend/session/wait.h"

/* How often a backend checks for new sessions that wait for it. */
#define SEARCH_MS 500

/* Returns a number that identifies this server and its start. */
static uint64
server_instance(void)
{
	char	   *text = psprintf("%llu %lld %s",
								(unsigned long long) GetSystemIdentifier(),
								(long long) PgStartTime, zklock_server_name());
	uint64		hash = hash_bytes_extended((unsigned char *) text, strlen(text), 0);

	pfree(text);
	return hash;
}

/* Returns text of another server in a form that is safe in messages. */
static char *
plain(const char *text)
{
	char	   *copy = pstrdup(text);

	zklock_make_plain(copy);
	return copy;
}

/* Builds the detail; "log" adds the statements of processes that own their sessions. */
static void
describe(const ZklDeadlock *deadlock, StringInfo detail, StringInfo log)
{
	uint64		instance = server_instance();

	for (int i = 0; i < deadlock->n; i++)
	{
		const ZklDeadlockEdge *edge = &deadlock->edges[i];
		const ZklDeadlockEdge *next = &deadlock->edges[(i + 1) % deadlock->n];

		appendStringInfo(detail, "%sProcess %d on server %s waits for %s; blocked by process %d on server %s.",
						 i ? "\n" : "", edge->pid, plain(edge->server),
						 plain(edge->waits_for), next->pid, plain(next->server));
	}
	appendStringInfoString(log, detail->data);
	for (int i = 0; i < deadlock->n; i++)
	{
		const ZklDeadlockEdge *edge = &deadlock->edges[i];

		/* The process id is unverified data of a znode. */
		if (edge->instance == instance && zklock_has_session(edge->pid, edge->session_id))
			appendStringInfo(log, "\nProcess %d: %s", edge->pid,
							 pgstat_get_backend_current_activity(edge->pid, false));
	}
}

static void
raise_deadlock(ZklDeadlock *deadlock, bool is_permit, const char *display)
{
	StringInfoData detail;
	StringInfoData log;

	initStringInfo(&detail);
	initStringInfo(&log);
	PG_TRY();
	{
		describe(deadlock, &detail, &log);
	}
	PG_FINALLY();
	{
		zkl_deadlock_free(deadlock);
	}
	PG_END_TRY();
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 is_permit
			 ? errmsg("deadlock detected while waiting for semaphore \"%s\"", display)
			 : errmsg("deadlock detected while waiting for lock \"%s\"", display),
			 errdetail_internal("%s", detail.data),
			 errdetail_log("%s", log.data),
			 errhint("See server log for query details.")));
}

/* Once per wait. */
static void
warn_unsearched(ZklockLongWait *long_wait, const ZklRequestInfo *info)
{
	if (!info->is_unsearched || long_wait->warned)
		return;
	long_wait->warned = true;
	ereport(WARNING,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("deadlocks across servers may remain undetected during this wait"),
			 errdetail("There are too many znodes, or too long ones, below \"%s/waits\".",
					   zklock_root),
			 errhint("Remove the znodes there that were not created by zklock.")));
}

static void
begin(ZklockLongWait *long_wait, const ZklockAction *actions, int n)
{
	const char **locks = palloc(sizeof(char *) * n);
	uint32	   *keys = palloc(sizeof(uint32) * n);

	for (int i = 0; i < n; i++)
	{
		locks[i] = zklock_to_utf8(actions[i].display);
		/* the half of the hash that the lock table shows */
		keys[i] = (uint32) actions[i].key;
	}
	long_wait->report.locks = locks;
	long_wait->report.keys = keys;
	long_wait->report.instance = server_instance();
	long_wait->report.server = zklock_server_name();
	long_wait->report.pid = MyProcPid;
	long_wait->scan_context = AllocSetContextCreate(CurrentMemoryContext,
													"zklock lock table",
													ALLOCSET_DEFAULT_SIZES);
}

/* Reads the lock table, unless nothing can have changed. */
static void
scan(ZklockLongWait *long_wait)
{
	uint64		long_waits = zklock_long_waits();
	ZklLocalWaiter *local_waiters;
	MemoryContext old;

	if (long_wait->scanned && long_wait->long_waits == long_waits)
		return;
	long_wait->scanned = true;
	long_wait->long_waits = long_waits;
	long_wait->report.n_local_waiters = 0;
	MemoryContextReset(long_wait->scan_context);
	if (long_waits == 0)
		return;
	zklock_count(ZKLOCK_STAT_LOCK_TABLE_READS, 1);
	old = MemoryContextSwitchTo(long_wait->scan_context);
	long_wait->report.n_local_waiters = zklock_waiting_for_me(&local_waiters);
	long_wait->report.local_waiters = local_waiters;
	MemoryContextSwitchTo(old);
}

bool
zklock_search_deadlock(ZklockLongWait *long_wait, ZklRequest *request,
					   const ZklRequestInfo *info, const ZklockAction *actions,
					   int n, int64 *check_again)
{
	ZklDeadlock *deadlock;

	if (long_wait->scan_context == NULL)
		begin(long_wait, actions, n);
	long_wait->report.probe = info->probe;
	warn_unsearched(long_wait, info);
	scan(long_wait);
	deadlock = zkl_request_publish(request, &long_wait->report);
	if (deadlock && deadlock->keeps_place && long_wait->may_requeue)
	{
		zkl_deadlock_free(deadlock);
		return true;
	}
	if (deadlock)
		raise_deadlock(deadlock, info->is_permit, actions[Max(info->culprit, 0)].display);
	*check_again = Min(*check_again, zkl_now_ms() + SEARCH_MS);
	return false;
}

void
zklock_end_long_wait(ZklockLongWait *long_wait)
{
	if (long_wait->scan_context)
		MemoryContextDelete(long_wait->scan_context);
	long_wait->scan_context = NULL;
}
