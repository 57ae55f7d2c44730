/*-------------------------------------------------------------------------
 *
 * fake_wire.c
 *		Pending requests, answers and events: their memory and queues.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "fake_tree.h"
#include "fake_wire.h"

/* Any library's number for a code; tests do not depend on it. */
static int
raw_code(ZklResultCode code)
{
	return code == ZKL_RC_OK ? 0 : -1000 - (int) code;
}

FakeRequest *
fake_wire_request(FakeRequestKind kind, const ZklOp *ops, int n_ops, ZklCall *call)
{
	size_t		n = (size_t) n_ops;
	FakeRequest *request = calloc(1, sizeof(FakeRequest));
	ZklOp	   *copies = malloc(n * sizeof(ZklOp) + zkl_ops_bytes(ops, n_ops));

	if (request == NULL || copies == NULL)
	{
		free(request);
		free(copies);
		return NULL;
	}
	request->kind = kind;
	request->call = call;
	request->n_ops = n_ops;
	request->ops = copies;
	zkl_ops_copy(request->ops, ops, n_ops, (char *) (request->ops + n));
	request->path = request->ops->path;
	return request;
}

void
fake_wire_free_request(FakeRequest *request)
{
	free(request->ops);
	free(request);
}

void
fake_wire_push_request(FakeRequest **queue, FakeRequest *request)
{
	while (*queue)
		queue = &(*queue)->next;
	*queue = request;
}

void
fake_wire_push_front(FakeRequest **queue, FakeRequest *request)
{
	request->next = *queue;
	*queue = request;
}

FakeRequest *
fake_wire_pop_request(FakeRequest **queue)
{
	FakeRequest *request = *queue;

	*queue = request->next;
	request->next = NULL;
	return request;
}


/* If a multi fails as a whole, the library gives each operation the error. */
static FakeDelivery *
answer_new(ZklCall *call, int n_ops, ZklResultCode code)
{
	FakeDelivery *d = calloc(1, sizeof(FakeDelivery));

	d->kind = DELIVERY_ANSWER;
	d->call = call;
	d->result.code = code;
	d->result.raw_code = raw_code(code);
	d->ops = calloc((size_t) n_ops + 1, sizeof(ZklResult));
	for (int i = 0; i < n_ops; i++)
		d->ops[i].code = code;
	d->result.n_ops = n_ops;
	d->result.op_results = d->ops;
	return d;
}

FakeDelivery *
fake_wire_answer(const FakeRequest *request, ZklResultCode code)
{
	return answer_new(request->call, request->kind == REQUEST_MULTI ? request->n_ops : 0, code);
}

static bool
may_not_read(const char *path)
{
	return fake_quirks.deny_read && strcmp(path, fake_quirks.deny_read) == 0;
}

static void
serve_list(const char *parent, int64_t zxid, FakeDelivery *d)
{
	FakeNode   *node = NULL;

	if (fake_tree_find_at(parent, zxid) == NULL)
	{
		d->result.code = ZKL_RC_NO_NODE;
		return;
	}
	if (may_not_read(parent))
	{
		d->result.code = ZKL_RC_NO_AUTH;
		return;
	}
	while ((node = fake_tree_next_at(node, zxid)) != NULL)
		d->n_names += fake_tree_child(node->path, parent) != NULL;
	d->names = calloc((size_t) d->n_names + 1, sizeof(char *));
	while ((node = fake_tree_next_at(node, zxid)) != NULL)
	{
		const char *child = fake_tree_child(node->path, parent);

		if (child)
			d->names[d->result.n_children++] = strdup(child);
	}
	d->result.children = (const char *const *) d->names;
}

/* Every client may see that a node exists, and how long its data are. */
static void
serve_get(const char *path, int64_t zxid, bool with_data, FakeDelivery *d)
{
	FakeNode   *node = fake_tree_find_at(path, zxid);

	if (node == NULL)
	{
		d->result.code = ZKL_RC_NO_NODE;
		return;
	}
	if (with_data && may_not_read(path))
	{
		d->result.code = ZKL_RC_NO_AUTH;
		return;
	}
	if (with_data)
	{
		d->data = malloc((size_t) node->data_len + 1);
		memcpy(d->data, node->data, (size_t) node->data_len);
		d->result.data = d->data;
	}
	d->result.data_len = node->data_len;
	d->result.czxid = node->czxid;
	d->result.owner = node->owner;
	d->result.ctime_ms = fake_tree_ctime_ms(node);
	d->result.version = node->version;
}

static int32_t
version_of(const char *path)
{
	FakeNode   *node = fake_tree_find(path);

	return node ? node->version : 0;
}

/* Does the leader refuse the first operation, because it knows no such session? */
static bool
is_unknown(const FakeRequest *request)
{
	int		   *left = request->ops[0].kind == ZKL_OP_CREATE ? &fake_quirks.unknown_creates
		: request->ops[0].kind == ZKL_OP_CHECK ? &fake_quirks.unknown_checks : NULL;

	if (left == NULL || *left == 0)
		return false;
	--*left;
	return true;
}

/* A client reports ROLLED_BACK where a server reports OK for what it undoes. */
static void
serve_multi(const FakeRequest *request, int64_t session, FakeDelivery *d)
{
	size_t		n = (size_t) request->n_ops;
	ZklResultCode *codes = calloc(n + 1, sizeof(ZklResultCode));

	d->n_names = request->n_ops;
	d->names = calloc(n + 1, sizeof(char *));
	if (is_unknown(request))
	{
		d->result.code = codes[0] = ZKL_RC_SESSION_EXPIRED;
		for (size_t i = 1; i < n; i++)
			codes[i] = ZKL_RC_ROLLED_BACK;
	}
	else
		d->result.code = fake_tree_multi(request->ops, request->n_ops, session, codes, d->names);
	for (size_t i = 0; i < n; i++)
	{
		d->ops[i].code = codes[i] == ZKL_RC_OK && d->result.code != ZKL_RC_OK
			? ZKL_RC_ROLLED_BACK : codes[i];
		d->ops[i].path = d->result.code == ZKL_RC_OK ? d->names[i] : NULL;
		if (request->ops[i].kind == ZKL_OP_SET)
			d->ops[i].version = version_of(request->ops[i].path);
	}
	free(codes);
}

bool
fake_wire_is_write(const FakeRequest *request)
{
	return request->kind == REQUEST_CREATE || request->kind == REQUEST_DELETE ||
		request->kind == REQUEST_SET || request->kind == REQUEST_MULTI;
}

void
fake_wire_serve(const FakeRequest *request, int64_t session, int64_t zxid,
				FakeDelivery *d)
{
	switch (request->kind)
	{
		case REQUEST_CREATE:
			d->result.code = fake_tree_create(request->path, request->ops->data,
											  request->ops->data_len,
											  request->ops->create_kind, session,
											  &d->path, &d->result.czxid);
			d->result.path = d->path;
			break;
		case REQUEST_DELETE:
			d->result.code = fake_tree_delete(request->path);
			break;
		case REQUEST_GET:
		case REQUEST_STAT:
			serve_get(request->path, zxid, request->kind == REQUEST_GET, d);
			break;
		case REQUEST_LIST:
			serve_list(request->path, zxid, d);
			break;
		case REQUEST_SET:
			d->result.code = fake_tree_set_if(request->path, request->ops->data,
											  request->ops->data_len,
											  request->version);
			d->result.version = version_of(request->path);
			break;
		case REQUEST_SYNC:
			break;
		case REQUEST_MULTI:
			serve_multi(request, session, d);
			break;
	}
	d->result.raw_code = raw_code(d->result.code);
}

void
fake_wire_append(FakeDelivery **queue, FakeDelivery *deliveries)
{
	while (*queue)
		queue = &(*queue)->next;
	*queue = deliveries;
}

void
fake_wire_push_loss(FakeDelivery **queue, ZklCall *call, int n_ops)
{
	fake_wire_append(queue, answer_new(call, n_ops, ZKL_RC_CONNECTION_LOSS));
}

void
fake_wire_push_event(FakeDelivery **queue, ZklConnectionEvent event)
{
	FakeDelivery *d = calloc(1, sizeof(FakeDelivery));

	d->kind = DELIVERY_EVENT;
	d->event = event;
	fake_wire_append(queue, d);
}

void
fake_wire_push_watch(FakeDelivery **queue, const char *path, bool children)
{
	FakeDelivery *d = calloc(1, sizeof(FakeDelivery));

	d->kind = DELIVERY_WATCH;
	d->path = strdup(path);
	d->children = children;
	fake_wire_append(queue, d);
}

FakeDelivery *
fake_wire_pop_delivery(FakeDelivery **queue)
{
	FakeDelivery *d = *queue;

	if (d)
	{
		*queue = d->next;
		d->next = NULL;
	}
	return d;
}

void
fake_wire_free_delivery(FakeDelivery *d)
{
	for (int i = 0; i < d->n_names; i++)
		free(d->names[i]);
	free(d->names);
	free(d->ops);
	free(d->data);
	free(d->path);
	free(d);
}
