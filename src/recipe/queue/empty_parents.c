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

/* The parts of a semaphore, and the znode above them. */
#define MAX_ZNODES 3

typedef struct Parent
{
	struct Parent *next;
	int64_t		due_ms;
	const char *const *parts;	/* of a semaphore, or NULL */
	char		path[];			/* of the lock or semaphore */
} Parent;

/* First in, first out. */
typedef struct EmptyParents
{
	Parent	   *first;
	Parent	   *last;
	int			n;
	int			n_deletes;		/* in flight */
} EmptyParents;

const size_t zkl__empty_parents_size = sizeof(EmptyParents);

static EmptyParents *
parents_of(const ZklSession *session)
{
	return zkl__state(session, ZKL_STATE_EMPTY_PARENTS);
}

static void
forget_first(EmptyParents *parents)
{
	Parent	   *parent = parents->first;

	parents->first = parent->next;
	parents->n--;
	free(parent);
}

/* Returns what is to be deleted after the node; NULL: nothing, or out of memory. */
static Parent *
parent_new(const ZklNode *node)
{
	size_t		size = strlen(node->lock_path) + 1;
	Parent	   *parent;

	if (!node->created_parent ||
		(node->parts == NULL && node->node_names == ZKL_NODE_NAMES_KAZOO))
		return NULL;
	parent = calloc(1, sizeof(Parent) + size);
	if (parent == NULL)
		return NULL;
	memcpy(parent->path, node->lock_path, size);
	parent->parts = node->parts;
	if (parent->parts)
		*strrchr(parent->path, '/') = '\0';
	return parent;
}

/* Schedules the delete of the parent of a node that is gone. */
void
zkl__empty_parents_add(const ZklNode *node)
{
	EmptyParents *parents = parents_of(node->session);
	Parent	   *parent = zkl__is_final(node->session) ? NULL : parent_new(node);

	if (parent == NULL)
		return;
	parent->due_ms = zkl_now_ms() + DELETE_AFTER_MS;
	if (parents->n == MAX_PARENTS)
		forget_first(parents);
	if (parents->first)
		parents->last->next = parent;
	else
		parents->first = parent;
	parents->last = parent;
	parents->n++;
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

/* Sends one delete, or one multi for a semaphore; returns false if it was not sent. */
static bool
send_delete(ZklSession *session, const Parent *parent, ZklHandler handler)
{
	ZklCall    *call = zkl__call_new(session, handler, NULL, NULL);
	ZklOp		ops[MAX_ZNODES] = {0};
	int			n = 0;

	for (int i = 0; parent->parts && parent->parts[i]; i++)
		ops[n++].path = zkl__path(parent->path, parent->parts[i]);
	ops[n++].path = strdup(parent->path);
	for (int i = 0; i < n; i++)
		ops[i].kind = ZKL_OP_DELETE;
	call = zkl__send_all(call, n == 1 ? ZKL_SINGLE : ZKL_MULTI, ops, n);
	for (int i = 0; i < n; i++)
		free((char *) ops[i].path);
	return call != NULL;
}

static void
on_parent_deleted(ZklCall *call, const ZklResult *result)
{
	parents_of(call->session)->n_deletes--;
	if (result->code != ZKL_RC_CONNECTION_LOSS)
		zkl__empty_parents_advance(call->session);
}

/* Sends the deletes that are due. */
void
zkl__empty_parents_advance(ZklSession *session)
{
	EmptyParents *parents = parents_of(session);
	int64_t		now = zkl_now_ms();

	if (!zkl__is_connected(session))
		return;
	while (parents->first && parents->first->due_ms <= now && parents->n_deletes < MAX_DELETES)
	{
		parents->n_deletes += send_delete(session, parents->first, on_parent_deleted);
		forget_first(parents);
	}
	if (parents->first && parents->first->due_ms > now)
		zkl__arm_timer(session, parents->first->due_ms);
}

/*
 * Deletes parents before the session is closed, also those of nodes whose delete is
 * in flight.  The answers are ignored.
 */
void
zkl__empty_parents_close(ZklSession *session)
{
	EmptyParents *parents = parents_of(session);
	int			n = 0;

	if (!zkl__is_connected(session))
		return;
	for (const ZklNode *node = zkl__nodes(session); node && n < MAX_DELETES; node = node->next)
	{
		Parent	   *parent = node->state == NODE_LEAVING ? parent_new(node) : NULL;

		if (parent)
			n += send_delete(session, parent, zkl__ignore_answer);
		free(parent);
	}
	for (; parents->first && n < MAX_DELETES; n++)
	{
		(void) send_delete(session, parents->first, zkl__ignore_answer);
		forget_first(parents);
	}
}

void
zkl__empty_parents_free(ZklSession *session)
{
	while (parents_of(session)->first)
		forget_first(parents_of(session));
}
