/*-------------------------------------------------------------------------
 *
 * lease_clock.c
 *		Computes how long the ensemble certainly keeps a session: pure functions of times.
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
#include "lease_clock.h"


/*
 * The lease
 */

/*
 * The leader cannot expire the session before a third of the session timeout
 * has passed since the submission of a confirmed quorum write.
 */
static int64_t
lease_length(const ZklLeaseClock *clock)
{
	return clock->timeout_ms / 3;
}

/* Returns how much of the lease a commit needs from its check to its commit record. */
int64_t
zkl__clock_reserve(const ZklLeaseClock *clock)
{
	return lease_length(clock) / 2;
}

/* Returns what is left of a lease that began with a write submitted at this time; 0: none. */
int64_t
zkl__clock_left(const ZklLeaseClock *clock, int64_t submitted_ms, int64_t now)
{
	int64_t		left = submitted_ms + lease_length(clock) - now;

	return submitted_ms == 0 || left < 0 ? 0 : left;
}

/* A proof is due, or has not been answered in time, when this has passed. */
int64_t
zkl__clock_interval(const ZklLeaseClock *clock)
{
	return clock->timeout_ms / 6;
}

/* Returns whether the newest confirmed write is new enough for a grant. */
bool
zkl__clock_is_fresh(const ZklLeaseClock *clock, int64_t now)
{
	return clock->lease_from_ms != 0 && now - clock->lease_from_ms <= zkl__clock_interval(clock);
}


/*
 * Trust
 */

/* Half a tick: the session timeout should be at least four ticks. */
static int64_t
report_interval(const ZklLeaseClock *clock)
{
	return clock->timeout_ms / 8;
}

static bool
is_settled(const ZklLeaseClock *clock, const ZklConfirmation *write, int64_t now)
{
	return write->submitted_ms != 0 && now - write->answered_ms >= report_interval(clock);
}

/* Returns when the newest settled write was submitted; 0: none. */
int64_t
zkl__clock_settled_ms(const ZklLeaseClock *clock, int64_t now)
{
	return is_settled(clock, &clock->confirmed, now) ? clock->confirmed.submitted_ms
		: clock->settled.submitted_ms;
}

/* Returns whether the leader has answered a request that was sent shortly before now. */
bool
zkl__clock_is_backed(const ZklLeaseClock *clock, int64_t now)
{
	return now - clock->reached_ms <= clock->timeout_ms * 5 / 24;
}

/*
 * Returns until when what is held is trusted after a confirmed write: 2T/3 after its submission,
 * or 11T/12 after that of the settled write if that is earlier, but at least for the lease.
 * doc/design/lease.md derives it.
 */
static int64_t
trust_from(const ZklLeaseClock *clock, const ZklCall *write)
{
	int64_t		at_least = write->submitted_ms + lease_length(clock);
	int64_t		at_most = write->submitted_ms + clock->timeout_ms * 2 / 3;
	int64_t		from_settled = write->settled_ms == 0 ? 0 : write->settled_ms + clock->timeout_ms * 11 / 12;

	return from_settled < at_least ? at_least : from_settled < at_most ? from_settled : at_most;
}

/* A quorum write was confirmed.  One that was answered late, or is not backed, backs the next. */
void
zkl__clock_confirmed(ZklLeaseClock *clock, const ZklCall *write, int64_t now)
{
	int64_t		trusted_until_ms = trust_from(clock, write);
	bool		renews = write->is_backed && now - write->submitted_ms <= zkl__clock_interval(clock);

	if (renews && write->submitted_ms > clock->lease_from_ms)
		clock->lease_from_ms = write->submitted_ms;
	if (renews && trusted_until_ms > clock->trusted_until_ms)
		clock->trusted_until_ms = trusted_until_ms;
	if (write->submitted_ms > clock->reached_ms)
		clock->reached_ms = write->submitted_ms;
	if (clock->confirmed.submitted_ms == 0 || is_settled(clock, &clock->confirmed, now))
	{
		clock->settled = clock->confirmed;
		clock->confirmed.submitted_ms = write->submitted_ms;
		clock->confirmed.answered_ms = now;
	}
}

/*
 * A new connection, requested at this time.  Its server may grant a shorter session timeout,
 * from which trust is then counted.
 */
void
zkl__clock_connected(ZklLeaseClock *clock, int64_t timeout_ms, int64_t asked_ms)
{
	int64_t		at_most = clock->lease_from_ms + timeout_ms * 2 / 3;

	clock->timeout_ms = timeout_ms;
	if (clock->trusted_until_ms > at_most)
		clock->trusted_until_ms = at_most;
	clock->reached_ms = asked_ms;
}


/*
 * When the next proof is due
 */

/* A proof was not sent, or failed: the next one needs a pause. */
void
zkl__clock_pause(ZklLeaseClock *clock, int64_t now)
{
	clock->no_proof_before_ms = now + zkl__clock_interval(clock) / 8;
}

/* Returns whether a proof would lengthen the trust by much more than the time since the last. */
static bool
is_trust_short(const ZklLeaseClock *clock)
{
	return clock->trusted_until_ms < clock->lease_from_ms + clock->timeout_ms / 2;
}

int64_t
zkl__clock_proof_due_ms(const ZklLeaseClock *clock)
{
	int64_t		due_ms = clock->lease_from_ms + zkl__clock_interval(clock);
	int64_t		settles_ms = clock->confirmed.answered_ms + report_interval(clock);

	if (is_trust_short(clock) && settles_ms < due_ms)
		due_ms = settles_ms;
	return due_ms > clock->no_proof_before_ms ? due_ms : clock->no_proof_before_ms;
}
