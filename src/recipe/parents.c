/*-------------------------------------------------------------------------
 *
 * parents.c
 *		The znodes above a request's nodes.
 *
 * <root> and <root>/locks are plain nodes.  Each lock's own znode is a
 * container, which the server removes some time after its last child; where
 * the server knows no containers it is a plain node, too.
 *
 *-------------------------------------------------------------------------
 */
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
			if (request->parents_status == ZKL_OK)
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
send_parent(ZklRequest *request, const char *path, ZklCreateKind kind)
{
	ZklCall    *call = zkl__call_new(request->session, parent_created, NULL, request);

	if (!zkl__call_sent(call, call && zkl_client_create(request->session->client,
														path, "", 0, kind,
														&call->completion)))
		request->parents_unknown = true;
}

/* Creates all that is above the nodes; what exists is left alone. */
void
zkl__request_send_parents(ZklRequest *request)
{
	ZklSession *session = request->session;
	char	   *path = strdup(session->locks_path);

	if (path == NULL)
		return;
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/'))
	{
		*slash = '\0';
		send_parent(request, path, ZKL_CREATE_PERSISTENT);
		*slash = '/';
	}
	send_parent(request, path, ZKL_CREATE_PERSISTENT);
	for (int i = 0; i < request->n; i++)
		send_parent(request, request->nodes[i]->lock_path,
					session->no_containers ? ZKL_CREATE_PERSISTENT
					: ZKL_CREATE_CONTAINER);
	free(path);
}
