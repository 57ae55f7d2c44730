/*-------------------------------------------------------------------------
 *
 * parents.c
 *		Creates the znodes above a request's nodes.
 *
 * <root>, <root>/locks and <root>/semaphores are persistent; once seen they are
 * assumed to exist, until a create fails.  Each lock's own znode is a container,
 * which the server deletes some time after its last child, or a persistent znode if
 * the server does not support containers.  Sessions delete it earlier (empty_parents.c).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct Parents
{
	bool		no_containers;	/* the server does not know them */
	bool		locks_exist;	/* <root>/locks does */
} Parents;

static Parents *
parents_of(const ZklSession *session)
{
	return zkl__state(session, ZKL_PART_PARENTS);
}

const ZklSessionPart zkl__parents_part = {.state_size = sizeof(Parents)};

/* The znodes of the request's locks are children of <root>/locks. */
void
zkl__request_below_locks(ZklRequest *request)
{
	request->top_path = zkl__config(request->session)->locks_path;
	request->top_exists = &parents_of(request->session)->locks_exist;
}

static void
on_parent_created(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->subject;
	ZklNode    *node = call->detail;

	switch (result->code)
	{
		case ZKL_RC_OK:
			if (node)
				zkl__node_created_parent(node);
			break;
		case ZKL_RC_NODE_EXISTS:
			break;
		case ZKL_RC_CONNECTION_LOSS:
			request->parents_status = ZKL_PENDING;
			break;
		case ZKL_RC_UNIMPLEMENTED:
			parents_of(request->session)->no_containers = true;
			request->parents_status = ZKL_PENDING;
			break;
		case ZKL_RC_NO_NODE:
			/* Only the chroot can be missing above the root. */
			if (request->trusted_top)
			{
				*request->top_exists = false;
				request->parents_status = ZKL_PENDING;
			}
			else if (request->parents_status == ZKL_OK)
				request->parents_status = ZKL_NO_CHROOT;
			break;
		default:
			if (request->parents_status == ZKL_OK)
			{
				request->parents_status = zkl__status_of(result->code);
				request->parents_raw_code = result->raw_code;
			}
	}
}

/* Creates one parent.  "node" is the node that is to delete it later, or NULL. */
void
zkl__request_send_parent(ZklRequest *request, ZklNode *node, const char *path,
						 const char *data, ZklCreateKind kind)
{
	ZklOp		op = {
		.kind = ZKL_OP_CREATE,
		.path = path,
		.create_kind = kind,
		.data = data,
		.data_len = (int) strlen(data)
	};
	ZklCall    *call = zkl__request_call(request, on_parent_created);

	if (node)
		zkl__call_keep(call, node, &node->uses);
	if (!zkl__send(call, &op))
		request->parents_status = ZKL_PENDING;
}

/* Returns the kind of a lock's or semaphore's znode: a container, if supported. */
ZklCreateKind
zkl__container_kind(const ZklSession *session)
{
	return parents_of(session)->no_containers ? ZKL_CREATE_PERSISTENT : ZKL_CREATE_CONTAINER;
}

/* Creates top_path and all znodes above it, from the root down. */
static void
send_top(ZklRequest *request)
{
	char	   *path = strdup(request->top_path);

	if (path == NULL)
	{
		request->parents_status = ZKL_PENDING;
		return;
	}
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/'))
	{
		*slash = '\0';
		zkl__request_send_parent(request, NULL, path, "", ZKL_CREATE_PERSISTENT);
		*slash = '/';
	}
	zkl__request_send_parent(request, NULL, path, "", ZKL_CREATE_PERSISTENT);
	free(path);
}

/* If an operation found no parent, creates those that may be missing; others do not change. */
void
zkl__request_send_parents(ZklRequest *request)
{
	if (request->attempts == 0)
		return;
	request->parents_status = ZKL_OK;
	request->trusted_top = *request->top_exists;
	if (!request->trusted_top)
		send_top(request);
	request->kind->send_parents(request);
}
