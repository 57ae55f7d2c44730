/*-------------------------------------------------------------------------
 *
 * open_parents.c
 *		Detects znodes above the locks that others may change.
 *
 * With creator_acl, sessions create znodes that others may only read.  Existing znodes
 * keep their ACLs; if a program without the credentials may change one above the locks,
 * the ACLs further down protect little.  So the ACLs are read when the session is
 * connected, before its first request: answers come in order, so the result is known
 * when the first lock is granted.  A znode whose ACL the session may not read was
 * created with other credentials.
 *
 *-------------------------------------------------------------------------
 */
#include "internal.h"

static void
on_acl_read(ZklCall *call, const ZklResult *result)
{
	bool	   *is_read = call->detail;

	if (result->code == ZKL_RC_CONNECTION_LOSS)
		*is_read = false;
	else if (result->code == ZKL_RC_NO_AUTH ||
			 (result->code == ZKL_RC_OK && result->is_open))
		call->session->has_open_parents = true;
}

/* Reads the ACLs not known yet; missing znodes will be created with the right ACL. */
void
zkl__read_acls(ZklSession *session)
{
	const char *const paths[ZKL_N_PARENTS] = {
		session->config.root, session->config.locks_path,
		session->config.semaphores_path, session->config.waiting_path,
		session->config.bells_path
	};

	for (int i = 0; session->creator_acl && i < ZKL_N_PARENTS; i++)
	{
		ZklOp		op = {.kind = ZKL_OP_GET_ACL, .path = paths[i]};
		ZklCall    *call;

		if (session->is_acl_read[i])
			continue;
		call = zkl__call_new(session, on_acl_read, NULL, NULL);
		if (call)
			call->detail = &session->is_acl_read[i];
		session->is_acl_read[i] = zkl__send(call, &op) != NULL;
	}
}

bool
zkl_session_has_open_parents(ZklSession *session)
{
	bool		result;

	zkl__session_lock(session);
	result = session->has_open_parents;
	zkl__session_unlock(session);
	return result;
}
