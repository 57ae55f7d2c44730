/*-------------------------------------------------------------------------
 *
 * lease.c
 *		Computes how long the ensemble certainly keeps a session, and keeps it proven.
 *
 * Only a confirmed quorum write (see "confirms" in ZklCall) proves that the ensemble keeps
 * the session: a follower that is cut off answers reads and pings, a leader that is cut off
 * answers a sync.  Two times follow from it, both counted from the submission of the write:
 *
 *		lease		T/3: a commit may rely on what is held without asking
 *		trust		up to 2T/3: then what is held is lost, and the session ends
 *
 * The leader ends a session T after the last heartbeat that it received.  A forwarded write
 * is none: a follower reports heartbeats every half tick, on the connection that carries
 * the writes.  So when the leader confirms a write, it has every heartbeat that arrived half
 * a tick before, and a write that was answered so long before is settled: the leader counts
 * its heartbeat.  It keeps the session for T from the submission of the newest settled write.
 * Without one, the last heartbeat is the library's own ping, up to T/3 old.
 *
 * A write passes from a follower to the leader although nothing passes from the leader to the
 * follower, which then gets no pings, and reports no heartbeats.  So the write counts only if it
 * is backed: the leader had answered an earlier one, sent at most 5T/24 before, or the handshake
 * of the connection.  That answer came behind pings of the leader, and the follower's reports
 * came to the leader before this write.  So when it executes this write, it keeps the session until
 *
 *		T - T/3 (pings of the library) - T/8 (half a tick) - 5T/24 = T/3
 *
 * after the submission of this write.  Without a holder nothing is sent: the first write after
 * a pause is not backed, and backs the next one.
 *
 * While something is held, a proof is sent when the newest confirmed write is T/6 old: a
 * multi that only checks the root's znode.  The first one is sent earlier, as soon as the
 * write before is certainly known to the leader, because until then trust is only T/3.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "internal.h"

/*
 * The leader cannot expire the session before a third of the session timeout
 * has passed since the submission of a confirmed quorum write.
 */
static int
lease_length(const ZklSession *session)
{
	return session->connection.session_timeout_ms / 3;
}

/* Returns how much of the lease a commit needs from its check to its commit record. */
static int
lease_reserve(const ZklSession *session)
{
	return lease_length(session) / 2;
}

static int64_t
lease_left_from(const ZklSession *session, int64_t submitted_ms)
{
	int64_t		left = submitted_ms + lease_length(session) - zkl_now_ms();

	return submitted_ms == 0 || zkl__is_final(session) || left < 0 ? 0 : left;
}

/* Returns whether a confirmation submitted at this time leaves time enough to commit. */
bool
zkl__lease_suffices(const ZklSession *session, int64_t submitted_ms)
{
	return lease_left_from(session, submitted_ms) >= lease_reserve(session);
}



/*
 * Trust
 */

/* A proof is due, or has not been answered in time, when this has passed. */
int
zkl__proof_interval(const ZklSession *session)
{
	return session->connection.session_timeout_ms / 6;
}

/* Half a tick: the session timeout should be at least four ticks. */
static int
report_interval(const ZklSession *session)
{
	return session->connection.session_timeout_ms / 8;
}

static bool
is_settled(const ZklSession *session, const ZklConfirmation *write)
{
	return write->submitted_ms != 0 &&
		zkl_now_ms() - write->answered_ms >= report_interval(session);
}

/* Returns when the newest settled write was submitted; 0: none. */
int64_t
zkl__lease_settled_ms(const ZklSession *session)
{
	return is_settled(session, &session->confirmed) ? session->confirmed.submitted_ms
		: session->settled.submitted_ms;
}

static int64_t
trust_from(const ZklCall *call)
{
	int64_t		timeout_ms = call->session->connection.session_timeout_ms;
	int64_t		at_least = call->submitted_ms + timeout_ms / 3;
	int64_t		at_most = call->submitted_ms + timeout_ms * 2 / 3;
	int64_t		from_settled = call->settled_ms == 0 ? 0 : call->settled_ms + timeout_ms * 11 / 12;

	return from_settled < at_least ? at_least : from_settled < at_most ? from_settled : at_most;
}

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
	int64_t		deadline = relies ? session->trusted_until_ms : 0;
	int64_t		before;

	do
		before = read_deadline(session);
	while (!(relies && before == OVERDUE) && !replace_deadline(session, before, deadline));
	zkl__lease_arm(session);
}

/* Returns whether the leader has answered a request that was sent shortly before now. */
bool
zkl__lease_is_backed(const ZklSession *session)
{
	return zkl_now_ms() - session->reached_ms <=
		(int64_t) session->connection.session_timeout_ms * 5 / 24;
}

static void
renew(ZklSession *session, const ZklCall *call)
{
	int64_t		trusted_until_ms = trust_from(call);

	if (call->submitted_ms > session->lease_from_ms)
		session->lease_from_ms = call->submitted_ms;
	if (trusted_until_ms > session->trusted_until_ms)
		session->trusted_until_ms = trusted_until_ms;
}

/* A quorum write was confirmed. */
void
zkl__lease_confirmed(const ZklCall *call)
{
	ZklSession *session = call->session;

	if (call->is_backed && zkl_now_ms() - call->submitted_ms <= zkl__proof_interval(session))
		renew(session, call);
	if (call->submitted_ms > session->reached_ms)
		session->reached_ms = call->submitted_ms;
	if (session->confirmed.submitted_ms == 0 || is_settled(session, &session->confirmed))
	{
		session->settled = session->confirmed;
		session->confirmed.submitted_ms = call->submitted_ms;
		session->confirmed.answered_ms = zkl_now_ms();
	}
	zkl__lease_note_holds(session);
}

/* Returns whether what is held cannot be trusted any more. */
bool
zkl__lease_has_expired(const ZklSession *session, int64_t now)
{
	return session->n_holds > 0 && !zkl__is_final(session) &&
		(now >= session->trusted_until_ms || read_deadline(session) == OVERDUE);
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

/* Returns whether a proof would lengthen the trust by much more than the time since the last. */
static bool
is_trust_short(const ZklSession *session)
{
	return session->trusted_until_ms <
		session->lease_from_ms + session->connection.session_timeout_ms / 2;
}

/* Returns when the next proof is due. */
int64_t
zkl__proof_due_ms(const ZklSession *session)
{
	int64_t		due_ms = session->lease_from_ms + zkl__proof_interval(session);
	int64_t		settles_ms = session->confirmed.answered_ms + report_interval(session);

	if (is_trust_short(session) && settles_ms < due_ms)
		due_ms = settles_ms;
	return due_ms > session->no_proof_before_ms ? due_ms : session->no_proof_before_ms;
}

/* Sets the timer for the end of trust, the next proof, or its answer. */
void
zkl__lease_arm(ZklSession *session)
{
	if (session->n_holds > 0)
		zkl__arm_timer(session, session->trusted_until_ms);
	if (session->proof && !session->is_dropping && zkl__is_connected(session))
		zkl__arm_timer(session, session->proof->submitted_ms + zkl__proof_interval(session));
	else if (zkl__needs_proofs(session) && zkl__can_send_proof(session))
		zkl__arm_timer(session, zkl__proof_due_ms(session));
}

bool
zkl__lease_is_fresh(const ZklSession *session)
{
	return session->lease_from_ms != 0 &&
		zkl_now_ms() - session->lease_from_ms <= zkl__proof_interval(session);
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

/* Ends the session in a final state, and informs the owner. */
void
zkl__session_end(ZklSession *session, ZklSessionState state)
{
	session->state = state;
	zkl__lease_note_holds(session);
	if (session->n_relied > 0)
		session->config.on_loss_io();
	zkl__wake(session);
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
	lasts = lease_left_from(session, session->lease_from_ms) >= (for_commit ? lease_reserve(session) : 1);
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

ZklSessionInfo
zkl_session_info(ZklSession *session)
{
	int64_t		now = zkl_now_ms();
	ZklSessionInfo info = {0};

	zkl__session_lock(session);
	info.state = session->state;
	info.is_unproven = session->is_unproven;
	info.key = session->connection.key;
	info.session_timeout_ms = session->connection.session_timeout_ms;
	memcpy(info.server, session->connection.server, sizeof(info.server));
	info.connected_ms = session->opened_ms ? now - session->opened_ms : 0;
	info.lease_ms = lease_left_from(session, session->lease_from_ms);
	info.n_locks = session->n_holds;
	info.n_answers = session->n_answers;
	info.has_open_parents = session->has_open_parents;
	zkl__session_unlock(session);
	return info;
}
