/*-------------------------------------------------------------------------
 *
 * zk_calls.c
 *		Queues operations, passes them to libzookeeper_st, and its answers to the session.
 *
 * An operation stays in the client's queue until a thread with the library's mutex
 * passes it to the library.  The submitter itself cannot: it holds a session's mutex, which
 * must be taken after the library's.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "zk_library.h"


/* A code of the server that the library's header of 3.8 does not define. */
#define QUOTA_EXCEEDED (-125)


/*
 * The queue
 */

bool
zkl_client_submit(ZklClient *client, ZklRequestForm form, const ZklOp *ops, int n_ops,
				  ZklCall *call)
{
	size_t		size = sizeof(ZklSubmission) + (size_t) n_ops * sizeof(ZklOp) +
		zkl_ops_bytes(ops, n_ops);
	ZklSubmission *submission = malloc(size);

	if (submission == NULL)
		return false;
	*submission = (ZklSubmission)
	{
		.client = client, .form = form, .call = call,
			.size = size, .n_ops = n_ops
	};
	zkl_ops_copy(submission->ops, ops, n_ops, (char *) &submission->ops[n_ops]);
	pthread_mutex_lock(&client->queue_mutex);
	if (client->first)
		client->last->next = submission;
	else
		__atomic_store_n(&client->first, submission, __ATOMIC_RELAXED);
	client->last = submission;
	pthread_mutex_unlock(&client->queue_mutex);
	return true;
}

ZklSubmission *
zkl_zk_take_first(ZklClient *client)
{
	ZklSubmission *submission;

	pthread_mutex_lock(&client->queue_mutex);
	submission = client->first;
	if (submission)
		__atomic_store_n(&client->first, submission->next, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&client->queue_mutex);
	return submission;
}

/* Without the mutex: a thread sees at least what it has submitted itself. */
bool
zkl_zk_has_queued(const ZklClient *client)
{
	return __atomic_load_n(&client->first, __ATOMIC_RELAXED) != NULL;
}


/*
 * Answers
 */

static ZklResultCode
code_of(int rc)
{
	static const struct
	{
		int			rc;
		ZklResultCode code;
	}			codes[] = {
		{ZOK, ZKL_RC_OK},
		{ZCONNECTIONLOSS, ZKL_RC_CONNECTION_LOSS},
		{ZOPERATIONTIMEOUT, ZKL_RC_CONNECTION_LOSS},
		{ZRUNTIMEINCONSISTENCY, ZKL_RC_CONNECTION_LOSS},	/* an answer is missing: the library reconnects */
		{ZSESSIONMOVED, ZKL_RC_CONNECTION_LOSS},	/* the connection will be closed */
		{ZTHROTTLEDOP, ZKL_RC_CONNECTION_LOSS}, /* not done; can be retried */
		{ZNONODE, ZKL_RC_NO_NODE},
		{ZNODEEXISTS, ZKL_RC_NODE_EXISTS},
		{ZNOTEMPTY, ZKL_RC_NOT_EMPTY},
		{ZBADVERSION, ZKL_RC_BAD_VERSION},
		{ZNOAUTH, ZKL_RC_NO_AUTH},
		{ZINVALIDACL, ZKL_RC_NO_AUTH},
		{ZAUTHFAILED, ZKL_RC_AUTH_FAILED},
		{ZSESSIONCLOSEDREQUIRESASLAUTH, ZKL_RC_AUTH_FAILED},
		{ZSESSIONEXPIRED, ZKL_RC_SESSION_EXPIRED},
		{ZCLOSING, ZKL_RC_SESSION_EXPIRED},
		{ZINVALIDSTATE, ZKL_RC_SESSION_EXPIRED},

		/*
		 * The leader's PrepRequestProcessor checks a request before it makes a
		 * transaction of it; a read-only server, and one with an exhausted quota, refuse the
		 * request before that.
		 */
		{ZBADARGUMENTS, ZKL_RC_REFUSED},
		{ZNOCHILDRENFOREPHEMERALS, ZKL_RC_REFUSED},
		{ZEPHEMERALONLOCALSESSION, ZKL_RC_LOCAL_SESSION},
		{ZNOTREADONLY, ZKL_RC_REFUSED},
		{QUOTA_EXCEEDED, ZKL_RC_REFUSED},
	};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (codes[i].rc == rc)
			return codes[i].code;
	return ZKL_RC_OTHER;
}

static void
answer_io(const ZklSubmission *submission, ZklResult *result, int rc)
{
	result->code = code_of(rc);
	result->raw_code = rc;
	submission->client->events->answer_io(submission->call, result);
}

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
	answer_io(submission, result, rc);
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

static int
create_mode(ZklCreateKind kind)
{
	const int	modes[] = {
		[ZKL_CREATE_PERSISTENT] = ZOO_PERSISTENT,
		[ZKL_CREATE_CONTAINER] = ZOO_CONTAINER,
		[ZKL_CREATE_EPHEMERAL] = ZOO_EPHEMERAL,
		[ZKL_CREATE_EPHEMERAL_SEQUENTIAL] = ZOO_EPHEMERAL_SEQUENTIAL,
	};

	return modes[kind];
}


/*
 * Multis
 */

/* A multi in flight: one allocation, into which the library writes the answer. */
typedef struct Multi
{
	ZklSubmission *submission;
	struct Stat *stats;			/* of sets */
	char	   *paths;			/* of creates, behind each other */
	ZklResult  *answers;
	zoo_op_result_t results[];
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
	size_t		n = (size_t) submission->n_ops;
	size_t		size = sizeof(Multi) +
		n * (sizeof(zoo_op_result_t) + sizeof(struct Stat) + sizeof(ZklResult));
	Multi	   *multi;

	for (size_t i = 0; i < n; i++)
		size += path_size(&submission->ops[i]);
	multi = calloc(1, size);
	if (multi == NULL)
		return NULL;
	multi->submission = submission;
	multi->stats = (struct Stat *) (multi->results + n);
	multi->answers = (ZklResult *) (multi->stats + n);
	multi->paths = (char *) (multi->answers + n);
	for (size_t i = 0; i < n; i++)
		multi->results[i].err = ZRUNTIMEINCONSISTENCY;
	return multi;
}

/* For the operations before the one that failed, a server reports OK, but undoes them. */
static void
multi_done_io(int rc, const void *data)
{
	Multi	   *multi = (Multi *) data;
	ZklResult	result = {.n_ops = multi->submission->n_ops, .op_results = multi->answers};

	for (int i = 0; i < result.n_ops; i++)
	{
		const zoo_op_result_t *from = &multi->results[i];
		bool		is_undone = from->err == ZRUNTIMEINCONSISTENCY || (from->err == ZOK && rc != ZOK);

		multi->answers[i].code = is_undone ? ZKL_RC_ROLLED_BACK : code_of(from->err);
		multi->answers[i].path = rc == ZOK ? from->value : NULL;
		multi->answers[i].version = multi->stats[i].version;
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
	char	   *path = multi ? multi->paths : NULL;
	int			rc = ZSYSTEMERROR;

	for (int i = 0; multi && ops && i < s->n_ops; i++)
	{
		const ZklOp *op = &s->ops[i];

		if (op->kind == ZKL_OP_CREATE)
			zoo_create_op_init(&ops[i], op->path, op->data, op->data_len, client->acl,
							   create_mode(op->create_kind), path, (int) path_size(op));
		else if (op->kind == ZKL_OP_DELETE)
			zoo_delete_op_init(&ops[i], op->path, -1);
		else if (op->kind == ZKL_OP_SET)
			zoo_set_op_init(&ops[i], op->path, op->data, op->data_len, op->version,
							&multi->stats[i]);
		else
			zoo_check_op_init(&ops[i], op->path,
							  op->kind == ZKL_OP_CHECK ? -1 : op->version);
		path += path_size(op);
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
	zkl_watches_fired(client, path);
	client->events->watch_io(client->session, path);
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
								create_mode(op->create_kind), created_io, s);
		case ZKL_OP_DELETE:
			return zoo_adelete(zh, op->path, -1, deleted_io, s);
		case ZKL_OP_SET:
			return zoo_aset(zh, op->path, op->data, op->data_len, op->version, stat_io, s);
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
		answer_io(submission, &result,
				  rc == ZSYSTEMERROR || rc == ZMARSHALLINGERROR
				  ? ZCONNECTIONLOSS : rc);
		free(submission);
	}
	return any;
}
