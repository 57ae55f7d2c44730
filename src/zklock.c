/*-------------------------------------------------------------------------
 *
 * zklock.c
 *		Entry point of the module: cluster-wide advisory locks over ZooKeeper.
 *
 * doc/design.md lists the responsibility of each file.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "backend/base/settings.h"
#include "backend/session/stats.h"
#include "backend/transaction/lifecycle.h"
#include "compat.h"

ZKLOCK_MODULE_MAGIC;

void		_PG_init(void);

/* Defines settings and hooks.  May run in the postmaster: no thread, no session. */
void
_PG_init(void)
{
	zklock_define_settings();
	zklock_install_hooks();
	zklock_init_stats();
}
