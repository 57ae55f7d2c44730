/*
 * lease.pml: how long after a quorum write is a session guaranteed to exist?
 *
 * Owns the reasoning of doc/design/lease.md in discrete time: one client, the
 * follower it is connected to, and the leader, which alone ends the session. Must never
 * assume that a forwarded write extends the session, because it does not. test/model/run
 * runs the variants.
 *
 * With PROOFS the same for what is held between the commits: when must a session that
 * sends proofs stop to trust its locks? (src/recipe/session/lease_clock.c)
 *
 * A unit is a twelfth of the session timeout. An age counts units since an event, up to
 * the greatest age that makes a difference.
 */
#ifndef T
#define T 12			/* the session timeout */
#endif
#ifndef HALF_TICK
#define HALF_TICK 3		/* T is at least two ticks */
#endif
#ifndef LEASE
#define LEASE (T / 3)
#endif
#ifndef CLIENT_GAP
#define CLIENT_GAP (T / 3)	/* a healthy client is silent no longer */
#endif
#ifndef LEADER_GAP
#define LEADER_GAP HALF_TICK	/* a healthy leader pings as often */
#endif
#ifndef SLACK
#define SLACK 0			/* total units by which client and leader may be late */
#endif
#ifndef SILENT_LIMIT
#define SILENT_LIMIT (5 * T / 12)	/* a client that was silent for longer reconnects */
#endif

#ifndef BACKED
#define BACKED (5 * T / 24)	/* a write counts if another one, sent so long before, was answered */
#endif
#ifndef LATE
#define LATE (T / 6)		/* ... and if its answer takes no longer */
#endif

#ifdef PROOFS
#ifndef FULL
#define FULL (2 * T / 3)	/* trust at most so long after a write */
#endif
#ifndef FROM_SETTLED
#define FROM_SETTLED (11 * T / 12)	/* ... and so long after one that the leader knew before */
#endif
#ifndef SETTLES
#define SETTLES (HALF_TICK + 1)	/* the leader knows a write that was answered so long ago */
#endif
#define UNSETTLED (FROM_SETTLED - T / 3)	/* too old to be of use, or none */
#define SUBMITTED_LIMIT FULL
#else
#define SUBMITTED_LIMIT LEASE
#endif

#define AGED(age, limit) age = (age < limit -> age + 1 : age)

/* The client. */
byte silent;			/* since its last packet */
byte submitted;			/* since the write in flight was submitted */
byte confirmed = LEASE;		/* since the submission of the last confirmed write */
bool writing;			/* a write is in flight */
bool trusting;			/* a write has been confirmed */
byte reached;			/* since the submission of the last answered write, or the handshake */
bool backed;			/* the write in flight counts */
#ifdef PROOFS
byte trust;			/* how long what is held can be trusted */
byte settled = UNSETTLED;		/* since a settled write, */
byte confirmed_last = UNSETTLED;	/* since a later one, */
byte confirmed_answered = SETTLES;	/* ... and since its answer */
byte settled_before = FROM_SETTLED;	/* since the settled write when the one in flight was sent */

inline renew() {
#ifdef FROM_ANSWER
	submitted = 0;
#endif
	if
	:: backed && submitted < T / 3 && trust < T / 3 - submitted -> trust = T / 3 - submitted
	:: else
	fi;
#ifdef PROOF_ALONE
	if
	:: backed && submitted < FULL && trust < FULL - submitted -> trust = FULL - submitted
	:: else
	fi;
#else
	if
	:: backed && settled_before < FROM_SETTLED ->
		if
		:: submitted >= FULL -> skip
		:: submitted < FULL && FROM_SETTLED - settled_before < FULL - submitted ->
			trust = (trust < FROM_SETTLED - settled_before -> FROM_SETTLED - settled_before : trust)
		:: else ->
			trust = (trust < FULL - submitted -> FULL - submitted : trust)
		fi
	:: else
	fi;
#endif
	if
	:: confirmed_answered >= SETTLES ->
		settled = confirmed_last;
		confirmed_last = (submitted < UNSETTLED -> submitted : UNSETTLED);
		confirmed_answered = 0
	:: else
	fi;
	settled_before = FROM_SETTLED
}
#endif
bool notified;			/* the client has detected the end of the session */
bool connecting;		/* its new server has extended the session, and it has not read the answer */

/* The follower. */
bool touched;			/* a heartbeat not yet reported to the leader */
byte unpinged;			/* since the leader's last ping */
bool cut;			/* no connection between follower and leader */
bool muted;			/* nothing passes from the leader to the follower */
#ifdef ONCE
bool was_muted;
#endif
bool owed;			/* a ping is in flight, before the answer to the write */
#ifdef OBSERVER_MASTER
bool relayed;			/* a heartbeat in the table of the follower in between */
byte unpinged_too;		/* since the follower last requested the observer's table */
#endif
byte late;			/* used part of SLACK */

/* Follower to leader: one connection, in order. */
mtype = { REPORT, EMPTY_REPORT, WRITE };
chan to_leader = [3] of { mtype };
bool answered;			/* the answer to the write is in flight to the client */

/* The leader. */
byte untouched;			/* since the leader's last report of a heartbeat */
bool over;			/* the leader has ended the session */

#ifdef PROOFS
#define MAY_COMMIT (trust > 0 && !notified)
#elif defined(NO_LEASE)
#define MAY_COMMIT (trusting && !notified)
#else
#define MAY_COMMIT (trusting && !notified && confirmed < LEASE)
#endif

inline heartbeat() {
	silent = 0;
	touched = !cut
}

/* Another server, or the same again, asks the leader about the session. */
inline reconnect() {
	cut = false;
	silent = 0;
	touched = false;
	unpinged = 0;
	untouched = 0;
	writing = false;
	answered = false;
	owed = false;
	reached = 0;
	submitted = 0;
	late = 0
}

#define LOSE if :: nempty(to_leader) -> to_leader ? _ :: else fi

/* Actions that are due in this unit, except for the slack. */
#define CLIENT_DUE (silent >= CLIENT_GAP)
#define LEADER_DUE (!cut && !muted && unpinged >= LEADER_GAP)
#ifdef OBSERVER_MASTER
#define OBSERVER_DUE (unpinged_too >= LEADER_GAP)
#else
#define OBSERVER_DUE false
#endif
#define N_DUE ((CLIENT_DUE -> 1 : 0) + (LEADER_DUE -> 1 : 0) + (OBSERVER_DUE -> 1 : 0))

#ifdef ONCE
#define ARRIVED empty(to_leader)	/* no second fault */
#else
#define ARRIVED true
#endif

init {
	do
	/* The client library pings, or the session sends a read. */
	:: d_step { !connecting && silent > 0 && silent <= SILENT_LIMIT -> heartbeat() }

	/* A create, or a multi of checks; the follower forwards it at once. */
	:: d_step { !connecting && !writing && !notified && nfull(to_leader) &&
			silent <= SILENT_LIMIT ->
		writing = true;
		submitted = 0;
		answered = false;
		owed = false;
		backed = reached <= BACKED;
#ifdef PROOFS
#ifdef SETTLED_AT_ONCE
		settled_before = confirmed_last;
#else
		settled_before = (confirmed_answered >= SETTLES -> confirmed_last : settled);
		settled_before = (settled_before >= UNSETTLED -> FROM_SETTLED : settled_before);
#endif
#endif
		heartbeat();
		if
		:: !cut -> to_leader ! WRITE
		:: else
		fi
	   }

	/* The answer to the write arrives. */
	:: d_step { writing && answered && !muted && !owed ->
		writing = false;
		answered = false;
		backed = backed && submitted <= LATE;
		reached = (submitted <= BACKED -> submitted : BACKED + 1);
#ifdef PROOFS
		renew();
#else
		trusting = trusting || backed;
#endif
		if
		:: backed ->
#ifdef LEASE_FROM_ANSWER
			confirmed = 0
#else
			confirmed = submitted
#endif
		:: else
		fi;
		submitted = 0
	   }

#ifdef READ_RENEWS
	/* The defect: a read, which the follower answers by itself. */
	:: d_step { trusting && !notified ->
		heartbeat();
		confirmed = 0
	   }
#endif
#ifdef READ_PROVES
	/* The defect: a read, or a sync of an old leader, counts as a proof. */
	:: d_step { trust > 0 && !notified ->
		heartbeat();
		trust = FULL
	   }
#endif

	/* The leader pings; the follower answers with its table of heartbeats. */
#ifdef OBSERVER_MASTER
	:: d_step { !cut && !muted && unpinged > 0 && nfull(to_leader) ->
		unpinged = 0;
		owed = false;
		if
		:: relayed -> relayed = false; to_leader ! REPORT
		:: else -> to_leader ! EMPTY_REPORT
		fi
	   }
	:: d_step { unpinged_too > 0 ->
		unpinged_too = 0;
		relayed = relayed || touched;
		touched = false
	   }
#else
	:: d_step { !cut && !muted && unpinged > 0 && nfull(to_leader) ->
		unpinged = 0;
		owed = false;
		if
		:: touched -> touched = false; to_leader ! REPORT
		:: else -> to_leader ! EMPTY_REPORT
		fi
	   }
#endif

	/* The leader reads a packet. A write proves that the session exists, but does not extend it. */
	:: d_step { to_leader ? [REPORT] ->
		to_leader ? REPORT;
		if
		:: !over -> untouched = 0
		:: else
		fi
	   }
	:: d_step { to_leader ? [EMPTY_REPORT] -> to_leader ? EMPTY_REPORT }
	:: d_step { to_leader ? [WRITE] ->
		to_leader ? WRITE;
		answered = !over;
#ifdef MUTE
		owed = unpinged >= LEADER_GAP
#endif
	   }

	/* The session ends after T at the earliest; the leader rounds up. */
	:: d_step { !over && untouched >= T -> over = true }

	/* The client detects the end of the session in an answer of the leader. */
	:: d_step { over && !cut && !muted && !notified -> notified = true }

#ifdef MUTE
	/*
	 * The network loses what the leader sends, or not any more: then TCP repeats it in order.
	 * With ONCE this is the only fault.
	 */
#ifdef ONCE
	:: d_step { !was_muted -> was_muted = true; muted = true }
	:: d_step { muted -> muted = false }
#else
	:: d_step { muted = !muted }
#endif
#endif

#ifndef NO_CUT
	/* The follower crashes or is cut off; packets in flight may or may not arrive. */
	:: d_step { !cut ->
		cut = true;
		touched = false;
		unpinged = 0
	   }
#endif
	:: d_step { cut && nempty(to_leader) -> LOSE; LOSE; LOSE }

	:: d_step { (cut || silent > SILENT_LIMIT) && !over && !notified && empty(to_leader) ->
		reconnect();
		connecting = true
	   }
#ifdef HANDSHAKE_RENEWS
	/* The defect: the session counts as extended when the client reads the answer. */
	:: d_step { connecting -> connecting = false; silent = 0; touched = !cut }
#else
	:: d_step { connecting && silent <= SILENT_LIMIT -> connecting = false }
#endif

	/* A new leader gives every session its full time. */
	:: d_step { !over && untouched > 0 -> untouched = 0 }

	/* The decision of PRE_COMMIT and the commit record. */
	:: d_step { MAY_COMMIT && over -> assert(false) }

	/* A unit of time passes, unless an action is due. */
#ifdef CLIENT_STOPS
	/* The client may be stopped for any time. */
	:: d_step { !LEADER_DUE && !OBSERVER_DUE ->
#else
	:: d_step { (N_DUE == 0 || late + N_DUE <= SLACK) && ARRIVED ->
		late = late + N_DUE;
#endif
		AGED(silent, SILENT_LIMIT + 1);
		AGED(unpinged, LEADER_GAP);
		AGED(reached, BACKED + 1);
#ifdef OBSERVER_MASTER
		AGED(unpinged_too, LEADER_GAP);
#endif
		if
		:: !over -> AGED(untouched, T)
		:: else
		fi;
		if
		:: writing -> AGED(submitted, SUBMITTED_LIMIT)
		:: else
		fi;
		if
		:: trusting -> AGED(confirmed, LEASE)
		:: else
		fi;

#ifdef PROOFS
		trust = (trust > 0 -> trust - 1 : 0);
		AGED(settled, UNSETTLED);
		AGED(confirmed_last, UNSETTLED);
		AGED(settled_before, FROM_SETTLED);
		AGED(confirmed_answered, SETTLES);
#endif
	   }
	od
}
