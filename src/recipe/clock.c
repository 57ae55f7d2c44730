/*-------------------------------------------------------------------------
 *
 * clock.c
 *		What a session does by the clock.
 *
 * Trying again what could not be sent, nudging a server that forgot to answer,
 * watching over what is held for longer, giving up a session that cannot be
 * trusted any more.  One alarm of the client's serves them all.
 *
 *-------------------------------------------------------------------------
 */
#include "waits.h"

/*
 * ZooKeeper 3.6.0 to 3.8.0 can forget to answer the only active client of a
 * server until it sends something more (ZOOKEEPER-4537).  Long enough that a
 * busy server is rarely asked twice.
 */
#ifndef NUDGE_MS				/* a test does without */
#define NUDGE_MS 100
#endif

/*
 * After a call could not be sent, or failed without a connection event, or the
 * server refused to remove a node: at first, and at most, between two tries.
 */
#define RETRY_MS 50
#define MAX_RETRY_MS 5000

void
zkl__arm_alarm(ZklSession *session, int64_t at_ms)
{
	if (session->alarm_ms == 0 || at_ms < session->alarm_ms)
	{
		session->alarm_ms = at_ms;
		zkl_client_set_alarm(session->client, at_ms);
	}
}

/* Everything is driven again in a while, less often the longer that goes on. */
void
zkl__retry_later(ZklSession *session)
{
	int64_t		now = zkl_client_now();

	if (session->retry_ms != 0)
		return;
	if (now > session->retried_ms + 2 * MAX_RETRY_MS)
		session->retry_delay_ms = 0;
	session->retry_delay_ms = session->retry_delay_ms == 0 ? RETRY_MS
		: session->retry_delay_ms * 2 < MAX_RETRY_MS ? session->retry_delay_ms * 2
		: MAX_RETRY_MS;
	session->retried_ms = now;
	session->retry_ms = now + session->retry_delay_ms;
	zkl__arm_alarm(session, session->retry_ms);
}

/*
 * The client library fails every call within two thirds of the session
 * timeout.  One that is older than all of it was forgotten, as requests racing
 * the expiry of their session are (ZOOKEEPER-2802).
 */
static int64_t
call_deadline_ms(const ZklCall *call)
{
	return call->submitted_ms +
		(int64_t) call->session->connection.session_timeout_ms * 4 / 3;
}

/* The oldest call that waits for an answer of its own. */
static ZklCall *
oldest_call(const ZklSession *session)
{
	ZklCall    *call = session->calls;

	while (call && call->is_nudge)
		call = call->next;
	return call;
}

void
zkl__nudge_later(const ZklCall *call)
{
	zkl__arm_alarm(call->session, call->submitted_ms + NUDGE_MS);
}

/*
 * Any further request frees a server that forgot to answer; this is a cheap
 * one.  Sent again with growing pauses, because the server may be slow first
 * and forget then.
 */
static void
nudge(ZklSession *session, int64_t now)
{
	ZklCall    *call = oldest_call(session);

	if (call == NULL || now < call->submitted_ms + NUDGE_MS)
	{
		session->nudge_pause_ms = 0;
		session->next_nudge_ms = 0;
		return;
	}
	if (now < session->next_nudge_ms)
		return;
	session->nudge_pause_ms = session->nudge_pause_ms == 0 ? NUDGE_MS
		: session->nudge_pause_ms * 2;
	session->next_nudge_ms = now + session->nudge_pause_ms;
	if (session->state != ZKL_SESSION_CONNECTED)
		return;
	call = zkl__call_new(session, zkl__ignore_answer, NULL, NULL);
	if (call)
		call->is_nudge = true;
	zkl__call_sent(call, call && zkl_client_get(session->client, session->root,
												false, &call->completion));
}

static void
arm_next_alarm(ZklSession *session)
{
	ZklCall    *call = oldest_call(session);

	if (session->retry_ms)
		zkl__arm_alarm(session, session->retry_ms);
	if (session->guard_ms)
		zkl__arm_alarm(session, session->guard_ms);
	if (session->waits && session->waits->next_look_ms)
		zkl__arm_alarm(session, session->waits->next_look_ms);
	if (session->state == ZKL_SESSION_SUSPENDED && session->locks)
		zkl__arm_alarm(session, session->disconnected_ms +
					   session->connection.session_timeout_ms);
	if (session->calls)
		zkl__arm_alarm(session, call_deadline_ms(session->calls));
	if (call && session->next_nudge_ms == 0)
		zkl__nudge_later(call);
	else if (call)
		zkl__arm_alarm(session, session->next_nudge_ms);
}

/* By the clock, what is held can't be trusted or what was asked won't be answered. */
static bool
has_outlived(const ZklSession *session, int64_t now)
{
	if (session->calls && now >= call_deadline_ms(session->calls))
		return true;
	return session->state == ZKL_SESSION_SUSPENDED && session->locks &&
		now >= session->disconnected_ms + session->connection.session_timeout_ms;
}

void
zkl__alarm_io(void *context)
{
	ZklSession *session = context;
	int64_t		now = zkl_client_now();

	zkl__session_lock(session);
	session->alarm_ms = 0;
	if (!zkl__is_final(session) && has_outlived(session, now))
		zkl__session_end(session, ZKL_SESSION_EXPIRED);
	if (!zkl__is_final(session))
	{
		if (session->retry_ms && now >= session->retry_ms)
		{
			session->retry_ms = 0;
			zkl__drive_all(session);
		}
		zkl__guard_drive(session, now);
		zkl__waits_drive(session);
		nudge(session, now);
		arm_next_alarm(session);
	}
	zkl__session_unlock(session);
}
