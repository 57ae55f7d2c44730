/*-------------------------------------------------------------------------
 *
 * lease.c
 *		Computes the lease: how long the ensemble certainly keeps a session.
 *
 * Each confirmed quorum write (see "confirms" in ZklCall) renews the lease, counted from
 * the submission of the write.
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

/* Renews the lease after a quorum write that was submitted at this time. */
void
zkl__lease_confirmed(ZklSession *session, int64_t submitted_ms)
{
	if (submitted_ms > session->lease_from_ms)
		session->lease_from_ms = submitted_ms;
}

/* Returns whether a confirmation submitted at this time leaves time enough to commit. */
bool
zkl__lease_suffices(const ZklSession *session, int64_t submitted_ms)
{
	return lease_left_from(session, submitted_ms) >= lease_reserve(session);
}

ZklLease
zkl_session_lease(ZklSession *session)
{
	ZklLease	lease;

	zkl__session_lock(session);
	lease.session_id = session->connection.session_id;
	lease.session_timeout_ms = session->connection.session_timeout_ms;
	lease.reserve_ms = lease_reserve(session);
	lease.left_ms = lease_left_from(session, session->lease_from_ms);
	zkl__session_unlock(session);
	return lease;
}

void
zkl_session_info(ZklSession *session, ZklSessionInfo *info)
{
	int64_t		now = zkl_now_ms();

	memset(info, 0, sizeof(*info));
	zkl__session_lock(session);
	info->state = session->state;
	info->session_id = session->connection.session_id;
	info->session_timeout_ms = session->connection.session_timeout_ms;
	memcpy(info->server, session->connection.server, sizeof(info->server));
	info->connected_ms = session->opened_ms ? now - session->opened_ms : 0;
	info->lease_ms = lease_left_from(session, session->lease_from_ms);
	info->n_locks = session->n_holds;
	info->n_answers = session->n_answers;
	zkl__session_unlock(session);
}
