/*-------------------------------------------------------------------------
 *
 * lock_waiters.c
 *		The sessions that wait for this backend in PostgreSQL's lock manager.
 *
 * A deadlock across servers may pass through any heavyweight lock.  A backend that
 * waits for one cannot report its wait.  So the backend that it waits for reports
 * it, if that one waits in the ensemble.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "backend/local/local.h"

/* PostgreSQL checks a wait after deadlock_timeout, and may then rearrange its queue. */
#define CHECK_MS 50

static bool
is_long(TimestampTz since, TimestampTz now)
{
	int			ms = DeadlockTimeout + CHECK_MS;

	/* In the other order, if the system clock was set back since. */
	return since != 0 &&
		(TimestampDifferenceExceeds(since, now, ms) || TimestampDifferenceExceeds(now, since, ms));
}

/*
 * Only waits that have lasted matter, and a session stops waiting before it releases
 * anything.  So while this number is the same, the same sessions wait in the same queues.
 * PostgreSQL's deadlock check can rearrange a queue, once for each wait, when it becomes long.
 */
uint64
zklock_long_waits(void)
{
	TimestampTz now = GetCurrentTimestamp();
	uint64		sum = 0;

	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[i];
		TimestampTz since = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);
		uint64		key[2] = {(uint64) proc->pid, (uint64) since};

		if (proc->pid != 0 && proc->waitLock != NULL && is_long(since, now))
			sum += hash_bytes_extended((unsigned char *) key, sizeof(key), 0) | 1;
	}
	return sum;
}


/*
 * Who waits for which process
 */

/* A lock group that waits for long, as its leader; or this process. */
typedef struct Waiter
{
	int			pid;
	const LockInstanceData *wait;	/* NULL: this process */
	Datum	   *blockers;		/* process ids of leaders */
	int			n_blockers;
	bool		is_reached;		/* it waits for this process, directly or through others */
	bool		only_for_place;
	uint64		path;			/* identifies its wait and those between it and this process */
} Waiter;

typedef struct Table
{
	LockData   *locks;
	Waiter	   *waiters;		/* by pid */
	int			n;
} Table;

static int
compare_waiters(const void *a, const void *b)
{
	int			x = ((const Waiter *) a)->pid;
	int			y = ((const Waiter *) b)->pid;

	return x < y ? -1 : x > y;
}

/*
 * Reads which processes wait for long, and for whom.  A process may have gone on
 * meanwhile: then its next report has another wait, or none.
 */
static void
read_waiters(Table *table)
{
	TimestampTz now = GetCurrentTimestamp();
	MemoryContext garbage = AllocSetContextCreate(CurrentMemoryContext, "zklock blocking pids",
												  ALLOCSET_DEFAULT_SIZES);

	table->locks = GetLockStatusData();
	table->waiters = palloc0(sizeof(Waiter) * (table->locks->nelements + 1));
	table->waiters[table->n++] = (Waiter)
	{
		.pid = MyProcPid,.is_reached = true
	};
	for (int i = 0; i < table->locks->nelements; i++)
	{
		const LockInstanceData *entry = &table->locks->locks[i];
		Waiter	   *waiter;
		MemoryContext old;
		Datum		blockers;

		if (entry->waitLockMode == NoLock || !is_long(entry->waitStart, now) ||
			entry->leaderPid == MyProcPid)
			continue;
		CHECK_FOR_INTERRUPTS();
		waiter = &table->waiters[table->n++];
		waiter->pid = entry->leaderPid;
		waiter->wait = entry;
		old = MemoryContextSwitchTo(garbage);	/* some bytes for each possible backend */
		blockers = DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(entry->pid));
		MemoryContextSwitchTo(old);
		deconstruct_array(DatumGetArrayTypeP(blockers), INT4OID, sizeof(int32), true, TYPALIGN_INT,
						  &waiter->blockers, NULL, &waiter->n_blockers);
		MemoryContextReset(garbage);
	}
	MemoryContextDelete(garbage);
	qsort(table->waiters, table->n, sizeof(Waiter), compare_waiters);
}

/* Returns a waiting process, or NULL; of a lock group with several waits, any of them. */
static const Waiter *
find_waiter(const Table *table, int pid)
{
	Waiter		key = {.pid = pid};

	return bsearch(&key, table->waiters, table->n, sizeof(Waiter), compare_waiters);
}

static bool
is_same_lock(const Waiter *a, const Waiter *b)
{
	return a->wait && b->wait &&
		memcmp(&a->wait->locktag, &b->wait->locktag, sizeof(LOCKTAG)) == 0;
}

/*
 * Does the process wait for the local lock of a lock that this backend does not hold in the
 * ensemble yet?  It would take over this backend's place there, and continue to wait.
 */
static bool
waits_for_place(const Waiter *waiter)
{
	dlist_iter	iter;
	uint64		key;

	if (!zklock_local_key(&waiter->wait->locktag, &key))
		return false;
	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		if (hold->local_key == key && hold->lock == NULL)
			return true;
	}
	return false;
}

/*
 * Returns a reached process that blocks the waiter, or NULL; rather a holder than a waiter
 * ahead of it in the same queue.
 */
static const Waiter *
reached_blocker(const Table *table, const Waiter *waiter, bool only_for_place)
{
	const Waiter *found = NULL;

	for (int i = 0; i < waiter->n_blockers; i++)
	{
		const Waiter *blocker = find_waiter(table, DatumGetInt32(waiter->blockers[i]));

		if (blocker == NULL || !blocker->is_reached ||
			(blocker->wait == NULL && waits_for_place(waiter) != only_for_place))
			continue;
		if (!is_same_lock(waiter, blocker))
			return blocker;
		found = blocker;
	}
	return found;
}

/* Reaches all processes that wait for reached ones. */
static void
reach_all(Table *table, bool only_for_place)
{
	bool		any = true;

	while (any)
	{
		any = false;
		for (int i = 0; i < table->n; i++)
		{
			Waiter	   *waiter = &table->waiters[i];
			const Waiter *blocker;
			uint64		parts[3];

			CHECK_FOR_INTERRUPTS();
			if (waiter->is_reached ||
				(blocker = reached_blocker(table, waiter, only_for_place)) == NULL)
				continue;
			parts[0] = blocker->path;
			parts[1] = (uint64) waiter->pid;
			parts[2] = (uint64) waiter->wait->waitStart;
			waiter->path = hash_bytes_extended((unsigned char *) parts, sizeof(parts), 0);
			waiter->only_for_place = only_for_place;
			waiter->is_reached = any = true;
		}
	}
}


/*
 * What the waiters hold
 */

static void
add_held(StringInfo all, ZklHeldKind kind, uint64 key)
{
	ZklHeld		held = {.key = (uint32) key,.kind = kind};

	appendBinaryStringInfo(all, (char *) &held, sizeof(held));
}

/* Returns the locks and permits that the session holds, palloc'd. */
static const ZklHeld *
find_held(const LockData *locks, const ZklockShown *shown, const ZklockShownSession *session,
		  int *n)
{
	StringInfoData all;
	uint64		key;

	initStringInfo(&all);
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *entry = &locks->locks[i];

		if (entry->leaderPid == session->pid && entry->holdMask != 0 &&
			zklock_local_key(&entry->locktag, &key))
			add_held(&all, (entry->holdMask & LOCKBIT_ON(ExclusiveLock)) ? ZKL_HELD_EXCLUSIVE : ZKL_HELD_SHARED,
					 key ^ session->namespace_hash);
	}
	for (int i = 0; i < shown->n_permits; i++)
		for (int k = 0; shown->permits[i].pid == session->pid && k < shown->permits[i].count; k++)
			add_held(&all, ZKL_HELD_PERMIT, shown->permits[i].semaphore);
	*n = all.len / (int) sizeof(ZklHeld);
	return (ZklHeld *) all.data;
}

static const char *
wait_text(const LockInstanceData *wait)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "%s on ",
					 GetLockmodeName(wait->locktag.locktag_lockmethodid, wait->waitLockMode));
	DescribeLockTag(&text, &wait->locktag);
	return text.data;
}

int
zklock_waiting_for_me(ZklLocalWaiter **local_waiters)
{
	Table		table = {0};
	ZklockShown shown;
	int			n = 0;

	read_waiters(&table);
	reach_all(&table, true);
	reach_all(&table, false);
	zklock_copy_shown(&shown);
	*local_waiters = palloc(sizeof(ZklLocalWaiter) * (shown.n_sessions + 1));
	for (int i = 0; i < shown.n_sessions; i++)
	{
		const ZklockShownSession *session = &shown.sessions[i];
		const Waiter *waiter = find_waiter(&table, session->pid);
		ZklLocalWaiter *to = &(*local_waiters)[n];

		if (waiter == NULL || waiter->wait == NULL || !waiter->is_reached)
			continue;
		CHECK_FOR_INTERRUPTS();
		to->session_id = session->session_id;
		to->pid = session->pid;
		to->waits_for = wait_text(waiter->wait);
		to->only_for_place = waiter->only_for_place;
		to->identity = waiter->path;
		to->held = find_held(table.locks, &shown, session, &to->n_held);
		n += to->n_held > 0;
	}
	return n;
}
