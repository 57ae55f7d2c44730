/*-------------------------------------------------------------------------
 *
 * zklock.c
 *		Cluster-wide advisory locks over ZooKeeper: where the module begins.
 *
 * doc/design.md tells what is where.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "compat.h"
#include "lifecycle.h"
#include "settings.h"
#include "stats.h"

ZKLOCK_MODULE_MAGIC;

void		_PG_init(void);

/* May run in the postmaster: starts no thread, opens no session. */
void
_PG_init(void)
{
	zklock_define_settings();
	zklock_install_hooks();
	zklock_init_stats();
}
