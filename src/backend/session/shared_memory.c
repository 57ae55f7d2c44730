/*-------------------------------------------------------------------------
 *
 * shared_memory.c
 *		The sessions and permits that backends publish to each other; counters for the view zk_stat.
 *
 * Each backend has a slot of fixed size in shared memory, found by the number of its PGPROC.  One
 * LWLock protects them.  Locks need no entry here: the local lock shows them (local_lock.c).
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
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "backend/base/holds.h"
#include "backend/base/settings.h"
#include "backend/session/crash.h"
#include "backend/session/shared_memory.h"
#include "recipe/recipe.h"
#include "compat.h"

/* Of so many semaphores a session can have permits. */
#define MAX_SEMAPHORES 64

typedef struct Slot
{
	ZklockPublishedSession session; /* session_id 0: empty */
	uint32		pending_deletes;	/* atomic; written by any thread of the backend */
	int			n_semaphores;
} Slot;

typedef struct PermitCount
{
	uint64		semaphore;
	int			count;			/* not 0 */
} PermitCount;

typedef struct Counters
{
	pg_atomic_uint64 since;		/* a TimestampTz */
	pg_atomic_uint64 counts[ZKLOCK_N_STATS];
} Counters;

/* MaxBackends of them. */
static Slot *slots;

/*
 * MAX_SEMAPHORES for each slot.  They are apart, because each session, before its first lock, looks
 * at all slots: a new backend has mapped none of these pages yet, a megabyte of a thousand backends.
 */
static PermitCount *permit_counts;
static LWLock *lock;
static Counters *counters;

TimestampTz zklock_memory_made_at;

/* The session that this backend publishes; or 0. */
static int64 published = 0;


/*
 * The shared memory
 */

static struct
{
	shmem_request_hook_type request;
	shmem_startup_hook_type startup;
}			previous;

static void
zklock_at_shmem_request(void)
{
	if (previous.request)
		previous.request();
	RequestAddinShmemSpace(mul_size(MaxBackends, sizeof(Slot)));
	RequestAddinShmemSpace(mul_size(MaxBackends, MAX_SEMAPHORES * sizeof(PermitCount)));
	RequestNamedLWLockTranche("zklock", 1);
	RequestAddinShmemSpace(sizeof(Counters));
}

static void
init_shared_memory(void)
{
	Size		size = mul_size(MaxBackends, sizeof(Slot));
	bool		found;

	slots = ShmemInitStruct("zklock sessions", size, &found);
	if (!found)
		memset(slots, 0, size);
	size = mul_size(MaxBackends, MAX_SEMAPHORES * sizeof(PermitCount));
	permit_counts = ShmemInitStruct("zklock permits", size, &found);
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
static Slot *
my_slot(void)
{
	int			slot = (int) (MyProc - ProcGlobal->allProcs);

	Assert(slot >= 0 && slot < MaxBackends);
	return &slots[slot];
}

static PermitCount *
permits_of(const Slot *slot)
{
	return &permit_counts[(slot - slots) * MAX_SEMAPHORES];
}

/* Returns the slot with this session of this namespace, or NULL. */
static Slot *
find_slot(int64 session_id, uint64 namespace_hash)
{
	for (int i = 0; i < MaxBackends; i++)
		if (slots[i].session.session_id == session_id &&
			slots[i].session.namespace_hash == namespace_hash)
			return session_id == 0 ? NULL : &slots[i];
	return NULL;
}


/*
 * Sessions
 */

void
zklock_withdraw_session(void)
{
	dlist_iter	iter;

	if (published == 0)
		return;
	dlist_foreach(iter, &zklock_holds)
		dlist_container(ZklockHold, link, iter.cur)->published = false;
	LWLockAcquire(lock, LW_EXCLUSIVE);
	my_slot()->session.session_id = 0;
	my_slot()->n_semaphores = 0;
	LWLockRelease(lock);
	published = 0;
}

void
zklock_publish_session(ZklSession *session, uint64 namespace_hash)
{
	ZklockPublishedSession mine = {.pid = MyProcPid,.namespace_hash = namespace_hash};
	Slot	   *other;

	if (published != 0)
		return;
	mine.session_id = zkl_session_info(session).key.id;
	LWLockAcquire(lock, LW_EXCLUSIVE);
	other = find_slot(mine.session_id, namespace_hash);
	if (other == NULL)
		my_slot()->session = mine;
	LWLockRelease(lock);
	if (other)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("another backend of this server has the same ZooKeeper session"),
				 errdetail("The ensemble gave session 0x%llx to both.", (unsigned long long) mine.session_id),
				 errhint("Check that zklock.connect_string names servers of one ZooKeeper ensemble, and nothing else.")));
	published = mine.session_id;
	zklock_write_session_note(session);
}

bool
zklock_has_session(int pid, int64 session_id)
{
	bool		has = false;

	LWLockAcquire(lock, LW_SHARED);
	for (int i = 0; i < MaxBackends && !has; i++)
		has = slots[i].session.session_id == session_id && slots[i].session.pid == pid;
	LWLockRelease(lock);
	return has;
}

PG_FUNCTION_INFO_V1(zklock_backend_session);

/* Returns the ZooKeeper session that a backend of this server publishes, or NULL. */
Datum
zklock_backend_session(PG_FUNCTION_ARGS)
{
	int64		session_id = 0;

	zklock_require_leader();
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	LWLockAcquire(lock, LW_SHARED);
	for (int i = 0; i < MaxBackends && session_id == 0; i++)
		if (slots[i].session.pid == PG_GETARG_INT32(0))
			session_id = slots[i].session.session_id;
	LWLockRelease(lock);
	if (session_id == 0)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("0x%llx", (unsigned long long) session_id)));
}

uint32 *
zklock_publish_pending_deletes(void)
{
	Slot	   *mine = my_slot();

	mine->pending_deletes = 0;
	return &mine->pending_deletes;
}

bool
zklock_may_have_released(int64 session_id, uint64 namespace_hash)
{
	const Slot *slot;
	bool		may_have;

	if (session_id == 0)
		return false;
	LWLockAcquire(lock, LW_SHARED);
	slot = find_slot(session_id, namespace_hash);
	may_have = slot == NULL || __atomic_load_n(&slot->pending_deletes, __ATOMIC_ACQUIRE) > 0;
	LWLockRelease(lock);
	return may_have;
}


/*
 * Permits
 */

/* Returns the index of a semaphore in this backend's slot; n_semaphores if it is not there. */
static int
find_semaphore(uint64 semaphore)
{
	const Slot *mine = my_slot();
	const PermitCount *permits = permits_of(mine);
	int			i = 0;

	while (i < mine->n_semaphores && permits[i].semaphore != semaphore)
		i++;
	return i;
}

void
zklock_publish_permit(ZklockHold *hold)
{
	Slot	   *mine = my_slot();
	PermitCount *permits = permits_of(mine);
	int			i = find_semaphore(hold->key);	/* only this backend writes there */

	if (hold->published)
		return;
	if (i == MAX_SEMAPHORES)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not acquire a permit of semaphore \"%s\"", hold->name.display),
				 errdetail("A session can have permits of at most %d semaphores.", MAX_SEMAPHORES),
				 errhint("Release the permits of another semaphore.")));
	LWLockAcquire(lock, LW_EXCLUSIVE);
	if (i == mine->n_semaphores)
	{
		permits[i].semaphore = hold->key;
		permits[i].count = 0;
		mine->n_semaphores++;
	}
	permits[i].count++;
	LWLockRelease(lock);
	hold->published = true;
}

void
zklock_withdraw_permit(ZklockHold *hold)
{
	Slot	   *mine = my_slot();
	PermitCount *permits = permits_of(mine);
	int			i = find_semaphore(hold->key);

	if (!hold->published)
		return;
	Assert(i < mine->n_semaphores);
	LWLockAcquire(lock, LW_EXCLUSIVE);
	if (--permits[i].count == 0)
		permits[i] = permits[--mine->n_semaphores];
	LWLockRelease(lock);
	hold->published = false;
}

/* All memory is allocated before, because withdrawing a permit after an error needs the LWLock. */
void
zklock_copy_published(ZklockPublished *copy)
{
	memset(copy, 0, sizeof(*copy));
	copy->sessions = palloc(sizeof(ZklockPublishedSession) * MaxBackends);
	copy->permits = palloc(sizeof(ZklockPublishedPermit) * MaxBackends * MAX_SEMAPHORES);
	LWLockAcquire(lock, LW_SHARED);
	for (int i = 0; i < MaxBackends; i++)
	{
		const Slot *slot = &slots[i];

		if (slot->session.session_id == 0)
			continue;
		copy->sessions[copy->n_sessions++] = slot->session;
		for (int k = 0; k < slot->n_semaphores; k++)
			copy->permits[copy->n_permits++] = (ZklockPublishedPermit)
		{
			.pid = slot->session.pid,
				.semaphore = permits_of(slot)[k].semaphore,
				.count = permits_of(slot)[k].count
		};
	}
	LWLockRelease(lock);
}


/*
 * Counters
 */

void
zklock_count(ZklockStat stat, int64 n)
{
	pg_atomic_fetch_add_u64(&counters->counts[stat], n);
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
