/*-------------------------------------------------------------------------
 *
 * fence.c
 *		Fencing: an earlier holder cannot commit after a conflicting later one has fenced.
 *
 * A fence takes a heavyweight lock on the name, in the mode in which it holds the ZooKeeper
 * lock, until the end of the transaction.  A holder whose node exists after that grant is safe:
 * a conflicting later holder is granted the ZooKeeper lock when this node is gone, so its fence
 * comes later, and waits for the heavyweight lock.  So the general rule is to ask the ensemble,
 * as a commit does under zklock.commit_check = always, and to fail if the node is gone.
 *
 * The question is left out if no conflicting holder can have fenced.  Shared memory has pairs of
 * generations, {x, s}: x changes when an exclusive holder fences for the first time, s when a
 * sharer does.  A hold remembers the pair as it was before the create of its node was submitted.
 * While x is unchanged, and for an exclusive holder s, every conflicting holder that has fenced
 * did so before this node existed, and is an earlier one.  The first fence of each holder changes
 * the pair that all earlier conflicting holders remember.  So they ask, and their nodes are gone.
 *
 * Nothing else is needed.  All processes that can commit in this database are children of one
 * postmaster, and end when it makes its shared memory again; prepared transactions keep the
 * heavyweight lock.  A hold asks at its first fence if it was acquired during recovery, because
 * the primary's memory is not this one, or if its node was taken again after it was kept, because
 * the node is older than the hold.  A downgrade or an upgrade needs no more than the modes say: a
 * hold compares and stores for its mode at the time of the call.
 *
 * A hash selects the pair, of the database, the path of the lock's znode in the ensemble, and not of
 * the connect string, which can name one ensemble in two ways.  Names that share a pair only
 * cost each other questions, and so do two ensembles with one path.
 *
 * The components are read and written without a lock.  Conflicting fences of one name are ordered
 * by the heavyweight lock.  Others may overwrite a component at the same time; but a value is
 * stored once, so a holder that remembers another one sees a change in either order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/resowner.h"

#include "backend/base/fence_rule.h"
#include "backend/base/holds.h"
#include "backend/base/names.h"
#include "backend/base/settings.h"
#include "backend/lock/lock.h"
#include "backend/lock/loss.h"
#include "backend/session/errors.h"
#include "recipe/recipe.h"

/*
 * Shown as objsubid in pg_locks, as documented.  pg_advisory_lock() uses 1 and 2; the
 * local lock has another value.
 */
#define FENCE_LOCKTAG_FIELD4 0x5A46

#define N_PAIRS 8192

typedef struct SharedPair
{
	pg_atomic_uint64 x;
	pg_atomic_uint64 s;
} SharedPair;

typedef struct Generations
{
	pg_atomic_uint64 counter;	/* the greatest value in use */
	SharedPair	pairs[N_PAIRS];
} Generations;

static Generations *generations;


/*
 * The shared memory
 */

static struct
{
	shmem_request_hook_type request;
	shmem_startup_hook_type startup;
}			previous;

static void
request_generations(void)
{
	if (previous.request)
		previous.request();
	RequestAddinShmemSpace(sizeof(Generations));
}

static void
init_generations(void)
{
	bool		found;

	if (previous.startup)
		previous.startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	generations = ShmemInitStruct("zklock fences", sizeof(Generations), &found);
	if (!found)
	{
		pg_atomic_init_u64(&generations->counter, 0);
		for (int i = 0; i < N_PAIRS; i++)
		{
			pg_atomic_init_u64(&generations->pairs[i].x, 0);
			pg_atomic_init_u64(&generations->pairs[i].s, 0);
		}
	}
	LWLockRelease(AddinShmemInitLock);
}

void
zklock_install_fences(void)
{
	previous.request = shmem_request_hook;
	shmem_request_hook = request_generations;
	previous.startup = shmem_startup_hook;
	shmem_startup_hook = init_generations;
}

/* Returns the hash of the database and of the path to the root; the settings are fixed. */
static uint64
hash_of_place(void)
{
	static uint64 hash = 0;
	const char *chroot = strchr(zklock_connect_string, '/');

	if (hash == 0)
	{
		char	   *path = psprintf("%u%s%s", MyDatabaseId, chroot ? chroot : "", zklock_root);

		hash = hash_bytes_extended((unsigned char *) path, strlen(path), 0);
		pfree(path);
	}
	return hash;
}

static SharedPair *
pair_of(const ZklockHold *hold)
{
	return &generations->pairs[(hold->key ^ hash_of_place()) % N_PAIRS];
}

static ZklockFencePair
read_pair(SharedPair *shared)
{
	return (ZklockFencePair)
	{
		.x = pg_atomic_read_u64(&shared->x),.s = pg_atomic_read_u64(&shared->s)
	};
}

void
zklock_fence_remember(ZklockHold *hold)
{
	zklock_fence_rule_remember(&hold->fence, read_pair(pair_of(hold)));
	hold->fence.is_known = !RecoveryInProgress();
	pg_memory_barrier();		/* before the create is submitted */
}


/*
 * The fence
 */

/*
 * Waits for the transactions of conflicting holders that have fenced.  As the sequences of
 * currval(): the lock belongs to the top transaction, so no rollback to a savepoint releases it.
 */
static void
lock_name(const ZklockHold *hold, LOCKMODE mode)
{
	ResourceOwner owner = CurrentResourceOwner;
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (hold->key >> 32),
						 (uint32) hold->key, FENCE_LOCKTAG_FIELD4);
	CurrentResourceOwner = TopTransactionResourceOwner;
	(void) LockAcquire(&tag, mode, false, false);
	CurrentResourceOwner = owner;
}

/* If this is interrupted, nothing is stored, and the transaction only waits for nobody. */
static void
fence(ZklockHold *hold, bool exclusive)
{
	SharedPair *shared = pair_of(hold);
	ZklockFencePair now,
				next;
	uint64		fresh = 0;

	lock_name(hold, exclusive ? ExclusiveLock : ShareLock);
	now = read_pair(shared);
	if (!zklock_fence_rule_is_sure(&hold->fence, now, exclusive))
		zklock_confirm_hold(hold);
	if (!hold->fence.has_stored)
		fresh = pg_atomic_add_fetch_u64(&generations->counter, 1);
	next = zklock_fence_rule_pass(&hold->fence, now, exclusive, fresh);
	if (next.x != now.x)
		pg_atomic_write_u64(&shared->x, next.x);
	if (next.s != now.s)
		pg_atomic_write_u64(&shared->s, next.s);
}

int64
zklock_fence(const ZklockName *name)
{
	ZklockAction action = {.format = "fence lock \"%s\"",.display = name->display};
	ErrorContextCallback context = {error_context_stack, zklock_name_action, &action};
	ZklockHold *hold;

	PreventCommandDuringRecovery("zk_fence()");
	zklock_check_loss();
	hold = zklock_hold_find(name);
	if (hold == NULL || hold->lock == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is not held by this session", name->display),
				 errhint("Acquire it first, for example with zk_lock(%s).",
						 quote_literal_cstr(name->display))));
	error_context_stack = &context;
	fence(hold, hold->mode == ZKL_MODE_EXCLUSIVE);
	error_context_stack = context.previous;
	return hold->token;
}
