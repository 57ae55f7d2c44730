/*
 * list_elision.pml: when is a new node first without a list, as in
 * src/recipe/queue/list_elision.c?
 *
 * Owns the reasoning about numbers and transaction ids: N clients acquire one lock
 * repeatedly, shared or exclusively; its znode may be deleted when it is empty and
 * created again, and the ensemble may be restored from a copy. queue.pml has faults;
 * this model has none. test/model/run runs the variants.
 *
 * Only creates of nodes have transactions of their own here. All other operations, like
 * deletes of nodes and deletes and creates of the znode, may share the transaction of a
 * create, which is the worst case.
 */
#ifndef N
#define N 2			/* clients */
#endif
#ifndef CREATES
#define CREATES 7		/* nodes created in all */
#endif
#ifndef RESTORES
#define RESTORES 1
#endif
#ifndef SPARE
#define SPARE 0			/* added to the bound */
#endif

/* The ensemble. */
bool exists;			/* the lock's znode */
byte counter;			/* number of the next child */
byte id;			/* of the last transaction */
byte made;			/* nodes created so far */
byte restores = RESTORES;
byte age;			/* restores so far */

/* Each client's node. */
bool alive[N];
bool shared[N];
byte number[N];
byte made_by[N];		/* the transaction */
byte made_at[N];		/* the age */
bool granted[N];

#define BEFORE(j) (j != me && alive[j] && number[j] < number[me] && !(shared[j] && shared[me]))
#if N == 2
#define BEHIND (BEFORE(0) || BEFORE(1))
#define EMPTY !(alive[0] || alive[1])
#elif N == 3
#define BEHIND (BEFORE(0) || BEFORE(1) || BEFORE(2))
#define EMPTY !(alive[0] || alive[1] || alive[2])
#endif

/* Each client's last node that had no predecessor. */
bool known[N];
byte last_number[N];
byte last_id[N];

hidden byte i;

#ifdef NO_BOUND
#define NEAR true
#else
#define NEAR (made_by[me] - last_id[me] <= last_number[me] + 1 + SPARE)
#endif

#ifdef NO_NUMBER
#define NEXT (number[me] > last_number[me])
#else
#define NEXT (number[me] == last_number[me] + 1)
#endif

#define PROVEN (number[me] == 0 || (known[me] && NEXT && made_by[me] > last_id[me] && NEAR))

#ifdef NOTE_SHARED
#define WORTH_NOTING true
#else
#define WORTH_NOTING (proven || !shared[me])
#endif

inline grant() {
	granted[me] = true;
	i = 0;
	do
	:: i < N ->
		assert(i == me || !(granted[i] && granted[me]) || (shared[i] && shared[me]));
		i++
	:: else -> break
	od;
	i = 0;
	if
	:: WORTH_NOTING ->
		known[me] = true;
		last_number[me] = number[me];
		last_id[me] = made_by[me]
	:: else
	fi
}

inline create() {
	if
	:: !exists -> exists = true; counter = 0
	:: else
	fi;
	made++;
	id++;
	alive[me] = true;
	number[me] = counter;
	made_by[me] = id;
	made_at[me] = age;
	counter++
}

proctype client(byte me) {
	bool proven;

	do
	:: atomic { made < CREATES ->
		if
		:: shared[me] = true
		:: shared[me] = false
		fi;
		create()
	   };
	   /* The answer to the create. */
	   proven = PROVEN;
	   if
	   :: atomic { made_at[me] == age && proven -> grant() }
	   /* The list is repeated until the node has no predecessor. */
	   :: atomic { made_at[me] == age && !proven && !BEHIND -> grant() }
	   /* A restored ensemble has neither the node nor the session. */
	   :: made_at[me] != age
	   fi;
	   atomic {
		proven = false;
		if
		:: made_at[me] == age -> granted[me] = false; alive[me] = false
		:: else
		fi
	   }
	:: made >= CREATES -> break
	od
}

/* The server deletes the znode when it is empty. */
active proctype reaper() {
end:	do
	:: atomic { exists && EMPTY -> exists = false }
	od
}

/* Restores the initial state; connections break, and sessions are unknown. */
active proctype operator() {
end:	do
	:: atomic { restores > 0 ->
		restores--;
		age++;
		exists = false;
		counter = 0;
		id = 0;
		i = 0;
		do
		:: i < N ->
			alive[i] = false;
			granted[i] = false;
			shared[i] = false;
			number[i] = 0;
			made_by[i] = 0;
#ifndef KEEP_OVER_CONNECTIONS
			known[i] = false;
			last_number[i] = 0;
			last_id[i] = 0;
#endif
			i++
		:: else -> break
		od;
		i = 0
	   }
	od
}

init {
	atomic {
		i = 0;
		do
		:: i < N -> run client(i); i++
		:: else -> break
		od;
		i = 0
	}
}
