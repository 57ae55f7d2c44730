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
#include "backend/local/lock_queue_order.h"
#include "backend/local/lock_table.h"
#include "backend/local/lock_waiters.h"

static bool
is_long(TimestampTz since, TimestampTz now)
{
	return since != 0 &&
		TimestampDifferenceExceeds(since, now, DeadlockTimeout);
}

/*
 * Only waits that have lasted matter, and a session stops waiting before it releases
 * anything.  So while this number is the same, the same sessions wait for the same
 * others.
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
 * The sorted lock table
 */

/* One lock: its entries, and the entries of its waiters in the order of the queue. */
typedef struct LockQueue
{
	int			start;			/* in Table.data->locks */
	int			end;
	LockInstanceData **waiters;
	int			n_waiters;
	LOCKMASK	held;			/* modes held by reached processes */
	uint64		path;			/* identifies these processes' waits: the sum of theirs */
} LockQueue;

/* A process that waits for this one, directly or through others. */
typedef struct Reached
{
	int			pid;			/* of its lock group's leader; the key */
	const LockInstanceData *instance;	/* its wait; NULL: this process */
	bool		only_for_place;
	uint64		path;			/* identifies its wait, and all others on its way to this one */
	int64		session_id;
	uint32		namespace_hash; /* of its locks, as shown by its session */
} Reached;

typedef struct Table
{
	LockData   *data;			/* by lock, then by process */
	LockQueue  *queues;
	int			n_queues;
	int		   *queue_of;		/* for each entry */
	int		   *by_pid;			/* entries, by process */
	HTAB	   *reached;
	int		   *pids;			/* of the reached processes, in that order */
	int			n_pids;
	TimestampTz now;
} Table;

static int
compare_tags(const LockInstanceData *a, const LockInstanceData *b)
{
	return memcmp(&a->locktag, &b->locktag, sizeof(LOCKTAG));
}

static int
compare_entries(const void *a, const void *b)
{
	const LockInstanceData *x = a;
	const LockInstanceData *y = b;
	int			order = compare_tags(x, y);

	return order != 0 ? order : x->leaderPid < y->leaderPid ? -1 : x->leaderPid > y->leaderPid;
}

static int
compare_starts(const void *a, const void *b)
{
	const LockInstanceData *x = *(LockInstanceData *const *) a;
	const LockInstanceData *y = *(LockInstanceData *const *) b;

	return x->waitStart < y->waitStart ? -1 : x->waitStart > y->waitStart;
}

static int
compare_pids(const void *a, const void *b, void *arg)
{
	const LockInstanceData *locks = arg;
	int			x = locks[*(const int *) a].leaderPid;
	int			y = locks[*(const int *) b].leaderPid;

	return x < y ? -1 : x > y;
}

/* Returns the modes that conflict with any mode of the mask. */
static LOCKMASK
conflicts_of_mask(LOCKMASK mask)
{
	LOCKMASK	conflicts = 0;

	for (LOCKMODE held = 1; held <= MAX_LOCKMODES - 1; held++)
		for (LOCKMODE mode = 1; (mask & LOCKBIT_ON(held)) && mode <= MAX_LOCKMODES - 1; mode++)
			if (DoLockModesConflict(mode, held))
				conflicts |= LOCKBIT_ON(mode);
	return conflicts;
}

/* Returns what a waiter's lock group holds of the lock; its entries are adjacent. */
static LOCKMASK
held_by_group(const Table *table, const LockQueue *queue, const LockInstanceData *waiter)
{
	const LockInstanceData *locks = table->data->locks;
	int			i = (int) (waiter - locks);
	LOCKMASK	mask = 0;

	while (i > queue->start && locks[i - 1].leaderPid == waiter->leaderPid)
		i--;
	for (; i < queue->end && locks[i].leaderPid == waiter->leaderPid; i++)
		mask |= locks[i].holdMask;
	return mask;
}

/* Reorders the waiters, from the order of their starts to that of the queue. */
static void
order_waiters(const Table *table, LockQueue *queue)
{
	LockInstanceData **waiters = palloc(sizeof(LockInstanceData *) * queue->n_waiters);
	int		   *room = palloc(sizeof(int) * 2 * queue->n_waiters);
	LockQueueOrder order;
	int			n = 0;

	zklock_queue_order_begin(&order, room, queue->n_waiters);
	for (int i = 0; i < queue->n_waiters; i++)
		zklock_queue_order_add(&order, i, queue->waiters[i]->waitLockMode,
							   conflicts_of_mask(held_by_group(table, queue, queue->waiters[i])));
	for (int i = order.first; i >= 0; i = order.next[i])
		waiters[n++] = queue->waiters[i];
	pfree(room);
	pfree(queue->waiters);
	queue->waiters = waiters;
}

/* Reads the entries of the next lock, from "start" on; returns where they end. */
static int
read_queue(Table *table, int start)
{
	LockQueue  *queue = &table->queues[table->n_queues];
	LockInstanceData *locks = table->data->locks;
	int			end = start;

	for (; end < table->data->nelements && compare_tags(&locks[start], &locks[end]) == 0; end++)
	{
		table->queue_of[end] = table->n_queues;
		queue->n_waiters += locks[end].waitLockMode != NoLock;
	}
	queue->start = start;
	queue->end = end;
	if (queue->n_waiters > 0)
	{
		int			n = 0;

		queue->waiters = palloc(sizeof(LockInstanceData *) * queue->n_waiters);
		for (int i = start; i < end; i++)
			if (locks[i].waitLockMode != NoLock)
				queue->waiters[n++] = &locks[i];
		qsort(queue->waiters, n, sizeof(LockInstanceData *), compare_starts);
		order_waiters(table, queue);
	}
	table->n_queues++;
	return end;
}

static void
read_table(Table *table)
{
	HASHCTL		info = {.keysize = sizeof(int), .entrysize = sizeof(Reached), .hcxt = CurrentMemoryContext};
	int			n;

	table->data = GetLockStatusData();
	n = table->data->nelements;
	table->now = GetCurrentTimestamp();
	table->queues = palloc0(sizeof(LockQueue) * (n + 1));
	table->queue_of = palloc(sizeof(int) * (n + 1));
	table->by_pid = palloc(sizeof(int) * (n + 1));
	table->pids = palloc(sizeof(int) * (n + 1));
	table->reached = hash_create("zklock waiting processes", 64, &info,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	qsort(table->data->locks, n, sizeof(LockInstanceData), compare_entries);
	for (int i = 0; i < n;)
	{
		CHECK_FOR_INTERRUPTS();
		i = read_queue(table, i);
	}
	for (int i = 0; i < n; i++)
		table->by_pid[i] = i;
	qsort_arg(table->by_pid, n, sizeof(int), compare_pids, table->data->locks);
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
	reached->session_id = 0;
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

/*
 * Reaches all waiters of a lock that conflict with what reached processes hold of it, or
 * wait for ahead of them.  A process that is not reached adds nothing to these modes, so
 * no process conflicts with itself.
 */
static void
reach_waiters(Table *table, LockQueue *queue, bool only_for_place)
{
	LOCKMASK	mask = queue->held;
	uint64		path = queue->path;

	for (int i = 0; i < queue->n_waiters; i++)
	{
		const LockInstanceData *waiter = queue->waiters[i];
		Reached    *reached = find_reached(table, waiter->leaderPid);

		if (reached == NULL && is_long(waiter->waitStart, table->now) &&
			(conflicts_of_mask(mask) & LOCKBIT_ON(waiter->waitLockMode)))
		{
			reached = reach(table, waiter->leaderPid, waiter, only_for_place);
			reached->path = path_of_wait(waiter, path);
		}
		if (reached == NULL)
			continue;
		mask |= LOCKBIT_ON(waiter->waitLockMode);
		path += reached->path;
	}
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

/* Returns the index of a process's first entry in by_pid. */
static int
first_entry(const Table *table, int pid)
{
	int			low = 0;
	int			high = table->data->nelements;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (table->data->locks[table->by_pid[middle]].leaderPid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * Reaches the processes that wait for this one.  With "awaited_only", only waiters for
 * the local lock of a lock that this backend does not hold in the ensemble yet: they
 * would take over its place there, and continue to wait.
 */
static void
follow(Table *table, int pid, bool only_for_place, bool awaited_only)
{
	const LockInstanceData *locks = table->data->locks;
	const Reached *reached = find_reached(table, pid);

	for (int k = first_entry(table, pid); k < table->data->nelements; k++)
	{
		int			i = table->by_pid[k];
		LockQueue  *queue = &table->queues[table->queue_of[i]];
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
			 compare_tags(reached->instance, &locks[i]) != 0))
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

/* Reads the ZooKeeper sessions that reached processes show. */
static void
find_sessions(Table *table)
{
	for (int i = 0; i < table->data->nelements; i++)
	{
		const LockInstanceData *l = &table->data->locks[i];
		Reached    *reached;
		int64		session_id;

		if (l->holdMask == 0 || !zklock_session_in_tag(&l->locktag, &session_id))
			continue;
		reached = find_reached(table, l->pid);
		if (reached)
		{
			reached->session_id = session_id;
			reached->namespace_hash = l->locktag.locktag_field1;
		}
	}
}

/* Returns the locks and permits that the process holds, palloc'd. */
static ZklHeld *
find_held(const Table *table, const Reached *reached, int *n)
{
	const LockInstanceData *locks = table->data->locks;
	int			first = first_entry(table, reached->pid);
	int			end = first;
	ZklHeld    *held;

	while (end < table->data->nelements &&
		   locks[table->by_pid[end]].leaderPid == reached->pid)
		end++;
	held = palloc(sizeof(ZklHeld) * (end - first + 1));
	*n = 0;
	for (int k = first; k < end; k++)
	{
		const LockInstanceData *l = &locks[table->by_pid[k]];

		if (zklock_held_in_tag(&l->locktag, l->holdMask, reached->namespace_hash, &held[*n]))
			(*n)++;
	}
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
zklock_waiting_for_me(ZklLocalWaiter **local_waiters)
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
	find_sessions(&table);
	*local_waiters = palloc(sizeof(ZklLocalWaiter) * table.n_pids);
	for (int i = 1; i < table.n_pids; i++)
	{
		Reached    *reached = find_reached(&table, table.pids[i]);
		ZklLocalWaiter *local_waiter = &(*local_waiters)[n];

		if (reached->session_id == 0)
			continue;
		CHECK_FOR_INTERRUPTS();
		local_waiter->session_id = reached->session_id;
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
