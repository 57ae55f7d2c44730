/*-------------------------------------------------------------------------
 *
 * cluster.h
 *		Reads the queues of the ensemble, with the nodes of all programs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLUSTER_H
#define ZKLOCK_CLUSTER_H

#include "backend/base/names.h"
#include "backend/session/errors.h"
#include "recipe/recipe.h"

/* Processes the answer. */
typedef void (*ZklockScanUse) (const ZklScanInfo *info, void *arg);

/*
 * Starts a scan, waits for the answer, and passes it to "use".  Opens a session if there
 * is none.  Waits interruptibly, up to zklock.connect_timeout, for the connection, at the
 * start and whenever it is lost.  If connecting or the scan fails, raises "could not
 * <action>: reason".  "name" is encoded, or NULL.
 */
extern void zklock_scan(ZklScanKind kind, const char *name,
						const ZklockAction *action,
						ZklockScanUse use, void *arg);

/* Requests release from all holders of the lock; returns their number.  Throws. */
extern int	zklock_revoke(const ZklockName *name);

#endif							/* ZKLOCK_CLUSTER_H */
