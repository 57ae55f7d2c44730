/*-------------------------------------------------------------------------
 *
 * compat.h
 *		Differences between PostgreSQL 15 and 19.  The only file that uses
 *		PG_VERSION_NUM.
 *
 * Tests run with 15, 17, 18 and 19.  For 16 the code is that of its neighbours: no branch
 * is compiled for 16 alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_COMPAT_H
#define ZKLOCK_COMPAT_H

#include "access/xact.h"
#include "funcapi.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "zklock needs PostgreSQL 15 or later"
#endif

/* 16: values of settings have allocation functions of their own */
#if PG_VERSION_NUM < 160000
#define guc_strdup(elevel, text) strdup(text)
#define guc_free(text) free(text)
#endif

/* 17: LockHeldByMe() can also check stronger modes */
static inline bool
zklock_lock_held_by_me(const LOCKTAG *tag, LOCKMODE mode)
{
#if PG_VERSION_NUM >= 170000
	return LockHeldByMe(tag, mode, false);
#else
	return LockHeldByMe(tag, mode);
#endif
}

/* 17: a WaitEventSet belongs to a resource owner, or to the process */
#if PG_VERSION_NUM >= 170000
#define ZKLOCK_CREATE_WAIT_SET(n_events) CreateWaitEventSet(NULL, n_events)
#else
#define ZKLOCK_CREATE_WAIT_SET(n_events) CreateWaitEventSet(TopMemoryContext, n_events)
#endif

/*
 * 17: extensions can name their wait events.  Takes a lock, so not for _PG_init().
 * *event caches the number of the event, and starts as 0.
 */
static inline uint32
zklock_wait_event(const char *name, uint32 *event)
{
#if PG_VERSION_NUM >= 170000
	if (*event == 0)
		*event = WaitEventExtensionNew(name);
	return *event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

/*
 * 17: a recovery conflict has flags of its own.  Before, it sets QueryCancelPending, without
 * SIGINT.
 */
static inline bool
zklock_recovery_conflict_cancels(void)
{
#if PG_VERSION_NUM >= 170000
	return false;
#else
	return MyProc->recoveryConflictPending;
#endif
}

/* 18: ExecutorRun() has no parameter "execute_once" */
#if PG_VERSION_NUM >= 180000
#define ZKLOCK_RUN_PARAMETERS QueryDesc *query, ScanDirection direction, uint64 count
#define ZKLOCK_RUN_ARGUMENTS query, direction, count
#else
#define ZKLOCK_RUN_PARAMETERS QueryDesc *query, ScanDirection direction, uint64 count, bool once
#define ZKLOCK_RUN_ARGUMENTS query, direction, count, once
#endif

/* 18: a module can state its name and version */
#if PG_VERSION_NUM >= 180000
#define ZKLOCK_MODULE_MAGIC \
	PG_MODULE_MAGIC_EXT(.name = "zklock", .version = ZKLOCK_VERSION)
#else
#define ZKLOCK_MODULE_MAGIC PG_MODULE_MAGIC
#endif

#endif							/* ZKLOCK_COMPAT_H */
