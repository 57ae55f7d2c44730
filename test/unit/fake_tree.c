/*-------------------------------------------------------------------------
 *
 * fake_tree.c
 *		A ZooKeeper in memory: its znodes, without sessions' connections.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_tree.h"

FakeQuirks	fake_quirks;
void		(*fake_tree_changed) (const char *path);
void		(*fake_tree_children_changed) (const char *path);

static FakeNode *nodes;			/* in no order that a client may rely on */
static int64_t zxid = 1000;
static int	in_multi;			/* transaction ids and events wait for its end */

static void
node_free(FakeNode *node)
{
	free(node->path);
	free(node->data);
	free(node);
}

static void
list_free(FakeNode *list)
{
	while (list)
	{
		FakeNode   *node = list;

		list = node->next;
		node_free(node);
	}
}

void
fake_tree_reset(void)
{
	list_free(nodes);
	nodes = NULL;
	memset(&fake_quirks, 0, sizeof(fake_quirks));
}

FakeNode *
fake_tree_first(void)
{
	return nodes;
}

FakeNode *
fake_tree_find(const char *path)
{
	for (FakeNode *node = nodes; node; node = node->next)
		if (strcmp(node->path, path) == 0)
			return node;
	return NULL;
}

const char *
fake_tree_child(const char *path, const char *parent)
{
	size_t		length = strlen(parent);

	if (strncmp(path, parent, length) != 0 || path[length] != '/' ||
		strchr(path + length + 1, '/'))
		return NULL;
	return path + length + 1;
}

static bool
has_children(const char *path)
{
	for (FakeNode *node = nodes; node; node = node->next)
		if (fake_tree_child(node->path, path))
			return true;
	return false;
}

static bool
denied(const char *path)
{
	return fake_quirks.deny &&
		strncmp(path, fake_quirks.deny, strlen(fake_quirks.deny)) == 0;
}

/* The parent's node; NULL with "top" set for a top-level path. */
static FakeNode *
parent_of(const char *path, bool *top)
{
	char	   *parent = strdup(path);
	FakeNode   *found = NULL;

	*strrchr(parent, '/') = '\0';
	*top = parent[0] == '\0';
	if (!*top)
		found = fake_tree_find(parent);
	free(parent);
	return found;
}

/*
 * The server stores the parent's counter only when it grows (ZOOKEEPER-3249),
 * so that it sticks at the largest number.
 */
static int32_t
next_number(FakeNode *parent)
{
	int32_t		number = parent ? parent->counter : 0;
	int32_t		next = (int32_t) ((uint32_t) number + 1);

	if (parent && next > number)
		parent->counter = next;
	return number;
}

/* Tells who watches; what happens in a multi is told at its end. */
static void
tell(const char *path, bool existed)
{
	char	   *parent = strdup(path);

	if (existed && fake_tree_changed)
		fake_tree_changed(path);
	*strrchr(parent, '/') = '\0';
	if (fake_tree_children_changed)
	{
		fake_tree_children_changed(parent);
		if (existed)
			fake_tree_children_changed(path);
	}
	free(parent);
}

static void
node_add(const char *path, const char *data, int data_len, ZklCreateKind kind,
		 int64_t session)
{
	FakeNode   *node = calloc(1, sizeof(FakeNode));

	node->path = strdup(path);
	node->data = malloc((size_t) data_len + 1);
	if (data_len > 0)
		memcpy(node->data, data, (size_t) data_len);
	node->data_len = data_len;
	node->container = kind == ZKL_CREATE_CONTAINER;
	if (kind == ZKL_CREATE_EPHEMERAL || kind == ZKL_CREATE_EPHEMERAL_SEQUENTIAL)
		node->owner = session;
	node->czxid = zxid;
	node->next = nodes;
	nodes = node;
}

ZklResultCode
fake_tree_create(const char *path, const char *data, int data_len,
				 ZklCreateKind kind, int64_t session, char **made, int64_t *czxid)
{
	bool		top;
	FakeNode   *parent = parent_of(path, &top);
	size_t		size = strlen(path) + 16;
	int32_t		number;

	*made = NULL;
	if (kind == ZKL_CREATE_CONTAINER && fake_quirks.no_containers)
		return ZKL_RC_UNIMPLEMENTED;
	if (parent == NULL && (!top || fake_quirks.no_chroot))
		return ZKL_RC_NO_NODE;
	if (denied(path) ||
		(fake_quirks.deny_exactly && strcmp(path, fake_quirks.deny_exactly) == 0))
		return ZKL_RC_NO_AUTH;
	if (kind != ZKL_CREATE_EPHEMERAL_SEQUENTIAL && fake_tree_find(path))
		return ZKL_RC_NODE_EXISTS;

	if (!in_multi)
		zxid++;
	number = next_number(parent);
	*made = malloc(size);
	if (kind == ZKL_CREATE_EPHEMERAL_SEQUENTIAL)
		snprintf(*made, size, "%s%010" PRId32, path, number);
	else
		snprintf(*made, size, "%s", path);
	node_add(*made, data, data_len, kind, session);
	*czxid = zxid;
	if (!in_multi)
		tell(*made, false);
	return ZKL_RC_OK;
}

static ZklResultCode
delete_unchecked(const char *path)
{
	for (FakeNode **link = &nodes; *link; link = &(*link)->next)
		if (strcmp((*link)->path, path) == 0)
		{
			FakeNode   *node = *link;

			if (has_children(path))
				return ZKL_RC_NOT_EMPTY;
			if (!in_multi)
				zxid++;
			*link = node->next;
			if (!in_multi)
				tell(node->path, true);
			node_free(node);
			return ZKL_RC_OK;
		}
	return ZKL_RC_NO_NODE;
}

ZklResultCode
fake_tree_set_if(const char *path, const char *data, int data_len, int32_t version)
{
	FakeNode   *node = fake_tree_find(path);

	if (node == NULL)
		return ZKL_RC_NO_NODE;
	if (denied(path))
		return ZKL_RC_NO_AUTH;
	if (version != ZKL_ANY_VERSION && node->version != version)
		return ZKL_RC_BAD_VERSION;
	zxid++;
	free(node->data);
	node->data = malloc((size_t) data_len + 1);
	memcpy(node->data, data, (size_t) data_len);
	node->data_len = data_len;
	node->version++;
	if (fake_tree_changed)
		fake_tree_changed(path);
	return ZKL_RC_OK;
}

ZklResultCode
fake_tree_set(const char *path, const char *data)
{
	FakeNode   *node = fake_tree_find(path);

	return fake_tree_set_if(path, data, (int) strlen(data), node ? node->version : 0);
}

int64_t
fake_tree_ctime_ms(const FakeNode *node)
{
	return node->czxid * 1000;
}

ZklResultCode
fake_tree_delete(const char *path)
{
	if (denied(path) && fake_tree_find(path))
		return ZKL_RC_NO_AUTH;
	return delete_unchecked(path);
}

static FakeNode *
list_copy(void)
{
	FakeNode   *copy = NULL;
	FakeNode  **end = &copy;

	for (FakeNode *node = nodes; node; node = node->next)
	{
		*end = malloc(sizeof(FakeNode));
		**end = *node;
		(*end)->path = strdup(node->path);
		(*end)->data = malloc((size_t) node->data_len + 1);
		memcpy((*end)->data, node->data, (size_t) node->data_len);
		(*end)->next = NULL;
		end = &(*end)->next;
	}
	return copy;
}

static ZklResultCode
apply_op(const ZklOp *op, int64_t session, char **path)
{
	int64_t		unused;

	*path = NULL;
	switch (op->kind)
	{
		case ZKL_OP_CREATE:
			return fake_tree_create(op->path, op->data, op->data_len,
									op->create_kind, session, path, &unused);
		case ZKL_OP_DELETE:
			return fake_tree_delete(op->path);
		case ZKL_OP_CHECK:
			return fake_tree_find(op->path) ? ZKL_RC_OK : ZKL_RC_NO_NODE;
	}
	return ZKL_RC_OTHER;
}

ZklResultCode
fake_tree_multi(const ZklOp *ops, int n, int64_t session,
				ZklResultCode *codes, char **paths)
{
	FakeNode   *before = list_copy();
	ZklResultCode code = ZKL_RC_OK;

	zxid++;
	in_multi++;
	for (int i = 0; i < n; i++)
	{
		paths[i] = NULL;
		if (code != ZKL_RC_OK)
			codes[i] = ZKL_RC_ROLLED_BACK;
		else
			code = codes[i] = apply_op(&ops[i], session, &paths[i]);
	}
	in_multi--;
	if (code != ZKL_RC_OK)
	{
		list_free(nodes);
		nodes = before;
		return code;
	}
	list_free(before);
	for (int i = 0; i < n; i++)
		if (ops[i].kind == ZKL_OP_DELETE)
			tell(ops[i].path, true);
		else if (ops[i].kind == ZKL_OP_CREATE)
			tell(paths[i], false);
	return ZKL_RC_OK;
}

void
fake_tree_end_session(int64_t session)
{
	FakeNode   *node = nodes;

	while (node)
		if (session != 0 && node->owner == session)
		{
			delete_unchecked(node->path);
			node = nodes;
		}
		else
			node = node->next;
}

void
fake_tree_reap(void)
{
	FakeNode   *node = nodes;

	while (node)
		if (node->container && node->counter > 0 && !has_children(node->path))
		{
			delete_unchecked(node->path);
			node = nodes;
		}
		else
			node = node->next;
}
