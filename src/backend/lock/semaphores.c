/*-------------------------------------------------------------------------
 *
 * semaphores.c
 *		Requests permits of semaphores.
 *
 * Every permit is an entry of its own in the hold table, so locks.c, hooks.c
 * and loss.c treat it like a lock.  It has no local lock to wait for, because
 * PostgreSQL's lock manager cannot count.  Shared memory shows that the permit is held
 * (shared_memory.c), so that deadlocks through it are found.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "backend/base/holds.h"
#include "backend/base/names.h"
#include "backend/lock/queue_wait.h"
#include "backend/session/call.h"
#include "backend/session/shared_memory.h"
#include "recipe/recipe.h"

static void
raise_other_capacity(const char *display, int capacity, int requested)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("semaphore \"%s\" has %d permits, not %d", display, capacity, requested),
			 errhint("Use the same number of permits in all calls; the number can be changed after the semaphore has been unused for some minutes.")));
}

/*
 * Checks the permits that this session holds.  They determine the capacity.  If they are
 * all permits of the semaphore, no other session could end the wait.
 */
void
zklock_check_own_permits(const ZklockName *name, int capacity, int64 timeout_ms)
{
	int			n = 0;
	ZklockHold *hold = NULL;

	while ((hold = zklock_hold_find_permit(name, hold)) != NULL)
	{
		if (hold->lock == NULL)
			continue;
		if (hold->capacity != capacity)
			raise_other_capacity(name->display, hold->capacity, capacity);
		n++;
	}
	if (n >= capacity && timeout_ms != 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				 errmsg("deadlock detected while waiting for semaphore \"%s\"",
						name->display),
				 capacity == 1
				 ? errdetail("This session holds its only permit.")
				 : errdetail("This session holds all of its %d permits.", capacity),
				 errhint("Release one first: a semaphore is not re-entrant.")));
}

ZklStatus
zklock_request_permit(ZklockCall *call, ZklSession *session)
{
	ZklockHold *permit = call->holds[0];
	const char *data = zklock_identity();
	ZklRequest *request;
	ZklRequestInfo info;
	ZklStatus	status;

	zklock_publish_permit(permit);
	request = zkl_permit_request(session, permit->name.encoded, permit->capacity,
								 call->timeout_ms == 0, data, strlen(data));
	status = zklock_await_request(call, session, request, call->holds);
	if (status == ZKL_OK)
		zklock_hold_granted(permit, zkl_request_lock(request, 0),
							ZKL_MODE_EXCLUSIVE, GetCurrentTimestamp());
	zkl_request_info(request, &info);
	zkl_request_end(request);
	if (status == ZKL_OTHER_CAPACITY)
		raise_other_capacity(permit->name.display, info.capacity, permit->capacity);
	return status;
}
