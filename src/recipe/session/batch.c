/*-------------------------------------------------------------------------
 *
 * batch.c
 *		Batches: operations of the owner, many in flight, whose results are copied.
 *
 * A batch belongs to one connection.  When an answer is lost, the batch fails; its owner
 * begins again with a new one.  So nothing here sends an operation twice.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/*
 * Bytes in flight.  The server needs memory for all answers to requests in flight.  Lists
 * are shorter than what the server stores for their znodes, so a request counts for little
 * unless it is known to be longer, or a get of unknown length.
 */
#define MAX_IN_FLIGHT 1000000
#define SIZE_OF_REQUEST 10000
#define SIZE_OF_UNKNOWN_DATA 64000

/* More than any use of locks needs. */
#define MAX_RESULT_BYTES (64 * 1024 * 1024)

struct ZklBatch
{
	ZklSession *session;
	ZklBatch   *prev;			/* in session->batches */
	ZklBatch   *next;
	ZklUses		uses;
	ZklBatchForm form;
	ZklStatus	status;
	int			raw_code;
	int			n_sent;
	int			n_answered;
	size_t		in_flight;		/* bytes */
	size_t		result_bytes;
	bool		is_outdated;
	int			n_ops;
	ZklBatchResult *results;	/* in the same chunk of memory, like all operations */
	ZklOp		ops[];
};

static void
decide(ZklBatch *batch, ZklStatus status)
{
	if (batch->status != ZKL_PENDING)
		return;
	batch->status = status;
	zkl__wake(batch->session);
}


/*
 * Results
 */

/* Counts bytes of results, and allocates them; fails the batch and returns NULL if it cannot. */
static char *
allocate_result(ZklBatch *batch, size_t size)
{
	char	   *result = NULL;

	batch->result_bytes += size;
	if (batch->result_bytes > MAX_RESULT_BYTES)
		decide(batch, ZKL_TOO_MANY);
	else if ((result = malloc(size)) == NULL)
		decide(batch, ZKL_NO_MEMORY);
	return result;
}

/* Copies bytes, with a NUL behind them. */
static const char *
copy_bytes(ZklBatch *batch, const char *bytes, size_t length)
{
	char	   *copy = allocate_result(batch, length + 1);

	if (copy)
	{
		memcpy(copy, bytes, length);
		copy[length] = '\0';
	}
	return copy;
}

/* Copies names into one chunk of memory: the array, then the texts. */
static void
copy_children(ZklBatch *batch, ZklBatchResult *to, const char *const *children, int n)
{
	size_t		size = (size_t) n * sizeof(char *);
	const char **names;
	char	   *text;

	for (int i = 0; i < n; i++)
		size += strlen(children[i]) + 1;
	names = (const char **) allocate_result(batch, size);
	if (names == NULL)
		return;
	text = (char *) (names + n);
	for (int i = 0; i < n; i++)
	{
		names[i] = text;
		text = stpcpy(text, children[i]) + 1;
	}
	to->children = names;
	to->n_children = n;
}

static void
take_result(ZklBatch *batch, ZklBatchResult *to, const ZklResult *result)
{
	to->code = result->code;
	if (result->code != ZKL_RC_OK)
		return;
	to->czxid = result->czxid;
	to->owner = result->owner;
	to->ctime_ms = result->ctime_ms;
	to->version = result->version;
	to->data_len = result->data_len > 0 ? result->data_len : 0;
	if (result->data)
		to->data = copy_bytes(batch, result->data, (size_t) to->data_len);
	if (result->path)
		to->path = copy_bytes(batch, result->path, strlen(result->path));
	if (result->n_children > 0)
		copy_children(batch, to, result->children, result->n_children);
}

/*
 * A multi does all or nothing.  For the operations before the one that failed, a server
 * reports OK, but undoes them.
 */
static void
take_multi(ZklBatch *batch, const ZklResult *result)
{
	ZklResultCode rest = result->code;

	for (int i = 0; i < result->n_ops && i < batch->n_ops; i++)
	{
		ZklBatchResult *to = &batch->results[i];
		const char *path = batch->ops[i].kind == ZKL_OP_CREATE ? result->op_paths[i] : NULL;

		to->code = result->op_codes[i];
		to->version = result->op_versions[i];
		if (result->code == ZKL_RC_OK && path)
			to->path = copy_bytes(batch, path, strlen(path));
		if (to->code != ZKL_RC_OK && to->code != ZKL_RC_ROLLED_BACK)
			rest = ZKL_RC_ROLLED_BACK;
	}
	for (int i = 0; i < batch->n_ops && result->code != ZKL_RC_OK; i++)
		if (batch->results[i].code == ZKL_RC_OK || batch->results[i].code == ZKL_RC_ROLLED_BACK)
			batch->results[i].code = rest;
}


/*
 * Requests and answers
 */

/* Returns how many bytes in flight an operation counts for. */
static size_t
size_in_flight(const ZklOp *op)
{
	if (op->kind == ZKL_OP_GET && op->data_len <= 0)
		return SIZE_OF_REQUEST + SIZE_OF_UNKNOWN_DATA;
	return SIZE_OF_REQUEST + (op->data_len > 0 ? (size_t) op->data_len : 0);
}

static void send_more(ZklBatch *batch);

/* Returns whether the batch goes on after this answer; ends it otherwise. */
static bool
is_usable(ZklBatch *batch, const ZklResult *result)
{
	switch (result->code)
	{
		case ZKL_RC_CONNECTION_LOSS:
			/* A server that refuses to work must not be asked again at once. */
			batch->session->batches_wait = zkl__is_connected(batch->session);
			decide(batch, ZKL_CONNECTION_LOST);
			return false;
		case ZKL_RC_OTHER:
			batch->raw_code = result->raw_code;
			/* FALLTHROUGH */
		case ZKL_RC_SESSION_EXPIRED:
		case ZKL_RC_AUTH_FAILED:
			decide(batch, zkl__status_of(result->code));
			return false;
		default:
			return true;
	}
}

static void
on_answered(ZklCall *call, const ZklResult *result)
{
	ZklBatch   *batch = call->subject;
	ZklBatchResult *to = call->detail;

	batch->in_flight -= size_in_flight(&batch->ops[to - batch->results]);
	if (batch->status != ZKL_PENDING || !is_usable(batch, result))
		return;
	take_result(batch, to, result);
	if (++batch->n_answered == batch->n_ops)
		decide(batch, ZKL_OK);
	else
		send_more(batch);
}

static void
on_multi_answered(ZklCall *call, const ZklResult *result)
{
	ZklBatch   *batch = call->subject;

	if (batch->status != ZKL_PENDING || !is_usable(batch, result))
		return;
	take_multi(batch, result);
	decide(batch, ZKL_OK);
}

static bool
send_atomic(ZklBatch *batch)
{
	batch->n_sent = batch->n_ops;
	return zkl__send_all(zkl__call_new(batch->session, on_multi_answered, batch, &batch->uses),
						 ZKL_MULTI, batch->ops, batch->n_ops) != NULL;
}

static bool
send_next(ZklBatch *batch)
{
	int			i = batch->n_sent++;
	ZklCall    *call = zkl__call_new(batch->session, on_answered, batch, &batch->uses);

	batch->in_flight += size_in_flight(&batch->ops[i]);
	if (call)
		call->detail = &batch->results[i];
	return zkl__send(call, &batch->ops[i]) != NULL;
}

static bool
has_room_in_flight(const ZklBatch *batch)
{
	return batch->in_flight == 0 ||
		batch->in_flight + size_in_flight(&batch->ops[batch->n_sent]) <= MAX_IN_FLIGHT;
}

/* Sends as many operations as may be in flight, if the session is connected. */
static void
send_more(ZklBatch *batch)
{
	bool		is_sent = true;

	if (batch->status != ZKL_PENDING || !zkl__is_connected(batch->session) ||
		batch->session->batches_wait)
		return;
	while (is_sent && batch->n_sent < batch->n_ops && has_room_in_flight(batch))
		is_sent = batch->form == ZKL_BATCH_ATOMIC ? send_atomic(batch) : send_next(batch);
	if (!is_sent)
		decide(batch, ZKL_NO_MEMORY);
}


/*
 * Events of the session
 */

void
zkl__batches_retry(ZklSession *session)
{
	session->batches_wait = false;
	for (ZklBatch *batch = session->batches; batch; batch = batch->next)
		send_more(batch);
}

static void
set_outdated(ZklBatch *batch)
{
	batch->is_outdated = true;
	zkl__wake(batch->session);
}

/* The watches are lost with the connection. */
void
zkl__batches_connected(ZklSession *session)
{
	for (ZklBatch *batch = session->batches; batch; batch = batch->next)
		for (int i = 0; i < batch->n_sent; i++)
			if (batch->ops[i].watch)
				set_outdated(batch);
	zkl__batches_retry(session);
}

void
zkl__batches_watched(ZklSession *session, const char *path)
{
	for (ZklBatch *batch = session->batches; batch; batch = batch->next)
		for (int i = 0; i < batch->n_sent; i++)
			if (batch->ops[i].watch && strcmp(batch->ops[i].path, path) == 0)
				set_outdated(batch);
}

static void
batch_free(void *subject)
{
	ZklBatch   *batch = subject;

	if (batch->prev)
		batch->prev->next = batch->next;
	else
		batch->session->batches = batch->next;
	if (batch->next)
		batch->next->prev = batch->prev;
	for (int i = 0; i < batch->n_ops; i++)
	{
		free((char *) batch->results[i].data);
		free((char *) batch->results[i].path);
		free((char **) batch->results[i].children);
	}
	free(batch);
}

void
zkl__batches_free(ZklSession *session)
{
	while (session->batches)
		batch_free(session->batches);
}


/*
 * Public functions
 */

/* Returns a batch with copies of the operations; NULL when out of memory. */
static ZklBatch *
batch_new(ZklSession *session, ZklBatchForm form, const ZklOp *ops, int n_ops)
{
	size_t		size = sizeof(ZklBatch) +
		(size_t) n_ops * (sizeof(ZklOp) + sizeof(ZklBatchResult)) + zkl_ops_bytes(ops, n_ops);
	ZklBatch   *batch = calloc(1, size);

	if (batch == NULL)
		return NULL;
	batch->session = session;
	batch->form = form;
	batch->uses.subject = batch;
	batch->uses.free_subject = batch_free;
	batch->n_ops = n_ops;
	batch->results = (ZklBatchResult *) (batch->ops + n_ops);
	zkl_ops_copy(batch->ops, ops, n_ops, (char *) (batch->results + n_ops));
	return batch;
}

static ZklStatus
first_status(ZklBatchForm form, const ZklOp *ops, int n_ops)
{
	if (n_ops > ZKL_BATCH_MAX_OPS ||
		(form == ZKL_BATCH_ATOMIC && zkl_ops_bytes(ops, n_ops) > ZKL_BATCH_MAX_ATOMIC_BYTES))
		return ZKL_TOO_MANY;
	return n_ops > 0 ? ZKL_PENDING : ZKL_OK;
}

ZklBatch *
zkl_batch(ZklSession *session, ZklBatchForm form, const ZklOp *ops, int n_ops)
{
	ZklStatus	status = first_status(form, ops, n_ops);
	ZklBatch   *batch = batch_new(session, form, ops, status == ZKL_PENDING ? n_ops : 0);

	if (batch == NULL)
		return NULL;
	batch->status = status;
	zkl__session_lock(session);
	batch->next = session->batches;
	if (batch->next)
		batch->next->prev = batch;
	session->batches = batch;
	send_more(batch);
	zkl__session_unlock(session);
	return batch;
}

ZklBatchInfo
zkl_batch_info(ZklBatch *batch)
{
	ZklSession *session = batch->session;
	ZklBatchInfo info;

	zkl__session_lock(session);
	info.status = batch->status == ZKL_PENDING ? zkl__final_status(session) : batch->status;
	info.raw_code = batch->raw_code;
	info.progress = batch->uses.progress;
	info.is_outdated = batch->is_outdated;
	zkl__session_unlock(session);
	return info;
}

const ZklBatchResult *
zkl_batch_results(const ZklBatch *batch)
{
	return batch->results;
}

void
zkl_batch_end(ZklBatch *batch)
{
	ZklSession *session = batch->session;

	zkl__session_lock(session);
	if (batch->status == ZKL_PENDING)
		batch->status = ZKL_ABANDONED;
	zkl__uses_end(session, &batch->uses);
	zkl__session_unlock(session);
}
