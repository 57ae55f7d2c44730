/*-------------------------------------------------------------------------
 *
 * permit_refusal.c
 *		A non-blocking request that finds no free permit: refuse or wait.
 *
 * Only the owner can find out which sessions belong to its server and what these
 * have released by now.  So the owner gets the sessions of the permit nodes, which
 * were listed behind a sync, and decides.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/*
 * Returns how many of the children are pending deletes of this session, except for
 * those that the ensemble refuses.
 */
static int
own_pending_deletes(const ZklRequest *request, const ZklResult *result)
{
	const char *path = request->permit->permits_path;
	int			n = 0;

	for (const ZklNode *node = zkl__nodes_below(request->session, path, strlen(path));
		 node; node = zkl__next_below(node))
		if (node->is_permit && zkl__node_is_pending_delete(node) &&
			zkl_find_child(result->children, result->n_children, node->name))
			n++;
	return n;
}

/*
 * Handles a count that found more than "room" permit nodes.  After the first time, the
 * request counts again behind a sync.  The second time, it is refused, unless enough of the
 * nodes are pending deletes of this session: then it waits for these.
 */
void
zkl__permit_refused(ZklRequest *request, const ZklResult *result, int room)
{
	ZklPermit  *permit = request->permit;

	permit->seen = permit->counts_synced ? SEEN_FULL : SEEN_NOTHING;
	if (permit->counts_synced)
	{
		permit->n_excess = result->n_children - own_pending_deletes(request, result) - room;
		zkl__wake(request->session);
	}
	permit->counts_synced = true;
}
