/*-------------------------------------------------------------------------
 *
 * zk_calls.c
 *		Passes queued operations to libzookeeper_st, and its answers to the session.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "zk_library.h"


/*
 * Answers
 */

static bool
is_read(const ZklSubmission *submission)
{
	return submission->form == ZKL_SINGLE && (submission->ops->kind == ZKL_OP_GET ||
											  submission->ops->kind == ZKL_OP_LIST);
}

/*
 * Passes the answer on, and frees the submission or keeps it for its watch.  A read
 * whose answer is too long must not be repeated: a list that other programs have made
 * so long would end each new connection.
 */
static void
answered_io(const void *data, ZklResult *result, int rc)
{
	ZklSubmission *submission = (ZklSubmission *) data;
	ZklClient  *client = submission->client;

	client->n_unanswered--;
	if (client->is_too_long && rc == ZCONNECTIONLOSS)
	{
		client->is_too_long = false;
		rc = is_read(submission) ? ZMARSHALLINGERROR : rc;
	}
	zkl_zk_answer_io(submission->completion, result, rc);
	if (rc == ZOK && is_read(submission) && submission->ops->watch)
		zkl_watches_add(submission);
	else
		free(submission);
}

static void
created_io(int rc, const char *path, const struct Stat *stat, const void *submission)
{
	ZklResult	result = {.path = path, .czxid = rc == ZOK && stat ? stat->czxid : 0};

	answered_io(submission, &result, rc);
}

static void
got_io(int rc, const char *data, int data_len, const struct Stat *stat,
	   const void *submission)
{
	ZklResult	result = {.data = data, .data_len = rc == ZOK ? data_len : 0};

	if (rc == ZOK && stat)
	{
		result.czxid = stat->czxid;
		result.version = stat->version;
		result.owner = stat->ephemeralOwner;
		result.ctime_ms = stat->ctime;
	}
	answered_io(submission, &result, rc);
}

static void
stat_io(int rc, const struct Stat *stat, const void *submission)
{
	got_io(rc, NULL, rc == ZOK && stat ? stat->dataLength : 0, stat, submission);
}

static void
acl_io(int rc, struct ACL_vector *acl, struct Stat *stat, const void *submission)
{
	ZklResult	result = {0};

	(void) stat;
	for (int i = 0; rc == ZOK && acl && i < acl->count; i++)
		if ((strcmp(acl->data[i].id.scheme, "world") == 0 ||
			 strcmp(acl->data[i].id.scheme, "ip") == 0) &&
			(acl->data[i].perms & ~ZOO_PERM_READ) != 0)
			result.is_open = true;
	answered_io(submission, &result, rc);
}

static void
set_io(int rc, const struct Stat *stat, const void *submission)
{
	ZklResult	result = {.version = rc == ZOK && stat ? stat->version : 0};

	answered_io(submission, &result, rc);
}

static void
children_io(int rc, const struct String_vector *children, const void *submission)
{
	ZklResult	result = {0};

	if (rc == ZOK && children)
	{
		result.children = (const char *const *) children->data;
		result.n_children = children->count;
	}
	answered_io(submission, &result, rc);
}

static void
synced_io(int rc, const char *path, const void *submission)
{
	ZklResult	result = {0};

	(void) path;
	answered_io(submission, &result, rc);
}

static void
deleted_io(int rc, const void *submission)
{
	ZklResult	result = {0};

	answered_io(submission, &result, rc);
}


/*
 * Multis
 */

/* A multi in flight: one allocation, into which the library writes the answer. */
typedef struct Multi
{
	ZklSubmission *submission;
	int			n;
	zoo_op_result_t *results;
	struct Stat *stats;			/* of sets */
	char	  **paths;
	ZklResultCode *codes;
	int32_t    *versions;
} Multi;

/* The server's number makes the path of a create at most eleven bytes longer. */
static size_t
path_size(const ZklOp *op)
{
	return op->kind == ZKL_OP_CREATE ? strlen(op->path) + 16 : 0;
}

/* Returns NULL when out of memory. */
static Multi *
multi_new(ZklSubmission *submission)
{
	const ZklOp *ops = submission->ops;
	int			n = submission->n_ops;
	size_t		size = sizeof(Multi) +
		(size_t) n * (sizeof(zoo_op_result_t) + sizeof(struct Stat) + sizeof(char *) +
				  sizeof(ZklResultCode) + sizeof(int32_t));
	Multi	   *multi;
	char	   *path;

	for (int i = 0; i < n; i++)
		size += path_size(&ops[i]);
	multi = calloc(1, size);
	if (multi == NULL)
		return NULL;
	multi->submission = submission;
	multi->n = n;
	multi->results = (zoo_op_result_t *) (multi + 1);
	multi->stats = (struct Stat *) (multi->results + n);
	multi->paths = (char **) (multi->stats + n);
	multi->codes = (ZklResultCode *) (multi->paths + n);
	multi->versions = (int32_t *) (multi->codes + n);
	path = (char *) (multi->versions + n);
	for (int i = 0; i < n; i++)
	{
		multi->results[i].err = ZRUNTIMEINCONSISTENCY;
		multi->paths[i] = ops[i].kind == ZKL_OP_CREATE ? path : NULL;
		path += path_size(&ops[i]);
	}
	return multi;
}

static void
multi_done_io(int rc, const void *data)
{
	Multi	   *multi = (Multi *) data;
	ZklResult	result = {.n_ops = multi->n, .op_codes = multi->codes,
	.op_paths = (const char *const *) multi->paths, .op_versions = multi->versions};

	for (int i = 0; i < multi->n; i++)
	{
		multi->codes[i] = multi->results[i].err == ZRUNTIMEINCONSISTENCY
			? ZKL_RC_ROLLED_BACK : zkl_zk_code(multi->results[i].err);
		multi->versions[i] = multi->stats[i].version;
	}
	answered_io(multi->submission, &result, rc);
	free(multi);
}

/* Returns the result of zoo_amulti(). */
static int
send_multi(ZklClient *client, ZklSubmission *s)
{
	Multi	   *multi = multi_new(s);
	zoo_op_t   *ops = calloc((size_t) s->n_ops, sizeof(zoo_op_t));
	int			rc = ZSYSTEMERROR;

	for (int i = 0; multi && ops && i < s->n_ops; i++)
	{
		const ZklOp *op = &s->ops[i];

		if (op->kind == ZKL_OP_CREATE)
			zoo_create_op_init(&ops[i], op->path, op->data, op->data_len, client->acl,
							   zkl_zk_create_mode(op->create_kind), multi->paths[i],
							   (int) path_size(op));
		else if (op->kind == ZKL_OP_DELETE)
			zoo_delete_op_init(&ops[i], op->path, -1);
		else if (op->kind == ZKL_OP_SET)
			zoo_set_op_init(&ops[i], op->path, op->data, op->data_len, op->version,
							&multi->stats[i]);
		else
			zoo_check_op_init(&ops[i], op->path,
							  op->kind == ZKL_OP_CHECK ? -1 : op->version);
	}
	if (multi && ops)
		rc = zoo_amulti(client->zh, s->n_ops, ops, multi->results, multi_done_io, multi);
	if (rc != ZOK)
		free(multi);
	free(ops);
	return rc;
}


/*
 * Sending
 */

/* The library also calls this for session events, which do not concern the node. */
void
zkl_zk_watched_io(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	ZklClient  *client = context;

	(void) zh;
	(void) state;
	if (type == ZOO_SESSION_EVENT || path == NULL)
		return;
	zkl_watches_fired(client, type, path);
	client->events.watch_io(client->context, path);
}

static int
send_single(ZklClient *client, const ZklSubmission *s)
{
	zhandle_t  *zh = client->zh;
	const ZklOp *op = s->ops;
	watcher_fn	watcher = op->watch ? zkl_zk_watched_io : NULL;

	switch (op->kind)
	{
		case ZKL_OP_CREATE:
			return zoo_acreate2(zh, op->path, op->data, op->data_len, client->acl,
								zkl_zk_create_mode(op->create_kind), created_io, s);
		case ZKL_OP_DELETE:
			return zoo_adelete(zh, op->path, -1, deleted_io, s);
		case ZKL_OP_SET:
			return zoo_aset(zh, op->path, op->data, op->data_len, op->version, set_io, s);
		case ZKL_OP_GET:
			return zoo_awget(zh, op->path, watcher, client, got_io, s);
		case ZKL_OP_STAT:
			return zoo_aexists(zh, op->path, 0, stat_io, s);
		case ZKL_OP_GET_ACL:
			return zoo_aget_acl(zh, op->path, acl_io, s);
		case ZKL_OP_LIST:
			return zoo_awget_children(zh, op->path, watcher, client, children_io, s);
		case ZKL_OP_SYNC:
			return zoo_async(zh, op->path, synced_io, s);
		case ZKL_OP_CHECK:
		case ZKL_OP_CHECK_VERSION:
			break;
	}
	return ZBADARGUMENTS;
}

/*
 * The library copies the bytes into the request, whose buffer it doubles as needed, and
 * allocates some structures for the request and for each operation.
 */
static size_t
memory_to_send(const ZklSubmission *s)
{
	return 6 * s->size + 1024 * (size_t) (s->n_ops + 2);
}

/* Returns a code of the library; the submission is the library's if that is ZOK. */
static int
send_submission(ZklClient *client, ZklSubmission *s)
{
	int			rc;

	if (!zkl_zk_has_memory(client, memory_to_send(s)))
		return ZSYSTEMERROR;
	rc = s->form == ZKL_MULTI ? send_multi(client, s) : send_single(client, s);
	client->n_unanswered += rc == ZOK;
	return rc;
}

bool
zkl_zk_send_all_io(ZklClient *client)
{
	ZklSubmission *submission;
	bool		any = false;

	while ((submission = zkl_zk_take_first(client)) != NULL)
	{
		int			rc = send_submission(client, submission);
		ZklResult	result = {0};

		any |= rc == ZOK;
		if (rc == ZOK)
			continue;
		zkl_zk_answer_io(submission->completion, &result,
						 rc == ZSYSTEMERROR || rc == ZMARSHALLINGERROR
						 ? ZCONNECTIONLOSS : rc);
		free(submission);
	}
	return any;
}
