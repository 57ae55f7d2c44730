/*-------------------------------------------------------------------------
 *
 * check_permit.c
 *		Asserts what semaphore.h says of each phase of a request for a permit.
 *
 * Compiled in only with ZKL_CHECKS.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "semaphore.h"

#ifdef ZKL_CHECKS

static void
check_permit_node(const ZklRequest *request)
{
	const ZklNode *node = request->permit_node;

	ZKL_ASSERT(request->permit->has_mutex);
	ZKL_ASSERT(node->is_permit && node->in_semaphore && node->index == 0);
	ZKL_ASSERT(strcmp(node->lock_path, request->permit->permits_path) == 0);
	ZKL_ASSERT(node->state <= NODE_LISTING);
}

/* Of a request that is PENDING and is not to begin again. */
static void
check_phase(const ZklRequest *request)
{
	const ZklPermit *permit = request->permit;

	ZKL_ASSERT(!request->nodes[0]->is_permit && request->nodes[0]->in_semaphore);
	ZKL_ASSERT(strcmp(request->nodes[0]->lock_path, permit->queue_path) == 0);
	ZKL_ASSERT(!permit->has_mutex || permit->has_capacity);
	ZKL_ASSERT(!permit->has_capacity || permit->capacity_call == NULL);
	ZKL_ASSERT(permit->has_mutex || request->non_blocking || permit->seen == SEEN_NOTHING);
	if (permit->seen != SEEN_NOTHING && !request->non_blocking)
		ZKL_ASSERT(request->permit_node && request->permit_node->state == NODE_LISTING);
	if (request->permit_node)
		check_permit_node(request);
}

void
zkl__check_permit(const ZklRequest *request)
{
	ZKL_ASSERT(request->n_parents == 3 && request->permit->capacity > 0);
	if (request->status == ZKL_PENDING && !request->is_restarted)
		check_phase(request);
}

/* The youngest requests. */
void
zkl__check_permits(const ZklSession *session)
{
	const ZklRequest *request = zkl__requests(session);

	for (int i = 0; request && i < ZKL_N_CHECKED; i++, request = request->next)
		if (request->permit)
			zkl__check_permit(request);
}

#endif
