/*-------------------------------------------------------------------------
 *
 * views.c
 *		The views of this session's own state, without the network.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "backend/base/holds.h"
#include "backend/session/backend_session.h"
#include "compat.h"

#define HELD_LOCKS_COLUMNS 8
#define SESSION_COLUMNS 7

static const char *
session_state_text(ZklSessionState state)
{
	switch (state)
	{
		case ZKL_SESSION_CONNECTING:
			return "connecting";
		case ZKL_SESSION_CONNECTED:
			return "connected";
		case ZKL_SESSION_SUSPENDED:
			return "suspended";
		case ZKL_SESSION_EXPIRED:
			return "expired";
		case ZKL_SESSION_AUTH_FAILED:
			return "auth_failed";
	}
	return NULL;
}

static const char *
hold_state_text(const ZklockHold *hold)
{
	if (zkl_lock_is_lost(hold->lock))
		return "lost";
	if (zkl_session_state(zklock_session_current()) != ZKL_SESSION_CONNECTED)
		return "suspect";
	return "held";
}

/* Adds a row for the counts of one mode and scope, if there are any. */
static void
put_hold(ReturnSetInfo *rsinfo, const ZklockHold *hold, const char *mode,
		 const char *scope, int64 count)
{
	Datum		values[HELD_LOCKS_COLUMNS];
	bool		nulls[HELD_LOCKS_COLUMNS] = {false};

	if (count == 0)
		return;
	values[0] = CStringGetTextDatum(hold->kind == ZKLOCK_SEMAPHORE ? "semaphore" : "lock");
	values[1] = CStringGetTextDatum(zklock_given_name(hold->name.encoded));
	values[2] = CStringGetTextDatum(hold->kind == ZKLOCK_SEMAPHORE ? "permit" : mode);
	values[3] = CStringGetTextDatum(scope);
	values[4] = Int64GetDatum(count);
	values[5] = Int64GetDatum(hold->token);
	values[6] = TimestampTzGetDatum(hold->acquired_at);
	values[7] = CStringGetTextDatum(hold_state_text(hold));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

PG_FUNCTION_INFO_V1(zklock_held_locks);

/* Each permit is a row; the view adds those of a semaphore. */
Datum
zklock_held_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	dlist_iter	iter;

	zklock_require_leader();
	InitMaterializedSRF(fcinfo, 0);
	dlist_foreach(iter, &zklock_holds)
	{
		ZklockHold *hold = dlist_container(ZklockHold, link, iter.cur);

		CHECK_FOR_INTERRUPTS();
		if (hold->lock == NULL)
			continue;
		put_hold(rsinfo, hold, "shared", "session", hold->shared.session);
		put_hold(rsinfo, hold, "shared", "transaction", hold->shared.transaction);
		put_hold(rsinfo, hold, "exclusive", "session", hold->exclusive.session);
		put_hold(rsinfo, hold, "exclusive", "transaction", hold->exclusive.transaction);
	}
	return (Datum) 0;
}

static Datum
interval_of(int64 ms)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = ms * 1000;
	return IntervalPGetDatum(interval);
}

PG_FUNCTION_INFO_V1(zklock_session_info);

Datum
zklock_session_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZklSession *session = zklock_session_current();
	ZklSessionInfo info = {.state = ZKL_SESSION_CONNECTING};
	Datum		values[SESSION_COLUMNS] = {0};
	bool		nulls[SESSION_COLUMNS] = {false};

	zklock_require_leader();
	InitMaterializedSRF(fcinfo, 0);
	if (session)
		zkl_session_info(session, &info);
	values[1] = CStringGetTextDatum(session ? session_state_text(info.state) : "closed");
	if (info.session_id != 0)
	{
		values[0] = CStringGetTextDatum(psprintf("0x%llx",
												 (unsigned long long) info.session_id));
		values[2] = CStringGetTextDatum(info.server);
		values[3] = interval_of(info.session_timeout_ms);
		values[4] = interval_of(info.lease_ms);
		values[5] = TimestampTzGetDatum(GetCurrentTimestamp() -
										info.connected_ms * INT64CONST(1000));
	}
	else
		nulls[0] = nulls[2] = nulls[3] = nulls[4] = nulls[5] = true;
	values[6] = Int32GetDatum(info.n_locks);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}
