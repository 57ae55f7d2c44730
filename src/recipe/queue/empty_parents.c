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

/* Parents to remember; the oldest ones beyond are left to the server. */
#define MAX_PARENTS 10000

/* Deletes at the end of a session, which does not wait for timers. */
#define MAX_AT_CLOSE 100

typedef struct Parent
{
	struct Parent *next;
	int64_t		due_ms;
	int			refusals;
	const char *const *parts;	/* as in ZklNode */
	unsigned	missing;		/* bit i: part i did not exist */
	char		path[];			/* without a part */
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

/* Returns what is to be deleted after the node; NULL: nothing, or out of memory. */
static Parent *
parent_new(const ZklNode *node)
{
	size_t		length = strlen(node->lock_path);
	Parent	   *parent;

	if (!node->created_parent || zkl__config(node->session)->node_names == ZKL_NODE_NAMES_KAZOO)
		return NULL;
	parent = calloc(1, sizeof(Parent) + length + 1);
	if (parent == NULL)
		return NULL;
	strcpy(parent->path, node->lock_path);
	parent->parts = node->parts;
	if (parent->parts)
		*strrchr(parent->path, '/') = '\0';
	return parent;
}

/* Returns how many znodes are deleted together: the parts, and the one above them. */
static int
n_znodes(const Parent *parent)
{
	int			n = 1;

	while (parent->parts && parent->parts[n - 1])
		n++;
	return n;
}

/* Returns the path of one of them, malloc'd, or NULL; the last one is above the others. */
static char *
znode_path(const Parent *parent, int i)
{
	return i < n_znodes(parent) - 1 ? zkl__path(parent->path, parent->parts[i])
		: strdup(parent->path);
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
		free(take_first(&parents->due));
	append(&parents->due, parent);
	zkl__arm_timer(session, parent->due_ms);
}

/*
 * Returns a node that this session has or wants below the parent, or NULL.  The end of
 * the session does not wait for deletes that are in flight: they come first.
 */
static ZklNode *
user_of(const ZklSession *session, const Parent *parent, bool at_close)
{
	ZklNode    *user = NULL;

	for (int i = 0; user == NULL && i < n_znodes(parent); i++)
	{
		char	   *path = znode_path(parent, i);

		user = path ? zkl__nodes_below(session, path, strlen(path)) : NULL;
		while (user && (user->state == NODE_GONE ||
						(at_close && user->state == NODE_LEAVING)))
			user = zkl__next_below(user);
		free(path);
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
	bool		whole = result->code == ZKL_RC_OK || result->code == ZKL_RC_CONNECTION_LOSS ||
		*op >= result->n_ops;
	ZklResultCode code = whole ? result->code : ZKL_RC_ROLLED_BACK;
	unsigned	missing = parent->missing;

	for (int i = 0; !whole && i < n_znodes(parent); i++)
	{
		ZklResultCode failed;

		if (missing & 1u << i)
			continue;
		failed = result->op_codes[(*op)++];
		if (failed == ZKL_RC_NO_NODE && i < n_znodes(parent) - 1)
			parent->missing |= 1u << i;
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
			parent->missing = 0;
			append(&parents->due, parent);
			return;
		default:
			break;
	}
	free(parent);
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
	if (next_due(session))
		zkl__arm_timer(session, next_due(session));
}

/* Appends the operations for one parent to the "n" operations; returns their number. */
static int
add_ops(const Parent *parent, ZklOp *ops, int n)
{
	for (int i = 0; i < n_znodes(parent); i++)
		if (!(parent->missing & 1u << i))
		{
			ops[n].kind = ZKL_OP_DELETE;
			ops[n++].path = znode_path(parent, i);
		}
	return n;
}

/* Sends the operations in one multi and frees their paths. */
static ZklCall *
send_ops(ZklSession *session, ZklHandler handler, ZklOp *ops, int n)
{
	ZklCall    *call = zkl__call_new(session, handler, NULL, NULL);
	bool		complete = call != NULL;

	for (int i = 0; i < n; i++)
		complete = complete && ops[i].path;
	call = zkl__call_sent(call, complete && zkl_client_multi(zkl__client(session), ops, n,
															 &call->completion));
	for (int i = 0; i < n; i++)
		free((char *) ops[i].path);
	return call;
}

static void
send_batch(ZklSession *session)
{
	EmptyParents *parents = parents_of(session);
	ZklOp		ops[MAX_OPS] = {0};
	int			n = 0;

	for (const Parent *parent = parents->batch.first; parent; parent = parent->next)
		n = add_ops(parent, ops, n);
	parents->call = send_ops(session, on_deleted, ops, n);
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

	for (;;)
	{
		int64_t		due = next_due(session);
		Parent	   *parent;
		ZklNode    *user;

		if (due == 0 || due > now || n_ops + n_znodes(parents->due.first) > MAX_OPS)
			break;
		parent = take_first(&parents->due);
		user = user_of(session, parent, false);
		if (user == NULL)
		{
			n_ops += n_znodes(parent);
			append(&parents->batch, parent);
		}
		else
		{
			user->created_parent = true;	/* schedules the parent again when it is gone */
			free(parent);
		}
	}
	if (parents->call == NULL && parents->batch.first)
		send_batch(session);
}

static void
delete_now(ZklSession *session, const Parent *parent)
{
	ZklOp		ops[MAX_OPS] = {0};

	send_ops(session, zkl__ignore_answer, ops, add_ops(parent, ops, 0));
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
		delete_now(session, parent);
		free(parent);
		n++;
	}
	for (Parent *parent = parents->due.first; parent && n < MAX_AT_CLOSE; parent = parent->next)
		if (user_of(session, parent, true) == NULL)
		{
			delete_now(session, parent);
			n++;
		}
}

static void
on_free(ZklSession *session)
{
	EmptyParents *parents = parents_of(session);

	while (parents->due.first)
		free(take_first(&parents->due));
	while (parents->batch.first)
		free(take_first(&parents->batch));
}

static void
on_timer(ZklSession *session, int64_t now)
{
	(void) now;
	drive(session);
}

const ZklSessionPart zkl__empty_parents_part = {
	.state_size = sizeof(EmptyParents),
	.on_drive = drive,
	.on_timer = on_timer,
	.next_timer = next_due,
	.on_close = on_close,
	.on_free = on_free,
};
