/*
 * deadlock.pml: ring and verdict of the deadlock search, src/recipe/deadlock.
 *
 * Two servers. On each, a reporter waits in the ensemble for a lock of the other server.
 * The lock of a server is held by its reporter, or, with LOCALS, by a local waiter: this
 * one waits for a session in the middle, and that one for the reporter, both in the server's
 * lock manager. If all these wait, it is a deadlock.
 *
 * Every wait may end and begin again, a lock may be released, and the delete of a released
 * lock or of a node that was given up comes at any later time. Any reporter that sees a
 * cycle may try to be the victim: a rule would only leave out runs, except that VICTIM_RULE
 * checks that the rule misses no deadlock. test/model/run runs the variants.
 */
#ifndef LOCALS
#define LOCALS 3		/* bits: the servers whose lock a local waiter holds */
#endif
#ifndef RINGS
#define RINGS 2			/* of each reporter */
#endif
#ifndef WAITS
#define WAITS 2			/* of each reporter */
#endif
#ifndef EVENTS
#define EVENTS 4		/* ends and begins of local waits, and releases, in all */
#endif
#ifndef LOST
#define LOST 1			/* verdicts whose answer is lost or late */
#endif
#define IS_LOCAL(s) ((LOCALS >> (s)) & 1)

/* Waits are numbered; 0: none. */
byte wait[2];			/* of the reporter, in the ensemble */
byte front[2];			/* of the local waiter, for the one in the middle */
byte middle[2];			/* of the one in the middle, for the reporter */
bool held[2];			/* the lock of this server is held */
byte events = EVENTS;

/* The ensemble. */
bool lock[2];			/* the node of the server's lock exists */
byte node[2];			/* the reporter's node in the other queue: its wait; 0: none */
byte bell[2];			/* version */

typedef Report {
	bool exists;
	bool valid;		/* not overwritten by a verdict */
	byte bell;
	byte wait;
	byte front;
	byte middle;
	bool lists_lock		/* the local waiter holds the server's lock */
};
Report report[2];
bool unwritten[2];		/* nothing was written since the other reporter has read it */
byte newest;			/* the reporter whose report was created last */

/* What is checked. */
bool since[2];			/* there was a deadlock since the reporter has rung */
bool failed;			/* the deadlock has had its victim */
bool spent[2];			/* the reporter has no more rings */

#define PATH(s) (!IS_LOCAL(s) || (front[s] != 0 && middle[s] != 0))
#define DEADLOCK (wait[0] != 0 && wait[1] != 0 && held[0] && held[1] && PATH(0) && PATH(1))
#define HAS_PENDING_DELETE(s) (!IS_LOCAL(s) && lock[s] && !held[s])

#ifdef ANSWERS_WITH_PENDING_DELETE
/* The defect: a session reports although a released lock of it still has its node. */
#define MAY_ANSWER(s) true
#else
#define MAY_ANSWER(s) (!HAS_PENDING_DELETE(s))
#endif

/* A wait has begun. */
inline note() {
	if
	:: DEADLOCK -> since[0] = true; since[1] = true; failed = false
	:: else
	fi
}

/* The sessions that wait in a server, and the deletes, which come at any later time. */
proctype local_sessions(byte s) {
	do
	:: d_step { events > 0 && middle[s] != 0 -> events--; middle[s] = 0 }
	:: d_step { events > 0 && middle[s] == 0 -> events--; middle[s] = 1 + EVENTS - events; note() }
#ifndef ONLY_MIDDLE
	:: d_step { events > 0 && front[s] != 0 -> events--; front[s] = 0 }
	:: d_step { events > 0 && front[s] == 0 -> events--; front[s] = 1 + EVENTS - events; note() }
	:: d_step { events > 0 && front[s] == 0 && held[s] -> events--; held[s] = false }
#endif
	:: events == 0 -> break
	od
}

active proctype deletes() {
end:	do
	:: d_step { !held[0] && lock[0] -> lock[0] = false }
	:: d_step { !held[1] && lock[1] -> lock[1] = false }
	:: d_step { wait[0] == 0 && node[0] != 0 -> node[0] = 0 }
	:: d_step { wait[1] == 0 && node[1] != 0 -> node[1] = 0 }
	od
}

#ifdef LAST_WAIT
/* The defect: a local waiter is identified by its own wait, without that of the middle. */
#define SAME_PATH(s, l, m) (!IS_LOCAL(s) || report[s].front == (l))
#else
#define SAME_PATH(s, l, m) (!IS_LOCAL(s) || (report[s].front == (l) && report[s].middle == (m)))
#endif

#ifdef IGNORE_HOLDS
/* The defect: a node in a queue blocks, although its owner waits elsewhere and has released it. */
#define LISTS_LOCK(s) true
#else
#define LISTS_LOCK(s) report[s].lists_lock
#endif
#define REPORTS_PATH(s) (!IS_LOCAL(s) || (report[s].front != 0 && report[s].middle != 0 && LISTS_LOCK(s)))

#define CHANGED(s) (!report[s].valid || report[s].bell != bell[s] || IS_LOCAL(s) && (report[s].front != front[s] || report[s].middle != middle[s] || \
	report[s].lists_lock != held[s]))

inline look() {
	seen_local = front[me];
	seen_middle = middle[me];
	seen_held = held[me]
}

/* The end of a wait. The report goes with it, as one of the session's later requests. */
inline forget() {
	report[me].exists = false;
	report[me].valid = false;
	unwritten[me] = false;
	claims = false;
	searches = false;
	seen_bell = 0;
	seen_local = 0;
	seen_middle = 0;
	seen_held = false;
	other_wait = 0;
	other_local = 0;
	other_middle = 0
}

#ifdef ANY_IDENTITY
/* The defect: a new report counts although it is of another wait. */
#define SAME_WAIT true
#else
#define SAME_WAIT (report[other].wait == other_wait && SAME_PATH(other, other_local, other_middle))
#endif

#ifdef ANY_BELL
/* The defect: a report counts although it may have been decided before the ring. */
#define ANSWERED true
#else
#define ANSWERED (report[other].bell >= bell[other])
#endif

#ifdef NO_REPORT_CHECK
/* The defect: the multi does not check that the other report is still the one that was read. */
#define REPORT_CHECK true
#else
#define REPORT_CHECK unwritten[other]
#endif
#ifdef NO_NODE_CHECK
/* The defect: ... or that the nodes exist. A queue may be read long before a report. */
#define NODE_CHECKS true
#else
#define NODE_CHECKS (lock[me] && lock[other] && node[other] == other_wait && node[me] == wait[me])
#endif

proctype reporter(byte me) {
	byte other = 1 - me;
	byte waits = WAITS;
	byte rings = RINGS;
	byte lost = LOST;
	byte seen_bell;
	byte seen_local;
	byte seen_middle;
	bool seen_held;
	byte other_wait;	/* of the cycle that it has seen */
	byte other_local;
	byte other_middle;
	bool searches;		/* is to search */
	bool claims;		/* has rung, and waits for the other one's report */
	bool late;		/* the answer to a verdict may still come */

outside:
	skip;
	if
	:: d_step { waits > 0 && node[me] == 0 && lock[other] ->
			waits--;
			wait[me] = WAITS - waits;
			node[me] = wait[me];
			note()
		}
	/* A transaction that holds the lock ends only outside of a wait. */
	:: d_step { !IS_LOCAL(me) && held[me] -> held[me] = false }; goto outside
	:: waits == 0 || !lock[other] -> goto done
	fi;

waiting:
	skip;
	if
	:: d_step { !lock[other] -> wait[me] = 0; forget() }; goto done
	:: d_step { waits > 0 -> wait[me] = 0; forget() }; goto outside
	:: CHANGED(me) && MAY_ANSWER(me) ->
		goto answer
	:: searches && !claims -> goto search
	:: claims && (!report[other].valid || ANSWERED) -> goto confirm
	/* Nothing happens any more: no deadlock is left, unless the budget was too small. */
	:: timeout -> assert(!DEADLOCK || spent[0] || spent[1]); goto done
	/* The other one does not answer. */
	:: d_step { claims -> claims = false; searches = true }; goto waiting
#ifdef TAKES_LATE_ANSWER
	/* The defect: the answer to a verdict counts after the silence. */
	:: late -> late = false; goto victim
#endif
	fi;

answer:
	skip;
#ifdef LOOKS_FIRST
	/* The defect: the bell is read after the look at the server. */
	d_step { look() };
	seen_bell = bell[me];
#else
	seen_bell = bell[me];
	d_step { look() };
#endif
	d_step {
		claims = claims && SAME_PATH(me, seen_local, seen_middle) && seen_held;
		newest = (report[me].exists -> newest : me);
		report[me].exists = true;
		report[me].valid = true;
		report[me].bell = seen_bell;
		report[me].wait = wait[me];
		report[me].front = seen_local;
		report[me].middle = seen_middle;
		report[me].lists_lock = seen_held;
		unwritten[me] = false;
		seen_bell = 0;
		seen_local = 0;
		seen_middle = 0;
		seen_held = false;
#ifndef NO_SEARCH_AFTER_REPORT
		/* The defect: a reporter searches only when it is rung. */
		searches = true
#endif
	};
	goto waiting;

search:
	skip;
	/* Its own queue, the report of the session that blocks there, and that one's queue. */
	searches = false;
	if
	:: d_step { REPORTS_PATH(me) && lock[other] && node[me] == wait[me] -> skip }
	:: else -> goto nothing
	fi;
	if
	:: d_step { report[other].valid && REPORTS_PATH(other) ->
			other_wait = report[other].wait;
			other_local = report[other].front;
			other_middle = report[other].middle
		}
	:: else -> goto nothing
	fi;
	if
	:: d_step { lock[me] && node[other] == other_wait -> skip }
	:: else -> goto nothing
	fi;
	if
	:: d_step { rings > 0 -> rings--; bell[other]++; since[me] = DEADLOCK }
	:: rings == 0 -> spent[me] = true; goto nothing
	fi;
#ifdef VICTIM_RULE
	/* The victim, which is rung, searches after its answer. */
	if
	:: newest != me -> goto nothing
	:: else
	fi;
#endif
#ifndef NO_OWN_LOOK
	/* The defect: only the others look at their servers after the ring. */
	if
	:: d_step { SAME_PATH(me, front[me], middle[me]) && held[me] -> claims = true }
	:: else -> searches = true; goto nothing
	fi;
#else
	claims = true;
#endif
	goto waiting;
nothing:
	skip;
	d_step { other_wait = 0; other_local = 0; other_middle = 0 };
	goto waiting;

confirm:
	skip;
	d_step {
		claims = false;
		searches = true;
		if
		:: report[other].valid && ANSWERED && SAME_WAIT -> unwritten[other] = true
		:: else -> unwritten[other] = false; other_wait = 0
		fi
	};
	if
	:: other_wait == 0 -> goto waiting
	:: else
	fi;
	/*
	 * The multi: a check of each report and node, and a write of the own report, which makes it
	 * invalid.
	 */
	if
	:: d_step { REPORT_CHECK && NODE_CHECKS ->
#ifndef NO_OWN_WRITE
			/* The defects: the own report is not written, or the same is written again. */
			unwritten[me] = false;
#ifndef WRITES_SAME_REPORT
			report[me].valid = false;
#endif
#endif
			late = false
		}
	:: else -> goto nothing
	fi;
	if
	:: goto victim
	/* The answer is lost or late: nothing has happened, it searches again. */
	:: d_step { lost > 0 -> lost--; late = true }; goto nothing
	fi;

victim:
	skip;
	d_step {
		assert(since[me]);
		assert(!failed);
		failed = true;
		wait[me] = 0;
		held[me] = held[me] && IS_LOCAL(me);
		forget()
	};
	goto outside;

done:
	skip;
	d_step { wait[me] = 0; held[me] = held[me] && IS_LOCAL(me); forget() }
}

init {
	atomic {
		held[0] = true;
		held[1] = true;
		lock[0] = true;
		lock[1] = true;
		front[0] = IS_LOCAL(0);
		front[1] = IS_LOCAL(1);
		middle[0] = IS_LOCAL(0);
		middle[1] = IS_LOCAL(1);
		if
		:: IS_LOCAL(0) -> run local_sessions(0)
		:: else
		fi;
		if
		:: IS_LOCAL(1) -> run local_sessions(1)
		:: else
		fi;
		run reporter(0);
		run reporter(1)
	}
}
