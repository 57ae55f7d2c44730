/*-------------------------------------------------------------------------
 *
 * lock_waiters.c
 *		The sessions that wait for this backend in PostgreSQL's lock manager.
 *
 * A deadlock across servers may pass through any heavyweight lock.  A backend that is
 * blocked in the lock manager cannot publish its wait.  So its blocker publishes it, if
 * that one waits in the ensemble.
 *
 * Such a deadlock passes through something that the blocked backend holds: a zk lock or a
 * permit.  So the search begins at the waiters that hold something, and follows only
 * their blockers: a crowd that holds nothing costs one copy of the lock table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "backend/base/holds.h"
#include "backend/local/local.h"
#include "backend/session/shared_memory.h"
#include "recipe/recipe.h"

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
	bool		holds;			/* zk locks or permits */
	bool		is_followed;	/* its blockers are known */
	int		   *blockers;		/* process ids of leaders */
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
	int			n_followed;
} Table;

static int
compare_waiters(const void *a, const void *b)
{
	int			x = ((const Waiter *) a)->pid;
	int			y = ((const Waiter *) b)->pid;

	return x < y ? -1 : x > y;
}

/* Returns a waiting process, or NULL; of a lock group with several waits, any of them. */
static Waiter *
find_waiter(const Table *table, int pid)
{
	Waiter		key = {.pid = pid};

	return bsearch(&key, table->waiters, table->n, sizeof(Waiter), compare_waiters);
}

/*
 * Reads which processes wait for long.  A process may have gone on meanwhile: then its next
 * report has another wait, or none.
 */
static void
read_waiters(Table *table)
{
	TimestampTz now = GetCurrentTimestamp();

	table->locks = GetLockStatusData();
	table->waiters = palloc0(sizeof(Waiter) * (table->locks->nelements + 1));
	table->waiters[table->n++] = (Waiter)
	{
		.pid = MyProcPid,.is_reached = true
	};
	for (int i = 0; i < table->locks->nelements; i++)
	{
		const LockInstanceData *entry = &table->locks->locks[i];

		if (entry->waitLockMode != NoLock && is_long(entry->waitStart, now) &&
			entry->leaderPid != MyProcPid)
			table->waiters[table->n++] = (Waiter)
		{
			.pid = entry->leaderPid,.wait = entry
		};
	}
	qsort(table->waiters, table->n, sizeof(Waiter), compare_waiters);
}

/* Marks the waiters that hold something.  Returns whether there are any. */
static bool
mark_holders(Table *table, const ZklockPublished *published)
{
	bool		any = false;
	uint64		key;
	Waiter	   *waiter;

	for (int i = 0; i < table->locks->nelements; i++)
	{
		const LockInstanceData *entry = &table->locks->locks[i];

		if (entry->holdMask != 0 && zklock_local_key(&entry->locktag, &key) &&
			(waiter = find_waiter(table, entry->leaderPid)) != NULL && waiter->wait)
			any = waiter->holds = true;
	}
	for (int i = 0; i < published->n_permits; i++)
		if ((waiter = find_waiter(table, published->permits[i].pid)) != NULL && waiter->wait)
			any = waiter->holds = true;
	return any;
}


/*
 * Blockers, as pg_blocking_pids() finds them, but not all of a queue
 */

static void
add_blocker(Waiter *waiter, int pid)
{
	waiter->blockers[waiter->n_blockers++] = pid;
}

/* Returns the place of a process among those ahead in a queue, or -1. */
static int
place_ahead(const int *ahead, int n_ahead, int pid)
{
	for (int i = n_ahead - 1; i >= 0; i--)
		if (ahead[i] == pid)
			return i;
	return -1;
}

/*
 * Adds the holders that block a process, and for each mode the nearest waiter ahead of it that is
 * blocked by more than this process is.  The others ahead are blocked by a part of the same
 * processes, so they lead nowhere else.
 */
static void
add_blockers(Waiter *waiter, const BlockedProcsData *data, const BlockedProcData *blocked)
{
	const LockInstanceData *locks = &data->locks[blocked->first_lock];
	const LockInstanceData *own = NULL;
	const LockInstanceData *nearest[MAX_LOCKMODES] = {NULL};
	int			places[MAX_LOCKMODES];
	const LOCKMASK *conflict_table;
	LOCKMASK	conflicts;

	for (int i = 0; i < blocked->num_locks; i++)
		if (locks[i].pid == blocked->pid)
			own = &locks[i];
	if (own == NULL)
		return;
	conflict_table = GetLockTagsMethodTable(&own->locktag)->conflictTab;
	conflicts = conflict_table[own->waitLockMode];
	for (int i = 0; i < blocked->num_locks; i++)
	{
		const LockInstanceData *lock = &locks[i];
		LOCKMODE	mode = lock->waitLockMode;
		int			place;

		if (lock->leaderPid == own->leaderPid)
			continue;
		if (conflicts & lock->holdMask)
			add_blocker(waiter, lock->leaderPid);
		else if (mode != NoLock && (conflicts & LOCKBIT_ON(mode)) && (conflict_table[mode] & ~conflicts))
		{
			place = place_ahead(&data->waiter_pids[blocked->first_waiter], blocked->num_waiters, lock->pid);
			if (place < 0 || (nearest[mode] && place < places[mode]))
				continue;
			nearest[mode] = lock;
			places[mode] = place;
		}
	}
	for (LOCKMODE mode = 0; mode < MAX_LOCKMODES; mode++)
		if (nearest[mode])
			add_blocker(waiter, nearest[mode]->leaderPid);
}

static void
find_blockers(Waiter *waiter, MemoryContext garbage)
{
	MemoryContext old = MemoryContextSwitchTo(garbage); /* some bytes for each possible backend */
	const BlockedProcsData *data = GetBlockerStatusData(waiter->wait->pid);

	MemoryContextSwitchTo(old);
	waiter->blockers = palloc(sizeof(int) * (data->nlocks + 1));
	for (int i = 0; i < data->nprocs; i++)
		add_blockers(waiter, data, &data->procs[i]);
	MemoryContextReset(garbage);
}

/* Finds the blockers of the waiters that hold something, of these blockers, and so on. */
static void
follow_holders(Table *table)
{
	MemoryContext garbage = AllocSetContextCreate(CurrentMemoryContext, "zklock blockers",
												  ALLOCSET_DEFAULT_SIZES);
	Waiter	  **left = palloc(sizeof(Waiter *) * table->n);
	int			n_left = 0;

	for (int i = 0; i < table->n; i++)
		if (table->waiters[i].holds)
		{
			table->waiters[i].is_followed = true;
			left[n_left++] = &table->waiters[i];
		}
	while (n_left > 0)
	{
		Waiter	   *waiter = left[--n_left];

		CHECK_FOR_INTERRUPTS();
		table->n_followed++;
		find_blockers(waiter, garbage);
		for (int i = 0; i < waiter->n_blockers; i++)
		{
			Waiter	   *blocker = find_waiter(table, waiter->blockers[i]);

			if (blocker == NULL || blocker->wait == NULL || blocker->is_followed)
				continue;
			blocker->is_followed = true;
			left[n_left++] = blocker;
		}
	}
	MemoryContextDelete(garbage);
}


/*
 * Who is blocked by this process
 */

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
		const Waiter *blocker = find_waiter(table, waiter->blockers[i]);

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
find_held(const LockData *locks, const ZklockPublished *published, const ZklockPublishedSession *session,
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
	for (int i = 0; i < published->n_permits; i++)
		for (int k = 0; published->permits[i].pid == session->pid && k < published->permits[i].count; k++)
			add_held(&all, ZKL_HELD_PERMIT, published->permits[i].semaphore);
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
	ZklockPublished published;
	int			n = 0;

	*local_waiters = NULL;
	read_waiters(&table);
	zklock_copy_published(&published);
	if (mark_holders(&table, &published))
		follow_holders(&table);
	ereport(DEBUG1,
			(errmsg_internal("the lock table was read to find deadlocks across servers: %d of %d waits followed",
							 table.n_followed, table.n - 1)));
	if (table.n_followed == 0)
		return 0;
	reach_all(&table, true);
	reach_all(&table, false);
	*local_waiters = palloc(sizeof(ZklLocalWaiter) * (published.n_sessions + 1));
	for (int i = 0; i < published.n_sessions; i++)
	{
		const ZklockPublishedSession *session = &published.sessions[i];
		const Waiter *waiter = find_waiter(&table, session->pid);
		ZklLocalWaiter *to = &(*local_waiters)[n];

		if (waiter == NULL || !waiter->holds || !waiter->is_reached)
			continue;
		CHECK_FOR_INTERRUPTS();
		to->session_id = session->session_id;
		to->pid = session->pid;
		to->waits_for = wait_text(waiter->wait);
		to->only_for_place = waiter->only_for_place;
		to->identity = waiter->path;
		to->held = find_held(table.locks, &published, session, &to->n_held);
		n += to->n_held > 0;
	}
	return n;
}
