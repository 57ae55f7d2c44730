/*-------------------------------------------------------------------------
 *
 * proofs.c
 *		Sends proofs: multis that only check the root's znode, before grants, while something is
 *		held, and before lists that must not be old.
 *
 * lease_clock.c says what an answer proves, and when the next proof is due.
 *
 *-------------------------------------------------------------------------
 */
#include "internal.h"

/* Sends a proof; returns the call, or NULL if there is no answer. */
ZklCall *
zkl__prove(ZklSession *session, ZklHandler handler)
{
	ZklOp		check = {.kind = ZKL_OP_CHECK, .path = session->config.root};

	return zkl__send_all(zkl__call_new(session, handler, NULL, NULL), ZKL_MULTI, &check, 1);
}

/*
 * Handles the answer to a proof; returns whether it is one.  A failed multi is a
 * transaction, too: it proves the same.
 */
bool
zkl__proved(const ZklCall *call, const ZklResult *result)
{
	if (result->code == ZKL_RC_NO_NODE || result->code == ZKL_RC_NO_AUTH)
		zkl__lease_confirmed(call);
	else if (result->code != ZKL_RC_OK) /* this has renewed the lease already */
		return false;
	return true;
}

/* A write, or NULL: its answer is as good as a proof's, and is awaited in the same way. */
void
zkl__prove_by_write(ZklCall *call)
{
	if (call == NULL || call->session->proof)
		return;
	call->session->proof = call;
	zkl__lease_arm(call->session);
}

static void on_proof(ZklCall *call, const ZklResult *result);

static void
send_proof(ZklSession *session)
{
	session->proof = zkl__prove(session, on_proof);
	if (session->proof == NULL)
		zkl__clock_pause(&session->clock, zkl_now_ms());
	zkl__lease_arm(session);
}

/* A proof that is not backed backs the next proof. */
static void
on_proof(ZklCall *call, const ZklResult *result)
{
	ZklSession *session = call->session;

	if (!zkl__proved(call, result))
		zkl__clock_pause(&session->clock, zkl_now_ms());
	else if (!call->is_backed && zkl__needs_proofs(session) && zkl__can_send_proof(session))
		send_proof(session);
}

/* A server that does not answer a proof has no quorum: another one may have. */
void
zkl__proofs_run(ZklSession *session, int64_t now)
{
	if (zkl__needs_proofs(session) && zkl__can_send_proof(session) && now >= zkl__clock_proof_due_ms(&session->clock))
		send_proof(session);
	if (session->proof == NULL || session->is_dropping || !zkl__is_connected(session) ||
		now < session->proof->submitted_ms + zkl__clock_interval(&session->clock))
		return;
	session->is_dropping = true;
	zkl_client_drop(session->client);
}

/* On a new connection the proof comes first; an earlier one proves nothing any more. */
void
zkl__proofs_connected(ZklSession *session)
{
	zkl__clock_connected(&session->clock, session->connection.session_timeout_ms,
						 session->connection.asked_ms);
	zkl__lease_note_holds(session);
	session->is_dropping = false;
	session->proof = NULL;
	if (zkl__needs_proofs(session))
		send_proof(session);
}

/* Sends a proof if a grant will need one: before a list, whose answer follows the proof's. */
void
zkl__prove_if_due(ZklSession *session)
{
	if (zkl__can_send_proof(session) && zkl_now_ms() >= zkl__clock_proof_due_ms(&session->clock))
		send_proof(session);
}

/*
 * Returns whether the session is proven well enough for a grant.  Otherwise sends a proof,
 * after which everything is advanced again.
 */
bool
zkl__prove_for_grant(ZklSession *session)
{
	if (zkl__lease_is_fresh(session))
		return true;
	session->grant_waits = true;
	zkl__prove_if_due(session);
	zkl__lease_arm(session);
	return false;
}

/* Returns whether a proof is in flight that will be answered before what is sent now. */
bool
zkl__is_proving(const ZklSession *session)
{
	return session->proof != NULL && !session->is_dropping;
}


/*
 * Lists
 */

/*
 * The list behind a sync is trusted only if the sync has succeeded.  Then everything that was sent
 * before the sync is answered.  So the one call before it that is not is that of the list:
 * zkl__get_children() was given it, and then created the sync's.
 */
static void
on_synced(ZklCall *call, const ZklResult *result)
{
	if (call->prev && result->code == ZKL_RC_OK)
		call->prev->needs_freshness = ZKL_LIST_ANY;
}

/* One proof serves all lists behind it.  Lists behind an earlier proof have been answered. */
static void
on_proven(ZklCall *call, const ZklResult *result)
{
	bool		is_proven = zkl__proved(call, result);

	for (ZklCall *list = call->session->calls; list && is_proven; list = list->next)
		if (list->needs_freshness == ZKL_LIST_PROVEN)
			list->needs_freshness = ZKL_LIST_ANY;
}

/*
 * Lists the children of a znode, as fresh as this call demands.  The session's server may
 * lag behind the leader, so a sync or a proof is sent right before the list.  If that fails, the
 * list proves nothing: the call's handler gets CONNECTION_LOSS, and a retry is scheduled.  Every
 * later read of the session is as new as this list, also on another connection.
 */
ZklCall *
zkl__get_children(ZklCall *call, const char *path, ZklFreshness freshness, bool watch)
{
	ZklOp		sync = {.kind = ZKL_OP_SYNC, .path = path};
	ZklOp		op = {.kind = ZKL_OP_LIST, .path = path, .watch = watch};
	ZklCall    *before = NULL;

	if (call)
		call->needs_freshness = freshness;
	if (call && freshness == ZKL_LIST_SYNCED)
		before = zkl__send(zkl__call_new(call->session, on_synced, NULL, NULL), &sync);
	else if (call && freshness == ZKL_LIST_PROVEN)
	{
		if (call->session->list_proof == NULL)
			call->session->list_proof = zkl__prove(call->session, on_proven);
		before = call->session->list_proof;
	}
	return zkl__send(call, before || freshness == ZKL_LIST_ANY ? &op : NULL);
}
