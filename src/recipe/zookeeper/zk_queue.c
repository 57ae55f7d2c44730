/*-------------------------------------------------------------------------
 *
 * zk_queue.c
 *		Implements the operations of client.h: queues them until they are sent.
 *
 * An operation stays in the client's queue until a thread with the library's mutex
 * passes it to the library (zk_calls.c).  The submitter itself cannot: it holds a
 * session's mutex, which must be taken after the library's.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "zk_library.h"

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

/* Copies everything; returns NULL when out of memory. */
static ZklSubmission *
submission_new(const ZklSubmission *how, const ZklOp *ops, int n_ops)
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
	*submission = *how;
	submission->n_ops = n_ops;
	bytes = (char *) &submission->ops[n_ops];
	for (int i = 0; i < n_ops; i++)
		bytes = copy_op(&submission->ops[i], &ops[i], bytes);
	return submission;
}

static bool
submit(ZklClient *client, const ZklSubmission *how, const ZklOp *ops, int n_ops)
{
	ZklSubmission *submission = submission_new(how, ops, n_ops);

	if (submission == NULL)
		return false;
	pthread_mutex_lock(&client->queue_mutex);
	if (client->last)
		client->last->next = submission;
	else
		client->first = submission;
	client->last = submission;
	pthread_mutex_unlock(&client->queue_mutex);
	return true;
}

/* Submits an operation that needs only a path. */
static bool
submit_path(ZklClient *client, CallKind kind, const char *path, bool watch,
			ZklCompletion *completion)
{
	ZklOp		op = {.path = path};
	ZklSubmission how = {.kind = kind, .watch = watch, .completion = completion};

	return submit(client, &how, &op, 1);
}

ZklSubmission *
zkl_zk_take_first(ZklClient *client)
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
	return submit_path(client, CALL_DELETE, path, false, completion);
}

bool
zkl_client_get(ZklClient *client, const char *path, bool watch,
			   ZklCompletion *completion)
{
	return submit_path(client, CALL_GET, path, watch, completion);
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
	return submit_path(client, CALL_GET_ACL, path, false, completion);
}

bool
zkl_client_list(ZklClient *client, const char *path, ZklCompletion *completion)
{
	return submit_path(client, CALL_LIST, path, false, completion);
}

bool
zkl_client_watch_children(ZklClient *client, const char *path,
						  ZklCompletion *completion)
{
	return submit_path(client, CALL_LIST, path, true, completion);
}

bool
zkl_client_sync(ZklClient *client, const char *path, ZklCompletion *completion)
{
	return submit_path(client, CALL_SYNC, path, false, completion);
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
