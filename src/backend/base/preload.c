/*-------------------------------------------------------------------------
 *
 * preload.c
 *		The library must be in shared_preload_libraries.
 *
 * Only then are its settings checked when they are set, its hooks installed before the first
 * statement of a session, and its shared memory allocated.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/base/preload.h"

bool		zklock_is_preloaded = false;

void
zklock_report_not_preloaded(int level)
{
	ereport(level,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("zklock is not in shared_preload_libraries"),
			 errdetail("No function of zklock works without it."),
			 errhint("Write shared_preload_libraries = 'zklock' in postgresql.conf, with the libraries that are there already, and restart the server.")));
}
