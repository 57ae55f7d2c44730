/*
 * queue.pml: the queue lock of src/recipe/queue/node_state.c and node.c under lost answers,
 * expired sessions and waiters that give up, with the check at commit.
 *
 * Owns the recipe's steps: one atomic step for each operation of the ensemble, and one
 * for each answer that a client reads. The model has no time: lease.pml shows that the
 * ensemble does not end a session while its lease lasts. test/model/run runs the variants.
 *
 * Every budget below is finite and no process polls, so each run ends: a run that cannot
 * proceed is a hang, and pan -l finds cycles.
 */
#ifndef N
#define N 3			/* clients, each with a session of its own */
#endif
#ifndef ROUNDS
#define ROUNDS 1		/* requests of each client */
#endif
#ifndef FAULTS
#define FAULTS 1		/* lost answers */
#endif
#ifndef EXPIRIES
#define EXPIRIES 1		/* sessions that the ensemble ends */
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1		/* waits that end without the lock */
#endif
#ifndef RUN_DOWNS
#define RUN_DOWNS 1		/* leases that end before the holder's release */
#endif
#ifndef SHARED
#define SHARED 1		/* 0: exclusive requests only */
#endif

#define GUIDS (ROUNDS + EXPIRIES)	/* a session that ended is followed by a new one */
#define NAMES (2 * GUIDS * 2 * N + 1)
#define ROOM (N * ROUNDS + FAULTS + N)

/* A node's name has its owner, the number of the owner's request, and the mode. */
#define NAME(owner, guid, shared) (((guid) * 2 + (shared)) * N + (owner) + 1)
#define OWNER(name) (((name) - 1) % N)
#define IS_SHARED(name) ((((name) - 1) / N) % 2)

/* The ensemble: the lock's children in the order of their numbers. */
byte queue[ROOM];
byte czxid[ROOM];
byte length;
byte zxid;
bool present[NAMES];		/* is in the queue */
bool alive[N] = true;		/* sessions */
bool lease[N];			/* the ensemble is bound to keep the session */

/* State of the clients. */
byte granted[N];		/* the name of the node, or 0 */
bool trust[N];			/* the client knows that it has a lease */
bool behind[N];			/* its server has not received its last create yet */
byte pending_delete[N];		/* a node to be deleted, or 0 */
bool is_unsure[N];		/* this node may not exist */
byte last_token;		/* of the last exclusive holder */
byte n_done;

byte faults = FAULTS;
byte expiries = EXPIRIES;
byte give_ups = GIVE_UPS;
byte run_downs = RUN_DOWNS;

hidden byte i;

/* Steps of the ensemble; to be used within d_step. */

inline append(name) {
	assert(length < ROOM);
	zxid++;
	queue[length] = name;
	czxid[length] = zxid;
	present[name] = true;
	length++
}

inline remove_at(place) {
	i = place;
	present[queue[i]] = false;
	do
	:: i + 1 < length -> queue[i] = queue[i + 1]; czxid[i] = czxid[i + 1]; i++
	:: else -> break
	od;
	length--;
	queue[length] = 0;
	czxid[length] = 0;
	i = 0
}

/* Sets place to the node's index, or to length. */
inline find(name) {
	place = 0;
	do
	:: place < length && queue[place] != name -> place++
	:: else -> break
	od
}

inline delete_all_of(who) {
	place = 0;
	do
	:: place < length && OWNER(queue[place]) == who -> remove_at(place)
	:: place < length && OWNER(queue[place]) != who -> place++
	:: else -> break
	od;
	place = 0
}

/* Sets before to the predecessor of "name", or to 0. */
inline find_predecessor(name) {
	before = 0;
	place = 0;
	do
	:: place < length && queue[place] != name ->
		if
#ifdef IGNORE_OWN
		:: OWNER(queue[place]) == OWNER(name) -> skip
#endif
		:: !IS_SHARED(name) || !IS_SHARED(queue[place]) -> before = queue[place]
		:: else
		fi;
		place++
	:: else -> break
	od;
	if
	:: place == length -> before = name	/* not found: queue again */
	:: else
	fi;
	place = 0
}

#define CONFLICT(a, b) ((a) != 0 && (b) != 0 && !(IS_SHARED(a) && IS_SHARED(b)))

/* No other client with a session holds the lock in a mode that conflicts. */
inline assert_alone() {
	i = 0;
	do
	:: i < N ->
		assert(i == me || !alive[i] || !CONFLICT(granted[i], granted[me]));
		i++
	:: else -> break
	od;
	i = 0
}

/* The client gets the lock. */
inline grant() {
	granted[me] = name;
	if
	:: alive[me] ->
		assert_alone();
		find(name);
		if
		:: place < length && !IS_SHARED(name) ->
			assert(czxid[place] > last_token);
			last_token = czxid[place]
		:: else
		fi;
		place = 0
	:: else
	fi
}

/* The janitor deletes released nodes and nodes that were given up later. */
inline leave(unsure) {
	pending_delete[me] = name;
	is_unsure[me] = unsure;
	granted[me] = 0;
	trust[me] = false;
	name = 0
}

#define MAY_GIVE_UP (give_ups > 0 && pending_delete[me] == 0)

proctype client(byte me) {
	byte rounds = ROUNDS;
	byte guid;
	byte name;
	byte before;
	byte place;

next:
	if
	:: d_step { rounds > 0 ->
		rounds--;
		name = NAME(me, guid, 0);
		guid++
	   }
#if SHARED
	:: d_step { rounds > 0 ->
		rounds--;
		name = NAME(me, guid, 1);
		guid++
	   }
#endif
	:: d_step { rounds == 0 && pending_delete[me] == 0 ->
		guid = 0;
		n_done++
	   };
		goto done
	fi;

	/* The create, followed by the list. */
creating:
	if
	:: d_step { alive[me] ->
		append(name);
		lease[me] = true;
		trust[me] = true
	   };
		goto listing
	:: d_step { alive[me] && faults > 0 ->	/* executed; the next server lags behind */
		faults--;
		append(name);
		behind[me] = true
	   }
	:: d_step { alive[me] && faults > 0 ->	/* executed */
		faults--;
		append(name)
	   }
	:: d_step { alive[me] && faults > 0 ->	/* not executed */
		faults--
	   }
	:: !alive[me] -> goto expired
	fi;

	/* UNKNOWN: the answer was lost. Searches for the GUID, after a sync. */
#ifdef NO_GUID
	/* The defect: create again without a search. */
	d_step { name = NAME(me, guid - 1 + GUIDS, IS_SHARED(name)); behind[me] = false };
	goto creating;
#endif
	if
	:: d_step { alive[me] ->
#ifdef SESSION_PREFIX
		/* The defect: any node of the session counts. */
		do
		:: place < length && OWNER(queue[place]) != me -> place++
		:: else -> break
		od;
		if
		:: place < length -> name = queue[place]
		:: else
		fi;
		place = 0;
#endif
#ifdef NO_SYNC
		/* The defect: the next server may not have received the create. */
		before = (present[name] && !behind[me] -> name : 0);
#else
		before = (present[name] -> name : 0);
#endif
		behind[me] = false
	   };
		if
		:: before != 0 -> before = 0; goto listing
		:: else -> goto creating
		fi
	:: d_step { MAY_GIVE_UP ->
		give_ups--;
#ifdef FORGET_UNKNOWN
		/* The defect: a node that may exist is not deleted. */
		name = 0;
#else
		leave(true);
#endif
		behind[me] = false
	   };
		goto next
	:: !alive[me] -> goto expired
	fi;

	/* LISTING */
listing:
	if
	:: d_step { alive[me] -> find_predecessor(name) }
	:: d_step { MAY_GIVE_UP -> give_ups--; leave(false) }; goto next
	:: !alive[me] -> goto expired
	fi;
	if
	:: before == name -> before = 0; goto creating
	:: before == 0 -> goto held
	:: else
	fi;

	/* READING: the predecessor, with a watch. */
	if
	:: alive[me] && present[before]
	:: alive[me] && !present[before] ->
		before = 0;
#ifdef WATCH_BY_EXISTS
		/* The defect: a watch on a node that does not exist, and no second list. */
		!alive[me];
		goto expired
#else
		goto listing
#endif
	:: !alive[me] -> goto expired
	fi;

	/* WAITING */
	if
	:: alive[me] && !present[before] ->
		before = 0;
#ifdef NO_RELIST
		/* The defect: the predecessor may have given up instead of released. */
		goto held
#else
		goto listing
#endif
	:: d_step { MAY_GIVE_UP -> give_ups--; before = 0; leave(false) }; goto next
	:: !alive[me] -> goto expired
	fi;

	/* HELD: from here to the commit the client believes that it holds the lock. */
held:
	skip;
	d_step { grant() };
work:
	if
#ifdef NO_LEASE
	/* The defect: a client that was granted the lock once commits. */
	:: d_step { granted[me] != 0 ->
#else
	:: d_step { trust[me] ->
#endif
		assert(alive[me] && present[name]);
		assert_alone()
	   }
#ifndef NO_LEASE
	/* The multi of checks. */
	:: d_step { !trust[me] && alive[me] ->
		trust[me] = true;
		lease[me] = true
	   };
		goto work
	:: d_step { !trust[me] && !alive[me] -> skip };
#ifdef CHECK_BY_READ
	/* The defect: a follower that is cut off still returns the node. */
		trust[me] = true;
		goto work
#else
		goto expired
#endif
#endif
	fi;
	/* Committed; the release does not wait for an answer. */
	d_step { pending_delete[me] == 0 -> leave(false) };
	goto next;

	/* The client detects the end of its session: held locks are lost, waiters queue again. */
expired:
	skip;
	d_step {
		before = granted[me];
		granted[me] = 0;
		alive[me] = true;
		lease[me] = false;
		trust[me] = false;
		behind[me] = false;
		pending_delete[me] = 0;
		is_unsure[me] = false
	};
	if
	:: d_step { before != 0 -> before = 0; name = 0 }; goto next
	:: d_step { before == 0 -> name = NAME(me, guid, IS_SHARED(name)); guid++ };
		goto creating
	fi;
done:	skip
}

/* The recipe layer deletes nodes that are not wanted any more. */
proctype janitor(byte me) {
	byte place;

end:	do
	:: d_step { pending_delete[me] != 0 && alive[me] && is_unsure[me] ->
		/* The list after a sync shows whether the node exists. */
		is_unsure[me] = false;
		if
		:: !present[pending_delete[me]] -> pending_delete[me] = 0
		:: else
		fi
	   }
	:: d_step { pending_delete[me] != 0 && alive[me] && !is_unsure[me] ->
		if
		:: present[pending_delete[me]] -> find(pending_delete[me]); remove_at(place); place = 0
		:: else
		fi;
		pending_delete[me] = 0
	   }
	/* The delete is executed, but its answer is lost, so it is repeated. */
	:: d_step { pending_delete[me] != 0 && alive[me] && !is_unsure[me] && faults > 0 &&
		present[pending_delete[me]] ->
		faults--;
		find(pending_delete[me]);
		remove_at(place);
		place = 0
	   }
	/* The end of the session has deleted the node. */
	:: d_step { pending_delete[me] != 0 && !alive[me] ->
		pending_delete[me] = 0;
		is_unsure[me] = false
	   }
	od
}

/* The ensemble ends sessions; leases end. */
proctype ensemble() {
	byte place;

end:	do
	:: d_step { expiries > 0 && alive[0] && !lease[0] -> expiries--; alive[0] = false; delete_all_of(0) }
	:: d_step { expiries > 0 && alive[1] && !lease[1] -> expiries--; alive[1] = false; delete_all_of(1) }
#if N > 2
	:: d_step { expiries > 0 && alive[2] && !lease[2] -> expiries--; alive[2] = false; delete_all_of(2) }
#endif
	:: d_step { run_downs > 0 && lease[0] -> run_downs--; lease[0] = false; trust[0] = false }
	:: d_step { run_downs > 0 && lease[1] -> run_downs--; lease[1] = false; trust[1] = false }
#if N > 2
	:: d_step { run_downs > 0 && lease[2] -> run_downs--; lease[2] = false; trust[2] = false }
#endif
	/* When all clients are done, no node is left. */
	:: d_step { n_done == N -> assert(length == 0) } -> break
	od
}

init {
	atomic {
		run client(0);
		run janitor(0);
		run client(1);
		run janitor(1);
#if N > 2
		run client(2);
		run janitor(2);
#endif
		run ensemble()
	}
}
