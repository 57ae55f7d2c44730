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
extern Datum zklock_show_locks_of(FunctionCallInfo fcinfo, const ZklockName *name);

#endif							/* ZKLOCK_CLUSTER_VIEW_H */
