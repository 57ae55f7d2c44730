/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *		Deadlocks across servers.
 *
 * The recipe layer finds them; this file tells it who waits for this backend in
 * PostgreSQL's lock manager (lock_table.c), and raises the error.  Nothing of
 * this happens before a wait in the ensemble has lasted for deadlock_timeout.
 * Called by the wait loop's callback in remote_wait.c only.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "deadlock.h"
#include "identity.h"
#include "lock_table.h"
#include "stats.h"
#include "syntax.h"
#include "wait.h"

/* How often a backend looks whether somebody new waits for it. */
#define LOOK_MS 500

/* A number of this server's own, since it was started. */
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

/* Text of another server's, as it may go into a message. */
static char *
plain(const char *text)
{
	char	   *copy = pstrdup(text);

	zklock_make_plain(copy);
	return copy;
}

static void
raise_deadlock(const ZklDeadlock *deadlock, bool is_permit, const char *display)
{
	uint64		instance = server_instance();
	StringInfoData detail;
	StringInfoData log;

	initStringInfo(&detail);
	for (int i = 0; i < deadlock->n; i++)
	{
		const ZklDeadlockEdge *edge = &deadlock->edges[i];
		const ZklDeadlockEdge *next = &deadlock->edges[(i + 1) % deadlock->n];

		appendStringInfo(&detail, "%sProcess %d on server %s waits for %s; blocked by process %d on server %s.",
						 i ? "\n" : "", edge->pid, plain(edge->server),
						 plain(edge->waits_for), next->pid, plain(next->server));
	}
	initStringInfo(&log);
	appendStringInfoString(&log, detail.data);
	for (int i = 0; i < deadlock->n; i++)
		if (deadlock->edges[i].instance == instance)
			appendStringInfo(&log, "\nProcess %d: %s", deadlock->edges[i].pid,
							 pgstat_get_backend_current_activity(deadlock->edges[i].pid,
																 false));
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 is_permit
			 ? errmsg("deadlock detected while waiting for semaphore \"%s\"", display)
			 : errmsg("deadlock detected while waiting for lock \"%s\"", display),
			 errdetail_internal("%s", detail.data),
			 errdetail_log("%s", log.data),
			 errhint("See server log for query details.")));
}

static void
begin(ZklockVigil *vigil, const ZklockPurpose *purposes, int n)
{
	const char **locks = palloc(sizeof(char *) * n);

	for (int i = 0; i < n; i++)
		locks[i] = pg_server_to_any(purposes[i].display, strlen(purposes[i].display), PG_UTF8);
	vigil->tale.locks = locks;
	vigil->tale.instance = server_instance();
	vigil->tale.server = zklock_server_name();
	vigil->tale.pid = MyProcPid;
	vigil->scan_context = AllocSetContextCreate(CurrentMemoryContext,
												"zklock lock table",
												ALLOCSET_DEFAULT_SIZES);
}

/* Reads the lock table if that can show anything new. */
static void
scan(ZklockVigil *vigil)
{
	uint64		long_waits = zklock_long_waits();
	ZklDependent *dependents;
	MemoryContext old;

	if (vigil->scanned && vigil->long_waits == long_waits)
		return;
	vigil->scanned = true;
	vigil->long_waits = long_waits;
	vigil->tale.n_dependents = 0;
	MemoryContextReset(vigil->scan_context);
	if (long_waits == 0)
		return;
	zklock_count(ZKLOCK_STAT_LOCK_TABLE_READS, 1);
	old = MemoryContextSwitchTo(vigil->scan_context);
	vigil->tale.n_dependents = zklock_waiting_for_me(&dependents);
	vigil->tale.dependents = dependents;
	MemoryContextSwitchTo(old);
}

bool
zklock_look_for_deadlock(ZklockVigil *vigil, ZklRequest *request,
						 const ZklRequestInfo *info, const ZklockPurpose *purposes,
						 int n, int64 *look_again)
{
	const ZklDeadlock *deadlock;

	if (vigil->scan_context == NULL)
		begin(vigil, purposes, n);
	vigil->tale.question = info->question;
	scan(vigil);
	deadlock = zkl_request_tell(request, &vigil->tale);
	if (deadlock && deadlock->keeps_place && vigil->may_step_back)
		return true;
	if (deadlock)
		raise_deadlock(deadlock, info->is_permit, purposes[Max(info->culprit, 0)].display);
	*look_again = Min(*look_again, zklock_now() + LOOK_MS);
	return false;
}

void
zklock_end_vigil(ZklockVigil *vigil)
{
	if (vigil->scan_context)
		MemoryContextDelete(vigil->scan_context);
	vigil->scan_context = NULL;
}
