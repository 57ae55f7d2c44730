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
 * parent deleted creates it again.
 *
 * A semaphore has two parents, its parts: one of the mutex's queue, one of the permits.
 * Both are deleted together with the znode above them, or none of the three.  So no
 * part goes while the semaphore is in use, and its capacity, which is the data of the
 * znode above, goes with the last user.
 *
 * This is not done under kazoo's node names.  A kazoo program creates the parent once
 * for each lock object and fails if the parent is gone later.  The server deletes the
 * containers of locks nevertheless, but less often than after each use.
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
#define MAX_OPS 100

/* Parents to keep; beyond this number the oldest ones are left to the server. */
#define MAX_PARENTS 10000

/* Deletes at the end of a session, which does not wait for timers. */
#define MAX_AT_CLOSE 100

/* The parts of a semaphore, and the znode above them. */
#define MAX_ZNODES 3

/* The znodes to be deleted together: one, or those of a semaphore. */
typedef struct Parent
{
	struct Parent *next;
	int64_t		due_ms;
	int			refusals;
	int			n_znodes;
	char	   *paths[MAX_ZNODES];	/* the one above the others is the last */
	bool		is_missing[MAX_ZNODES]; /* a part did not exist at the last attempt */
} Parent;

typedef struct Queue
{
	Parent	   *first;
	Parent	   *last;
	int			n;
} Queue;

typedef struct EmptyParents
{
	Queue		due;			/* by due_ms */
	Queue		batch;			/* in the order of the call's operations */
	ZklCall    *call;			/* the multi in flight, or NULL */
} EmptyParents;

static EmptyParents *
parents_of(const ZklSession *session)
{
	return zkl__state(session, ZKL_PART_EMPTY_PARENTS);
}

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

static void
parent_free(Parent *parent)
{
	for (int i = 0; i < parent->n_znodes; i++)
		free(parent->paths[i]);
	free(parent);
}

/* Returns what is to be deleted after the node; NULL: nothing, or out of memory. */
static Parent *
parent_new(const ZklNode *node)
{
	Parent	   *parent;
	char	   *top;
	bool		complete = true;

	if (!node->created_parent || zkl__config(node->session)->node_names == ZKL_NODE_NAMES_KAZOO)
		return NULL;
	parent = calloc(1, sizeof(Parent));
	top = strdup(node->lock_path);
	if (parent == NULL || top == NULL)
	{
		free(parent);
		free(top);
		return NULL;
	}
	if (node->parts)
		*strrchr(top, '/') = '\0';
	for (int i = 0; node->parts && node->parts[i]; i++)
	{
		parent->paths[i] = zkl__path(top, node->parts[i]);
		complete = complete && parent->paths[i];
		parent->n_znodes++;
	}
	parent->paths[parent->n_znodes++] = top;
	if (complete)
		return parent;
	parent_free(parent);
	return NULL;
}

/* Schedules the delete of the parent of a node that is gone. */
void
zkl__empty_parents_add(const ZklNode *node)
{
	ZklSession *session = node->session;
	EmptyParents *parents = parents_of(session);
	Parent	   *parent = zkl__is_final(session) ? NULL : parent_new(node);

	if (parent == NULL)
		return;
	parent->due_ms = zkl_now_ms() + DELETE_AFTER_MS;
	if (parents->due.n == MAX_PARENTS)
		parent_free(take_first(&parents->due));
	append(&parents->due, parent);
	zkl__arm_timer(session, parent->due_ms);
}

/* This session has created the node's parent.  The node may have gone before the answer. */
void
zkl__node_created_parent(ZklNode *node)
{
	node->created_parent = true;
	if (node->state == NODE_GONE)
		zkl__empty_parents_add(node);
}

/*
 * Returns a node that this session has or wants below the parent, or NULL.  The end of
 * the session does not wait for deletes that are in flight: they come first.
 */
static ZklNode *
user_of(const ZklSession *session, const Parent *parent, bool at_close)
{
	ZklNode    *user = NULL;

	for (int i = 0; user == NULL && i < parent->n_znodes; i++)
	{
		user = zkl__nodes_below(session, parent->paths[i], strlen(parent->paths[i]));
		while (user && (user->state == NODE_GONE ||
						(at_close && user->state == NODE_LEAVING)))
			user = zkl__next_below(user);
	}
	return user;
}

/*
 * Returns the result for one parent of the batch, whose operations begin at *op, and
 * moves *op behind them.  If the multi failed nothing was deleted, and one operation has
 * the error code.  A part that does not exist is left out the next time.
 */
static ZklResultCode
outcome(Parent *parent, const ZklResult *result, int *op)
{
	ZklResultCode code = ZKL_RC_ROLLED_BACK;

	if (result->code == ZKL_RC_OK || result->code == ZKL_RC_CONNECTION_LOSS ||
		*op >= result->n_ops)
		return result->code;
	for (int i = 0; i < parent->n_znodes; i++)
	{
		ZklResultCode failed = parent->is_missing[i] ? ZKL_RC_OK : result->op_codes[(*op)++];

		if (failed == ZKL_RC_NO_NODE && i < parent->n_znodes - 1)
			parent->is_missing[i] = true;
		else if (failed != ZKL_RC_OK && failed != ZKL_RC_ROLLED_BACK)
			code = failed;
	}
	return code;
}

static void
settle(EmptyParents *parents, Parent *parent, ZklResultCode code)
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
			parent->due_ms = zkl_now_ms() + DELETE_AFTER_MS;
			memset(parent->is_missing, 0, sizeof(parent->is_missing));
			append(&parents->due, parent);
			return;
		default:
			break;
	}
	parent_free(parent);
}

/*
 * Returns when to delete the next parent; 0 if there is none, a multi is in flight, or a
 * retry is scheduled, which comes first.
 */
static int64_t
next_due(const ZklSession *session)
{
	const EmptyParents *parents = parents_of(session);

	if (parents->due.first == NULL || parents->call ||
		zkl__has_retry(session) || !zkl__is_connected(session))
		return 0;
	return parents->due.first->due_ms;
}

static void drive(ZklSession *session);

static void
on_deleted(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;
	EmptyParents *parents = parents_of(session);
	int			op = 0;

	parents->call = NULL;
	while (parents->batch.first)
	{
		Parent	   *parent = take_first(&parents->batch);

		settle(parents, parent, outcome(parent, result, &op));
	}
	if (result->code != ZKL_RC_CONNECTION_LOSS)
		drive(session);
}

/* Deletes this parent and the next ones, "n_parents" in all, in one multi. */
static ZklCall *
send_deletes(ZklSession *session, ZklHandler handler, const Parent *parent, int n_parents)
{
	ZklCall    *call = zkl__call_new(session, handler, NULL, NULL);
	ZklOp		ops[MAX_OPS] = {0};
	int			n = 0;

	for (; n_parents > 0; parent = parent->next, n_parents--)
		for (int i = 0; i < parent->n_znodes; i++)
			if (!parent->is_missing[i])
			{
				ops[n].kind = ZKL_OP_DELETE;
				ops[n++].path = parent->paths[i];
			}
	return zkl__send_all(call, ZKL_MULTI, ops, n);
}

static void
send_batch(ZklSession *session)
{
	EmptyParents *parents = parents_of(session);

	parents->call = send_deletes(session, on_deleted, parents->batch.first, parents->batch.n);
	while (parents->call == NULL && parents->batch.first)
		prepend(&parents->due, take_first(&parents->batch));
}

/* Deletes the due parents in one multi; those beyond MAX_OPS follow its answer. */
static void
drive(ZklSession *session)
{
	EmptyParents *parents = parents_of(session);
	int64_t		now = zkl_now_ms();
	int			n_ops = 0;

	while (next_due(session) != 0 && next_due(session) <= now &&
		   n_ops + parents->due.first->n_znodes <= MAX_OPS)
	{
		Parent	   *parent = take_first(&parents->due);
		ZklNode    *user = user_of(session, parent, false);

		if (user)
		{
			user->created_parent = true;	/* schedules the parent again when it is gone */
			parent_free(parent);
		}
		else
		{
			n_ops += parent->n_znodes;
			append(&parents->batch, parent);
		}
	}
	if (parents->call == NULL && parents->batch.first)
		send_batch(session);
	if (next_due(session) != 0)
		zkl__arm_timer(session, next_due(session));
}

/*
 * Deletes parents before the session is closed, also those of nodes whose delete is
 * in flight.  The answers are ignored.
 */
static void
on_close(ZklSession *session)
{
	EmptyParents *parents = parents_of(session);
	int			n = 0;

	if (!zkl__is_connected(session))
		return;
	for (const ZklNode *node = zkl__nodes(session); node && n < MAX_AT_CLOSE; node = node->next)
	{
		Parent	   *parent = node->state == NODE_LEAVING ? parent_new(node) : NULL;

		if (parent == NULL)
			continue;
		send_deletes(session, zkl__ignore_answer, parent, 1);
		parent_free(parent);
		n++;
	}
	for (Parent *parent = parents->due.first; parent && n < MAX_AT_CLOSE; parent = parent->next)
		if (user_of(session, parent, true) == NULL)
		{
			send_deletes(session, zkl__ignore_answer, parent, 1);
			n++;
		}
}

static void
on_free(ZklSession *session)
{
	EmptyParents *parents = parents_of(session);

	while (parents->due.first)
		parent_free(take_first(&parents->due));
	while (parents->batch.first)
		parent_free(take_first(&parents->batch));
}

const ZklSessionPart zkl__empty_parents_part = {
	.state_size = sizeof(EmptyParents),
	.on_drive = drive,
	.on_timer = drive,
	.on_close = on_close,
	.on_free = on_free,
};
