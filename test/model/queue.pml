/*
 * queue.pml: the queue lock of src/recipe/queue/queue_lock.c under lost answers,
 * expired sessions and waiters that give up, with the check at commit.
 *
 * Owns the recipe's steps, one atomic step for each thing the ensemble does and
 * one for each answer that is read. Time is not in it: that an ensemble does not
 * end a session while its lease lasts is taken from lease.pml. Run by
 * test/model/run, which names the variants.
 *
 * Every budget below is finite and nothing polls, so that each run ends: a run
 * that can't go on is a hang, and one that goes in circles is found by pan -l.
 */
#ifndef N
#define N 3			/* clients, each with a session of its own */
#endif
#ifndef ROUNDS
#define ROUNDS 1		/* requests of each client */
#endif
#ifndef FAULTS
#define FAULTS 1		/* answers that get lost */
#endif
#ifndef EXPIRIES
#define EXPIRIES 1		/* sessions that the ensemble ends */
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1		/* waits that end without the lock */
#endif
#ifndef RUN_DOWNS
#define RUN_DOWNS 1		/* leases that run down under a holder */
#endif
#ifndef SHARED
#define SHARED 1		/* 0: exclusive requests only */
#endif

#define GUIDS (ROUNDS + EXPIRIES)	/* a session that ended is followed by a new one */
#define NAMES (2 * GUIDS * 2 * N + 1)
#define ROOM (N * ROUNDS + FAULTS + N)

/* A node's name: whose it is, which of its requests made it, what it asks for. */
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

/* What the clients believe. */
byte granted[N];		/* the name of the node, or 0 */
bool trust[N];			/* ... and the client knows it */
bool behind[N];			/* its server has not heard of its last create yet */
byte debt[N];			/* a node to be deleted, or 0 */
bool is_unsure[N];		/* ... if it exists at all */
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

/* place: where the node is, or length. */
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

/* before: the nearest node before that keeps "name" waiting, or 0. */
inline stand(name) {
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
	:: place == length -> before = name	/* not there: queue again */
	:: else
	fi;
	place = 0
}

#define CONFLICT(a, b) ((a) != 0 && (b) != 0 && !(IS_SHARED(a) && IS_SHARED(b)))

/* Nobody else whose session lives holds what "me" is granted. */
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

/* What is released or given up is deleted later, by the janitor. */
inline leave(unsure) {
	debt[me] = name;
	is_unsure[me] = unsure;
	granted[me] = 0;
	trust[me] = false;
	name = 0
}

#define MAY_GIVE_UP (give_ups > 0 && debt[me] == 0)

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
	:: d_step { rounds == 0 && debt[me] == 0 ->
		guid = 0;
		n_done++
	   };
		goto done
	fi;

	/* The create, with the list right behind it. */
creating:
	if
	:: d_step { alive[me] ->
		append(name);
		lease[me] = true;
		trust[me] = true
	   };
		goto listing
	:: d_step { alive[me] && faults > 0 ->	/* done; the next server is behind */
		faults--;
		append(name);
		behind[me] = true
	   }
	:: d_step { alive[me] && faults > 0 ->	/* done */
		faults--;
		append(name)
	   }
	:: d_step { alive[me] && faults > 0 ->	/* not done */
		faults--
	   }
	:: !alive[me] -> goto expired
	fi;

	/* UNKNOWN: its answer was lost. Look for the GUID, after a sync. */
#ifdef NO_GUID
	/* The mistake: create again, and hope. */
	d_step { name = NAME(me, guid - 1 + GUIDS, IS_SHARED(name)); behind[me] = false };
	goto creating;
#endif
	if
	:: d_step { alive[me] ->
#ifdef SESSION_PREFIX
		/* The mistake: any node of the session will do. */
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
		/* The mistake: the next server may not have heard of it. */
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
		/* The mistake: what is not known to exist is not cleaned up. */
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
	:: d_step { alive[me] -> stand(name) }
	:: d_step { MAY_GIVE_UP -> give_ups--; leave(false) }; goto next
	:: !alive[me] -> goto expired
	fi;
	if
	:: before == name -> before = 0; goto creating
	:: before == 0 -> goto held
	:: else
	fi;

	/* READING: the node before, with a watch. */
	if
	:: alive[me] && present[before]
	:: alive[me] && !present[before] ->
		before = 0;
#ifdef WATCH_BY_EXISTS
		/* The mistake: a watch on what is not there, and no second look. */
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
		/* The mistake: the node before may have given up, not released. */
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
	/* The mistake: a client that was granted the lock once commits. */
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
	/* The mistake: a follower that is cut off still shows the node. */
		trust[me] = true;
		goto work
#else
		goto expired
#endif
#endif
	fi;
	/* Committed; the release waits for nothing. */
	d_step { debt[me] == 0 -> leave(false) };
	goto next;

	/* The client learns it at last: held locks are lost; waiters queue again. */
expired:
	skip;
	d_step {
		before = granted[me];
		granted[me] = 0;
		alive[me] = true;
		lease[me] = false;
		trust[me] = false;
		behind[me] = false;
		debt[me] = 0;
		is_unsure[me] = false
	};
	if
	:: d_step { before != 0 -> before = 0; name = 0 }; goto next
	:: d_step { before == 0 -> name = NAME(me, guid, IS_SHARED(name)); guid++ };
		goto creating
	fi;
done:	skip
}

/* The duty of the recipe layer: what is not wanted any more is deleted. */
proctype janitor(byte me) {
	byte place;

end:	do
	:: d_step { debt[me] != 0 && alive[me] && is_unsure[me] ->
		/* After a sync, the list tells. */
		is_unsure[me] = false;
		if
		:: !present[debt[me]] -> debt[me] = 0
		:: else
		fi
	   }
	:: d_step { debt[me] != 0 && alive[me] && !is_unsure[me] ->
		if
		:: present[debt[me]] -> find(debt[me]); remove_at(place); place = 0
		:: else
		fi;
		debt[me] = 0
	   }
	/* The delete is done, its answer is lost: again. */
	:: d_step { debt[me] != 0 && alive[me] && !is_unsure[me] && faults > 0 &&
		present[debt[me]] ->
		faults--;
		find(debt[me]);
		remove_at(place);
		place = 0
	   }
	/* Gone with the session. */
	:: d_step { debt[me] != 0 && !alive[me] ->
		debt[me] = 0;
		is_unsure[me] = false
	   }
	od
}

/* The ensemble ends sessions; leases run down. */
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
	/* When all is quiet, nothing is left behind. */
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
