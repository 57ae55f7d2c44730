/*-------------------------------------------------------------------------
 *
 * cluster_view.h
 *		The rows of the view zk_locks, and of zk_locks_of().
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLUSTER_VIEW_H
#define ZKLOCK_CLUSTER_VIEW_H

#include "fmgr.h"

#include "backend/base/names.h"

/*
 * Returns the rows of the lock and of the semaphore of one name as the result of a
 * set-returning function.  Waits and throws like zklock_read_ensemble().
 */
extern void zklock_show_locks_of(FunctionCallInfo fcinfo, const ZklockName *name);

/* Returns the name that was given for a znode's, in the database encoding; palloc'd. */
extern char *zklock_given_name(const char *encoded);

#endif							/* ZKLOCK_CLUSTER_VIEW_H */
