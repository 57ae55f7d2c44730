/*-------------------------------------------------------------------------
 *
 * lock_table.c
 *		PostgreSQL's lock table: who waits in it for this backend.
 *
 * A deadlock across servers may pass through any lock of PostgreSQL's.  Who
 * waits for one is not in our hands, so the backend that it waits for tells of
 * it, if that one waits in the ensemble.
 *
 * Without shared memory of our own, a backend shows the number of its ZooKeeper
 * session in the lock table itself: by a lock that nobody else wants.
 * pg_advisory_unlock_all() and DISCARD ALL take it away until it asks the
 * ensemble for a lock again; that can only hide a deadlock.
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
#include "utils/timestamp.h"

#include "compat.h"
#include "holds.h"
#include "local_tier.h"
#include "lock_table.h"
#include "settings.h"

/* Of the old contrib/userlock; pg_locks shows it as "userlock". */
#define SESSION_LOCKTAG_FIELD4 0x5A4B

static int64 shown = 0;

static void
set_session_tag(LOCKTAG *tag, int64 session_id)
{
	memset(tag, 0, sizeof(*tag));
	tag->locktag_type = LOCKTAG_USERLOCK;
	tag->locktag_lockmethodid = USER_LOCKMETHOD;
	tag->locktag_field2 = (uint32) ((uint64) session_id >> 32);
	tag->locktag_field3 = (uint32) session_id;
	tag->locktag_field4 = SESSION_LOCKTAG_FIELD4;
}

static bool
is_session_tag(const LOCKTAG *tag)
{
	return tag->locktag_type == LOCKTAG_USERLOCK &&
		tag->locktag_field4 == SESSION_LOCKTAG_FIELD4;
}

void
zklock_hide_session(void)
{
	LOCKTAG		tag;

	set_session_tag(&tag, shown);
	if (shown != 0 && zklock_lock_held_by_me(&tag, ExclusiveLock))
		LockRelease(&tag, ExclusiveLock, true);
	shown = 0;
}

void
zklock_show_session(ZklSession *session)
{
	int64		session_id = zkl_session_lease(session).session_id;
	LOCKTAG		tag;

	if (!zklock_deadlock_detection)
		return;
	set_session_tag(&tag, session_id);
	if (shown == session_id && zklock_lock_held_by_me(&tag, ExclusiveLock))
		return;
	zklock_hide_session();
	(void) LockAcquire(&tag, ExclusiveLock, true, true);
	shown = session_id;
}

static bool
is_long(TimestampTz since, TimestampTz now)
{
	return since != 0 &&
		TimestampDifferenceExceeds(since, now, DeadlockTimeout);
}

/*
 * Every wait that matters has lasted, and whoever lets go of something stops
 * waiting first: so while this number is the same, the same sessions wait for
 * the same others.
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
 * The queue of one lock
 */

/* That one backend waits for another. */
typedef struct Edge
{
	int			waiter;			/* pids, of leaders of lock groups */
	int			blocker;
	LockInstanceData *instance; /* the waiter's */
} Edge;

typedef struct EdgeList
{
	Edge	   *edges;
	int			n;
	int			size;
	TimestampTz now;
} EdgeList;

static void
add_edge(EdgeList *list, LockInstanceData *waiter, const LockInstanceData *blocker)
{
	if (blocker->leaderPid == 0 || waiter->leaderPid == blocker->leaderPid)
		return;					/* a prepared transaction; the same query */
	if (list->n == list->size)
	{
		list->size *= 2;
		list->edges = repalloc(list->edges, sizeof(Edge) * list->size);
	}
	list->edges[list->n++] = (Edge)
	{
		waiter->leaderPid, blocker->leaderPid, waiter
	};
}

static bool
conflicts_with_mask(LOCKMODE mode, LOCKMASK mask)
{
	for (LOCKMODE held = 1; held <= MAX_LOCKMODES - 1; held++)
		if ((mask & LOCKBIT_ON(held)) && DoLockModesConflict(mode, held))
			return true;
	return false;
}

/* What the group of a waiter holds of the lock. */
static LOCKMASK
held_by_group(const LockInstanceData *locks, int n, int leader)
{
	LOCKMASK	mask = 0;

	for (int i = 0; i < n; i++)
		if (locks[i].leaderPid == leader)
			mask |= locks[i].holdMask;
	return mask;
}

/*
 * Waiters in the order of the queue: as they came, but who holds some of the
 * lock already goes ahead of those who wait for that (see ProcSleep()).
 */
static int
order_of_queue(LockInstanceData *locks, int n, LockInstanceData **queue)
{
	int			n_queue = 0;

	for (int i = 0; i < n; i++)
	{
		LockInstanceData *waiter = &locks[i];
		int			place = n_queue;

		if (waiter->waitLockMode == NoLock)
			continue;
		while (place > 0 && queue[place - 1]->waitStart > waiter->waitStart)
			place--;
		memmove(&queue[place + 1], &queue[place],
				sizeof(LockInstanceData *) * (n_queue - place));
		queue[place] = waiter;
		n_queue++;
	}
	for (int i = 1; i < n_queue; i++)
	{
		LockInstanceData *waiter = queue[i];
		LOCKMASK	held = held_by_group(locks, n, waiter->leaderPid);
		int			place = 0;

		while (place < i && !conflicts_with_mask(queue[place]->waitLockMode, held))
			place++;
		memmove(&queue[place + 1], &queue[place],
				sizeof(LockInstanceData *) * (i - place));
		queue[place] = waiter;
	}
	return n_queue;
}

/* All entries are about one lock. */
static void
add_edges_of_lock(EdgeList *list, LockInstanceData *locks, int n)
{
	LockInstanceData **queue = palloc(sizeof(LockInstanceData *) * n);
	int			n_queue = order_of_queue(locks, n, queue);

	for (int i = 0; i < n_queue; i++)
	{
		LockInstanceData *waiter = queue[i];

		if (!is_long(waiter->waitStart, list->now))
			continue;
		for (int j = 0; j < n; j++)
			if (conflicts_with_mask(waiter->waitLockMode, locks[j].holdMask))
				add_edge(list, waiter, &locks[j]);
		for (int j = 0; j < i; j++)
			if (DoLockModesConflict(waiter->waitLockMode, queue[j]->waitLockMode))
				add_edge(list, waiter, queue[j]);
	}
	pfree(queue);
}


/*
 * All locks
 */

static int
compare_tags(const void *a, const void *b)
{
	return memcmp(&((const LockInstanceData *) a)->locktag,
				  &((const LockInstanceData *) b)->locktag, sizeof(LOCKTAG));
}

static int
compare_dependents(const void *a, const void *b)
{
	uint64		x = (uint64) ((const ZklDependent *) a)->session_id;
	uint64		y = (uint64) ((const ZklDependent *) b)->session_id;

	return x < y ? -1 : x > y;
}

static void
collect_edges(EdgeList *list, LockData *data)
{
	list->n = 0;
	list->size = 64;
	list->edges = palloc(sizeof(Edge) * list->size);
	list->now = GetCurrentTimestamp();
	qsort(data->locks, data->nelements, sizeof(LockInstanceData), compare_tags);
	for (int i = 0, end; i < data->nelements; i = end)
	{
		for (end = i + 1; end < data->nelements &&
			 compare_tags(&data->locks[i], &data->locks[end]) == 0; end++)
			;
		add_edges_of_lock(list, &data->locks[i], end - i);
	}
}

/* The ZooKeeper session that a backend shows, or 0. */
static int64
session_of(const LockData *data, int pid)
{
	for (int i = 0; i < data->nelements; i++)
	{
		const LockInstanceData *l = &data->locks[i];

		if (l->pid == pid && l->holdMask != 0 && is_session_tag(&l->locktag))
			return (int64) ((uint64) l->locktag.locktag_field2 << 32 |
							l->locktag.locktag_field3);
	}
	return 0;
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

static bool
is_reached(const Edge *reached, int n, int pid)
{
	for (int i = 0; i < n; i++)
		if (reached[i].waiter == pid)
			return true;
	return pid == MyProcPid;
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
 * Does it wait in the first tier of a lock that this backend itself does not
 * hold yet?  Then it would take over this one's place, and not go on.
 */
static bool
is_in_line(const Edge *edge)
{
	return edge->blocker == MyProcPid &&
		is_awaited(&edge->instance->locktag);
}

/*
 * Moves one edge for each backend that waits for this one behind the first n;
 * or only if it does so in line, or through others who do.
 */
static int
keep_reaching(EdgeList *list, int n, bool in_line_only)
{
	bool		changed = true;

	while (changed)
	{
		changed = false;
		for (int i = n; i < list->n; i++)
		{
			Edge		edge = list->edges[i];

			if (is_reached(list->edges, n, edge.waiter) ||
				!is_reached(list->edges, n, edge.blocker) ||
				(in_line_only && edge.blocker == MyProcPid && !is_in_line(&edge)))
				continue;
			list->edges[i] = list->edges[n];
			list->edges[n++] = edge;
			changed = true;
		}
	}
	return n;
}

int
zklock_waiting_for_me(ZklDependent **dependents)
{
	LockData   *data = GetLockStatusData();
	EdgeList	list;
	int			n_in_line;
	int			n_reaching;
	int			n = 0;

	collect_edges(&list, data);
	n_in_line = keep_reaching(&list, 0, true);
	n_reaching = keep_reaching(&list, n_in_line, false);
	*dependents = palloc(sizeof(ZklDependent) * (n_reaching + 1));
	for (int i = 0; i < n_reaching; i++)
	{
		int64		session_id = session_of(data, list.edges[i].waiter);

		if (session_id == 0)
			continue;
		(*dependents)[n++] = (ZklDependent)
		{
			session_id, list.edges[i].waiter, wait_text(list.edges[i].instance),
				i < n_in_line
		};
	}
	qsort(*dependents, n, sizeof(ZklDependent), compare_dependents);
	return n;
}
