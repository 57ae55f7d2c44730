/*-------------------------------------------------------------------------
 *
 * zk_multi.c
 *		The client seam's multi, implemented with libzookeeper_mt.
 *
 * The library writes the answer of a multi into memory of the caller's, and
 * forgets those in flight when it is closed: so this file keeps a list of them.
 * Called by zk_client.c alone.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "zk_library.h"

/* What a multi's answer is written into, until it comes. */
typedef struct ZklMulti
{
	struct ZklMulti *prev;		/* in multis */
	struct ZklMulti *next;
	ZklMultis  *multis;
	ZklCompletion *completion;
	int			n;
	zoo_op_t   *ops;
	zoo_op_result_t *results;
	char	  **paths;
	ZklResultCode *codes;
} ZklMulti;


static void
multi_free(ZklMulti *multi)
{
	for (int i = 0; multi->paths && i < multi->n; i++)
		free(multi->paths[i]);
	free(multi->paths);
	free(multi->ops);
	free(multi->results);
	free(multi->codes);
	free(multi);
}

static ZklMulti *
multi_new(ZklMultis *multis, int n, ZklCompletion *completion)
{
	ZklMulti   *multi = calloc(1, sizeof(ZklMulti));

	if (multi == NULL)
		return NULL;
	multi->multis = multis;
	multi->completion = completion;
	multi->n = n;
	multi->ops = calloc((size_t) n, sizeof(zoo_op_t));
	multi->results = calloc((size_t) n, sizeof(zoo_op_result_t));
	multi->paths = calloc((size_t) n, sizeof(char *));
	multi->codes = calloc((size_t) n, sizeof(ZklResultCode));
	if (multi->ops && multi->results && multi->paths && multi->codes)
		return multi;
	multi_free(multi);
	return NULL;
}

static bool
multi_add(ZklMulti *multi, const struct ACL_vector *acl, int i, const ZklOp *op)
{
	multi->results[i].err = ZRUNTIMEINCONSISTENCY;
	switch (op->kind)
	{
		case ZKL_OP_CREATE:
			/* The server's number makes the path at most eleven bytes longer. */
			multi->paths[i] = calloc(1, strlen(op->path) + 16);
			if (multi->paths[i] == NULL)
				return false;
			zoo_create_op_init(&multi->ops[i], op->path, op->data, op->data_len,
							   acl, zkl_zk_create_mode(op->create_kind),
							   multi->paths[i], (int) strlen(op->path) + 16);
			break;
		case ZKL_OP_DELETE:
			zoo_delete_op_init(&multi->ops[i], op->path, -1);
			break;
		case ZKL_OP_CHECK:
			zoo_check_op_init(&multi->ops[i], op->path, -1);
			break;
	}
	return true;
}

static void
multi_link(ZklMulti *multi)
{
	ZklMultis  *multis = multi->multis;

	pthread_mutex_lock(&multis->mutex);
	multi->next = multis->first;
	if (multi->next)
		multi->next->prev = multi;
	multis->first = multi;
	pthread_mutex_unlock(&multis->mutex);
}

static void
multi_unlink(ZklMulti *multi)
{
	ZklMultis  *multis = multi->multis;

	pthread_mutex_lock(&multis->mutex);
	if (multi->prev)
		multi->prev->next = multi->next;
	else
		multis->first = multi->next;
	if (multi->next)
		multi->next->prev = multi->prev;
	pthread_mutex_unlock(&multis->mutex);
}

static void
multi_done_io(int rc, const void *data)
{
	ZklMulti   *multi = (ZklMulti *) data;
	ZklResult	result = {.n_ops = multi->n, .op_codes = multi->codes,
	.op_paths = (const char *const *) multi->paths};

	for (int i = 0; i < multi->n; i++)
		multi->codes[i] = multi->results[i].err == ZRUNTIMEINCONSISTENCY
			? ZKL_RC_ROLLED_BACK : zkl_zk_code(multi->results[i].err);
	zkl_zk_answer_io(multi->completion, &result, rc);
	multi_unlink(multi);
	multi_free(multi);
}

void
zkl_multis_init(ZklMultis *multis)
{
	pthread_mutex_init(&multis->mutex, NULL);
	multis->first = NULL;
}

void
zkl_multis_free(ZklMultis *multis)
{
	while (multis->first)
	{
		ZklMulti   *multi = multis->first;

		multis->first = multi->next;
		multi_free(multi);
	}
	pthread_mutex_destroy(&multis->mutex);
}

bool
zkl_multi_send(ZklMultis *multis, zhandle_t *zh, const struct ACL_vector *acl,
			   const ZklOp *ops, int n_ops, ZklCompletion *completion)
{
	ZklMulti   *multi = multi_new(multis, n_ops, completion);
	bool		complete = multi != NULL;

	for (int i = 0; complete && i < n_ops; i++)
		complete = multi_add(multi, acl, i, &ops[i]);
	if (!complete)
	{
		if (multi)
			multi_free(multi);
		return false;
	}
	multi_link(multi);
	if (zoo_amulti(zh, n_ops, multi->ops, multi->results, multi_done_io,
				   multi) == ZOK)
		return true;
	multi_unlink(multi);
	multi_free(multi);
	return false;
}
