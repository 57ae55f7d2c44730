/*-------------------------------------------------------------------------
 *
 * parents.c
 *		The znodes above a request's nodes.
 *
 * <root>, <root>/locks and <root>/semaphores are plain nodes, which are there
 * once they were, unless somebody removes them.  Each lock's own
 * znode is a container, which the server removes some time after its last
 * child; where the server knows no containers it is a plain node, too.  The
 * same goes for semaphores in Curator's layout; kazoo makes plain nodes, and
 * its programs do not expect them to go.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static void
parent_created(ZklCall *call, const ZklResult *result)
{
	ZklRequest *request = call->request;

	switch (result->code)
	{
		case ZKL_RC_OK:
		case ZKL_RC_NODE_EXISTS:
			break;
		case ZKL_RC_CONNECTION_LOSS:
			request->parents_unknown = true;
			break;
		case ZKL_RC_UNIMPLEMENTED:
			request->session->no_containers = true;
			request->parents_unknown = true;
			break;
		case ZKL_RC_NO_NODE:
			/* What else but the chroot can be missing above? */
			if (request->trusted_top)
			{
				request->session->top_exists[request->permit != NULL] = false;
				request->parents_unknown = true;
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

static void
send_parent(ZklRequest *request, const char *path, const char *data,
			ZklCreateKind kind)
{
	ZklCall    *call = zkl__call_new(request->session, parent_created, NULL, request);

	if (!zkl__call_sent(call, call && zkl_client_create(request->session->client,
														path, data, (int) strlen(data), kind,
														&call->completion)))
		request->parents_unknown = true;
}

static ZklCreateKind
container_kind(const ZklRequest *request)
{
	if (request->session->no_containers || (request->permit && request->permit->kazoo))
		return ZKL_CREATE_PERSISTENT;
	return ZKL_CREATE_CONTAINER;
}

/* Born with its size, so that whoever comes first says it. */
static void
send_pool(ZklRequest *request)
{
	char		size[16];

	snprintf(size, sizeof(size), "%d", request->permit->size);
	send_parent(request, request->permit->pool_path, size, container_kind(request));
}

/* From the root down to what all locks, or semaphores, have in common. */
static void
send_top(ZklRequest *request)
{
	ZklSession *session = request->session;
	char	   *path = strdup(request->permit ? session->semaphores_path
							  : session->locks_path);

	if (path == NULL)
	{
		request->parents_unknown = true;
		return;
	}
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/'))
	{
		*slash = '\0';
		send_parent(request, path, "", ZKL_CREATE_PERSISTENT);
		*slash = '/';
	}
	send_parent(request, path, "", ZKL_CREATE_PERSISTENT);
	free(path);
}

/* Creates all that is above the nodes and may be missing; what exists is left alone. */
void
zkl__request_send_parents(ZklRequest *request)
{
	request->trusted_top = request->session->top_exists[request->permit != NULL];
	if (!request->trusted_top)
		send_top(request);
	if (request->permit)
		send_pool(request);
	for (int i = 0; i < request->n; i++)
		send_parent(request, request->nodes[i]->lock_path, "", container_kind(request));
	if (request->permit && zkl__permit_in_queue(request) && !request->permit->kazoo)
		send_parent(request, request->permit->lease_path, "", container_kind(request));
}
