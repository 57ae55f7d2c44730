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

#include "commands/extension.h"
#include "fmgr.h"
#include "miscadmin.h"

#include "backend/base/settings.h"
#include "backend/lock/lock.h"
#include "backend/session/crash.h"
#include "backend/session/shared_memory.h"
#include "backend/transaction/hooks.h"
#include "compat.h"

ZKLOCK_MODULE_MAGIC;

void		_PG_init(void);

/*
 * Defines settings and hooks.  Runs in the postmaster: no thread, no session.  A backend that
 * loads the library has no shared memory, and the functions fail.
 */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
	{
		if (creating_extension)
			zklock_report_not_preloaded(WARNING);
		return;
	}
	zklock_is_preloaded = true;
	zklock_define_settings();
	zklock_install_hooks();
	zklock_install_shared_memory();
	zklock_install_fences();
	zklock_register_crash_release();
}
