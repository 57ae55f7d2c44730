/*-------------------------------------------------------------------------
 *
 * zk_multi.c
 *		Sends multis with libzookeeper_st.
 *
 * The library writes the answer of a multi into the caller's memory, and does not
 * answer multis in flight when its handle is closed: so this file keeps a list of
 * them, to free them.  Called by zk_calls.c, with the library's mutex held.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "zk_library.h"

/* A multi in flight, with the memory for its answer. */
struct ZklMulti
{
	ZklMulti   *prev;			/* in client->multis */
	ZklMulti   *next;
	ZklClient  *client;
	ZklCompletion *completion;
	int			n;
	zoo_op_t   *ops;
	zoo_op_result_t *results;
	char	  **paths;
	ZklResultCode *codes;
};


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
multi_new(ZklClient *client, int n, ZklCompletion *completion)
{
	ZklMulti   *multi = calloc(1, sizeof(ZklMulti));

	if (multi == NULL)
		return NULL;
	multi->client = client;
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
		case ZKL_OP_LIST:
		case ZKL_OP_GET:
			return false;		/* not possible in a multi */
	}
	return true;
}

static void
multi_link(ZklMulti *multi)
{
	multi->next = multi->client->multis;
	if (multi->next)
		multi->next->prev = multi;
	multi->client->multis = multi;
}

static void
multi_unlink(ZklMulti *multi)
{
	if (multi->prev)
		multi->prev->next = multi->next;
	else
		multi->client->multis = multi->next;
	if (multi->next)
		multi->next->prev = multi->prev;
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
zkl_multis_free(ZklClient *client)
{
	while (client->multis)
	{
		ZklMulti   *multi = client->multis;

		client->multis = multi->next;
		multi_free(multi);
	}
}

int
zkl_multi_send(ZklClient *client, const ZklOp *ops, int n_ops,
			   ZklCompletion *completion)
{
	ZklMulti   *multi = multi_new(client, n_ops, completion);
	bool		complete = multi != NULL;
	int			rc;

	for (int i = 0; complete && i < n_ops; i++)
		complete = multi_add(multi, client->acl, i, &ops[i]);
	if (!complete)
	{
		if (multi)
			multi_free(multi);
		return ZSYSTEMERROR;
	}
	multi_link(multi);
	rc = zoo_amulti(client->zh, n_ops, multi->ops, multi->results, multi_done_io,
					multi);
	if (rc == ZOK)
		return ZOK;
	multi_unlink(multi);
	multi_free(multi);
	return rc;
}
