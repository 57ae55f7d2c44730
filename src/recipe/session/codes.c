/*-------------------------------------------------------------------------
 *
 * codes.c
 *		The meaning of the client's result codes, and texts of statuses.
 *
 * Pure functions.
 *
 *-------------------------------------------------------------------------
 */
#include "internal.h"

ZklStatus
zkl__status_of(ZklResultCode code)
{
	switch (code)
	{
		case ZKL_RC_OK:
			return ZKL_OK;
		case ZKL_RC_NO_AUTH:
			return ZKL_NO_AUTH;
		case ZKL_RC_AUTH_FAILED:
			return ZKL_AUTH_FAILED;
		case ZKL_RC_SESSION_EXPIRED:
			return ZKL_SESSION_LOST;
		default:
			return ZKL_SERVER_ERROR;
	}
}

/*
 * Returns whether it is certain that a create, or a multi with one, with this answer
 * has created no node.  All other codes leave that open, and the node is looked for.
 * NODE_EXISTS is one of them: a node of that name is ours, from an earlier create.
 */
bool
zkl__is_refusal(ZklResultCode code)
{
	switch (code)
	{
		case ZKL_RC_NO_NODE:
		case ZKL_RC_NOT_EMPTY:
		case ZKL_RC_BAD_VERSION:
		case ZKL_RC_NO_AUTH:
		case ZKL_RC_UNIMPLEMENTED:
		case ZKL_RC_ROLLED_BACK:
		case ZKL_RC_REFUSED:
			return true;
		default:
			return false;
	}
}


static const char *const texts[] = {
	[ZKL_OK] = "ok",
	[ZKL_PENDING] = "not decided yet",
	[ZKL_BUSY] = "held by another session",
	[ZKL_DEADLOCK] = "another session that shares the lock upgrades it too",
	[ZKL_SESSION_LOST] = "the ZooKeeper session expired",
	[ZKL_ABANDONED] = "the request was given up",
	[ZKL_LOCK_LOST] = "the lock to be upgraded is not held any more",
	[ZKL_AUTH_FAILED] = "the ensemble refused the credentials",
	[ZKL_NO_AUTH] = "the ensemble refused the operation",
	[ZKL_NO_CHROOT] = "the chroot does not exist",
	[ZKL_TOO_MANY] = "too many locks in one session",
	[ZKL_SEQUENCE_USED_UP] = "sequence numbers are used up",
	[ZKL_NOT_SUPPORTED] = "shared mode is not supported by these node names",
	[ZKL_OTHER_CAPACITY] = "the semaphore has another capacity",
	[ZKL_CONNECTION_LOST] = "the connection to the ensemble was lost",
	[ZKL_NO_MEMORY] = "out of memory",
	[ZKL_SERVER_ERROR] = "unexpected answer",
};

const char *
zkl_status_text(ZklStatus status)
{
	return texts[status];
}
