/*-------------------------------------------------------------------------
 *
 * assemble.c
 *		Lists the parts of a session; the only file that depends on all layers.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe/deadlock/detector.h"

static const ZklSessionPart *const parts[ZKL_N_PARTS] = {
	[ZKL_PART_LAST_GRANTS] = &zkl__last_grants_part,
	[ZKL_PART_NODES] = &zkl__nodes_part,
	[ZKL_PART_QUEUE_LOCK] = &zkl__queue_lock_part,
	[ZKL_PART_LEAVING] = &zkl__leaving_part,
	[ZKL_PART_EMPTY_PARENTS] = &zkl__empty_parents_part,
	[ZKL_PART_PARENTS] = &zkl__parents_part,
	[ZKL_PART_REQUESTS] = &zkl__requests_part,
	[ZKL_PART_LOCKS] = &zkl__locks_part,
	[ZKL_PART_HOLD_WATCH] = &zkl__hold_watch_part,
	[ZKL_PART_PERMITS] = &zkl__permits_part,
	[ZKL_PART_WAITS] = &zkl__waits_part,
};

ZklSession *
zkl_session_open(const ZklSessionConfig *config)
{
	return zkl__session_open(config, parts);
}
