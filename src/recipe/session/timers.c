/*-------------------------------------------------------------------------
 *
 * timers.c
 *		Runs the timers of a session.
 *
 * They retry what could not be sent, send proofs, and keepalive reads to a server that
 * forgot to answer, declare a session lost that cannot be trusted any more, and serve the higher
 * layers.  All of them share the one timer of the client.
 *
 *-------------------------------------------------------------------------
 */
#include "internal.h"

/*
 * The client library fails every call within two thirds of the session timeout.  A call
 * that is twice as old was forgotten, as happens to requests that race the expiry of
 * their session (ZOOKEEPER-2802).
 */
static int64_t
call_deadline_ms(const ZklCall *call)
{
	return call->submitted_ms +
		(int64_t) call->session->connection.session_timeout_ms * 4 / 3;
}

/* Returns the oldest call that is not a keepalive read. */
static ZklCall *
oldest_call(const ZklSession *session)
{
	ZklCall    *call = session->calls;

	while (call && call->is_keepalive)
		call = call->next;
	return call;
}

/*
 * Sends a keepalive read: with any further request, a server also answers a request that it
 * had forgotten, and a read is cheap.  It is repeated with growing pauses, because the server may
 * first be slow and then forget.
 */
static void
keepalive(ZklSession *session, int64_t now)
{
	ZklOp		op = {.kind = ZKL_OP_GET, .path = session->config.root};
	ZklCall    *call = oldest_call(session);

	if (call == NULL || now < call->submitted_ms + KEEPALIVE_MS)
	{
		session->keepalive_pause_ms = 0;
		session->next_keepalive_ms = 0;
		return;
	}
	if (now < session->next_keepalive_ms)
		return;
	session->keepalive_pause_ms = session->keepalive_pause_ms == 0 ? KEEPALIVE_MS
		: session->keepalive_pause_ms * 2;
	session->next_keepalive_ms = now + session->keepalive_pause_ms;
	if (session->state != ZKL_SESSION_CONNECTED)
		return;
	call = zkl__call_new(session, zkl__ignore_answer, NULL, NULL);
	if (call)
		call->is_keepalive = true;
	zkl__send(call, &op);
}

static void
arm_next_timer(ZklSession *session)
{
	ZklCall    *call = oldest_call(session);

	if (session->retry_ms)
		zkl__arm_timer(session, session->retry_ms);
	zkl__lease_arm(session);
	if (session->calls)
		zkl__arm_timer(session, call_deadline_ms(session->calls));
	if (call && session->next_keepalive_ms == 0)
		zkl__arm_timer(session, call->submitted_ms + KEEPALIVE_MS);
	else if (call)
		zkl__arm_timer(session, session->next_keepalive_ms);
}

/* Returns whether held locks cannot be trusted any more, or a call was forgotten. */
static bool
has_outlived(const ZklSession *session, int64_t now)
{
	return zkl__lease_is_over(session, now) ||
		(session->calls && now >= call_deadline_ms(session->calls));
}

/* Runs what is due when the timer fires. */
void
zkl__timers_run(ZklSession *session)
{
	int64_t		now = zkl_now_ms();

	session->timer_ms = 0;
	if (!zkl__is_final(session) && has_outlived(session, now))
		zkl__session_give_up(session);
	if (zkl__is_final(session))
		return;
	if (session->retry_ms && now >= session->retry_ms)
	{
		session->retry_ms = 0;
		zkl__on_advance(session);
		zkl__batches_retry(session);
	}
	zkl__lease_run(session, now);
	zkl__on_timer(session);
	keepalive(session, now);
	arm_next_timer(session);
}
