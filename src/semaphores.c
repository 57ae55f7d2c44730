/*-------------------------------------------------------------------------
 *
 * semaphores.c
 *		Taking and giving back permits of semaphores.
 *
 * Every permit is an entry of its own in the hold table, so that locks.c,
 * lifecycle.c and loss.c end it, lose it and check it like a lock.  There is no
 * first tier: PostgreSQL's lock manager can't count.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"

#include "identity.h"
#include "lock_table.h"
#include "locks.h"
#include "loss.h"
#include "remote_wait.h"
#include "semaphores.h"
#include "session.h"
#include "stats.h"
#include "wait.h"

/* A call of zklock_acquire_permit() on its way. */
typedef struct Acquisition
{
	ZklockHold *hold;			/* for the permit; pinned */
	ZklockPatience patience;
} Acquisition;


static void
raise_other_size(const char *display, int size, int asked)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("semaphore \"%s\" has %d permits, not %d", display, size, asked),
			 errhint("All its users must name the same number of permits; it can be another one when the semaphore has been out of use for some minutes.")));
}

/*
 * What this session has of the semaphore settles its size, and may be all there
 * is: nobody else could end that wait.
 */
static void
check_own_permits(const ZklockName *name, int size, int64 limit_ms)
{
	int			n = 0;
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		if (hold->lock == NULL || !zklock_hold_is_permit_of(hold, name))
			continue;
		if (hold->size != size)
			raise_other_size(name->display, hold->size, size);
		n++;
	}
	if (n >= size && limit_ms != 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				 errmsg("deadlock detected while waiting for semaphore \"%s\"",
						name->display),
				 size == 1
				 ? errdetail("This session holds its only permit.")
				 : errdetail("This session holds all of its %d permits.", size),
				 errhint("Release one first: a semaphore is not re-entrant.")));
}

/* Books what the request was granted. */
static void
take_granted(ZklockHold *hold, ZklRequest *request)
{
	hold->lock = zkl_request_lock(request, 0);
	hold->token = zkl_lock_token(hold->lock);
	hold->mode = ZKL_MODE_EXCLUSIVE;
	hold->acquired_at = GetCurrentTimestamp();
}

static ZklStatus
request_remote(Acquisition *a, ZklSession *session)
{
	const ZklockPurpose purpose = ZKLOCK_PURPOSE_PERMIT(a->hold->name.display);
	const char *data = zklock_identity();
	ZklRequest *request = zkl_permit_request(session, a->hold->name.encoded,
											 a->hold->size, a->patience.limit_ms == 0,
											 data, strlen(data));
	ZklStatus	status = zklock_await_request(&a->patience, session, request, &purpose, 1);
	ZklRequestInfo info;

	if (status == ZKL_OK)
		take_granted(a->hold, request);
	zkl_request_info(request, &info);
	zkl_request_end(request);
	if (status == ZKL_OTHER_SIZE)
		raise_other_size(purpose.display, info.size, a->hold->size);
	return status;
}

/* False when the limit has passed. */
static bool
acquire_remote(Acquisition *a)
{
	for (;;)
	{
		ZklSession *session = zklock_reach_session(&a->patience, &ZKLOCK_PURPOSE_PERMIT(a->hold->name.display));
		ZklStatus	status;

		if (session == NULL)
			return false;
		zklock_show_session(session);
		status = request_remote(a, session);
		if (status != ZKL_SESSION_LOST)
			return status == ZKL_OK;

		/* If nothing that was held is lost, queue anew in another session. */
		zklock_check_loss();
	}
}

int64
zklock_acquire_permit(const ZklockName *name, int size, ZklockScope scope,
					  int64 limit_ms)
{
	Acquisition a = {.patience.limit_ms = limit_ms};
	volatile bool acquired = false;
	int64		token;

	zklock_check_loss();
	check_own_permits(name, size, limit_ms);
	a.patience.started = zklock_now();
	a.hold = zklock_hold_prepare_permit(name, size);
	PG_TRY();
	{
		zklock_session_ready(&ZKLOCK_PURPOSE_PERMIT(name->display));
		zklock_check_loss();
		acquired = acquire_remote(&a);
		if (acquired)
			zklock_check_snapshot(&a.patience, name->display);
	}
	PG_CATCH();
	{
		zklock_count_failed(&a.patience);
		a.hold->pins--;
		zklock_settle(a.hold);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (acquired)
		zklock_hold_add(a.hold, ZKL_MODE_EXCLUSIVE, scope,
						GetCurrentTransactionNestLevel());
	token = acquired ? a.hold->token : 0;
	a.hold->pins--;
	zklock_settle(a.hold);
	if (acquired)
		zklock_count_acquired(&a.patience, 1);
	else
		zklock_count_gave_up(&a.patience);
	return token;
}

/* A permit of session level, the youngest one, or NULL. */
static ZklockHold *
find_session_permit(const ZklockName *name)
{
	dlist_iter	iter;

	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		if (hold->exclusive.session > 0 && zklock_hold_is_permit_of(hold, name))
			return hold;
	}
	return NULL;
}

bool
zklock_release_permit(const ZklockName *name)
{
	ZklockHold *hold = find_session_permit(name);

	if (hold == NULL)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("you don't own a permit of semaphore \"%s\" at session level",
						name->display),
				 errhint("zk_held_locks shows the permits of this session.")));
	else
	{
		zklock_note_release();
		hold->exclusive.session--;
		zklock_settle(hold);
	}
	zklock_drop_notice();
	return hold != NULL;
}
