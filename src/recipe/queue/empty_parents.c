/*-------------------------------------------------------------------------
 *
 * empty_parents.c
 *		Deletes empty znodes of locks and semaphores that this session created.
 *
 * The parent of a lock's queue is a container, which the server deletes when it is
 * empty.  But the server deletes at most 10,000 containers a minute, and programs
 * that use each name once create them faster.  So the session that created a parent
 * deletes it, some seconds after its own node there is gone.  The server refuses to
 * delete a znode with children, so contenders are safe; a contender that finds the
 * parent deleted creates it again.  A parent whose delete is refused, or has no answer,
 * is left to the server.
 *
 * A semaphore has two parents, its parts: one of the mutex's queue, one of the permits.
 * Both are deleted together with the znode above them, or none of the three.  So no
 * part goes while the semaphore is in use, and its capacity, which is the data of the
 * znode above, goes with the last user.
 *
 * Locks are left to the server under kazoo's node names: a kazoo program creates the
 * parent once for each lock object and fails if the parent is gone later.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define DELETE_AFTER_MS 5000

/* Parents to keep; beyond this number the oldest ones are left to the server. */
#define MAX_PARENTS 10000

/* Deletes in flight; also at the end of a session, which does not wait for timers. */
#define MAX_DELETES 100

typedef struct ZklEmptyParent
{
	struct ZklEmptyParent *next;
	int64_t		due_ms;
	bool		is_semaphore;
	char		path[];			/* of the lock or semaphore */
} EmptyParent;

static void
forget_first(ZklQueues *queues)
{
	EmptyParent *parent = queues->first_empty;

	queues->first_empty = parent->next;
	queues->n_empty--;
	free(parent);
}

/* Schedules the delete of the parent of a node that is gone, or about to go. */
void
zkl__empty_parents_add(const ZklNode *node)
{
	ZklQueues  *queues = zkl__queues(node->session);
	size_t		size = strlen(node->lock_path) + 1;
	EmptyParent *parent;

	if (!node->created_parent || zkl__is_final(node->session) ||
		(!node->in_semaphore && node->node_names == ZKL_NODE_NAMES_KAZOO))
		return;
	parent = calloc(1, sizeof(EmptyParent) + size);
	if (parent == NULL)
		return;
	memcpy(parent->path, node->lock_path, size);
	parent->is_semaphore = node->in_semaphore;
	if (parent->is_semaphore)
		*strrchr(parent->path, '/') = '\0';
	parent->due_ms = zkl_now_ms() + DELETE_AFTER_MS;
	if (queues->n_empty == MAX_PARENTS)
		forget_first(queues);
	if (queues->first_empty)
		queues->last_empty->next = parent;
	else
		queues->first_empty = parent;
	queues->last_empty = parent;
	queues->n_empty++;
	zkl__arm_timer(node->session, parent->due_ms);
}

/* This session has created the node's parent.  The node may have gone before the answer. */
void
zkl__node_created_parent(ZklNode *node)
{
	node->created_parent = true;
	if (node->state == NODE_GONE)
		zkl__empty_parents_add(node);
}

/* Sends the delete of the first parent, for a semaphore a multi, and forgets it. */
static void
delete_first(ZklSession *session, ZklHandler handler)
{
	ZklQueues  *queues = zkl__queues(session);
	const EmptyParent *parent = queues->first_empty;
	const ZklOp ops[] = {
		{.kind = ZKL_OP_DELETE,.path = parent->path,.child = ZKL_PERMITS_QUEUE},
		{.kind = ZKL_OP_DELETE,.path = parent->path,.child = ZKL_PERMITS},
		{.kind = ZKL_OP_DELETE,.path = parent->path}
	};
	ZklCall    *call = zkl__call_new(session, handler, NULL, NULL);

	if (parent->is_semaphore ? zkl__send_all(call, ZKL_MULTI, ops, 3) : zkl__send(call, &ops[2]))
		queues->n_empty_deletes++;
	forget_first(queues);
}

static void
on_parent_deleted(ZklCall *call, const ZklResult *result)
{
	zkl__queues(call->session)->n_empty_deletes--;
	if (result->code != ZKL_RC_CONNECTION_LOSS)
		zkl__empty_parents_advance(call->session);
}

/* Sends the deletes that are due. */
void
zkl__empty_parents_advance(ZklSession *session)
{
	ZklQueues  *queues = zkl__queues(session);
	int64_t		now = zkl_now_ms();

	while (queues->first_empty && queues->first_empty->due_ms <= now &&
		   queues->n_empty_deletes < MAX_DELETES && zkl__is_connected(session))
		delete_first(session, on_parent_deleted);
	if (queues->first_empty && queues->first_empty->due_ms > now)
		zkl__arm_timer(session, queues->first_empty->due_ms);
}

/*
 * Deletes parents before the session is closed, also those of nodes whose delete is
 * in flight.  The answers are ignored.
 */
void
zkl__empty_parents_close(ZklSession *session)
{
	ZklQueues  *queues = zkl__queues(session);

	for (const ZklNode *node = queues->first_node; node; node = node->next)
		if (node->state == NODE_LEAVING)
			zkl__empty_parents_add(node);
	for (int n = 0; n < MAX_DELETES && queues->first_empty && zkl__is_connected(session); n++)
		delete_first(session, zkl__ignore_answer);
}

void
zkl__empty_parents_free(ZklSession *session)
{
	while (zkl__queues(session)->first_empty)
		forget_first(zkl__queues(session));
}
