/*-------------------------------------------------------------------------
 *
 * lease.c
 *		The lease of a session (lease_clock.c), the deadline of what is held, and the end of
 *		the session.
 *
 *-------------------------------------------------------------------------
 */
#include "internal.h"

/* Returns whether a confirmation submitted at this time leaves time enough to commit. */
bool
zkl__lease_suffices(const ZklSession *session, int64_t submitted_ms)
{
	return !zkl__is_final(session) &&
		zkl__clock_left(&session->clock, submitted_ms, zkl_now_ms()) >= zkl__clock_reserve(&session->clock);
}

/* Returns what is left of the lease; 0: nothing. */
int64_t
zkl__lease_left(const ZklSession *session)
{
	return zkl__is_final(session) ? 0
		: zkl__clock_left(&session->clock, session->clock.lease_from_ms, zkl_now_ms());
}


/*
 * The deadline
 */

/* The owner has found the deadline passed: no later answer moves it. */
#define OVERDUE (-1)

static int64_t
read_deadline(const ZklSession *session)
{
	return __atomic_load_n(&session->deadline_ms, __ATOMIC_SEQ_CST);
}

static bool
replace_deadline(ZklSession *session, int64_t expected, int64_t deadline)
{
	return __atomic_compare_exchange_n(&session->deadline_ms, &expected, deadline, false,
									   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Publishes the deadline of what is held. */
void
zkl__lease_note_holds(ZklSession *session)
{
	bool		relies = session->n_holds > 0 && !zkl__is_final(session);
	int64_t		deadline = relies ? session->clock.trusted_until_ms : 0;
	int64_t		before;

	do
		before = read_deadline(session);
	while (!(relies && before == OVERDUE) && !replace_deadline(session, before, deadline));
	zkl__lease_arm(session);
}

/* A quorum write was confirmed. */
void
zkl__lease_confirmed(const ZklCall *call)
{
	ZklSession *session = call->session;

	zkl__clock_confirmed(&session->clock, call, zkl_now_ms());
	zkl__lease_note_holds(session);
}

/* Returns whether what is held cannot be trusted any more. */
bool
zkl__lease_has_expired(const ZklSession *session, int64_t now)
{
	return session->n_holds > 0 && !zkl__is_final(session) &&
		(now >= session->clock.trusted_until_ms || read_deadline(session) == OVERDUE);
}

/* Ends the session if its lease has expired: no thread may rely on an older state. */
void
zkl__lease_check(ZklSession *session)
{
	if (zkl__lease_has_expired(session, zkl_now_ms()))
		zkl__session_give_up(session);
}

int64_t
zkl_session_deadline_io(ZklSession *session)
{
	int64_t		deadline = read_deadline(session);

	while (deadline > 0 && zkl_now_ms() >= deadline)
	{
		(void) replace_deadline(session, deadline, OVERDUE);
		deadline = read_deadline(session);
	}
	return deadline;
}


/*
 * When the next proof is due
 */

bool
zkl__can_send_proof(const ZklSession *session)
{
	return zkl__is_connected(session) && session->proof == NULL && !session->is_dropping;
}

bool
zkl__needs_proofs(const ZklSession *session)
{
	return session->n_holds > 0 || session->grant_waits;
}

/* Sets the timer for the end of trust, the next proof, or its answer. */
void
zkl__lease_arm(ZklSession *session)
{
	if (session->n_holds > 0)
		zkl__arm_timer(session, session->clock.trusted_until_ms);
	if (session->proof && !session->is_dropping && zkl__is_connected(session))
		zkl__arm_timer(session, session->proof->submitted_ms + zkl__clock_interval(&session->clock));
	else if (zkl__needs_proofs(session) && zkl__can_send_proof(session))
		zkl__arm_timer(session, zkl__clock_proof_due_ms(&session->clock));
}

bool
zkl__lease_is_fresh(const ZklSession *session)
{
	return zkl__clock_is_fresh(&session->clock, zkl_now_ms());
}

/* An answer has come; returns whether grants that waited for a proof go on. */
bool
zkl__lease_answered(ZklSession *session)
{
	if (!session->grant_waits || zkl__is_final(session) || !zkl__lease_is_fresh(session))
		return false;
	session->grant_waits = false;
	return true;
}


/*
 * The end of the session, which ends the trust
 */

/*
 * Ends the session in a final state, and informs the owner: before the deadline is cleared, by which
 * its timer would find the loss.
 */
void
zkl__session_end(ZklSession *session, ZklSessionState state)
{
	session->state = state;
	if (session->n_relied > 0)
		session->config.on_loss_io();
	zkl__lease_note_holds(session);
	zkl__wake_at_unlock(session);
}

/* Declares the session lost, although the ensemble may still have it. */
void
zkl__session_give_up(ZklSession *session)
{
	session->is_unproven = true;
	zkl__session_end(session, ZKL_SESSION_EXPIRED);
}

/* Counts holds, for which the session is kept proven. */
void
zkl__count_holds(ZklSession *session, int change)
{
	session->n_holds += change;
	zkl__lease_note_holds(session);
}


/*
 * For the owner
 */

bool
zkl_session_lease_lasts(ZklSession *session, bool for_commit)
{
	bool		lasts;

	zkl__session_lock(session);
	lasts = zkl__lease_left(session) >= (for_commit ? zkl__clock_reserve(&session->clock) : 1);
	zkl__session_unlock(session);
	return lasts;
}

ZklSessionState
zkl_session_state(ZklSession *session)
{
	ZklSessionState state;

	zkl__session_lock(session);
	zkl__lease_check(session);
	state = session->state;
	zkl__session_unlock(session);
	return state;
}
