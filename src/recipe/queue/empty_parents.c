/*-------------------------------------------------------------------------
 *
 * empty_parents.c
 *		Deletes empty znodes of locks that this session created.
 *
 * The parent of a lock's queue is a container, which the server deletes when it is
 * empty.  But the server deletes at most 10,000 containers a minute, and programs
 * that use each name once create them faster.  So the session that created a parent
 * deletes it, some seconds after its own node there is gone.  The server refuses to
 * delete a znode with children, so contenders are safe; a contender that finds the
 * parent deleted creates it again.
 *
 * This is not done for semaphores, whose parent has data, nor under kazoo's node names,
 * because kazoo's programs expect the parent to stay.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Delay after the node is gone, and between two attempts. */
#define DELETE_AFTER_MS 5000

/* A parent that is in use at each attempt is left to the server. */
#define MAX_REFUSALS 3

/* Deletes in one multi. */
#define MAX_BATCH 100

/* Parents to remember; the oldest ones beyond are left to the server. */
#define MAX_PARENTS 10000

/* Deletes at the end of a session, which does not wait for timers. */
#define MAX_AT_CLOSE 100

typedef struct Parent
{
	struct Parent *next;
	int64_t		due_ms;
	int			refusals;
	char		path[];
} Parent;

typedef struct Queue
{
	Parent	   *first;
	Parent	   *last;
	int			n;
} Queue;

struct ZklEmptyParents
{
	Queue		due;			/* by due_ms */
	Queue		batch;			/* in the order of the call's operations */
	ZklCall    *call;			/* the multi in flight, or NULL */
};

static void
append(Queue *queue, Parent *parent)
{
	parent->next = NULL;
	if (queue->last)
		queue->last->next = parent;
	else
		queue->first = parent;
	queue->last = parent;
	queue->n++;
}

static void
prepend(Queue *queue, Parent *parent)
{
	parent->next = queue->first;
	queue->first = parent;
	if (queue->last == NULL)
		queue->last = parent;
	queue->n++;
}

static Parent *
take_first(Queue *queue)
{
	Parent	   *parent = queue->first;

	queue->first = parent->next;
	if (queue->first == NULL)
		queue->last = NULL;
	queue->n--;
	return parent;
}

/* Schedules the delete of the parent of a node that is gone. */
void
zkl__empty_parents_add(const ZklNode *node)
{
	ZklSession *session = node->session;
	Parent	   *parent;

	if (!node->created_parent || session->node_names == ZKL_NODE_NAMES_KAZOO ||
		zkl__is_final(session))
		return;
	if (session->empty_parents == NULL)
		session->empty_parents = calloc(1, sizeof(ZklEmptyParents));
	parent = malloc(sizeof(Parent) + strlen(node->lock_path) + 1);
	if (session->empty_parents == NULL || parent == NULL)
	{
		free(parent);			/* the server deletes it */
		return;
	}
	strcpy(parent->path, node->lock_path);
	parent->due_ms = zkl_client_now() + DELETE_AFTER_MS;
	parent->refusals = 0;
	if (session->empty_parents->due.n == MAX_PARENTS)
		free(take_first(&session->empty_parents->due));
	append(&session->empty_parents->due, parent);
	zkl__arm_timer(session, parent->due_ms);
}

/* Returns a node that this session has or wants below the parent, or NULL. */
static ZklNode *
user_of(const ZklSession *session, const char *path)
{
	ZklNode    *node = zkl__nodes_below(session, path, strlen(path));

	while (node && node->state == NODE_GONE)
		node = zkl__next_below(node);
	return node;
}

/*
 * Returns the result for one parent of the batch.  If the multi failed nothing was
 * deleted, and one operation has the error code.
 */
static ZklResultCode
outcome(const ZklResult *result, int op)
{
	if (result->code == ZKL_RC_OK || result->code == ZKL_RC_CONNECTION_LOSS ||
		op >= result->n_ops)
		return result->code;
	return result->op_codes[op] == ZKL_RC_OK ? ZKL_RC_ROLLED_BACK
		: result->op_codes[op];
}

static void
settle(ZklEmptyParents *parents, Parent *parent, ZklResultCode code)
{
	switch (code)
	{
		case ZKL_RC_ROLLED_BACK:
		case ZKL_RC_CONNECTION_LOSS:
			prepend(&parents->due, parent);
			return;
		case ZKL_RC_NOT_EMPTY:
			if (++parent->refusals == MAX_REFUSALS)
				break;
			parent->due_ms = zkl_client_now() + DELETE_AFTER_MS;
			append(&parents->due, parent);
			return;
		default:
			break;
	}
	free(parent);
}

/* Returns when to delete the next parent; 0 if there is none, or a multi is in flight. */
static int64_t
next_due(const ZklSession *session)
{
	const ZklEmptyParents *parents = session->empty_parents;

	if (parents == NULL || parents->due.first == NULL || parents->call ||
		session->state != ZKL_SESSION_CONNECTED)
		return 0;
	return parents->due.first->due_ms;
}

static void drive(ZklSession *session);

static void
on_deleted(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	ZklEmptyParents *parents = session->empty_parents;

	parents->call = NULL;
	for (int op = 0; parents->batch.first; op++)
		settle(parents, take_first(&parents->batch), outcome(result, op));
	if (result->code != ZKL_RC_CONNECTION_LOSS)
		drive(session);
	if (next_due(session))
		zkl__arm_timer(session, next_due(session));
}

static void
send_batch(ZklSession *session)
{
	ZklEmptyParents *parents = session->empty_parents;
	ZklCall    *call = zkl__call_new(session, on_deleted, NULL, NULL);
	ZklOp		ops[MAX_BATCH] = {0};
	int			n = 0;

	for (const Parent *parent = parents->batch.first; parent; parent = parent->next)
	{
		ops[n].kind = ZKL_OP_DELETE;
		ops[n++].path = parent->path;
	}
	parents->call =
		zkl__call_sent(call, call && zkl_client_multi(session->client, ops, n,
													  &call->completion));
	while (parents->call == NULL && parents->batch.first)
		prepend(&parents->due, take_first(&parents->batch));
}

/* Deletes the due parents in one multi; those beyond MAX_BATCH follow its answer. */
static void
drive(ZklSession *session)
{
	ZklEmptyParents *parents = session->empty_parents;
	int64_t		now = zkl_client_now();

	for (;;)
	{
		int64_t		due = next_due(session);
		Parent	   *parent;
		ZklNode    *user;

		if (due == 0 || due > now || parents->batch.n == MAX_BATCH)
			break;
		parent = take_first(&parents->due);
		user = user_of(session, parent->path);
		if (user == NULL)
			append(&parents->batch, parent);
		else
		{
			user->created_parent = true;	/* schedules the parent again when it is gone */
			free(parent);
		}
	}
	if (parents && parents->call == NULL && parents->batch.first)
		send_batch(session);
}

static void
delete_now(ZklSession *session, const char *path)
{
	ZklCall    *call = zkl__call_new(session, zkl__ignore_answer, NULL, NULL);

	zkl__call_sent(call, call && zkl_client_delete(session->client, path,
												   &call->completion));
}

/*
 * Deletes parents before the session is closed, also those of nodes whose delete is
 * in flight.  The answers are ignored.
 */
static void
on_close(ZklSession *session)
{
	ZklEmptyParents *parents = session->empty_parents;
	int			n = 0;

	if (session->state != ZKL_SESSION_CONNECTED)
		return;
	for (const ZklNode *node = session->nodes; node && n < MAX_AT_CLOSE; node = node->next)
		if (node->state == NODE_LEAVING && node->created_parent &&
			session->node_names != ZKL_NODE_NAMES_KAZOO)
		{
			delete_now(session, node->lock_path);
			n++;
		}
	for (Parent *parent = parents ? parents->due.first : NULL;
		 parent && n < MAX_AT_CLOSE; parent = parent->next)
		if (user_of(session, parent->path) == NULL)
		{
			delete_now(session, parent->path);
			n++;
		}
}

static void
on_free(ZklSession *session)
{
	ZklEmptyParents *parents = session->empty_parents;

	while (parents && parents->due.first)
		free(take_first(&parents->due));
	while (parents && parents->batch.first)
		free(take_first(&parents->batch));
	free(parents);
	session->empty_parents = NULL;
}

static void
on_timer(ZklSession *session, int64_t now)
{
	(void) now;
	drive(session);
}

const ZklSessionPart zkl__empty_parents_part = {
	.on_drive = drive,
	.on_timer = on_timer,
	.next_timer = next_due,
	.on_close = on_close,
	.on_free = on_free,
};
