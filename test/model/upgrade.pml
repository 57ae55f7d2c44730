/*
 * upgrade.pml: shared and exclusive holders, upgrade and downgrade, as in
 * src/recipe/queue/queue_order.c (which node precedes which) and move.c.
 *
 * Owns the order of the nodes of clients that hold, upgrade, downgrade, give up
 * and release. queue.pml has faults; this model has none. test/model/run runs the
 * variants.
 */
#ifndef N
#define N 3			/* clients */
#endif
#ifndef UPGRADES
#define UPGRADES N		/* upgrades in all */
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 2		/* waits that end without the lock */
#endif

/*
 * The nodes: two for each client, its first (the anchor) and the writer node
 * that upgrades it. Of two nodes with one number the node with the smaller index
 * is first, which stands for the smaller name.
 */
#define SLOTS (2 * N)
#define ANCHOR (2 * me)
#define UPGRADE (2 * me + 1)
#define OWNER(node) ((node) / 2)
#define NONE SLOTS
byte number[SLOTS];		/* 0: no such node */
bool writer[SLOTS];
byte last_number;

/* A node as a watch sees it: a new number or mode is another node. */
#define IDENTITY(node) (2 * number[node] + writer[node])
#define BEFORE(a, b) (number[a] < number[b] || (number[a] == number[b] && (a) < (b)))
#define FOREIGN_BEFORE(a, b) (number[a] != 0 && OWNER(a) != OWNER(b) && BEFORE(a, b))

#define SHARED 1
#define EXCLUSIVE 2
byte granted[N];
byte upgrades = UPGRADES;
byte give_ups = GIVE_UPS;

hidden byte i;

inline grant(mode) {
	granted[me] = mode;
	i = 0;
	do
	:: i < N ->
		assert(i == me || granted[i] + granted[me] <= SHARED + SHARED || granted[i] == 0);
		i++
	:: else -> break
	od;
	i = 0
}

inline create(node, mode) {
	last_number++;
	number[node] = last_number;
	writer[node] = (mode == EXCLUSIVE -> 1 : 0)
}

inline delete(node) {
	number[node] = 0;
	writer[node] = false
}

/* Sets other to the predecessor of a first node. */
inline position_of_anchor() {
	other = NONE;
	i = 0;
	do
	:: i < SLOTS ->
		if
		:: FOREIGN_BEFORE(i, ANCHOR) && (writer[ANCHOR] || writer[i]) &&
			(other == NONE || BEFORE(other, i)) -> other = i
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	seen = (other == NONE -> 0 : IDENTITY(other))
}

/* Sets rival to the first foreign writer, and other to the nearest sharer before it. */
inline position_of_upgrade() {
	rival = NONE;
	other = NONE;
	deadlock = false;
	i = 0;
	do
	:: i < SLOTS ->
		if
		:: FOREIGN_BEFORE(i, UPGRADE) && writer[i] &&
			(rival == NONE || BEFORE(i, rival)) -> rival = i
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < SLOTS ->
		if
		:: FOREIGN_BEFORE(i, UPGRADE) && !writer[i] &&
			(rival == NONE || !BEFORE(rival, i)) ->
#ifndef NO_DEADLOCK
			deadlock = deadlock || (i % 2 == 0 && writer[i + 1] &&
						FOREIGN_BEFORE(i + 1, UPGRADE));
#endif
			if
			:: other == NONE || BEFORE(other, i) -> other = i
			:: else
			fi
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	if
	:: rival != NONE && number[rival] != number[UPGRADE] -> seen = IDENTITY(rival)
	:: else ->
		rival = NONE;
		seen = (other == NONE -> 0 : IDENTITY(other))
	fi;
#ifdef NO_MOVE_UP
	/* The defect: a waiting writer may give up, which admits the readers behind it. */
	rival = NONE;
	seen = (other == NONE -> 0 : IDENTITY(other));
#endif
	if
	:: deadlock -> rival = NONE; other = NONE
	:: else
	fi
}

proctype client(byte me) {
	byte other;
	byte rival;
	byte seen;
	bool deadlock;

	if
	:: d_step { create(ANCHOR, SHARED) }
	:: d_step { create(ANCHOR, EXCLUSIVE) }
	fi;

listing:
	skip;
	d_step { position_of_anchor() };
	if
	:: other == NONE && !writer[ANCHOR] -> d_step { grant(SHARED) }; goto sharing
	:: other == NONE && writer[ANCHOR] -> d_step { grant(EXCLUSIVE) }; goto exclusive
	:: else
	fi;
	if
	:: IDENTITY(other) != seen -> goto listing
	:: d_step { give_ups > 0 -> give_ups--; delete(ANCHOR) }; goto done
	fi;

sharing:
	if
	:: d_step { upgrades > 0 && number[UPGRADE] == 0 -> upgrades--; create(UPGRADE, EXCLUSIVE) };
		goto upgrading
	/* A node that was given up is deleted in a later step. */
	:: d_step { number[UPGRADE] != 0 -> delete(UPGRADE) }; goto sharing
	:: d_step { granted[me] = 0; delete(ANCHOR) }; goto leaving
	fi;

upgrading:
	skip;
	d_step { position_of_upgrade() };
	if
	:: deadlock -> deadlock = false; goto sharing
	:: !deadlock && rival != NONE ->
		/* MOVING_UP: moves up, if the writer still exists. */
		d_step {
			if
#ifdef MOVE_UP_WITHOUT_CHECK
			/* The defect: the readers behind the writer may have been admitted already. */
			:: true -> number[UPGRADE] = seen / 2
#else
			:: IDENTITY(rival) == seen -> number[UPGRADE] = number[rival]
			:: else
#endif
			fi;
			rival = NONE;
			other = NONE;
			seen = 0
		};
		goto upgrading
	:: !deadlock && rival == NONE && other == NONE ->
		d_step { grant(EXCLUSIVE) };
		goto upgraded
	:: else
	fi;
	if
	:: IDENTITY(other) != seen -> goto upgrading
	:: d_step { give_ups > 0 -> give_ups--; other = NONE; seen = 0 }; goto sharing
	fi;

upgraded:
	if
	/* Reduces the upgrade: the anchor has existed all the time. */
	:: d_step { granted[me] = SHARED };
		goto sharing
	:: d_step { granted[me] = 0; delete(ANCHOR) }; goto leaving
	fi;

exclusive:
	if
	/* Downgrade: a reader node with the writer's number, in one multi. */
#ifdef DOWNGRADE_AT_END
	/* The defect: the reader queues at the end. */
	:: d_step { granted[me] = SHARED; create(ANCHOR, SHARED) };
#else
	:: d_step { granted[me] = SHARED; writer[ANCHOR] = false };
#endif
		goto sharing
	:: d_step { granted[me] = 0; delete(ANCHOR) }; goto leaving
	fi;

leaving:
#ifdef FORGET_UPGRADE
	/* The defect: only the anchor is released. */
	goto done;
#endif
	if
	:: d_step { number[UPGRADE] != 0 -> delete(UPGRADE) }
	:: number[UPGRADE] == 0
	fi;
done:
	skip
}

/* When all clients are done, no node is left. */
active proctype quiet() {
end:	d_step { _nr_pr == 1 -> i = 0 };
	do
	:: i < SLOTS -> assert(number[i] == 0); i++
	:: else -> break
	od
}

init {
	atomic {
		i = 0;
		run client(0);
		run client(1);
#if N > 2
		run client(2);
#endif
#if N > 3
		run client(3);
#endif
		i = 0
	}
}
