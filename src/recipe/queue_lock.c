/*-------------------------------------------------------------------------
 *
 * queue_lock.c
 *		One node in the queue of a lock: the state machine from create to
 *		delete.
 *
 * The queue lock of ZooKeeper's recipes: an ephemeral sequential node for each
 * contender, lowest number holds, every waiter watches only the node before
 * it.  The states are those of ZklNodeState; creating is the request's
 * business, because several nodes are created at once.
 *
 * An answer that the state no longer waits for is ignored: node->asked says
 * which one it waits for.  Connection loss changes no state but CREATING,
 * whose outcome is then unknown; whatever was asked is asked again on the next
 * connection.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"


/* One piece of memory, with the path and the data behind the node. */
ZklNode *
zkl__node_new(ZklRequest *request, int index, const char *lock_path,
			  ZklMode mode, bool upgrade)
{
	ZklSession *session = request->session;
	size_t		path_size = strlen(lock_path) + 1;
	ZklNode    *node = calloc(1, sizeof(ZklNode) + path_size + (size_t) request->data_len);

	if (node == NULL)
		return NULL;
	node->lock_path = (char *) (node + 1);
	memcpy(node->lock_path, lock_path, path_size);
	node->data = node->lock_path + path_size;
	memcpy(node->data, request->data, (size_t) request->data_len);
	node->data_len = request->data_len;
	node->session = session;
	node->state = NODE_NEW;
	node->wanted = true;
	node->mode = mode;
	node->upgrade = upgrade;
	node->dialect = request->permit && !request->permit->kazoo
		? ZKL_DIALECT_CURATOR_MUTEX : session->dialect;
	node->guid_counter = ++session->guid_counter;
	node->request = request;
	node->index = index;
	node->next = session->nodes;
	if (node->next)
		node->next->prev = node;
	session->nodes = node;
	return node;
}

/* For the sweep in session.c only: unlinks and frees. */
void
zkl__node_free(ZklNode *node)
{
	if (node->prev)
		node->prev->next = node->next;
	else
		node->session->nodes = node->next;
	if (node->next)
		node->next->prev = node->prev;
	free(node->watched);
	free(node->blockers);
	free(node);
}

/* Out of memory on the way: this request can't go on, but its node must go. */
static void
node_fail(ZklNode *node, ZklStatus status)
{
	zkl__request_fail(node->request, status, node->index, 0);
}

static void
node_fail_code(ZklNode *node, const ZklResult *result)
{
	zkl__request_fail_code(node->request, node->index, result);
}

static bool
watch_path(ZklNode *node, const char *child)
{
	free(node->watched);
	node->watched = zkl__path(node->lock_path, child);
	if (node->watched == NULL)
		node_fail(node, ZKL_NO_MEMORY);
	return node->watched != NULL;
}


/*
 * UNKNOWN: was it created?
 */

static void
looked(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->node;
	const char *found = NULL;

	if (node->asked != call)
		return;
	node->asked = NULL;
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		return;
	if (result->code != ZKL_RC_OK && result->code != ZKL_RC_NO_NODE)
	{
		if (node->wanted)
			node_fail_code(node, result);
		zkl__retry_later(node->session);
		return;
	}
	if (result->code == ZKL_RC_OK)
		found = (node->is_lease ? zkl_find_lease : zkl_find_child)
			(result->children, result->n_children, node->name);
	if (found && strlen(found) < sizeof(node->name))
		zkl__node_created(node, ZKL_RC_OK, found, 0);
	else
		zkl__node_created(node, ZKL_RC_NO_NODE, NULL, 0);
	if (node->request)
	{
		zkl__request_created(node->request);
		zkl__request_drive(node->request);
	}
}

/*
 * The new connection may lead to a server that has not heard of the create
 * yet; the sync before the list makes it catch up with the leader.
 */
static void
send_look(ZklNode *node)
{
	ZklClient  *client = node->session->client;
	ZklCall    *call = zkl__call_new(node->session, zkl__ignore_answer, node, NULL);

	call = zkl__call_sent(call, call && zkl_client_sync(client, node->lock_path,
														&call->completion));
	if (call == NULL)
		return;
	call = zkl__call_new(node->session, looked, node, NULL);
	node->asked = zkl__call_sent(call, call &&
								 zkl_client_list(client, node->lock_path,
												 &call->completion));
}


/*
 * LISTING: where does it stand?
 */

static void
first_in_line(ZklNode *node)
{
	if (node->upgrade || node->czxid != 0)
		node->state = NODE_HELD;
	else
		node->state = NODE_STAMPING;
	zkl__request_check_granted(node->request);
}

/* A node that this session gave up earlier, and that will be gone soon. */
static bool
is_own_debt(const ZklNode *node, const char *other)
{
	ZklContender contender;

	return zkl_parse_child(other, &contender) && contender.has_owner &&
		contender.owner == (uint64_t) node->session->connection.session_id;
}

static void
behind(ZklNode *node, const char *other)
{
	/* The queue for a permit moves on soon, or there is none to be had. */
	if (node->request->try_only && !node->request->permit &&
		!is_own_debt(node, other))
		node_fail(node, ZKL_BUSY);
	else if (watch_path(node, other))
	{
		node->state = NODE_READING;
		zkl__node_drive(node);
		if (node->request->permit)
			zkl__permit_drive(node->request);
	}
}

/* For deadlock detection; what is not noted can only hide one. */
static void
note_blockers(ZklNode *node, const ZklResult *result)
{
	uint64_t   *blockers = realloc(node->blockers,
								   (size_t) result->n_children * sizeof(uint64_t));

	node->n_blockers = 0;
	if (blockers == NULL)
		return;
	node->blockers = blockers;
	node->n_blockers = zkl_blockers(result->children, result->n_children,
									node->name, node->upgrade, blockers);
}

static void
bar(ZklNode *node, const char *writer)
{
	ZklContender contender;

	if (!zkl_parse_child(writer, &contender) || !watch_path(node, writer))
		return;
	zkl_child_name(node->dialect, node->mode,
				   node->session->connection.session_id, node->guid_counter,
				   contender.number, node->new_name);
	node->state = NODE_BARRING;
	zkl__node_drive(node);
}

/* Where does the node stand, beside what the session holds already? */
static ZklStanding
standing(const ZklNode *node, const ZklResult *result, const char **other)
{
	const ZklLock *held = node->request->locks[node->index];
	const char *mine[3] = {node->name};
	int			n_mine = 1;

	if (held->anchor)
	{
		mine[n_mine++] = held->anchor->name;
		if (held->anchor->new_name[0] != '\0')
			mine[n_mine++] = held->anchor->new_name;
	}
	return zkl_standing(result->children, result->n_children, mine, n_mine,
						node->upgrade, other);
}

static bool
is_listed(const ZklResult *result, const char *name)
{
	for (int i = 0; i < result->n_children; i++)
		if (strcmp(result->children[i], name) == 0)
			return true;
	return false;
}

/* Somebody removed the reader node that the upgrade builds on. */
static bool
has_lost_anchor(const ZklNode *node, const ZklResult *result)
{
	ZklLock    *held = node->request->locks[node->index];

	if (!node->upgrade)
		return false;
	if (held->anchor == NULL || !(is_listed(result, held->anchor->name) ||
								  is_listed(result, held->anchor->new_name)))
		zkl__lock_lose(held);
	return held->lost;
}

static void
listed(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->node;
	const char *other;

	if (node->listed == call)
		node->listed = NULL;
	if (node->asked != call)
		return;
	node->asked = NULL;
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		return;
	if (result->code == ZKL_RC_NO_NODE)
	{
		zkl__request_restart(node->request);
		return;
	}
	if (result->code != ZKL_RC_OK)
	{
		node_fail_code(node, result);
		return;
	}
	if (has_lost_anchor(node, result))
	{
		node_fail(node, ZKL_LOCK_LOST);
		return;
	}
	switch (standing(node, result, &other))
	{
		case ZKL_STANDING_FIRST:
			first_in_line(node);
			break;
		case ZKL_STANDING_BEHIND:
			note_blockers(node, result);
			behind(node, other);
			break;
		case ZKL_STANDING_BAR:
			bar(node, other);
			break;
		case ZKL_STANDING_GONE:
			zkl__request_restart(node->request);
			break;
		case ZKL_STANDING_DEADLOCK:
			node_fail(node, ZKL_DEADLOCK);
			break;
	}
}

/* Lists the queue; right behind a create, the answer shows the new node. */
void
zkl__node_list(ZklNode *node)
{
	ZklCall    *call = zkl__call_new(node->session, listed, node, NULL);

	node->listed = zkl__call_sent(call, call &&
								  zkl_client_list(node->session->client,
												  node->lock_path,
												  &call->completion));
	if (node->state == NODE_LISTING)
		node->asked = node->listed;
}


/*
 * READING and WAITING: the predecessor
 */

static void
predecessor_read(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->node;

	if (node->asked != call)
		return;
	node->asked = NULL;
	switch (result->code)
	{
		case ZKL_RC_OK:
			node->state = NODE_WAITING;
			zkl__request_blocked(node->request, node->index, result);
			break;
		case ZKL_RC_NO_NODE:
		case ZKL_RC_CONNECTION_LOSS:
			node->state = NODE_LISTING;
			zkl__node_drive(node);
			break;
		default:
			node_fail_code(node, result);
	}
}

/* Watch by reading: a missing node leaves no watch behind. */
static void
send_read(ZklNode *node)
{
	ZklCall    *call = zkl__call_new(node->session, predecessor_read, node, NULL);

	node->asked = zkl__call_sent(call, call &&
								 zkl_client_get(node->session->client,
												node->watched, true,
												&call->completion));
}

/* The world may have changed: a node that waits for another looks again. */
void
zkl__node_relist(ZklNode *node)
{
	if (node->state == NODE_READING || node->state == NODE_WAITING)
	{
		node->state = NODE_LISTING;
		node->asked = NULL;
	}
}

void
zkl__node_watch_fired(ZklNode *node, const char *path)
{
	if ((node->state == NODE_READING || node->state == NODE_WAITING) &&
		strcmp(node->watched, path) == 0)
	{
		zkl__node_relist(node);
		zkl__node_drive(node);
	}
}


/*
 * LEAVING
 */

/*
 * Gives the node up, in any state.  It goes as soon as that can be done: at
 * once, or when the answer to its create or its move is there.
 */
void
zkl__node_leave(ZklNode *node)
{
	node->wanted = false;
	node->request = NULL;
	node->lock = NULL;
	switch (node->state)
	{
		case NODE_NEW:
			zkl__node_gone(node);
			break;
		case NODE_BARRING:
		case NODE_DOWNGRADING:
			if (node->asked == NULL)
				node->state = NODE_LEAVING;
			break;
		case NODE_LISTING:
		case NODE_READING:
		case NODE_WAITING:
		case NODE_STAMPING:
		case NODE_HELD:
			node->asked = NULL;
			node->state = NODE_LEAVING;
			break;
		case NODE_CREATING:
		case NODE_UNKNOWN:
		case NODE_LEAVING:
		case NODE_GONE:
			break;
	}
	zkl__node_drive(node);
}


/*
 * Called by the request
 */

/* Nothing is proven yet: the list tells, which may have been sent already, or the czxid. */
static void
place(ZklNode *node)
{
	node->asked = node->listed;
	node->unlisted = node->czxid == 0 && zkl__succession_foreseen(node);
	if (node->unlisted)
		node->state = NODE_STAMPING;
	else
		zkl__node_drive(node);
}

/*
 * The create was answered, or the look that stood in for its answer: "path"
 * is the node's, if there is one.  The request decides what a wanted node that
 * does not exist is to do.
 */
void
zkl__node_created(ZklNode *node, ZklResultCode code, const char *path,
				  int64_t czxid)
{
	ZklContender contender;
	const char *name = path ? strrchr(path, '/') : NULL;

	if (code == ZKL_RC_CONNECTION_LOSS)
		node->state = NODE_UNKNOWN;
	else if (code != ZKL_RC_OK)
	{
		node->state = NODE_NEW;
		if (!node->wanted)
			zkl__node_leave(node);
	}
	else
	{
		name = name ? name + 1 : path;
		strncpy(node->name, name, sizeof(node->name) - 1);
		if (zkl_parse_child(node->name, &contender))
			node->number = contender.number;
		node->czxid = czxid;
		node->state = NODE_LISTING;
		if (!node->wanted)
			zkl__node_leave(node);
		else if (zkl__succession_proven(node))
			first_in_line(node);
		else
			place(node);
	}
}

/* The czxid that all nodes of one request share is known. */
void
zkl__node_stamped(ZklNode *node, int64_t czxid)
{
	node->czxid = czxid;
	if (node->state != NODE_STAMPING)
		return;
	if (node->unlisted && !zkl__succession_proven(node))
	{
		node->state = NODE_LISTING;
		zkl__node_drive(node);
	}
	else
		node->state = NODE_HELD;
	node->unlisted = false;
}

/* Sends what the state asks for, if that is possible and not under way. */
void
zkl__node_drive(ZklNode *node)
{
	if (node->asked || node->session->state != ZKL_SESSION_CONNECTED)
		return;
	switch (node->state)
	{
		case NODE_UNKNOWN:
			send_look(node);
			break;
		case NODE_LISTING:
			if (node->is_lease)
				zkl__permit_drive(node->request);
			else
				zkl__node_list(node);
			break;
		case NODE_BARRING:
		case NODE_DOWNGRADING:
			zkl__node_send_move(node);
			break;
		case NODE_READING:
			send_read(node);
			break;
		case NODE_LEAVING:
			zkl__node_send_delete(node);
			break;
		case NODE_NEW:
		case NODE_CREATING:
		case NODE_WAITING:
		case NODE_STAMPING:
		case NODE_HELD:
		case NODE_GONE:
			break;
	}
}
