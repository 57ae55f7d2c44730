/*-------------------------------------------------------------------------
 *
 * shared_memory.c
 *		The sessions and permits that backends show each other; counters for the view zk_stat.
 *
 * Each backend has a slot in shared memory, found by the number of its PGPROC; a hash table
 * counts the permits of each backend and semaphore.  One LWLock protects both.  Locks need
 * no entry here: the local lock shows them (local_lock.c).
 *
 * A backend empties its slot after it has closed its session, and so at exit, on FATAL too: its
 * exit callback is registered before its session opens.  After a crash the postmaster
 * makes the shared memory again.
 *
 * The counters count for all backends until the server stops.  Atomics, no lock: a reader
 * may see a call half counted, and a concurrent increment survive a reset.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "backend/session/session.h"
#include "compat.h"

/* The key of a hash table, without padding. */
typedef struct PermitKey
{
	uint64		slot;
	uint64		semaphore;
} PermitKey;

typedef struct PermitEntry
{
	PermitKey	key;
	int			count;			/* not 0 */
} PermitEntry;

typedef struct Counters
{
	pg_atomic_uint64 since;		/* a TimestampTz */
	pg_atomic_uint64 counts[ZKLOCK_N_STATS];
} Counters;

/* the counters, stats_reset */

/* MaxBackends of them; session_id 0: empty. */
static ZklockShownSession *slots;
static HTAB *permits;
static LWLock *lock;
static Counters *counters;

TimestampTz zklock_memory_made_at;

/* This backend's session is shown; or 0. */
static int64 shown = 0;


/*
 * The shared memory
 */

static struct
{
	shmem_request_hook_type request;
	shmem_startup_hook_type startup;
}			previous;

/* As many as the lock table has locks. */
static long
max_permits(void)
{
	return mul_size(MaxBackends, max_locks_per_xact);
}

static void
zklock_at_shmem_request(void)
{
	if (previous.request)
		previous.request();
	RequestAddinShmemSpace(mul_size(MaxBackends, sizeof(ZklockShownSession)));
	RequestAddinShmemSpace(hash_estimate_size(max_permits(), sizeof(PermitEntry)));
	RequestNamedLWLockTranche("zklock", 1);
	RequestAddinShmemSpace(sizeof(Counters));
}

static void
init_shared_memory(void)
{
	HASHCTL		info = {.keysize = sizeof(PermitKey), .entrysize = sizeof(PermitEntry)};
	Size		size = mul_size(MaxBackends, sizeof(ZklockShownSession));
	bool		found;

	slots = ShmemInitStruct("zklock sessions", size, &found);
	if (!found)
		memset(slots, 0, size);
	permits = ZKLOCK_SHMEM_HASH("zklock permits", max_permits(), &info,
								HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
	lock = &GetNamedLWLockTranche("zklock")->lock;
	counters = ShmemInitStruct("zklock", sizeof(Counters), &found);
	if (found)
		return;
	zklock_memory_made_at = GetCurrentTimestamp();
	pg_atomic_init_u64(&counters->since, (uint64) zklock_memory_made_at);
	for (int i = 0; i < ZKLOCK_N_STATS; i++)
		pg_atomic_init_u64(&counters->counts[i], 0);
}

static void
zklock_at_shmem_startup(void)
{
	if (previous.startup)
		previous.startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	init_shared_memory();
	LWLockRelease(AddinShmemInitLock);
	if (!IsUnderPostmaster)
		zklock_init_session_file();
}

/*
 * The hooks run in the postmaster, at its start and again after the crash of a backend.
 * Backends inherit the pointers.
 */
void
zklock_install_shared_memory(void)
{
	previous.request = shmem_request_hook;
	shmem_request_hook = zklock_at_shmem_request;
	previous.startup = shmem_startup_hook;
	shmem_startup_hook = zklock_at_shmem_startup;
}

/* Backends are the first of all processes with a PGPROC. */
static int
my_slot(void)
{
	int			slot = (int) (MyProc - ProcGlobal->allProcs);

	Assert(slot >= 0 && slot < MaxBackends);
	return slot;
}

/* Returns the slot with this session of this namespace, or -1. */
static int
find_slot(int64 session_id, uint64 namespace_hash)
{
	for (int i = 0; i < MaxBackends; i++)
		if (slots[i].session_id == session_id && slots[i].namespace_hash == namespace_hash)
			return session_id == 0 ? -1 : i;
	return -1;
}

/* Returns the entry of a backend and a semaphore; NULL if it is missing or there is no room. */
static PermitEntry *
find_permits(int slot, uint64 semaphore, HASHACTION action, bool *found)
{
	PermitKey	key = {.slot = (uint64) slot, .semaphore = semaphore};

	return hash_search(permits, &key, action, found);
}


/*
 * Sessions
 */

void
zklock_hide_session(void)
{
	dlist_iter	iter;

	if (shown == 0)
		return;
	dlist_foreach(iter, &zklock_holds)
		zklock_hide_permit(dlist_container(ZklockHold, link, iter.cur));
	LWLockAcquire(lock, LW_EXCLUSIVE);
	slots[my_slot()].session_id = 0;
	LWLockRelease(lock);
	shown = 0;
}

void
zklock_show_session(ZklSession *session, uint64 namespace_hash)
{
	ZklockShownSession mine = {.pid = MyProcPid,.namespace_hash = namespace_hash};
	int			other;

	if (shown != 0)
		return;
	mine.session_id = zkl_session_info(session).key.id;
	LWLockAcquire(lock, LW_EXCLUSIVE);
	other = find_slot(mine.session_id, namespace_hash);
	if (other < 0)
		slots[my_slot()] = mine;
	LWLockRelease(lock);
	if (other >= 0)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("another backend of this server has the same ZooKeeper session"),
				 errdetail("The ensemble gave session 0x%llx to both.", (unsigned long long) mine.session_id),
				 errhint("Check that zklock.connect_string names servers of one ZooKeeper ensemble, and nothing else.")));
	shown = mine.session_id;
	zklock_note_session(session);
}

bool
zklock_has_session(int pid, int64 session_id)
{
	bool		has = false;

	LWLockAcquire(lock, LW_SHARED);
	for (int i = 0; i < MaxBackends && !has; i++)
		has = slots[i].session_id == session_id && slots[i].pid == pid;
	LWLockRelease(lock);
	return has;
}


/*
 * Permits
 */

void
zklock_show_permit(ZklockHold *hold)
{
	PermitEntry *entry;
	bool		found;

	if (hold->shown)
		return;
	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find_permits(my_slot(), hold->key, HASH_ENTER_NULL, &found);
	if (entry)
		entry->count = found ? entry->count + 1 : 1;
	LWLockRelease(lock);
	if (entry == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of shared memory"),
				 errhint("You might need to increase max_locks_per_transaction.")));
	hold->shown = true;
}

void
zklock_hide_permit(ZklockHold *hold)
{
	PermitEntry *entry;

	if (!hold->shown)
		return;
	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find_permits(my_slot(), hold->key, HASH_FIND, NULL);
	if (entry && --entry->count == 0)
		(void) find_permits(my_slot(), hold->key, HASH_REMOVE, NULL);
	LWLockRelease(lock);
	hold->shown = false;
}

/* Returns how many of n permits of a session its backend has released. */
static int
count_released(uint64 semaphore, int64 session_id, int n)
{
	int			slot = find_slot(session_id, slots[my_slot()].namespace_hash);
	PermitEntry *entry;
	int			n_shown;

	if (slot < 0)
		return 0;
	entry = find_permits(slot, semaphore, HASH_FIND, NULL);
	n_shown = entry ? entry->count : 0;
	if (session_id == shown)
		n_shown--;				/* the attempt, whose node is not one of the n */
	return Max(0, n - n_shown);
}

int
zklock_count_released_permits(uint64 semaphore, const uint64 *sessions, int n)
{
	int			n_released = 0;
	int			next;

	LWLockAcquire(lock, LW_SHARED);
	for (int i = 0; i < n; i = next)
	{
		for (next = i + 1; next < n && sessions[next] == sessions[i]; next++)
			;
		n_released += count_released(semaphore, sessions[i], next - i);
	}
	LWLockRelease(lock);
	return n_released;
}

/* All memory is allocated before, because hiding a permit after an error needs the LWLock. */
void
zklock_copy_shown(ZklockShown *copy)
{
	HASH_SEQ_STATUS scan;
	PermitEntry *entry;

	memset(copy, 0, sizeof(*copy));
	copy->sessions = palloc(sizeof(ZklockShownSession) * MaxBackends);
	copy->permits = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(ZklockShownPermit) * max_permits());
	LWLockAcquire(lock, LW_SHARED);
	for (int i = 0; i < MaxBackends; i++)
		if (slots[i].session_id != 0)
			copy->sessions[copy->n_sessions++] = slots[i];
	hash_seq_init(&scan, permits);
	Assert(hash_get_num_entries(permits) <= max_permits());
	while ((entry = hash_seq_search(&scan)) != NULL)
		copy->permits[copy->n_permits++] = (ZklockShownPermit)
	{
		.pid = slots[entry->key.slot].pid,
			.semaphore = entry->key.semaphore,
			.count = entry->count
	};
	LWLockRelease(lock);
}


/*
 * Counters
 */

/* The session whose answers are counted, or NULL; and how many of them are. */

void
zklock_count(ZklockStat stat, int64 n)
{
	pg_atomic_fetch_add_u64(&counters->counts[stat], n);
}

static void
count_wait(const ZklockTimeout *timeout)
{
	if (timeout->waited_for == NULL)
		return;
	zklock_count(ZKLOCK_STAT_WAITS, 1);
	zklock_count(ZKLOCK_STAT_WAIT_MS, zkl_now_ms() - timeout->started);
}

void
zklock_count_acquired(const ZklockTimeout *timeout, int n)
{
	zklock_count(ZKLOCK_STAT_ACQUISITIONS, n);
	count_wait(timeout);
}

void
zklock_count_gave_up(const ZklockTimeout *timeout)
{
	if (timeout->waited_for)
		zklock_count(ZKLOCK_STAT_TIMEOUTS, 1);
	count_wait(timeout);
}

void
zklock_count_failed(const ZklockTimeout *timeout)
{
	int			sqlstate = geterrcode();

	count_wait(timeout);
	if (sqlstate == ERRCODE_LOCK_NOT_AVAILABLE)
		zklock_count(ZKLOCK_STAT_TIMEOUTS, 1);
	else if (sqlstate == ERRCODE_QUERY_CANCELED)
		zklock_count(ZKLOCK_STAT_CANCELS, 1);
	else if (sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED)
		zklock_count(ZKLOCK_STAT_DEADLOCKS, 1);
}

PG_FUNCTION_INFO_V1(zklock_stat);

/*
 * The script of another version may have other columns: the last one is the time of the reset,
 * and counters that this version does not have are NULL.
 */
Datum
zklock_stat(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum	   *values;
	bool	   *nulls;
	int			last;

	zklock_require_leader();
	InitMaterializedSRF(fcinfo, 0);
	last = rsinfo->setDesc->natts - 1;
	values = palloc0(sizeof(Datum) * (last + 1));
	nulls = palloc(sizeof(bool) * (last + 1));
	memset(nulls, true, sizeof(bool) * (last + 1));
	for (int i = 0; i < Min(last, ZKLOCK_N_STATS); i++)
	{
		uint64		count = pg_atomic_read_u64(&counters->counts[i]);

		values[i] = i == ZKLOCK_STAT_WAIT_MS ? Float8GetDatum((double) count) : Int64GetDatum(count);
		nulls[i] = false;
	}
	values[last] = TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&counters->since));
	nulls[last] = false;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(zklock_stat_reset);

Datum
zklock_stat_reset(PG_FUNCTION_ARGS)
{
	zklock_require_leader();
	for (int i = 0; i < ZKLOCK_N_STATS; i++)
		pg_atomic_write_u64(&counters->counts[i], 0);
	pg_atomic_write_u64(&counters->since, (uint64) GetCurrentTimestamp());
	PG_RETURN_VOID();
}
