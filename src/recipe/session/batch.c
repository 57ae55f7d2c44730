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

/* Operations of a batch in flight: the server needs memory for all their answers. */
#define MAX_IN_FLIGHT 64

/* More than any use of locks needs. */
#define MAX_RESULT_BYTES (64 * 1024 * 1024)

/* What a result points to. */
typedef struct Chunk
{
	struct Chunk *next;
	max_align_t start[];
} Chunk;

struct ZklBatch
{
	ZklSession *session;
	ZklBatch   *next;			/* in session->batches */
	ZklUses		uses;
	ZklBatchForm form;
	ZklStatus	status;
	int			raw_code;
	int			n_sent;
	int			n_answered;
	Chunk	   *chunks;
	size_t		result_bytes;
	bool		is_outdated;
	int			n_ops;
	ZklResult  *results;		/* in the same chunk of memory, like all operations */
	ZklOp		ops[];
};

static void
decide(ZklBatch *batch, ZklStatus status)
{
	if (batch->status != ZKL_PENDING)
		return;
	batch->status = status;
	zkl__wake_at_unlock(batch->session);
}


/*
 * Results
 */

/* Counts bytes of results, and allocates them; fails the batch and returns NULL if it cannot. */
static void *
allocate_result(ZklBatch *batch, size_t size)
{
	Chunk	   *chunk = NULL;

	batch->result_bytes += size;
	if (batch->result_bytes > MAX_RESULT_BYTES)
		decide(batch, ZKL_TOO_MANY);
	else if ((chunk = malloc(sizeof(Chunk) + size)) == NULL)
		decide(batch, ZKL_NO_MEMORY);
	if (chunk == NULL)
		return NULL;
	chunk->next = batch->chunks;
	batch->chunks = chunk;
	return chunk->start;
}

/* Copies a result without the path; the names, their texts and the data are one chunk. */
static void
take_result(ZklBatch *batch, ZklResult *to, const ZklResult *from)
{
	size_t		length = from->data && from->data_len > 0 ? (size_t) from->data_len : 0;
	size_t		size = (size_t) from->n_children * sizeof(char *) + length + 1;
	const char **names;
	char	   *text;

	*to = *from;
	to->path = NULL;
	if (to->data_len < 0)
		to->data_len = 0;
	if (from->data == NULL && from->n_children == 0)
		return;
	for (int i = 0; i < from->n_children; i++)
		size += strlen(from->children[i]) + 1;
	names = allocate_result(batch, size);
	if (names == NULL)
		return;
	text = (char *) (names + from->n_children);
	for (int i = 0; i < from->n_children; i++)
	{
		names[i] = text;
		text = stpcpy(text, from->children[i]) + 1;
	}
	to->children = names;
	if (from->data)
		to->data = memcpy(text, from->data, length);
	text[length] = '\0';
}


/*
 * Requests and answers
 */

static void send_more(ZklBatch *batch);

/* Returns whether the batch goes on after this answer; ends it otherwise. */
static bool
is_usable(ZklBatch *batch, const ZklResult *result)
{
	if (result->code == ZKL_RC_CONNECTION_LOSS)
	{
		/* A server that refuses to work must not be asked again at once. */
		batch->session->batches_wait = zkl__is_connected(batch->session);
		decide(batch, ZKL_CONNECTION_LOST);
		return false;
	}
	if (result->code == ZKL_RC_OTHER || result->code == ZKL_RC_SESSION_EXPIRED)
	{
		batch->raw_code = result->raw_code;
		decide(batch, zkl__status_of(result->code));
		return false;
	}
	return true;
}

static void
on_answered(ZklCall *call, const ZklResult *result)
{
	ZklBatch   *batch = call->subject;

	if (batch->status != ZKL_PENDING || !is_usable(batch, result))
		return;
	take_result(batch, call->detail, result);
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
	for (int i = 0; i < batch->n_ops; i++)
		if (result->n_ops > 0)
			take_result(batch, &batch->results[i], &result->op_results[i]);
		else
			batch->results[i].code = result->code;
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

	if (call)
		call->detail = &batch->results[i];
	return zkl__send(call, &batch->ops[i]) != NULL;
}

/* Sends as many operations as may be in flight, if the session is connected. */
static void
send_more(ZklBatch *batch)
{
	bool		is_sent = true;

	if (batch->status != ZKL_PENDING || !zkl__is_connected(batch->session) ||
		batch->session->batches_wait)
		return;
	while (is_sent && batch->n_sent < batch->n_ops && batch->n_sent - batch->n_answered < MAX_IN_FLIGHT)
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

/* A watch on the path has fired; NULL: all watches are lost with the connection. */
static void
watched(ZklSession *session, const char *path)
{
	for (ZklBatch *batch = session->batches; batch; batch = batch->next)
		for (int i = 0; i < batch->n_sent; i++)
			if (batch->ops[i].watch && (path == NULL || strcmp(batch->ops[i].path, path) == 0))
			{
				batch->is_outdated = true;
				zkl__wake_at_unlock(session);
			}
}

void
zkl__batches_watched(ZklSession *session, const char *path)
{
	watched(session, path);
}

void
zkl__batches_connected(ZklSession *session)
{
	watched(session, NULL);
	zkl__batches_retry(session);
}

static void
batch_free(void *subject)
{
	ZklBatch   *batch = subject;
	ZklBatch  **link = &batch->session->batches;

	while (*link != batch)
		link = &(*link)->next;
	*link = batch->next;
	for (Chunk *chunk = batch->chunks, *next; chunk; chunk = next)
	{
		next = chunk->next;
		free(chunk);
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
		(size_t) n_ops * (sizeof(ZklOp) + sizeof(ZklResult)) + zkl_ops_bytes(ops, n_ops);
	ZklBatch   *batch = calloc(1, size);

	if (batch == NULL)
		return NULL;
	batch->session = session;
	batch->form = form;
	batch->uses.subject = batch;
	batch->uses.free_subject = batch_free;
	batch->n_ops = n_ops;
	batch->results = (ZklResult *) (batch->ops + n_ops);
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

const ZklResult *
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
