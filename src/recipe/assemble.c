/*-------------------------------------------------------------------------
 *
 * assemble.c
 *		Lists the parts of a session; the only file that knows all layers.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe/deadlock/waits.h"
#include "recipe/scan/scan.h"

/* In the order in which the session calls them: lower layers first. */
static const ZklSessionPart *const parts[] = {
	&zkl__nodes_part,
	&zkl__empty_parents_part,
	&zkl__requests_part,
	&zkl__locks_part,
	&zkl__hold_watch_part,
	&zkl__permits_part,
	&zkl__scans_part,
	&zkl__waits_part,
	NULL
};

ZklSession *
zkl_session_open(const ZklSessionConfig *config)
{
	return zkl__session_open(config, parts);
}
