/*-------------------------------------------------------------------------
 *
 * check_session.c
 *		Asserts what internal.h says of each state of a session and its connection.
 *
 * Compiled in only with ZKL_CHECKS.
 *
 *-------------------------------------------------------------------------
 */
#include "internal.h"

#ifdef ZKL_CHECKS

/* Each call in flight is in the list, and counted by its subject. */
static void
check_calls(const ZklSession *session)
{
	const ZklCall *call = session->calls;

	for (int i = 0; call && i < ZKL_N_CHECKED; i++, call = call->next)
	{
		ZKL_ASSERT(call->session == session && call->handler != NULL);
		ZKL_ASSERT(call->next ? call->next->prev == call : session->last_call == call);
		ZKL_ASSERT(call->uses == NULL || call->uses->calls > 0);
	}
	ZKL_ASSERT((session->calls == NULL) == (session->last_call == NULL));
	ZKL_ASSERT(session->proof == NULL || (session->proof->session == session && session->calls));
	ZKL_ASSERT(session->list_proof == NULL || session->calls);
}

/* The times of lease_clock.c: each one follows from the submission of a confirmed write. */
static void
check_lease(const ZklSession *session)
{
	const ZklLeaseClock *clock = &session->clock;

	ZKL_ASSERT(clock->timeout_ms == session->connection.session_timeout_ms);
	ZKL_ASSERT(clock->lease_from_ms <= zkl_now_ms());
	ZKL_ASSERT(clock->trusted_until_ms <= clock->lease_from_ms + clock->timeout_ms * 2 / 3);
	ZKL_ASSERT(clock->settled.submitted_ms <= clock->confirmed.submitted_ms);
	ZKL_ASSERT(clock->confirmed.submitted_ms <= clock->confirmed.answered_ms);
	ZKL_ASSERT(session->n_relied >= 0 && session->n_relied <= session->n_holds);
}

void
zkl__check_session(const ZklSession *session)
{
	bool		is_final = zkl__is_final(session);
	bool		is_closing = session->is_left || session->is_ending;
	int64_t		deadline_ms = __atomic_load_n(&session->deadline_ms, __ATOMIC_SEQ_CST);

	ZKL_ASSERT(session->state != ZKL_SESSION_CONNECTED || session->client_connected);
	ZKL_ASSERT(session->state == ZKL_SESSION_CONNECTING || is_final || session->opened_ms > 0);
	ZKL_ASSERT(session->opened_ms == 0 || session->connection.session_timeout_ms > 0);
	ZKL_ASSERT((session->opened_ms != 0) == (session->n_connections > 0));
	ZKL_ASSERT(!session->is_gone || is_final);
	ZKL_ASSERT(!session->is_unproven || session->state == ZKL_SESSION_EXPIRED);
	ZKL_ASSERT(!is_closing || is_final);
	if (is_final && !is_closing)
		ZKL_ASSERT(deadline_ms == 0);
	else if (!is_final && session->n_holds > 0)
		ZKL_ASSERT(deadline_ms == session->clock.trusted_until_ms || deadline_ms < 0);
	else if (!is_final)
		ZKL_ASSERT(deadline_ms <= 0);
	ZKL_ASSERT(!session->grant_waits || session->opened_ms > 0);
	check_lease(session);
	check_calls(session);
}

#endif
