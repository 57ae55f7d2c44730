/*-------------------------------------------------------------------------
 *
 * request_api.c
 *		Requests for their owner: starting those for locks, questions, taking what is granted, the end.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/*
 * From start to end
 */

/* Unlinks and frees. */
static void
request_free(void *subject)
{
	ZklRequest *request = subject;
	ZklRequest **link = &zkl__locks(request->session)->first_request;

	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	if (request->status == ZKL_PENDING)
		zkl__request_free_locks(request);
	free(request->permit);
	free(request);
}

/*
 * Adds a request to the session, which then owns the permit; returns NULL if out of memory.
 * The arrays and the data are in the same chunk of memory.
 */
ZklRequest *
zkl__request_new(ZklSession *session, ZklPermit *permit, int n, bool non_blocking,
				 const char *data, int data_len)
{
	size_t		room = (size_t) n;
	size_t		zeroed = sizeof(ZklRequest) + room * (sizeof(ZklNode *) + sizeof(ZklLock *));
	ZklRequest *request = malloc(zeroed + (size_t) data_len);	/* calloc does not use the thread's cache */

	if (request == NULL)
		return NULL;
	memset(request, 0, zeroed);
	request->session = session;
	request->permit = permit;
	request->uses.subject = request;
	request->uses.free_subject = request_free;
	request->status = ZKL_PENDING;
	request->node_names = zkl__config(session)->node_names;
	request->culprit = -1;
	request->non_blocking = non_blocking;
	request->n = n;
	request->nodes = (ZklNode **) (request + 1);
	request->locks = (ZklLock **) (request->nodes + room);
	request->data = (char *) (request->locks + room);
	memcpy(request->data, data, (size_t) data_len);
	request->data_len = data_len;
	request->next = zkl__locks(session)->first_request;
	zkl__locks(session)->first_request = request;
	return request;
}

/* Returns whether the session has room for the items; gives up for it what is kept. */
static bool
make_room_for_items(const ZklRequest *request, const ZklLockItem *items)
{
	ZklSession *session = request->session;
	size_t		path_bytes = 0;
	size_t		data_bytes = (size_t) request->n * (size_t) request->data_len;

	for (int i = 0; i < request->n; i++)
		path_bytes += strlen(zkl__config(session)->locks_path) +
			strlen(items[i].name) + ZKL_CHILD_NAME_SIZE;
	return zkl__kept_make_room(session, request->n, path_bytes, data_bytes);
}

static bool
add_item_node(ZklRequest *request, int i, const ZklLockItem *item)
{
	char	   *path = zkl__path(zkl__config(request->session)->locks_path, item->name);
	bool		added = false;

	if (path && item->held == NULL)
		zkl__kept_leave(request->session, path);
	if (path)
		added = zkl__request_add_node(request, i, path, item->mode, item->held);
	free(path);
	return added;
}

static void
start_request(ZklRequest *request, const ZklLockItem *items)
{
	if (!make_room_for_items(request, items))
	{
		zkl__request_fail(request, ZKL_TOO_MANY, -1, 0);
		return;
	}
	for (int i = 0; i < request->n; i++)
	{
		if (!zkl_has_mode(request->node_names, items[i].mode))
		{
			zkl__request_fail(request, ZKL_NOT_SUPPORTED, i, 0);
			return;
		}
		if (!add_item_node(request, i, &items[i]))
		{
			zkl__request_fail(request, ZKL_NO_MEMORY, i, 0);
			return;
		}
	}
	zkl__request_mark(request);
}

ZklRequest *
zkl__lock_request(ZklSession *session, const ZklLockItem *items, int n_items,
				  bool non_blocking, const char *data, int data_len)
{
	ZklRequest *request = zkl__request_new(session, NULL, n_items, non_blocking, data, data_len);

	if (request == NULL)
		return NULL;
	request->may_be_kept = n_items == 1 && items->may_be_kept;
	request->top_path = zkl__config(session)->locks_path;
	start_request(request, items);
	return request;
}

/* Gives the kept node to a new request, as its only one; returns NULL if out of memory. */
static ZklRequest *
reacquire_kept(ZklNode *node, bool non_blocking)
{
	ZklRequest *request = zkl__request_new(node->session, NULL, 1, non_blocking,
										   node->data, node->data_len - ZKL_KEEP_LENGTH);

	if (request == NULL)
		return NULL;
	request->top_path = zkl__config(node->session)->locks_path;
	request->may_be_kept = true;
	request->reacquires = true;
	request->locks[0] = zkl__lock_new(node->session);
	request->nodes[0] = node;
	node->is_kept = false;
	node->request = request;
	node->index = 0;
	if (request->locks[0])
		zkl__request_mark(request);
	else
		zkl__request_fail(request, ZKL_NO_MEMORY, 0, 0);
	return request;
}

/* Returns NULL if the session does not keep this lock in this mode. */
ZklRequest *
zkl__kept_request(ZklSession *session, const char *path, ZklMode mode, bool non_blocking)
{
	ZklNode    *node = zkl__kept_find(session, path);

	return node && node->mode == mode ? reacquire_kept(node, non_blocking) : NULL;
}

/*
 * Releases what was granted and not taken.  The lock of an upgrade was taken before,
 * so only the upgrade is undone; its node may have been deleted by another client.
 */
static void
release_untaken(ZklRequest *request)
{
	zkl__deletes_begin(request->session);
	for (int i = 0; i < request->n; i++)
	{
		ZklLock    *lock = request->locks[i];

		if (lock)
			zkl__lock_reduce(lock, lock->taken ? ZKL_MODE_SHARED : ZKL_MODE_NONE);
		request->locks[i] = NULL;
	}
	zkl__deletes_end(request->session);
}

void
zkl__request_end(ZklRequest *request)
{
	if (request->status == ZKL_OK)
		release_untaken(request);
	zkl__request_fail(request, ZKL_ABANDONED, -1, 0);
	zkl__uses_end(request->session, &request->uses);
}


/*
 * For the owner of a request
 */

/* Without what only requests for permits have. */
void
zkl__request_info(const ZklRequest *request, ZklRequestInfo *info)
{
	memset(info, 0, sizeof(*info));
	info->was_blocked = request->was_blocked;
	info->progress = request->progress + request->uses.progress;
	info->raw_code = request->raw_code;
	info->culprit = request->culprit;
	memcpy(info->blocker, request->blocker, sizeof(info->blocker));
	if (request->permit_node)
		info->progress += request->permit_node->uses.progress;
	for (int i = 0; i < request->n && request->status == ZKL_PENDING; i++)
	{
		info->blocked = info->blocked || request->nodes[i]->state == NODE_WAITING;
		info->has_asked = info->has_asked || zkl__node_awaits_answer(request->nodes[i]);
		if (info->released_by == 0)
			info->released_by = zkl__node_awaits_release(request->nodes[i]);
		info->progress += request->nodes[i]->uses.progress;
	}
}

/* What a non-blocking attempt waits for is no pending delete. */
void
zkl__request_look_again(ZklRequest *request)
{
	for (int i = 0; i < request->n && request->status == ZKL_PENDING; i++)
		if (zkl__node_awaits_release(request->nodes[i]) != 0)
			zkl__node_look_again(request->nodes[i]);
}

/* The owner takes the lock. */
ZklLock *
zkl__request_take_lock(ZklRequest *request, int i)
{
	ZklSession *session = request->session;
	ZklLock    *lock = request->locks[i];

	request->locks[i] = NULL;
	if (lock->taken)
		return lock;
	if (lock->lost || zkl__is_final(session))
		zkl__config(session)->on_loss_io();
	else if (lock->revocations > 0)
		zkl__config(session)->on_revoke_io();
	zkl__count_relied(session, !lock->lost);
	lock->taken = true;
	return lock;
}

/* The session ends. */
void
zkl__requests_free(ZklSession *session)
{
	while (zkl__requests(session))
		request_free(zkl__requests(session));
}
