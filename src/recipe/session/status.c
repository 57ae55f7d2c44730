/*-------------------------------------------------------------------------
 *
 * status.c
 *		Texts of statuses.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe/recipe.h"

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
