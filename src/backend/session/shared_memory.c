/*-------------------------------------------------------------------------
 *
 * shared_memory.c
 *		The shared memory of zklock: its counters, and what the backends show.
 *
 * The hooks run in the postmaster, at its start and again after the crash of a backend.
 * Backends inherit the pointers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"

#include "backend/session/shared_memory.h"
#include "backend/session/session_file.h"
#include "backend/session/shown.h"
#include "backend/session/stats.h"

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
	zklock_request_stats();
	zklock_request_shown();
}

static void
zklock_at_shmem_startup(void)
{
	if (previous.startup)
		previous.startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	zklock_init_stats();
	zklock_init_shown();
	LWLockRelease(AddinShmemInitLock);
	if (!IsUnderPostmaster)
		zklock_init_session_file();
}

void
zklock_install_shared_memory(void)
{
	previous.request = shmem_request_hook;
	shmem_request_hook = zklock_at_shmem_request;
	previous.startup = shmem_startup_hook;
	shmem_startup_hook = zklock_at_shmem_startup;
}
