/*-------------------------------------------------------------------------
 *
 * guard.c
 *		Watching over the nodes that are held.
 *
 * Somebody may remove the node of a lock that is held, by hand.  A watch on the
 * own node tells; it is set by reading the node, once the lock has been held
 * for a moment, so that short transactions do not pay for it.  What is removed
 * before that shows when the watch is set.
 *
 * The same watch tells of a revocation: somebody has made __REVOKE__ the data of
 * the node.  Once that is noticed the node gets its own data back, so that
 * readers see again who holds it.  Only data of the version that was read are
 * replaced, so that a second revocation can't be overwritten unseen; and as the
 * version grows with every change, one that is read again after a lost
 * connection is not taken for another.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* How long a lock is held before its node is watched. */
#define GUARD_MS 1000

/* As Curator's Revoker writes it. */
#define REVOKE "__REVOKE__"

/* At the time when the first of the nodes is due. */
static void
arm(ZklSession *session, int64_t at_ms)
{
	if (session->guard_ms != 0 && session->guard_ms <= at_ms)
		return;
	session->guard_ms = at_ms;
	zkl__arm_alarm(session, at_ms);
}

void
zkl__guard_later(ZklNode *node)
{
	node->guarding = NULL;
	node->is_guarded = false;
	if (node->state != NODE_HELD || node->lock == NULL)
		return;
	node->guard_ms = zkl_client_now() + GUARD_MS;
	arm(node->session, node->guard_ms);
}

/* Whatever came between shows when the node is read again, as every change has that done. */
static void
restored(ZklCall *call, const ZklResult *result)
{
	if (result->code == ZKL_RC_CONNECTION_LOSS)
		zkl__guard_later(call->node);
}

static void
restore(ZklNode *node, int32_t version)
{
	ZklSession *session = node->session;
	char	   *path = zkl__path(node->lock_path, node->name);
	ZklCall    *call = path ? zkl__call_new(session, restored, node, NULL) : NULL;

	call = zkl__call_sent(call, call &&
						  zkl_client_set(session->client, path, node->data,
										 node->data_len, version,
										 &call->completion));
	if (call == NULL)
		zkl__guard_later(node);
	free(path);
}

static void
look_for_revocation(ZklNode *node, const ZklResult *result)
{
	ZklLock    *lock = node->lock;

	if (lock == NULL || node->is_lease || result->data_len != (int) strlen(REVOKE) ||
		memcmp(result->data, REVOKE, strlen(REVOKE)) != 0)
		return;
	if (result->version != node->revoked_version)
	{
		node->revoked_version = result->version;
		lock->revocations++;
		if (lock->taken && !lock->lost)
			zkl__tell_revocation(node->session);
		zkl__wake(node->session);
	}
	if (node->state == NODE_HELD)
		restore(node, result->version);
}

static void
guarded(ZklCall *call, const ZklResult *result)
{
	ZklNode    *node = call->node;

	if (node->guarding != call)
		return;
	node->guarding = NULL;
	if (result->code == ZKL_RC_OK)
		look_for_revocation(node, result);
	if (node->state != NODE_HELD)
		return;
	switch (result->code)
	{
		case ZKL_RC_NO_NODE:
			zkl__lock_node_lost(node);
			zkl__node_leave(node);
			break;
		case ZKL_RC_CONNECTION_LOSS:
			zkl__guard_later(node);
			break;
		default:
			break;
	}
}

static void
guard(ZklNode *node)
{
	ZklSession *session = node->session;
	char	   *path = zkl__path(node->lock_path, node->name);
	ZklCall    *call = path ? zkl__call_new(session, guarded, node, NULL) : NULL;

	node->guarding = zkl__call_sent(call, call &&
									zkl_client_get(session->client, path, true,
												   &call->completion));
	node->is_guarded = node->guarding != NULL;
	if (!node->is_guarded)
		zkl__guard_later(node);
	free(path);
}

void
zkl__guard_drive(ZklSession *session, int64_t now)
{
	if (session->guard_ms == 0 || now < session->guard_ms)
		return;
	session->guard_ms = 0;
	for (ZklNode *node = session->nodes; node; node = node->next)
		if (node->state == NODE_HELD && node->lock && !node->is_guarded)
		{
			if (now < node->guard_ms)
				arm(session, node->guard_ms);
			else if (session->state == ZKL_SESSION_CONNECTED)
				guard(node);
			else
				zkl__guard_later(node);
		}
}

static bool
is_path_of(const ZklNode *node, const char *path)
{
	size_t		parent_length = strlen(node->lock_path);

	return strncmp(path, node->lock_path, parent_length) == 0 &&
		path[parent_length] == '/' &&
		strcmp(path + parent_length + 1, node->name) == 0;
}

void
zkl__guard_watch_fired(ZklNode *node, const char *path)
{
	if (node->state == NODE_HELD && node->lock && is_path_of(node, path))
		guard(node);
}
