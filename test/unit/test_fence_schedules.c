/*-------------------------------------------------------------------------
 *
 * test_fence_schedules.c
 *		Every schedule of some holders that fence one lock, with the rule of fence_rule.h.
 *
 * Promise: 6.1.  Of two holders, at least one of them exclusive, the earlier one never commits a
 * transaction in which it fenced after the later one has fenced.
 *
 * A holder is a session.  It acquires the lock in either mode, changes the mode, releases it,
 * keeps it and takes it again, in and between its transactions.  The ensemble may end its session at
 * any moment, also while an answer is on its way; the holder does not notice.  The ensemble grants in any order that the
 * modes allow, so its queue needs no model.  Another name stores in the same pair.  The server may
 * crash; a prepared transaction stays.  A standby may be promoted.
 *
 * The states are searched breadth first.  Each seeded defect must break the promise.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "backend/base/fence_rule.h"
#include "tap.h"

#define MAX_HOLDERS 3

typedef enum Defect
{
	NONE,
	LATE_NOTE,					/* the pair is noted when the holder learns of the grant */
	UPGRADE_SILENT,				/* an upgraded hold does not set x */
	UPGRADE_REMEMBERS,			/* a hold that was upgraded again does not set x again */
	SHARER_SILENT,				/* a sharer stores nothing */
	IGNORES_SHARERS,			/* an exclusive holder compares x alone */
	NO_QUESTION,				/* a changed pair passes */
	ASKS_FIRST,					/* the question comes before the heavyweight lock */
	SAVEPOINT,					/* a rollback to a savepoint releases the heavyweight lock */
	KEPT_IS_NEW,				/* a kept node that is taken again counts as a new one */
	TRUSTS_RECOVERY,			/* a hold from recovery counts as any other */
	N_DEFECTS
} Defect;

static const char *const defect_names[] = {
	"", "the pair is noted after the grant", "an upgraded hold does not set x",
	"a hold that is upgraded again does not set x again", "a sharer stores nothing",
	"an exclusive holder ignores sharers", "no question", "the question comes before the heavyweight lock",
	"a rollback to a savepoint releases the heavyweight lock", "a kept node counts as new", "a hold from recovery counts as any other"
};

/* What a scene has, besides the holders. */
typedef struct Scene
{
	const char *name;
	int			n;				/* holders */
	const char *modes;			/* in which each one acquires: 's', 'x', or 'b' for both */
	int			tenures;		/* acquisitions of each holder */
	int			transactions;	/* of each holder */
	int			changes;		/* of the mode, of each holder */
	int			keeps;			/* of each holder */
	int			others;			/* fences of the other name */
	bool		crashes;		/* with a prepared transaction */
	int			standby;		/* index of the first holder on a standby; 0: no standby */
} Scene;

typedef enum Step
{
	IDLE,						/* holds nothing */
	NOTED,						/* has noted the pair, and waits for the grant */
	HELD,
	KEPT,
	UPGRADING,
	LOCKED,						/* has the heavyweight lock, and has read the pair */
	SURE						/* need not ask, or has the answer */
} Step;

/* All members are bytes, so that a state can be compared as a whole. */
typedef struct Holder
{
	uint8_t		step;
	uint8_t		mode;			/* that the holder knows: 0, 1 shared, 2 exclusive */
	uint8_t		granted;		/* by the ensemble, as long as the node exists */
	uint8_t		answered;		/* the ensemble has granted what it waits for */
	uint8_t		ended;			/* its session has ended */
	uint8_t		shared_since;	/* grants, numbered in their order */
	uint8_t		exclusive_since;
	uint8_t		mark[4];		/* ZklockFenceMark: x, s, is_known, has_stored */
	uint8_t		upgraded;
	uint8_t		now[2];			/* the pair that it has read */
	uint8_t		in_transaction;
	uint8_t		lock;			/* heavyweight, as "mode" */
	uint8_t		fenced[2];		/* in this transaction: the first grant, in each mode */
	uint8_t		last[2];		/* fenced at any time: the last grant, in each mode */
	uint8_t		left[4];		/* tenures, transactions, changes, keeps */
} Holder;

typedef struct State
{
	Holder		holder[MAX_HOLDERS];
	uint8_t		memory[2][2];	/* of the primary, of the standby: x, s */
	uint8_t		prepared[4];	/* 1 + owner, heavyweight lock, fenced[2] */
	uint8_t		others;			/* left */
	uint8_t		crashes;		/* left */
	uint8_t		promoted;
	uint8_t		grants;			/* the number of the last one */
} State;

typedef struct Search
{
	const Scene *scene;
	Defect		defect;
	State	   *states;
	uint32_t   *table;			/* 1 + index in "states" */
	uint32_t	n;
	uint32_t	room;			/* of the table; a power of two */
	bool		violated;
	int			n_alone;		/* fences that passed without a question */
	int			n_asked;
	int			n_refused;
} Search;

static Search search;


/*
 * The set of states
 */

/* Renames numbers to 0, 1, 2 ...: of generations only equality counts, of grants their order. */
static void
rename_generations(State *s)
{
	uint8_t		names[256];
	uint8_t		n = 0;

	memset(names, 0xff, sizeof(names));
#define RENAME(value) \
	do { if (names[value] == 0xff) names[value] = n++; (value) = names[value]; } while (0)
	for (int server = 0; server < 2; server++)
		for (int i = 0; i < 2; i++)
			RENAME(s->memory[server][i]);
	for (int h = 0; h < search.scene->n; h++)
		for (int i = 0; i < 2; i++)
		{
			RENAME(s->holder[h].mark[i]);
			RENAME(s->holder[h].now[i]);
		}
#undef RENAME
}

static void
rename_grants(State *s)
{
	uint8_t    *all[MAX_HOLDERS * 6 + 2];
	bool		used[256] = {true};
	uint8_t		names[256];
	int			n = 0;

	for (int h = 0; h < search.scene->n; h++)
	{
		Holder	   *holder = &s->holder[h];

		all[n++] = &holder->shared_since;
		all[n++] = &holder->exclusive_since;
		for (int i = 0; i < 2; i++)
		{
			all[n++] = &holder->fenced[i];
			all[n++] = &holder->last[i];
		}
	}
	all[n++] = &s->prepared[2];
	all[n++] = &s->prepared[3];
	for (int i = 0; i < n; i++)
		used[*all[i]] = true;
	s->grants = 0;
	for (int i = 1; i < 256; i++)
		if (used[i])
			names[i] = ++s->grants;
	names[0] = 0;
	for (int i = 0; i < n; i++)
		*all[i] = names[*all[i]];
}

static uint32_t *
find_slot(const State *s)
{
	const uint8_t *bytes = (const uint8_t *) s;
	uint64_t	hash = UINT64_C(14695981039346656037);
	uint32_t	slot;

	for (size_t i = 0; i < sizeof(*s); i++)
		hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
	slot = (uint32_t) (hash ^ hash >> 32) & (search.room - 1);
	while (search.table[slot] && memcmp(&search.states[search.table[slot] - 1], s, sizeof(*s)) != 0)
		slot = (slot + 1) & (search.room - 1);
	return &search.table[slot];
}

static void
make_room(void)
{
	search.room = search.room ? search.room * 2 : 1 << 16;
	free(search.table);
	search.table = calloc(search.room, sizeof(uint32_t));
	search.states = realloc(search.states, sizeof(State) * (search.room / 2 + 1));
	if (search.table == NULL || search.states == NULL)
		abort();
	for (uint32_t i = 0; i < search.n; i++)
		*find_slot(&search.states[i]) = i + 1;
}

static void
add(State s)
{
	uint32_t   *slot;

	rename_generations(&s);
	rename_grants(&s);
	if (search.n >= search.room / 2)
		make_room();
	slot = find_slot(&s);
	if (*slot)
		return;
	search.states[search.n++] = s;
	*slot = search.n;
}


/*
 * The parts of a holder's steps
 */

static bool
conflict(int one, int other)
{
	return one && other && one + other > 2;
}

static int
server_of(const State *s, int h)
{
	return s->promoted || (search.scene->standby && h >= search.scene->standby);
}

static bool
in_recovery(const State *s, int h)
{
	return server_of(s, h) == 1 && !s->promoted;
}

static ZklockFenceMark
mark_of(const Holder *h)
{
	return (ZklockFenceMark)
	{
		{
			h->mark[0], h->mark[1]
		}, h->mark[2], h->mark[3]
	};
}

static void
set_mark(Holder *h, ZklockFenceMark mark)
{
	h->mark[0] = (uint8_t) mark.pair.x;
	h->mark[1] = (uint8_t) mark.pair.s;
	h->mark[2] = mark.is_known;
	h->mark[3] = mark.has_stored;
}

static void
note(State *s, int h, bool is_known)
{
	const uint8_t *memory = s->memory[server_of(s, h)];
	ZklockFenceMark mark;

	zklock_fence_rule_remember(&mark, (ZklockFencePair) {memory[0], memory[1]});
	mark.is_known = is_known && (!in_recovery(s, h) || search.defect == TRUSTS_RECOVERY);
	set_mark(&s->holder[h], mark);
}

/* Nothing of the hold is left in the session. */
static void
forget(Holder *h)
{
	h->step = IDLE;
	h->mode = h->granted = h->answered = h->ended = h->upgraded = 0;
	h->shared_since = h->exclusive_since = 0;
	memset(h->mark, 0, sizeof(h->mark));
	memset(h->now, 0, sizeof(h->now));
}

static void
end_transaction(Holder *h)
{
	h->in_transaction = h->lock = 0;
	memset(h->fenced, 0, sizeof(h->fenced));
}

/* Did another holder than "owner" fence, in a conflicting mode, with a later grant? */
static bool
is_overtaken(const State *s, int owner, const uint8_t *fenced)
{
	for (int h = 0; h < search.scene->n; h++)
		for (int mine = 0; mine < 2; mine++)
			for (int theirs = 0; theirs < 2; theirs++)
				if (h != owner && fenced[mine] && conflict(mine + 1, theirs + 1) &&
					s->holder[h].last[theirs] > fenced[mine])
					return true;
	return false;
}

/* Can the ensemble grant this mode? */
static bool
is_free(const State *s, int h, int mode)
{
	for (int i = 0; i < search.scene->n; i++)
		if (i != h && conflict(s->holder[i].granted, mode))
			return false;
	return true;
}

static bool
can_lock(const State *s, int h, int mode)
{
	for (int i = 0; i < search.scene->n; i++)
		if (i != h && server_of(s, i) == server_of(s, h) && conflict(s->holder[i].lock, mode))
			return false;
	return !conflict(s->prepared[1], mode);
}


/*
 * Steps
 */

/* The ensemble ends the session, and the holder does not notice it. */
static void
expires(State s, int h)
{
	if (s.holder[h].ended || (s.holder[h].step == IDLE && !s.holder[h].granted))
		return;
	s.holder[h].ended = true;
	s.holder[h].granted = 0;
	add(s);
}

static void
acquires(State s, int h, int mode)
{
	Holder	   *holder = &s.holder[h];

	if (holder->step != IDLE || holder->granted || !holder->left[0] ||
		(search.scene->modes[h] == 's' && mode == 2) || (search.scene->modes[h] == 'x' && mode == 1))
		return;
	holder->left[0]--;
	holder->ended = false;
	holder->step = NOTED;
	holder->mode = (uint8_t) mode;
	note(&s, h, true);
	add(s);
}

/* First in the ensemble; then, perhaps much later, the holder learns of it, or of the end of its session. */
static void
is_granted(State s, int h)
{
	Holder	   *holder = &s.holder[h];
	bool		upgrades = holder->step == UPGRADING;

	if ((holder->step != NOTED && !upgrades) || holder->ended || holder->answered || !is_free(&s, h, holder->mode))
		return;
	holder->granted = holder->mode;
	holder->answered = true;
	s.grants++;
	if (holder->mode == 2)
		holder->exclusive_since = s.grants;
	if (!upgrades)
		holder->shared_since = s.grants;
	add(s);
}

static void
learns(State s, int h)
{
	Holder	   *holder = &s.holder[h];
	bool		upgrades = holder->step == UPGRADING;
	ZklockFenceMark mark = mark_of(holder);

	if ((holder->step != NOTED && !upgrades) || (!holder->answered && !holder->ended))
		return;
	if (holder->answered)
	{
		holder->step = HELD;
		holder->answered = false;
		holder->upgraded |= upgrades;
		if (upgrades && search.defect != UPGRADE_REMEMBERS)
			zklock_fence_rule_upgraded(&mark);
		set_mark(holder, mark);
		if (!upgrades && search.defect == LATE_NOTE)
			note(&s, h, true);
	}
	else
		forget(holder);
	add(s);
}

static void
changes(State s, int h)
{
	Holder	   *holder = &s.holder[h];

	if (holder->step != HELD || !holder->left[2])
		return;
	holder->left[2]--;
	if (holder->mode == 1)
	{
		holder->step = UPGRADING;
		holder->exclusive_since = 0;
		holder->mode = 2;
	}
	else
	{
		holder->mode = 1;
		holder->upgraded = false;
		holder->exclusive_since = 0;
		holder->granted = holder->granted ? 1 : 0;
	}
	add(s);
}

static void
releases(State s, int h)
{
	Holder	   *holder = &s.holder[h];
	State		kept = s;

	if (holder->step != HELD)
		return;
	forget(holder);
	add(s);
	if (!kept.holder[h].left[3])
		return;
	kept.holder[h].left[3]--;
	kept.holder[h].step = KEPT;
	add(kept);
}

static void
takes_again(State s, int h)
{
	if (s.holder[h].step != KEPT)
		return;
	s.holder[h].step = HELD;
	note(&s, h, search.defect == KEPT_IS_NEW);
	add(s);
}

/* Begins a transaction, if necessary. */
static void
reads_pair(State s, int h)
{
	Holder	   *holder = &s.holder[h];
	const uint8_t *memory = s.memory[server_of(&s, h)];
	ZklockFenceMark mark = mark_of(holder);
	bool		exclusive = holder->mode == 2 && search.defect != IGNORES_SHARERS;

	if (holder->step != HELD || in_recovery(&s, h) || !can_lock(&s, h, holder->mode) ||
		(!holder->in_transaction && !holder->left[1]))
		return;
	holder->left[1] -= !holder->in_transaction;
	holder->in_transaction = true;
	if (holder->lock < holder->mode)
		holder->lock = holder->mode;
	memcpy(holder->now, memory, 2);
	holder->step = LOCKED;
	if (search.defect == NO_QUESTION || zklock_fence_rule_is_sure(&mark, (ZklockFencePair) {memory[0], memory[1]}, exclusive))
	{
		holder->step = SURE;
		search.n_alone++;
	}
	add(s);
}

/* The defect: the answer is from before the heavyweight lock. */
static void
asks_too_early(State s, int h)
{
	Holder	   *holder = &s.holder[h];

	if (search.defect != ASKS_FIRST || holder->step != HELD || holder->granted != holder->mode)
		return;
	holder->mark[2] = 2;		/* asked */
	add(s);
}

static void
asks(State s, int h)
{
	Holder	   *holder = &s.holder[h];
	bool		confirmed = holder->granted == holder->mode;

	if (holder->step != LOCKED)
		return;
	if (search.defect == ASKS_FIRST)
		confirmed = holder->mark[2] == 2;
	*(confirmed ? &search.n_asked : &search.n_refused) += 1;
	if (confirmed)
		holder->step = SURE;
	else
	{
		forget(holder);
		end_transaction(holder);
	}
	add(s);
}

static void
passes(State s, int h)
{
	Holder	   *holder = &s.holder[h];
	uint8_t    *memory = s.memory[server_of(&s, h)];
	int			kind = holder->mode - 1;
	uint8_t		since = kind ? holder->exclusive_since : holder->shared_since;
	ZklockFenceMark mark = mark_of(holder);
	ZklockFencePair now = {holder->now[0], holder->now[1]};
	ZklockFencePair next;

	if (holder->step != SURE)
		return;
	if ((search.defect == UPGRADE_SILENT && holder->upgraded) || (search.defect == SHARER_SILENT && holder->mode == 1))
		mark.has_stored = true;
	next = zklock_fence_rule_pass(&mark, now, holder->mode == 2, 200);
	if (next.x != now.x)
		memory[0] = (uint8_t) next.x;
	if (next.s != now.s)
		memory[1] = (uint8_t) next.s;
	set_mark(holder, mark);
	memset(holder->now, 0, sizeof(holder->now));
	holder->step = HELD;
	if (holder->fenced[kind] == 0 || holder->fenced[kind] > since)
		holder->fenced[kind] = since;
	if (holder->last[kind] < since)
		holder->last[kind] = since;
	add(s);
}

static void
rolls_back_to_savepoint(State s, int h)
{
	if (search.defect != SAVEPOINT || s.holder[h].step != HELD || !s.holder[h].lock)
		return;
	s.holder[h].lock = 0;
	add(s);
}

static void
ends(State s, int h)
{
	Holder	   *holder = &s.holder[h];
	State		prepared = s;

	if (!holder->in_transaction || holder->step > UPGRADING)
		return;
	search.violated |= is_overtaken(&s, h, holder->fenced);
	end_transaction(holder);
	add(s);						/* a rollback has the same result */
	if (!search.scene->crashes || s.prepared[0])
		return;
	prepared.prepared[0] = (uint8_t) (1 + h);
	prepared.prepared[1] = prepared.holder[h].lock;
	memcpy(&prepared.prepared[2], prepared.holder[h].fenced, 2);
	end_transaction(&prepared.holder[h]);
	add(prepared);
}

/* The steps of no holder. */
static void
world(State s)
{
	State		next = s;

	for (int i = 0; i < 2 && s.others; i++)
	{
		next = s;
		next.others--;
		next.memory[s.promoted][i] = 200;
		add(next);
	}
	if (s.prepared[0])
	{
		search.violated |= is_overtaken(&s, s.prepared[0] - 1, &s.prepared[2]);
		next = s;
		memset(next.prepared, 0, sizeof(next.prepared));
		add(next);
	}
	next = s;
	if (s.crashes)				/* the nodes of the dead stay until their sessions expire */
	{
		next.crashes--;
		memset(next.memory, 0, sizeof(next.memory));
		for (int h = 0; h < search.scene->n; h++)
		{
			uint8_t		granted = s.holder[h].granted;

			forget(&next.holder[h]);
			next.holder[h].granted = granted;
			end_transaction(&next.holder[h]);
		}
		add(next);
	}
	next = s;
	if (search.scene->standby && !s.promoted)
	{
		next.promoted = true;
		for (int h = 0; h < search.scene->standby; h++)
		{
			uint8_t		granted = s.holder[h].granted;

			forget(&next.holder[h]);
			next.holder[h].granted = granted;
			end_transaction(&next.holder[h]);
		}
		add(next);
	}
}

/* Searches until the promise is broken, or everything has been seen. */
static bool
holds(const Scene *scene, Defect defect)
{
	State		first = {.others = (uint8_t) scene->others, .crashes = scene->crashes};

	search.scene = scene;
	search.defect = defect;
	search.n = 0;
	search.room = 0;
	search.violated = false;
	search.n_alone = search.n_asked = search.n_refused = 0;
	for (int h = 0; h < scene->n; h++)
	{
		const int	left[] = {scene->tenures, scene->transactions, scene->changes, scene->keeps};

		for (int i = 0; i < 4; i++)
			first.holder[h].left[i] = (uint8_t) left[i];
	}
	add(first);
	for (uint32_t i = 0; i < search.n && !search.violated; i++)
	{
		State		s = search.states[i];

		world(s);
		for (int h = 0; h < scene->n; h++)
		{
			expires(s, h);
			for (int mode = 1; mode <= 2; mode++)
				acquires(s, h, mode);
			is_granted(s, h);
			learns(s, h);
			changes(s, h);
			releases(s, h);
			takes_again(s, h);
			reads_pair(s, h);
			asks_too_early(s, h);
			asks(s, h);
			passes(s, h);
			rolls_back_to_savepoint(s, h);
			ends(s, h);
		}
	}
	return !search.violated;
}

static const Scene scenes[] = {
	{.name = "two holders of any mode",.n = 2,.modes = "bb",.tenures = 2,.transactions = 1},
	{.name = "two holders with two transactions",.n = 2,.modes = "bb",.tenures = 1,.transactions = 2,.others = 2},
	{.name = "two holders that change their modes",.n = 2,.modes = "bb",.tenures = 1,.transactions = 1,.changes = 3},
	{.name = "two holders that keep the lock",.n = 2,.modes = "xb",.tenures = 1,.transactions = 2,.keeps = 1},
	{.name = "three holders",.n = 3,.modes = "xsb",.tenures = 1,.transactions = 1},
	{.name = "a crash with a prepared transaction",.n = 2,.modes = "bx",.tenures = 2,.transactions = 1,.crashes = true},
	{.name = "a promotion",.n = 3,.modes = "xbx",.tenures = 1,.transactions = 1,.standby = 1},
};

#define N_SCENES (int) (sizeof(scenes) / sizeof(scenes[0]))

int
main(void)
{
	for (int i = 0; i < N_SCENES; i++)
	{
		ok(holds(&scenes[i], NONE), "%s: no later holder's fence is overtaken", scenes[i].name);
		diag("%s: %u states, %d fences without a question, %d with one, %d refused", scenes[i].name,
			 search.n, search.n_alone, search.n_asked, search.n_refused);
		ok(search.n_alone > 0 && search.n_asked > 0 && search.n_refused > 0,
		   "%s: fences pass without a question, with one, and are refused", scenes[i].name);
	}
	for (Defect defect = NONE + 1; defect < N_DEFECTS; defect++)
	{
		int			found = 0;

		while (found < N_SCENES && holds(&scenes[found], defect))
			found++;
		ok(found < N_SCENES, "found: %s (%s)", defect_names[defect],
		   found < N_SCENES ? scenes[found].name : "nowhere");
		diag("%s: %u states", defect_names[defect], search.n);
	}
	free(search.states);
	free(search.table);
	return done();
}
