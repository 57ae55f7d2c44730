/*
 * keep.pml: kept locks (zklock.keep_time): a released node stays in the queue until another
 * client asks for it, and its session takes it again without a request.
 *
 * Owns the steps from grant to keep, question, re-acquire and delete. Each atomic step of a
 * client is one under the session's mutex; its I/O thread is a process of its own. An answer
 * that the ensemble has sent is processed in a later step, or lost with the connection. A lost
 * connection is replaced at once: whatever the client does in between is late or early.
 * queue.pml has the creates and deletes whose answers are lost. test/model/run runs the variants.
 *
 * Time counts only the age of a session's newest quorum write: 0 is younger than T/6 (the
 * lease suffices for a re-acquire), 1 is younger than T/3 (for a commit), 2 is older.
 */
#ifndef N
#define N 2			/* clients, each with a session of its own */
#endif
#ifndef ROUNDS
#define ROUNDS 2		/* requests of client 0 */
#endif
#ifndef OTHER_ROUNDS
#define OTHER_ROUNDS 1		/* requests of each other client */
#endif
#ifndef FAULTS
#define FAULTS 1		/* in all: of the kinds below */
#endif
#ifndef KINDS
#define KINDS 63		/* their sum */
#endif
#ifndef TICKS
#define TICKS 2			/* times that a session's newest write grows older */
#endif
#ifndef SHARED
#define SHARED 1		/* 0: exclusive requests only */
#endif

#define LOSS 1			/* a lost connection */
#define EXPIRY 2		/* a session that the ensemble ends */
#define REVOKE 4		/* __REVOKE__, written by another program */
#define DELETE 8		/* a node that another program deletes */
#define GIVE_UP 16		/* a wait that ends without the lock */
#define KEEP_END 32		/* the keep time of a node ends */

#define GUIDS (ROUNDS + FAULTS + 1)
#define NAMES (2 * GUIDS * N + 1)
#define ROOM (2 * N)

/* A node's name has its owner, the number of the owner's create, and the mode. */
#define NAME(owner, guid, shared) (((guid) * 2 + (shared)) * N + (owner) + 1)
#define OWNER(name) (((name) - 1) % N)
#define IS_SHARED(name) ((((name) - 1) / N) % 2)
#define CONFLICT(a, b) (!(IS_SHARED(a) && IS_SHARED(b)))

/* The data of a node go only forward; REVOKED is not zklock's. 0: there is no such node. */
#define MAY 1			/* may be kept */
#define ASK 2			/* another client asks for it */
#define USE 3			/* its owner has seen the question and holds the lock */
#define REVOKED 4

/* The ensemble: the lock's children in the order of their numbers. */
byte queue[ROOM];
byte length;
byte data[NAMES];
byte version[NAMES];
byte furthest[NAMES];		/* the last of MAY, ASK, USE */
bool alive[N] = true;		/* sessions */
byte age[N] = 2;		/* of the newest write that the ensemble has executed */
byte watch_of[N];		/* the node that the session watches, or 0 */

/* In flight to the client. */
bool reading[N];		/* the answer to the read of its own node, */
byte read_data[N];		/* ... with this result */
byte read_version[N];
bool event[N];			/* the watch has fired */
bool proving[N];		/* the answer to a proof */

/* The clients, each under its session's mutex. */
#define NONE 0
#define WAITING 1
#define HELD 2
#define KEPT 3
#define PENDING 4		/* re-acquires, waits for a proof */
#define REQUEUE 5		/* the node is gone, the request creates another */
#define LOST 6
byte state[N];
byte node[N];			/* 0: none */
byte pending_delete[N];		/* a node to be deleted, or 0 */
bool asked[N];
bool is_watched[N];		/* its own node, as far as the client knows */
bool must_read[N];		/* its own node */
byte must_write[N];		/* this to its own node, or 0, */
byte write_version[N];		/* ... over this version */
byte known_age[N] = 2;		/* of the newest write that was confirmed */
bool is_new[N];			/* begins to wait, or the connection is new: asks */
bool is_foreign;		/* another program has deleted a node: only progress is checked */

byte faults = FAULTS;
byte ticks = TICKS;

hidden byte i;
hidden byte place;

#define HAS_GRANT(who) (state[who] == HELD || state[who] == KEPT || state[who] == PENDING)

/* Steps of the ensemble; to be used within d_step. */

inline fire_watch(name) {
	if
	:: watch_of[OWNER(name)] == name -> watch_of[OWNER(name)] = 0; event[OWNER(name)] = true
	:: else
	fi
}

inline change(name, word) {
	data[name] = word;
	version[name]++;
	if
	:: word != REVOKED ->
		assert(word >= furthest[name]);		/* forward */
		furthest[name] = word
	:: else
	fi;
	fire_watch(name)
}

inline append(name) {
	queue[length] = name;
	length++;
	data[name] = MAY;
	furthest[name] = MAY
}

inline remove(name) {
	place = 0;
	do
	:: queue[place] != name -> place++
	:: else -> break
	od;
	data[name] = 0;
	version[name] = 0;
	furthest[name] = 0;
	fire_watch(name);
	length--;
	do
	:: place < length -> queue[place] = queue[place + 1]; place++
	:: else -> break
	od;
	queue[length] = 0
}

inline delete_all_of(who) {
	i = 1;
	do
	:: i < NAMES && OWNER(i) == who && data[i] != 0 -> remove(i); i++
	:: i < NAMES && (OWNER(i) != who || data[i] == 0) -> i++
	:: else -> break
	od
}

/* A quorum write that is executed and answered at once. */
inline write_confirmed(who) {
	age[who] = 0;
	known_age[who] = 0
}

/* Steps of a client; to be used within d_step. */

/* Forgets what is in flight and what is due for the own node. */
inline forget_node(who) {
	node[who] = 0;
	asked[who] = false;
	watch_of[who] = 0;
	reading[who] = false;
	event[who] = false;
	proving[who] = false;
	is_watched[who] = false;
	must_read[who] = false;
	must_write[who] = 0;
	write_version[who] = 0
}

/* Deletes the node; the request, if there is one, goes on with "next". */
inline leave(who, next) {
	pending_delete[who] = node[who];
	is_new[who] = false;
	forget_node(who);
	state[who] = next
}

/* The node exists, and no other client can commit in a mode that conflicts. */
inline assert_holds(who) {
	assert(is_foreign || (alive[who] && data[node[who]] != 0));
	i = 0;
	do
	:: i < N ->
		assert(is_foreign || i == who || state[i] != HELD || known_age[i] == 2 ||
			!CONFLICT(node[i], node[who]));
		i++
	:: else -> break
	od
}

inline grant(who) {
	state[who] = HELD;
	assert_holds(who)
}

/* The own node is gone. */
inline lose_node(who) {
	forget_node(who);
	if
	:: state[who] == HELD -> state[who] = LOST
	:: state[who] == KEPT -> state[who] = NONE
	:: state[who] == WAITING || state[who] == PENDING -> state[who] = REQUEUE
	:: else
	fi
}

#define MAY_LEAVE(who) (pending_delete[who] == 0)
#define MAY_FAIL(kind) (faults > 0 && (KINDS & (kind)))

inline forget_questions() {
	to_ask = 0;
	target = 0;
	target_version = 0
}

/*
 * Lists the queue: the client has the lock, or finds its predecessor and the nodes to ask.  A
 * question that a busy server has refused is asked again in the same way, as if the connection
 * had been lost (zkl__node_advance(), WAITING).
 */
inline list() {
#ifdef NO_REASK
	bool has_asked = before != 0;
#endif
	before = 0;
	if
	:: is_new[me] -> forget_questions()
	:: else
	fi;
	i = 0;
	do
	:: i < length && queue[i] != node[me] ->
		if
		:: CONFLICT(queue[i], node[me]) -> before = queue[i]
		:: else
		fi;
		if
#ifdef ASKS_HOLDER
		/* The defect: does not ask waiting nodes, which may be kept later. */
		:: is_new[me] && OWNER(queue[i]) != me && i == 0 ->
#elif defined(NO_REASK)
		/* The defect: a question is not repeated after a lost connection. */
		:: is_new[me] && OWNER(queue[i]) != me && !has_asked ->
#else
		:: is_new[me] && OWNER(queue[i]) != me ->
#endif
			to_ask = to_ask | (1 << queue[i])
		:: else
		fi;
		i++
	:: else -> break
	od;
	assert(i < length || is_foreign);
	is_new[me] = false;
	if
	:: i == length -> lose_node(me)		/* deleted: queue again */
	:: i < length && before == 0 ->		/* behind a proof, if the last write is old */
		write_confirmed(me);
		grant(me);
		must_read[me] = true
	:: else
	fi;
	if
	:: state[me] != WAITING -> before = 0; forget_questions()
	:: else
	fi
}

/* Reads a node to be asked. */
inline read_next() {
	i = 1;
	do
	:: to_ask & (1 << i) -> break
	:: else -> i++
	od;
	to_ask = to_ask & ~(1 << i);
	if
	:: data[i] == MAY -> target = i; target_version = version[i]
	:: else		/* gone, or asked already */
	fi
}

inline ask() {
	if
#ifdef UNVERSIONED
	/* The defect: overwrites what was written since the read. */
	:: data[target] != 0 -> change(target, ASK)
#else
	:: data[target] != 0 && version[target] == target_version -> change(target, ASK)
#endif
	:: else
	fi;
	target = 0;
	target_version = 0
}

/* The client commits and releases. */
inline commit() {
	assert_holds(me);
	if
#ifdef KEEPS_ASKED
	/* The defect: keeps the node although it was asked for. */
	:: true -> state[me] = KEPT
#else
	:: !asked[me] -> state[me] = KEPT
#endif
	:: else -> leave(me, NONE)
	fi;
	assert(state[me] != KEPT || !asked[me])
}

proctype client(byte me) {
	byte rounds = (me == 0 -> ROUNDS : OTHER_ROUNDS);
	byte guid;
	bool shared;
	byte before;		/* its predecessor */
	int to_ask;		/* names, as bits */
	byte target;		/* was read, is to be asked */
	byte target_version;

next:
	atomic {
		shared = false;
		if
		:: rounds > 0 -> rounds--
#if SHARED
		:: rounds > 0 -> rounds--; shared = true
#endif
		:: rounds == 0 -> goto done
		fi
	};
	if
	/* Re-acquire. */
	:: d_step { state[me] == KEPT && IS_SHARED(node[me]) == shared ->
		if
#ifdef NO_LEASE
		/* The defect: takes the kept lock without a look at the lease. */
		:: is_watched[me] -> grant(me)
#else
		:: is_watched[me] && known_age[me] == 0 -> grant(me)
#endif
		:: else -> state[me] = PENDING
		fi
	   };
		goto proceed
	/* Another mode deletes the kept node first. */
	:: d_step { state[me] == KEPT && IS_SHARED(node[me]) != shared && MAY_LEAVE(me) ->
		leave(me, REQUEUE)
	   }
	:: d_step { state[me] == NONE -> state[me] = REQUEUE }
	fi;

proceed:
	if
	:: d_step { state[me] == REQUEUE && alive[me] && length < ROOM ->
		node[me] = NAME(me, guid, shared);
		guid++;
		append(node[me]);
		write_confirmed(me);
		before = 0;
		forget_questions();
		is_new[me] = true;
		state[me] = WAITING
	   };
		goto proceed
	:: d_step { state[me] == WAITING && alive[me] && (is_new[me] || data[before] == 0) -> list() };
		goto proceed
	:: d_step { state[me] == WAITING && target == 0 && to_ask != 0 && !is_new[me] -> read_next() };
		goto proceed
	:: d_step { state[me] == WAITING && target != 0 && !is_new[me] -> ask() };
		goto proceed
	:: d_step { state[me] == WAITING && MAY_FAIL(GIVE_UP) && MAY_LEAVE(me) ->
		faults--;
		before = 0;
		forget_questions();
		leave(me, NONE)
	   };
		goto next
	:: d_step { state[me] == PENDING && MAY_FAIL(GIVE_UP) ->
		faults--;
		state[me] = KEPT;
		proving[me] = false
	   };
		goto next
	/* The check at commit. */
	:: d_step { state[me] == HELD && known_age[me] == 2 && alive[me] -> write_confirmed(me) };
		goto proceed
	:: d_step { state[me] == HELD && known_age[me] < 2 && (!asked[me] || MAY_LEAVE(me)) -> commit() };
		goto next
	:: d_step { state[me] == LOST -> state[me] = NONE };
		goto next
	fi;
done:	skip
}

/* The own node's data are not those of its create: another client wants it. */
inline be_asked() {
	if
#ifdef GIVE_UP_RACES
	/* The defect: the node can be taken again until the delete is executed. */
	:: state[me] == KEPT -> pending_delete[me] = node[me]
#elif defined(PENDING_FORGETS)
	/* The defect: the answer to the proof grants the lock although a question came before. */
	:: state[me] == KEPT -> leave(me, NONE)
	:: state[me] == PENDING -> pending_delete[me] = node[me]
#else
	:: state[me] == KEPT -> leave(me, NONE)
	:: state[me] == PENDING -> leave(me, REQUEUE)
#endif
	:: state[me] == HELD ->
		asked[me] = true;
		must_write[me] = USE;
		write_version[me] = read_version[me]
	:: else
	fi
}

/* A question too: it may have overwritten one. */
inline be_revoked() {
	if
#ifdef DROPS_REVOKED
	/* The defect: only a holder looks for it. */
	:: state[me] == PENDING -> skip
#endif
#ifdef RESTORES_KNOWN
	/* The defect: writes the state that the client knows. */
	:: !asked[me] -> must_write[me] = MAY; write_version[me] = read_version[me]
#endif
	:: else -> be_asked()
	fi
}

proctype io_thread(byte me) {
end:	do
	/* Reads its own node, with a watch. */
	:: d_step { must_read[me] && !reading[me] && alive[me] ->
		must_read[me] = false;
		reading[me] = true;
		read_data[me] = data[node[me]];
		read_version[me] = version[node[me]];
		watch_of[me] = (data[node[me]] != 0 -> node[me] : 0)
	   }
	:: d_step { reading[me] && (MAY_LEAVE(me) || read_data[me] <= MAY) ->
		reading[me] = false;
		is_watched[me] = read_data[me] != 0;
		if
		:: read_data[me] == 0 -> lose_node(me)
		:: read_data[me] == ASK -> be_asked()
		:: read_data[me] == REVOKED -> be_revoked()
		:: else
		fi;
		read_data[me] = 0;
		read_version[me] = 0
	   }
	:: d_step { event[me] && !reading[me] ->
		event[me] = false;
		is_watched[me] = false;
		must_read[me] = true
	   }
	/* Answers "in use". */
	:: d_step { must_write[me] != 0 && alive[me] ->
		if
		:: data[node[me]] != 0 && version[node[me]] == write_version[me] -> change(node[me], must_write[me])
		:: else
		fi;
		must_write[me] = 0;
		write_version[me] = 0
	   }
	/* The proof of a re-acquire. */
	:: d_step { state[me] == PENDING && !proving[me] && alive[me] ->
		proving[me] = true;
		age[me] = 0
	   }
	:: d_step { proving[me] ->
		proving[me] = false;
		known_age[me] = age[me];
		if
#ifdef OLD_PROOF
		/* The defect: any answer will do. */
		:: true -> grant(me)
#else
		:: known_age[me] == 0 -> grant(me)
#endif
		:: else		/* the answer came too late: once more */
		fi
	   }
	/* The keep time ends. */
	:: d_step { state[me] == KEPT && MAY_FAIL(KEEP_END) && MAY_LEAVE(me) ->
		faults--;
		leave(me, NONE)
	   }
	/* Deletes nodes that are not wanted any more. */
	:: d_step { pending_delete[me] != 0 && alive[me] ->
		if
		:: data[pending_delete[me]] != 0 -> remove(pending_delete[me])
		:: else
		fi;
		pending_delete[me] = 0
	   }
	/* Detects the end of its session. */
	:: d_step { !alive[me] ->
		alive[me] = true;
		age[me] = 2;
		known_age[me] = 2;
		pending_delete[me] = 0;
		lose_node(me)
	   }
	od
}

/* The connection is lost with all that is in flight, and replaced. */
inline lose_connection(who) {
	reading[who] = false;
	read_data[who] = 0;
	read_version[who] = 0;
	event[who] = false;
	proving[who] = false;
	watch_of[who] = 0;
	is_watched[who] = false;
	must_write[who] = 0;
	write_version[who] = 0;
	is_new[who] = state[who] == WAITING;
#ifdef NO_REREAD
	/* The defect: a question asked meanwhile remains unread. */
	must_read[who] = false
#else
	must_read[who] = HAS_GRANT(who)
#endif
}

/* The newest write of the session grows older. */
inline grow_old(who) {
	age[who] = (age[who] < 2 -> age[who] + 1 : 2);
	known_age[who] = (known_age[who] < 2 -> known_age[who] + 1 : 2)
}

#define FAULTS_OF(who) \
	:: d_step { MAY_FAIL(LOSS) -> faults--; lose_connection(who) } \
	:: d_step { ticks > 0 && age[who] + known_age[who] < 4 -> ticks--; grow_old(who) } \
	:: d_step { MAY_FAIL(EXPIRY) && alive[who] && age[who] == 2 -> \
		faults--; delete_all_of(who); alive[who] = false }

/* Faults. They may end at any time, and the rest must still be granted. */
proctype ensemble() {
	do
	FAULTS_OF(0)
	FAULTS_OF(1)
#if N > 2
	FAULTS_OF(2)
#endif
	:: d_step { MAY_FAIL(REVOKE) && length > 0 -> faults--; change(queue[0], REVOKED) }
	:: d_step { MAY_FAIL(DELETE) && length > 0 -> faults--; is_foreign = true; remove(queue[0]) }
	:: d_step { faults = 0; ticks = 0 } -> break
	od
}

init {
	atomic {
		run client(0);
		run io_thread(0);
		run client(1);
		run io_thread(1);
#if N > 2
		run client(2);
		run io_thread(2);
#endif
		run ensemble()
	}
}
