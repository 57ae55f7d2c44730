/*-------------------------------------------------------------------------
 *
 * fake_tree.c
 *		An in-memory ZooKeeper: its znodes, without sessions' connections.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_tree.h"

FakeQuirks	fake_quirks;
void		(*fake_tree_changed) (void);

static FakeNode *nodes;			/* in no order that a client may rely on */
static FakeNode *past;			/* earlier states of nodes, the latest first */
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
	list_free(past);
	nodes = NULL;
	past = NULL;
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

int64_t
fake_tree_zxid(void)
{
	return zxid;
}

static bool
is_there(const FakeNode *node, int64_t at)
{
	return node->since <= at && (node->until == 0 || at < node->until);
}

FakeNode *
fake_tree_next_at(FakeNode *node, int64_t at)
{
	bool		is_past = node && node->until != 0;

	node = node ? node->next : nodes;
	while (true)
	{
		while (node && !is_there(node, at))
			node = node->next;
		if (node || is_past)
			return node;
		is_past = true;
		node = past;
	}
}

FakeNode *
fake_tree_find_at(const char *path, int64_t at)
{
	FakeNode   *node = NULL;

	while ((node = fake_tree_next_at(node, at)) != NULL)
		if (strcmp(node->path, path) == 0)
			break;
	return node;
}

/* Was the node created, deleted or changed in these transactions? */
static bool
is_touched(const FakeNode *node, bool by_coming, bool by_data, int64_t from, int64_t to)
{
	if (by_coming && node->czxid == node->since && node->since > from && node->since <= to)
		return true;
	return node->until > from && node->until <= to && (by_data || !node->replaced);
}

bool
fake_tree_touched(const char *path, bool children, int64_t from, int64_t to)
{
	FakeNode   *lists[] = {nodes, past};

	for (int i = 0; i < 2; i++)
		for (FakeNode *node = lists[i]; node; node = node->next)
		{
			/* The latest states come first. */
			if (i == 1 && node->until <= from)
				break;
			if (strcmp(node->path, path) == 0 &&
				is_touched(node, false, !children, from, to))
				return true;
			if (children && fake_tree_child(node->path, path) &&
				is_touched(node, true, false, from, to))
				return true;
		}
	return false;
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

static ZklResultCode
denial(void)
{
	return fake_quirks.deny_breaks ? ZKL_RC_OTHER : ZKL_RC_NO_AUTH;
}

/* Returns the parent's node; NULL with "top" set for a top-level path. */
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
 * The server stores the parent's counter only when it grows (ZOOKEEPER-3249), so
 * the counter sticks at the largest number.
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

/* Starts a transaction; a multi is one transaction. */
static void
begin_transaction(void)
{
	if (!in_multi)
		zxid++;
}

static void
end_transaction(void)
{
	if (!in_multi && fake_tree_changed)
		fake_tree_changed();
}

/* Copies the data of a node, with a NUL behind it for tests that read a text. */
static char *
copy_data(const char *data, int data_len)
{
	char	   *copy = malloc((size_t) data_len + 1);

	if (data_len > 0)
		memcpy(copy, data, (size_t) data_len);
	copy[data_len] = '\0';
	return copy;
}

static FakeNode *
node_copy(const FakeNode *node)
{
	FakeNode   *copy = malloc(sizeof(FakeNode));

	*copy = *node;
	copy->path = strdup(node->path);
	copy->data = copy_data(node->data, node->data_len);
	copy->next = NULL;
	return copy;
}

/* Ends this state of the node with the current transaction. */
static void
keep_past(FakeNode *node, bool replaced)
{
	node->until = zxid;
	node->replaced = replaced;
	node->next = past;
	past = node;
}

static void
node_add(const char *path, const char *data, int data_len, ZklCreateKind kind,
		 int64_t session)
{
	FakeNode   *node = calloc(1, sizeof(FakeNode));

	node->path = strdup(path);
	node->data = copy_data(data, data_len);
	node->data_len = data_len;
	node->container = kind == ZKL_CREATE_CONTAINER;
	if (kind == ZKL_CREATE_EPHEMERAL || kind == ZKL_CREATE_EPHEMERAL_SEQUENTIAL)
		node->owner = session;
	node->czxid = zxid;
	node->since = zxid;
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
	if (parent == NULL && (!top || fake_quirks.no_chroot))
		return ZKL_RC_NO_NODE;
	if (denied(path) ||
		(fake_quirks.deny_exactly && strcmp(path, fake_quirks.deny_exactly) == 0))
		return denial();
	if (kind != ZKL_CREATE_EPHEMERAL_SEQUENTIAL && fake_tree_find(path))
		return ZKL_RC_NODE_EXISTS;

	begin_transaction();
	number = next_number(parent);
	*made = malloc(size);
	if (kind == ZKL_CREATE_EPHEMERAL_SEQUENTIAL)
		snprintf(*made, size, "%s%010" PRId32, path, number);
	else
		snprintf(*made, size, "%s", path);
	node_add(*made, data, data_len, kind, session);
	*czxid = zxid;
	end_transaction();
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
			begin_transaction();
			*link = node->next;
			keep_past(node, false);
			end_transaction();
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
		return denial();
	if (version != ZKL_ANY_VERSION && node->version != version)
		return ZKL_RC_BAD_VERSION;
	begin_transaction();
	keep_past(node_copy(node), true);
	node->since = zxid;
	free(node->data);
	node->data = copy_data(data, data_len);
	node->data_len = data_len;
	node->version++;
	end_transaction();
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
		return denial();
	return delete_unchecked(path);
}

static FakeNode *
list_copy(void)
{
	FakeNode   *copy = NULL;
	FakeNode  **end = &copy;

	for (FakeNode *node = nodes; node; node = node->next)
	{
		*end = node_copy(node);
		end = &(*end)->next;
	}
	return copy;
}

static ZklResultCode
check(const ZklOp *op)
{
	FakeNode   *node = fake_tree_find(op->path);

	if (node == NULL)
		return ZKL_RC_NO_NODE;
	return op->kind == ZKL_OP_CHECK || op->version == node->version
		? ZKL_RC_OK : ZKL_RC_BAD_VERSION;
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
		case ZKL_OP_CHECK_VERSION:
			return check(op);
		case ZKL_OP_SET:
			return fake_tree_set_if(op->path, op->data, op->data_len, op->version);
		case ZKL_OP_GET_ACL:
		case ZKL_OP_SYNC:
		case ZKL_OP_LIST:
		case ZKL_OP_GET:
		case ZKL_OP_STAT:
			break;
	}
	return ZKL_RC_OTHER;
}

/* Undoes the last transaction. */
static void
forget_last_past(void)
{
	while (past && past->until == zxid)
	{
		FakeNode   *node = past;

		past = node->next;
		node_free(node);
	}
}

void		(*fake_tree_after_multi) (void);

ZklResultCode
fake_tree_multi(const ZklOp *ops, int n, int64_t session,
				ZklResultCode *codes, char **paths)
{
	FakeNode   *before = list_copy();
	ZklResultCode code = ZKL_RC_OK;

	begin_transaction();
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
		forget_last_past();
		return code;
	}
	list_free(before);
	end_transaction();
	if (fake_tree_after_multi)
		fake_tree_after_multi();
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
