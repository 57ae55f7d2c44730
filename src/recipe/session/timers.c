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

static void
arm_next_timer(ZklSession *session)
{
	if (session->retry_ms)
		zkl__arm_timer(session, session->retry_ms);
	zkl__lease_arm(session);
	if (session->calls)
		zkl__arm_timer(session, call_deadline_ms(session->calls));
	zkl__arm_keepalive(session);
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
	zkl__keepalive(session, now);
	arm_next_timer(session);
}
