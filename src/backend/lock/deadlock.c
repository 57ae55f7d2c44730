/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *		Detects deadlocks across servers.
 *
 * The recipe layer finds them, in steps.  During a step this file waits for the answers of
 * the ensemble, passes on the sessions that wait for this backend in PostgreSQL's lock
 * manager (lock_waiters.c), and it raises the error.  Nothing happens before a wait in the
 * ensemble has lasted for deadlock_timeout.  Called only by queue_wait.c.
 *
 * An interrupt leaves a step with longjmp(): zklock_end_search() frees what it used.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"

#include "backend/base/names.h"
#include "backend/base/syntax.h"
#include "backend/local/local.h"
#include "backend/lock/queue_wait.h"
#include "backend/session/call.h"
#include "backend/session/shared_memory.h"
#include "backend/session/wait.h"
#include "recipe/batch.h"
#include "recipe/recipe.h"

/* Returns text of another server in a form that is safe in messages. */
static char *
plain(const char *text)
{
	char	   *copy = pstrdup(text);

	zklock_make_plain(copy);
	return copy;
}

/* Returns what the session waits for. */
static char *
edge_text(const ZklDeadlockEdge *edge)
{
	if (edge->name == NULL)
		return plain(edge->waits_for ? edge->waits_for : "");
	return psprintf("%s \"%s\"", edge->mode == ZKL_MODE_NONE ? "a permit of semaphore"
					: edge->mode == ZKL_MODE_SHARED ? "shared lock" : "exclusive lock",
					plain(zklock_given_name(edge->name)));
}

/* Returns a text about a session; with its id if another one has the same server and process. */
static char *
session_text(const ZklDeadlock *deadlock, const ZklDeadlockEdge *edge, const char *first_word)
{
	for (int i = 0; i < deadlock->n; i++)
	{
		const ZklDeadlockEdge *other = &deadlock->edges[i];

		if (other->session_id != edge->session_id && other->pid == edge->pid &&
			strcmp(other->server, edge->server) == 0)
			return psprintf("%s %d on server %s (session 0x%llx)", first_word, edge->pid,
							plain(edge->server), (unsigned long long) edge->session_id);
	}
	return psprintf("%s %d on server %s", first_word, edge->pid, plain(edge->server));
}

/* Builds the detail; "log" adds the statements of processes that own their sessions. */
static void
describe(const ZklDeadlock *deadlock, StringInfo detail, StringInfo log)
{
	for (int i = 0; i < deadlock->n; i++)
	{
		const ZklDeadlockEdge *edge = &deadlock->edges[i];

		appendStringInfo(detail, "%s%s waits for %s; blocked by %s.",
						 i ? "\n" : "", session_text(deadlock, edge, "Process"), edge_text(edge),
						 session_text(deadlock, &deadlock->edges[(i + 1) % deadlock->n], "process"));
	}
	appendStringInfoString(log, detail->data);
	for (int i = 0; i < deadlock->n; i++)
	{
		const ZklDeadlockEdge *edge = &deadlock->edges[i];

		/* The process id is unverified data of a znode. */
		if (zklock_has_session(edge->pid, edge->session_id))
			appendStringInfo(log, "\nProcess %d: %s", edge->pid,
							 pgstat_get_backend_current_activity(edge->pid, false));
	}
}

static void
raise_deadlock(const ZklDeadlock *deadlock, bool is_permit, const char *display)
{
	StringInfoData detail;
	StringInfoData log;

	initStringInfo(&detail);
	initStringInfo(&log);
	describe(deadlock, &detail, &log);
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
warn_of_limits(ZklockQueueWait *w)
{
	if (w->warned)
		return;
	w->warned = true;
	ereport(WARNING,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("deadlocks across servers may remain undetected during this wait"),
			 errdetail("There are too many znodes, or too long ones, below the path in zklock.root."),
			 errhint("Remove the znodes below its child \"waiting\" that were not created by zklock.")));
}


/*
 * Callbacks of the detector
 */

/* Is the request decided, or its time over?  If not, lowers *check_again to its end. */
static bool
has_wait_ended(ZklockCall *call, int64 *check_again)
{
	int64		end = zklock_call_end(call, ZKLOCK_BLOCKED, 0).at;

	*check_again = Min(*check_again, end);
	return zkl_request_status(call->wait.request) != ZKL_PENDING || zkl_now_ms() >= end;
}

/* Ends the wait for an answer, or a pause, which also ends when the session changes. */
static bool
is_step_done(void *arg, int64 *check_again)
{
	ZklockCall *call = arg;
	ZklockQueueWait *w = &call->wait;
	bool		is_new = w->pause_until != 0;

	zklock_wait_is_for(ZKLOCK_WAIT_LOCK);
	if (has_wait_ended(call, check_again))
		return true;
	if (w->awaited)
		return zkl_batch_info(w->awaited).status != ZKL_PENDING;
	*check_again = Min(*check_again, w->pause_until);
	w->pause_until = 0;
	return !is_new;
}

static bool
await_step(ZklockCall *call)
{
	int64		unused = ZKLOCK_NEVER;

	zklock_wait(call->wait.session, is_step_done, call);
	return !has_wait_ended(call, &unused);
}

static bool
await_batch(void *arg, ZklBatch *batch)
{
	ZklockCall *call = arg;

	call->wait.awaited = batch;
	return await_step(call);
}

static bool
pause_step(void *arg, int ms)
{
	ZklockCall *call = arg;

	call->wait.awaited = NULL;
	call->wait.pause_until = zkl_now_ms() + ms;
	return await_step(call);
}

/*
 * Reads the lock table; not if nobody waited for this backend, and the waits are the same.  If
 * somebody does, the order of a queue may have changed during the same waits.
 */
static int
find_waiters(void *arg, const ZklLocalWaiter **local_waiters)
{
	ZklockQueueWait *w = &((ZklockCall *) arg)->wait;
	uint64		long_waits = zklock_long_waits();
	MemoryContext old;

	if (long_waits != w->long_waits || w->n_local_waiters > 0)
	{
		w->n_local_waiters = 0;
		w->long_waits = 0;
		MemoryContextReset(w->scan_context);
		old = MemoryContextSwitchTo(w->scan_context);
		if (long_waits != 0)
			w->n_local_waiters = zklock_waiting_for_me(&w->local_waiters);
		MemoryContextSwitchTo(old);
		w->long_waits = long_waits;
	}
	*local_waiters = w->local_waiters;
	return w->n_local_waiters;
}

/* The half of the hash that reports have. */
static uint32_t
key_of(void *arg, const char *name)
{
	return (uint32) zklock_name_hash(name, strlen(name));
}


/*
 * Called by the wait
 */

static void
begin(ZklockCall *call)
{
	static const ZklDetectorCallbacks callbacks = {await_batch, pause_step, find_waiters, key_of};
	ZklockQueueWait *w = &call->wait;
	ZklDetectorConfig config = {
		.pid = MyProcPid,
		.server = zklock_server_name(),
		.may_requeue = call->may_requeue
	};

	/* Kept locks are given up first: they are no edges. */
	zkl_session_leave_kept(w->session);
	w->scan_context = AllocSetContextCreate(CurrentMemoryContext, "zklock lock table",
											ALLOCSET_DEFAULT_SIZES);
	w->detector = zkl_detector_begin(w->session, w->request, &config, &callbacks, call);
	if (w->detector == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
}

void
zklock_search_deadlock(ZklockCall *call, bool is_permit, const char *display,
					   int64 *check_again)
{
	const ZklDeadlock *deadlock;
	int64		next = ZKLOCK_NEVER;
	bool		is_limited = false;

	if (call->wait.detector == NULL)
		begin(call);
	deadlock = zkl_detector_step(call->wait.detector, &next, &is_limited);
	*check_again = Min(*check_again, next);
	if (deadlock && deadlock->keeps_place)
		call->must_requeue = true;
	else if (deadlock)
		raise_deadlock(deadlock, is_permit, display);
	else if (is_limited)
		warn_of_limits(&call->wait);
}

void
zklock_end_search(ZklockQueueWait *w)
{
	if (w->detector)
		zkl_detector_end(w->detector);
	if (w->scan_context)
		MemoryContextDelete(w->scan_context);
}
