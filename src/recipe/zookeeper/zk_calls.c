/*-------------------------------------------------------------------------
 *
 * zk_calls.c
 *		Implements the operations of client.h with libzookeeper_st.
 *
 * An operation stays in the client's queue until a thread with the library's mutex
 * passes it to the library.  The submitter itself cannot: it holds a session's mutex,
 * which must be taken after the library's.  Multis are in zk_multi.c.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "zk_library.h"

/* A code of the server that the library's header of 3.8 does not define. */
#define QUOTA_EXCEEDED (-125)

typedef enum CallKind
{
	CALL_CREATE,
	CALL_DELETE,
	CALL_GET,
	CALL_GET_ACL,
	CALL_SET,
	CALL_LIST,
	CALL_SYNC,
	CALL_MULTI,
	CALL_READ_EACH
} CallKind;

/* One allocation; the operations and the bytes they point to follow. */
struct ZklSubmission
{
	ZklSubmission *next;
	CallKind	kind;
	bool		watch;
	int32_t		version;
	ZklCompletion *completion;
	int			n_ops;
	ZklOp		ops[];			/* several only for MULTI, READ_EACH */
};


ZklResultCode
zkl_zk_code(int rc)
{
	switch (rc)
	{
		case ZOK:
			return ZKL_RC_OK;
		case ZCONNECTIONLOSS:
		case ZOPERATIONTIMEOUT:
		case ZRUNTIMEINCONSISTENCY: /* an answer is missing: the library reconnects */
		case ZSESSIONMOVED:		/* the connection will be closed */
		case ZTHROTTLEDOP:		/* not done; can be retried */
			return ZKL_RC_CONNECTION_LOSS;
		case ZNONODE:
			return ZKL_RC_NO_NODE;
		case ZNODEEXISTS:
			return ZKL_RC_NODE_EXISTS;
		case ZNOTEMPTY:
			return ZKL_RC_NOT_EMPTY;
		case ZBADVERSION:
			return ZKL_RC_BAD_VERSION;
		case ZNOAUTH:
		case ZINVALIDACL:
			return ZKL_RC_NO_AUTH;
		case ZAUTHFAILED:
		case ZSESSIONCLOSEDREQUIRESASLAUTH:
			return ZKL_RC_AUTH_FAILED;
		case ZSESSIONEXPIRED:
		case ZCLOSING:
		case ZINVALIDSTATE:
			return ZKL_RC_SESSION_EXPIRED;
		case ZUNIMPLEMENTED:
			return ZKL_RC_UNIMPLEMENTED;

			/*
			 * The leader's PrepRequestProcessor checks a request before it
			 * makes a transaction of it; a read-only server, and one with an
			 * exhausted quota, refuse the request before that.
			 */
		case ZBADARGUMENTS:
		case ZNOCHILDRENFOREPHEMERALS:
		case ZEPHEMERALONLOCALSESSION:
		case ZNOTREADONLY:
		case QUOTA_EXCEEDED:
			return ZKL_RC_REFUSED;
		default:
			return ZKL_RC_OTHER;
	}
}


/*
 * Answers
 */

void
zkl_zk_answer_io(const void *completion, ZklResult *result, int rc)
{
	ZklCompletion *c = (ZklCompletion *) completion;

	result->code = zkl_zk_code(rc);
	result->raw_code = rc;
	c->done_io(c, result);
}

static void
created_io(int rc, const char *path, const struct Stat *stat, const void *completion)
{
	ZklResult	result = {.path = path, .czxid = rc == ZOK && stat ? stat->czxid : 0};

	zkl_zk_answer_io(completion, &result, rc);
}

static void
got_io(int rc, const char *data, int data_len, const struct Stat *stat,
	   const void *completion)
{
	ZklResult	result = {.data = data, .data_len = rc == ZOK ? data_len : 0};

	if (rc == ZOK && stat)
	{
		result.czxid = stat->czxid;
		result.version = stat->version;
		result.owner = stat->ephemeralOwner;
		result.ctime_ms = stat->ctime;
	}
	zkl_zk_answer_io(completion, &result, rc);
}

static void
acl_io(int rc, struct ACL_vector *acl, struct Stat *stat, const void *completion)
{
	ZklResult	result = {0};

	(void) stat;
	for (int i = 0; rc == ZOK && acl && i < acl->count; i++)
		if ((strcmp(acl->data[i].id.scheme, "world") == 0 ||
			 strcmp(acl->data[i].id.scheme, "ip") == 0) &&
			(acl->data[i].perms & ~ZOO_PERM_READ) != 0)
			result.is_open = true;
	zkl_zk_answer_io(completion, &result, rc);
}

static void
set_io(int rc, const struct Stat *stat, const void *completion)
{
	ZklResult	result = {0};

	(void) stat;
	zkl_zk_answer_io(completion, &result, rc);
}

static void
listed_io(int rc, const struct String_vector *children, const void *completion)
{
	ZklResult	result = {0};

	if (rc == ZOK && children)
	{
		result.children = (const char *const *) children->data;
		result.n_children = children->count;
	}
	zkl_zk_answer_io(completion, &result, rc);
}

static void
synced_io(int rc, const char *path, const void *completion)
{
	ZklResult	result = {.path = path};

	zkl_zk_answer_io(completion, &result, rc);
}

static void
deleted_io(int rc, const void *completion)
{
	ZklResult	result = {0};

	zkl_zk_answer_io(completion, &result, rc);
}

int
zkl_zk_create_mode(ZklCreateKind kind)
{
	switch (kind)
	{
		case ZKL_CREATE_CONTAINER:
			return ZOO_CONTAINER;
		case ZKL_CREATE_EPHEMERAL:
			return ZOO_EPHEMERAL;
		case ZKL_CREATE_EPHEMERAL_SEQUENTIAL:
			return ZOO_EPHEMERAL_SEQUENTIAL;
		case ZKL_CREATE_PERSISTENT:
			break;
	}
	return ZOO_PERSISTENT;
}


/*
 * The queue
 */

/* Copies an operation and what it points to; returns the end of the copy. */
static char *
copy_op(ZklOp *to, const ZklOp *from, char *bytes)
{
	size_t		path_size = strlen(from->path) + 1;
	size_t		data_size = from->data_len > 0 ? (size_t) from->data_len : 0;

	*to = *from;
	to->path = memcpy(bytes, from->path, path_size);
	bytes += path_size;
	if (from->data == NULL)
		return bytes;
	to->data = data_size > 0 ? memcpy(bytes, from->data, data_size) : bytes;
	return bytes + data_size;
}

static ZklSubmission *
submission_new(const ZklOp *ops, int n_ops)
{
	size_t		size = sizeof(ZklSubmission) + (size_t) n_ops * sizeof(ZklOp);
	ZklSubmission *submission;
	char	   *bytes;

	for (int i = 0; i < n_ops; i++)
		size += strlen(ops[i].path) + 1 +
			(ops[i].data && ops[i].data_len > 0 ? (size_t) ops[i].data_len : 0);
	submission = malloc(size + 1);
	if (submission == NULL)
		return NULL;
	memset(submission, 0, sizeof(*submission));
	submission->n_ops = n_ops;
	bytes = (char *) &submission->ops[n_ops];
	for (int i = 0; i < n_ops; i++)
		bytes = copy_op(&submission->ops[i], &ops[i], bytes);
	return submission;
}

static bool
submit(ZklClient *client, const ZklSubmission *how, const ZklOp *ops, int n_ops)
{
	ZklSubmission *submission = submission_new(ops, n_ops);

	if (submission == NULL)
		return false;
	submission->kind = how->kind;
	submission->watch = how->watch;
	submission->version = how->version;
	submission->completion = how->completion;
	pthread_mutex_lock(&client->queue_mutex);
	if (client->last)
		client->last->next = submission;
	else
		client->first = submission;
	client->last = submission;
	pthread_mutex_unlock(&client->queue_mutex);
	return true;
}

static ZklSubmission *
take_first(ZklClient *client)
{
	ZklSubmission *submission;

	pthread_mutex_lock(&client->queue_mutex);
	submission = client->first;
	if (submission)
	{
		client->first = submission->next;
		if (client->first == NULL)
			client->last = NULL;
	}
	pthread_mutex_unlock(&client->queue_mutex);
	return submission;
}

bool
zkl_zk_has_queued(ZklClient *client)
{
	bool		has;

	pthread_mutex_lock(&client->queue_mutex);
	has = client->first != NULL;
	pthread_mutex_unlock(&client->queue_mutex);
	return has;
}

static int
send_one(ZklClient *client, const ZklSubmission *s)
{
	zhandle_t  *zh = client->zh;
	const ZklOp *op = s->ops;
	watcher_fn	watcher = s->watch ? zkl_zk_node_io : NULL;

	switch (s->kind)
	{
		case CALL_CREATE:
			return zoo_acreate2(zh, op->path, op->data, op->data_len, client->acl,
								zkl_zk_create_mode(op->create_kind), created_io,
								s->completion);
		case CALL_DELETE:
			return zoo_adelete(zh, op->path, -1, deleted_io, s->completion);
		case CALL_GET:
			return zoo_awget(zh, op->path, watcher, client, got_io, s->completion);
		case CALL_GET_ACL:
			return zoo_aget_acl(zh, op->path, acl_io, s->completion);
		case CALL_SET:
			return zoo_aset(zh, op->path, op->data, op->data_len, s->version, set_io,
							s->completion);
		case CALL_LIST:
			return zoo_awget_children(zh, op->path, watcher, client, listed_io,
									  s->completion);
		case CALL_SYNC:
			return zoo_async(zh, op->path, synced_io, s->completion);
		case CALL_MULTI:
			return zkl_multi_send(client, s->ops, s->n_ops, s->completion);
		case CALL_READ_EACH:
			return zkl_reads_send(client, s->ops, s->n_ops, s->completion);
	}
	return ZBADARGUMENTS;
}

/* Answers operations that the library refuses; returns whether it accepted any. */
bool
zkl_zk_send_all_io(ZklClient *client)
{
	ZklSubmission *submission;
	bool		any = false;

	while ((submission = take_first(client)) != NULL)
	{
		int			rc = send_one(client, submission);
		ZklResult	result = {0};

		any |= rc == ZOK;
		if (rc != ZOK)
			zkl_zk_answer_io(submission->completion, &result,
							 rc == ZSYSTEMERROR || rc == ZMARSHALLINGERROR
							 ? ZCONNECTIONLOSS : rc);
		free(submission);
	}
	return any;
}

void
zkl_zk_free_queue(ZklClient *client)
{
	ZklSubmission *submission;

	while ((submission = take_first(client)) != NULL)
		free(submission);
}


/*
 * The operations
 */

bool
zkl_client_create(ZklClient *client, const char *path, const char *data,
				  int data_len, ZklCreateKind kind, ZklCompletion *completion)
{
	ZklOp		op = {.path = path, .create_kind = kind, .data = data, .data_len = data_len};
	ZklSubmission how = {.kind = CALL_CREATE, .completion = completion};

	return submit(client, &how, &op, 1);
}

bool
zkl_client_delete(ZklClient *client, const char *path, ZklCompletion *completion)
{
	ZklOp		op = {.path = path};
	ZklSubmission how = {.kind = CALL_DELETE, .completion = completion};

	return submit(client, &how, &op, 1);
}

bool
zkl_client_get(ZklClient *client, const char *path, bool watch,
			   ZklCompletion *completion)
{
	ZklOp		op = {.path = path};
	ZklSubmission how = {.kind = CALL_GET, .watch = watch, .completion = completion};

	return submit(client, &how, &op, 1);
}

bool
zkl_client_set(ZklClient *client, const char *path, const char *data,
			   int data_len, int32_t version, ZklCompletion *completion)
{
	ZklOp		op = {.path = path, .data = data, .data_len = data_len};
	ZklSubmission how = {.kind = CALL_SET, .version = version, .completion = completion};

	return submit(client, &how, &op, 1);
}

bool
zkl_client_get_acl(ZklClient *client, const char *path, ZklCompletion *completion)
{
	ZklOp		op = {.path = path};
	ZklSubmission how = {.kind = CALL_GET_ACL, .completion = completion};

	return submit(client, &how, &op, 1);
}

bool
zkl_client_list(ZklClient *client, const char *path, ZklCompletion *completion)
{
	ZklOp		op = {.path = path};
	ZklSubmission how = {.kind = CALL_LIST, .completion = completion};

	return submit(client, &how, &op, 1);
}

bool
zkl_client_watch_children(ZklClient *client, const char *path,
						  ZklCompletion *completion)
{
	ZklOp		op = {.path = path};
	ZklSubmission how = {.kind = CALL_LIST, .watch = true, .completion = completion};

	return submit(client, &how, &op, 1);
}

bool
zkl_client_sync(ZklClient *client, const char *path, ZklCompletion *completion)
{
	ZklOp		op = {.path = path};
	ZklSubmission how = {.kind = CALL_SYNC, .completion = completion};

	return submit(client, &how, &op, 1);
}

bool
zkl_client_multi(ZklClient *client, const ZklOp *ops, int n_ops,
				 ZklCompletion *completion)
{
	ZklSubmission how = {.kind = CALL_MULTI, .completion = completion};

	return submit(client, &how, ops, n_ops);
}

bool
zkl_client_read_each(ZklClient *client, const ZklOp *ops, int n_ops,
					 ZklCompletion *completion)
{
	ZklSubmission how = {.kind = CALL_READ_EACH, .completion = completion};

	return submit(client, &how, ops, n_ops);
}
