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
static int
proof_interval(const ZklSession *session)
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

	if (call->is_backed && zkl_now_ms() - call->submitted_ms <= proof_interval(session))
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
 * Proofs
 */

/* A proof was not sent, or failed: the next one needs a pause. */
static void
pause_proofs(ZklSession *session)
{
	session->no_proof_before_ms = zkl_now_ms() + proof_interval(session) / 8;
}

/* Sends a proof; returns the call, or NULL if there is no answer. */
ZklCall *
zkl__lease_prove(ZklSession *session, ZklHandler handler)
{
	ZklOp		check = {.kind = ZKL_OP_CHECK, .path = session->config.root};

	return zkl__send_all(zkl__call_new(session, handler, NULL, NULL), ZKL_MULTI, &check, 1);
}

/*
 * Handles the answer to a proof; returns whether it is one.  A failed multi is a
 * transaction, too: it proves the same.
 */
bool
zkl__lease_proved(const ZklCall *call, const ZklResult *result)
{
	if (result->code == ZKL_RC_NO_NODE || result->code == ZKL_RC_NO_AUTH)
		zkl__lease_confirmed(call);
	else if (result->code != ZKL_RC_OK) /* this has renewed the lease already */
		return false;
	return true;
}

/* A write, or NULL: its answer is as good as a proof's, and is awaited in the same way. */
void
zkl__lease_await(ZklCall *call)
{
	if (call == NULL || call->session->proof)
		return;
	call->session->proof = call;
	zkl__lease_arm(call->session);
}

static bool
can_send_proof(const ZklSession *session)
{
	return zkl__is_connected(session) && session->proof == NULL && !session->is_dropping;
}

static bool
needs_proofs(const ZklSession *session)
{
	return session->n_holds > 0 || session->grant_waits;
}

static void on_proof(ZklCall *call, const ZklResult *result);

static void
send_proof(ZklSession *session)
{
	session->proof = zkl__lease_prove(session, on_proof);
	if (session->proof == NULL)
		pause_proofs(session);
	zkl__lease_arm(session);
}

/* A proof that is not backed backs the next proof. */
static void
on_proof(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;

	if (!zkl__lease_proved(call, result))
		pause_proofs(session);
	else if (!call->is_backed && needs_proofs(session) && can_send_proof(session))
		send_proof(session);
}

/* Returns whether a proof would lengthen the trust by much more than the time since the last. */
static bool
is_trust_short(const ZklSession *session)
{
	return session->trusted_until_ms <
		session->lease_from_ms + session->connection.session_timeout_ms / 2;
}

/* Returns when the next proof is due. */
static int64_t
proof_due_ms(const ZklSession *session)
{
	int64_t		due_ms = session->lease_from_ms + proof_interval(session);
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
		zkl__arm_timer(session, session->proof->submitted_ms + proof_interval(session));
	else if (needs_proofs(session) && can_send_proof(session))
		zkl__arm_timer(session, proof_due_ms(session));
}

/* A server that does not answer a proof has no quorum: another one may have. */
void
zkl__lease_run(ZklSession *session, int64_t now)
{
	if (needs_proofs(session) && can_send_proof(session) && now >= proof_due_ms(session))
		send_proof(session);
	if (session->proof == NULL || session->is_dropping || !zkl__is_connected(session) ||
		now < session->proof->submitted_ms + proof_interval(session))
		return;
	session->is_dropping = true;
	zkl_client_drop(session->client);
}

/*
 * On a new connection the proof comes first; an earlier one proves nothing any more.  Its
 * server may grant a shorter session timeout, from which trust is then counted.
 */
void
zkl__lease_connected(ZklSession *session)
{
	int64_t		at_most = session->lease_from_ms + session->connection.session_timeout_ms * 2 / 3;

	if (session->trusted_until_ms > at_most)
		session->trusted_until_ms = at_most;
	zkl__lease_note_holds(session);
	session->is_dropping = false;
	session->reached_ms = session->connection.asked_ms;
	session->proof = NULL;
	if (needs_proofs(session))
		send_proof(session);
}

bool
zkl__lease_is_fresh(const ZklSession *session)
{
	return session->lease_from_ms != 0 &&
		zkl_now_ms() - session->lease_from_ms <= proof_interval(session);
}

/* Sends a proof if a grant will need one: before a list, whose answer follows the proof's. */
void
zkl__lease_prepare(ZklSession *session)
{
	if (can_send_proof(session) && zkl_now_ms() >= proof_due_ms(session))
		send_proof(session);
}

/*
 * Returns whether the session is proven well enough for a grant.  Otherwise sends a proof,
 * after which everything is advanced again.
 */
bool
zkl__lease_allows_grant(ZklSession *session)
{
	if (zkl__lease_is_fresh(session))
		return true;
	session->grant_waits = true;
	zkl__lease_prepare(session);
	zkl__lease_arm(session);
	return false;
}

/* Returns whether a proof is in flight that will be answered before what is sent now. */
bool
zkl__lease_is_proving(const ZklSession *session)
{
	return session->proof != NULL && !session->is_dropping;
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
