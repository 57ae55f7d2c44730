/*-------------------------------------------------------------------------
 *
 * release_gate.c
 *		An SQL function that stops the backend when its transaction releases its locks.
 *
 * After stop_at_release() the transaction ends, others see that, and its invalidations are sent;
 * before it releases its locks, the backend creates the file "stopped" in the data directory, and waits
 * until it is removed.  Callbacks of this phase that were registered before this library was loaded are called
 * later.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "fmgr.h"
#include "utils/resowner.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(stop_at_release);

static bool is_closed;

static void
wait_at_gate(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	if (!is_closed || phase != RESOURCE_RELEASE_LOCKS || !is_top_level)
		return;
	is_closed = false;
	close(open("stopped", O_CREAT | O_WRONLY, 0600));
	while (access("stopped", F_OK) == 0)
		usleep(5000);
}

Datum
stop_at_release(PG_FUNCTION_ARGS)
{
	static bool is_registered;

	if (!is_registered)
		RegisterResourceReleaseCallback(wait_at_gate, NULL);
	is_registered = true;
	is_closed = true;
	PG_RETURN_VOID();
}
