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

#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "backend/base/holds.h"
#include "backend/local/local_lock.h"
#include "backend/local/lock_queues.h"
#include "backend/local/lock_waiters.h"
#include "backend/session/shown.h"

static bool
is_long(TimestampTz since, TimestampTz now)
{
	return since != 0 &&
		TimestampDifferenceExceeds(since, now, DeadlockTimeout);
}

/*
 * Only waits that have lasted matter, and a session stops waiting before it releases
 * anything.  So while this number is the same, the same sessions wait for the same
 * holders.
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
 * The processes that are reached
 */

/* A process that waits for this one, directly or through others. */
typedef struct Reached
{
	int			pid;			/* of its lock group's leader; the key */
	const LockInstanceData *instance;	/* its wait; NULL: this process */
	bool		only_for_place;
	uint64		path;			/* identifies its wait, and all others on its way to this one */
	const ZklockShownSession *session;	/* NULL: none */
} Reached;

typedef struct Table
{
	LockQueues	locks;
	ZklockShown shown;
	bool		has_order;		/* the order of some queue matters */
	HTAB	   *reached;
	int		   *pids;			/* of the reached processes, in that order */
	int			n_pids;
	TimestampTz now;
} Table;

static bool
conflicts_with_mask(LOCKMODE mode, LOCKMASK mask)
{
	for (LOCKMODE held = 1; held <= MAX_LOCKMODES - 1; held++)
		if ((mask & LOCKBIT_ON(held)) && DoLockModesConflict(mode, held))
			return true;
	return false;
}

static void
read_table(Table *table)
{
	HASHCTL		info = {.keysize = sizeof(int), .entrysize = sizeof(Reached), .hcxt = CurrentMemoryContext};

	zklock_read_lock_queues(&table->locks);
	table->now = GetCurrentTimestamp();
	table->pids = palloc(sizeof(int) * (table->locks.data->nelements + 1));
	table->reached = hash_create("zklock waiting processes", 64, &info,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static const char *
wait_text(const LockInstanceData *instance)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "%s on ",
					 GetLockmodeName(instance->locktag.locktag_lockmethodid,
									 instance->waitLockMode));
	DescribeLockTag(&text, &instance->locktag);
	return text.data;
}


/*
 * Which process waits for which
 */

/* Marks a process as reached, unless it already is. */
static Reached *
reach(Table *table, int pid, const LockInstanceData *instance, bool only_for_place)
{
	bool		found;
	Reached    *reached = hash_search(table->reached, &pid, HASH_ENTER, &found);

	if (found)
		return reached;
	reached->instance = instance;
	reached->only_for_place = only_for_place;
	reached->path = 0;
	reached->session = NULL;
	table->pids[table->n_pids++] = pid;
	return reached;
}

static Reached *
find_reached(const Table *table, int pid)
{
	return hash_search(table->reached, &pid, HASH_FIND, NULL);
}

/* Identifies a wait together with the waits that it depends on. */
static uint64
path_of_wait(const LockInstanceData *waiter, uint64 path)
{
	uint64		parts[3] = {path, (uint64) waiter->leaderPid, (uint64) waiter->waitStart};

	return hash_bytes_extended((unsigned char *) parts, sizeof(parts), 0);
}

/* Returns whether the waiter is not reached yet, and conflicts with one of the modes. */
static bool
must_reach(const Table *table, const LockInstanceData *waiter, LOCKMASK mask)
{
	return conflicts_with_mask(waiter->waitLockMode, mask) &&
		is_long(waiter->waitStart, table->now) &&
		find_reached(table, waiter->leaderPid) == NULL;
}

static void
reach_waiter(Table *table, const LockInstanceData *waiter, uint64 path, bool only_for_place)
{
	reach(table, waiter->leaderPid, waiter, only_for_place)->path = path_of_wait(waiter, path);
}

/* Reaches the waiters that conflict with what reached processes hold of the lock. */
static void
reach_blocked_by_holders(Table *table, const LockQueue *queue, bool only_for_place)
{
	for (int i = 0; i < queue->n_waiters; i++)
		if (must_reach(table, queue->waiters[i].instance, queue->held))
			reach_waiter(table, queue->waiters[i].instance, queue->path, only_for_place);
}

/* Returns whether a waiter must be reached if a reached one is ahead of it. */
static bool
does_order_matter(const Table *table, const LockQueue *queue)
{
	LOCKMASK	reached = 0;

	for (int i = 0; i < queue->n_waiters; i++)
		if (find_reached(table, queue->waiters[i].instance->leaderPid))
			reached |= LOCKBIT_ON(queue->waiters[i].instance->waitLockMode);
	for (int i = 0; i < queue->n_waiters; i++)
		if (must_reach(table, queue->waiters[i].instance, reached))
			return true;
	return false;
}

/* Reaches the waiters that conflict with what reached processes wait for ahead of them. */
static void
reach_blocked_by_waiters(Table *table, const LockQueue *queue, bool only_for_place)
{
	LOCKMASK	ahead = 0;
	uint64		path = queue->path;

	for (int i = 0; i < queue->n_waiters; i++)
	{
		const LockInstanceData *waiter = queue->waiters[i].instance;
		const Reached *reached;

		if (must_reach(table, waiter, ahead))
			reach_waiter(table, waiter, path, only_for_place);
		reached = find_reached(table, waiter->leaderPid);
		if (reached == NULL)
			continue;
		ahead |= LOCKBIT_ON(waiter->waitLockMode);
		path += reached->path;
	}
}

/*
 * Reaches all waiters of a lock that wait for reached processes.  A process that is not
 * reached adds nothing to the modes, so no process conflicts with itself.
 */
static void
reach_waiters(Table *table, LockQueue *queue, bool only_for_place)
{
	reach_blocked_by_holders(table, queue, only_for_place);
	if (!does_order_matter(table, queue))
		return;
	table->has_order = true;
	zklock_order_queue(queue);
	reach_blocked_by_waiters(table, queue, only_for_place);
}

static bool
is_awaited(const LOCKTAG *tag)
{
	dlist_iter	iter;
	uint64		key;

	if (!zklock_local_key(tag, &key))
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
 * Reaches the processes that wait for this one.  With "awaited_only", only waiters for
 * the local lock of a lock that this backend does not hold in the ensemble yet: they
 * would take over its place there, and continue to wait.
 */
static void
follow(Table *table, int pid, bool only_for_place, bool awaited_only)
{
	const LockInstanceData *locks = table->locks.data->locks;
	const Reached *reached = find_reached(table, pid);

	for (int k = zklock_first_entry(&table->locks, pid); k < table->locks.data->nelements; k++)
	{
		int			i = table->locks.by_pid[k];
		LockQueue  *queue = &table->locks.queues[table->locks.queue_of[i]];
		LOCKMASK	held = queue->held;

		if (locks[i].leaderPid != pid)
			break;
		if (queue->n_waiters == 0 || (awaited_only && !is_awaited(&locks[i].locktag)))
			continue;
		if (locks[i].holdMask & ~held)
			queue->path += reached->path;
		queue->held |= locks[i].holdMask;

		/* reach_waiters() has seen all behind it in the queue where it was reached. */
		if (queue->held != held ||
			(locks[i].waitLockMode != NoLock && reached->instance &&
			 !is_same_lock(reached->instance, &locks[i])))
			reach_waiters(table, queue, only_for_place);
	}
}

/* Reaches all processes that wait for a reached one, starting with index "from". */
static void
follow_all(Table *table, int from, bool only_for_place)
{
	for (int i = from; i < table->n_pids; i++)
	{
		CHECK_FOR_INTERRUPTS();
		follow(table, table->pids[i], only_for_place, false);
	}
}

/* Finds the ZooKeeper sessions of reached processes. */
static void
find_sessions(Table *table)
{
	zklock_copy_shown(&table->shown);
	for (int i = 0; i < table->shown.n_sessions; i++)
	{
		const ZklockShownSession *session = &table->shown.sessions[i];
		Reached    *reached = find_reached(table, session->pid);

		if (reached)
			reached->session = session;
	}
}

/* Adds what the entry of the lock table shows as held, if it is a local lock. */
static void
add_held_lock(const LockInstanceData *entry, const Reached *reached, ZklHeld *held, int *n)
{
	uint64		key;

	if (entry->holdMask == 0 || !zklock_local_key(&entry->locktag, &key))
		return;
	held[(*n)++] = (ZklHeld)
	{
		.key = (uint32) (key ^ reached->session->namespace_hash),
			.kind = (entry->holdMask & LOCKBIT_ON(ExclusiveLock)) ? ZKL_HELD_EXCLUSIVE : ZKL_HELD_SHARED
	};
}

/* Returns the locks and permits that the process holds, palloc'd. */
static ZklHeld *
find_held(const Table *table, const Reached *reached, int *n)
{
	const LockQueues *locks = &table->locks;
	const ZklockShown *shown = &table->shown;
	int			first = zklock_first_entry(locks, reached->pid);
	int			end = zklock_first_entry(locks, reached->pid + 1);
	int			n_permits = 0;
	ZklHeld    *held;

	for (int i = 0; i < shown->n_permits; i++)
		if (shown->permits[i].pid == reached->pid)
			n_permits += shown->permits[i].count;
	held = palloc(sizeof(ZklHeld) * (end - first + n_permits + 1));
	*n = 0;
	for (int i = first; i < end; i++)
		add_held_lock(&locks->data->locks[locks->by_pid[i]], reached, held, n);
	for (int i = 0; i < shown->n_permits; i++)
		for (int k = 0; shown->permits[i].pid == reached->pid && k < shown->permits[i].count; k++)
			held[(*n)++] = (ZklHeld)
		{
			.key = (uint32) shown->permits[i].semaphore,
				.kind = ZKL_HELD_PERMIT
		};
	return held;
}

static int
compare_local_waiters(const void *a, const void *b)
{
	uint64		x = (uint64) ((const ZklLocalWaiter *) a)->session_id;
	uint64		y = (uint64) ((const ZklLocalWaiter *) b)->session_id;

	return x < y ? -1 : x > y;
}

int
zklock_waiting_for_me(ZklLocalWaiter **local_waiters, bool *has_order)
{
	Table		table = {0};
	int			n_for_place;
	int			n = 0;

	read_table(&table);
	reach(&table, MyProcPid, NULL, false);
	follow(&table, MyProcPid, true, true);
	follow_all(&table, 1, true);
	n_for_place = table.n_pids;
	follow(&table, MyProcPid, false, false);
	follow_all(&table, n_for_place, false);
	*has_order = table.has_order;
	find_sessions(&table);
	*local_waiters = palloc(sizeof(ZklLocalWaiter) * table.n_pids);
	for (int i = 1; i < table.n_pids; i++)
	{
		Reached    *reached = find_reached(&table, table.pids[i]);
		ZklLocalWaiter *local_waiter = &(*local_waiters)[n];

		if (reached->session == NULL)
			continue;
		CHECK_FOR_INTERRUPTS();
		local_waiter->session_id = reached->session->session_id;
		local_waiter->pid = reached->pid;
		local_waiter->waits_for = wait_text(reached->instance);
		local_waiter->only_for_place = reached->only_for_place;
		local_waiter->identity = reached->path;
		local_waiter->held = find_held(&table, reached, &local_waiter->n_held);
		n++;
	}
	qsort(*local_waiters, n, sizeof(ZklLocalWaiter), compare_local_waiters);
	return n;
}
