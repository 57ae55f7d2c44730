/*-------------------------------------------------------------------------
 *
 * truth.c
 *		Who of the parties of a scene waits for whom, in truth.
 *
 * Taken from the nodes in the fake ensemble and from what the test said, not from
 * what was told.  Sets of parties are bits.  Declared in waiters.h.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "node.h"
#include "waiters.h"

/* Somebody who is no party: can go on. */
#define STRANGER (1u << MAX_PARTIES)

/* What one party needs: all of these, and any of those (0: no such need). */
typedef struct Truth
{
	unsigned	all_of;
	unsigned	any_of;
} Truth;

static unsigned
bit_of(const Party *party)
{
	return 1u << (party - parties);
}

static unsigned
owner_of(const FakeNode *node)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (parties[i].session && node->owner == fake_session_id(parties[i].client))
			return 1u << i;
	return STRANGER;
}


/*
 * Queues
 */

/* A node in a queue. */
typedef struct Place
{
	const char *queue;
	const char *name;
	ZklContender c;
	bool		upgrade;
} Place;

static bool
read_place(const FakeNode *node, const char *queue, Place *place)
{
	place->queue = queue;
	place->name = fake_tree_child(node->path, queue);
	return place->name && zkl_parse_child(place->name, &place->c);
}

static bool
is_before(const Place *a, const Place *b)
{
	return zkl_is_before(a->c.number, a->name, b->c.number, b->name);
}

/* Is there a writer of somebody else's, of none of those gone, before the sharer? */
static bool
is_behind_writer(const Place *sharer, const Place *own, unsigned gone)
{
	Place		w;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (!(owner_of(node) & gone) && read_place(node, own->queue, &w) &&
			w.c.writer && w.c.owner != own->c.owner && is_before(&w, sharer))
			return true;
	return false;
}

/* Must this one go before the own node is first? */
static bool
is_in_the_way(const Place *other, const Place *own, unsigned gone)
{
	if (other->c.owner == own->c.owner || !is_before(other, own))
		return false;
	if (!own->upgrade)
		return other->c.writer || own->c.writer;
	return !other->c.writer && !is_behind_writer(other, own, gone);
}

/* The owners of all nodes in the way of the party's; *found tells if it has one. */
static unsigned
before_in_queue(const Party *party, const char *queue, bool upgrade,
				unsigned gone, bool *found)
{
	unsigned	before = 0;
	Place		own;
	Place		other;

	for (FakeNode *mine = fake_tree_first(); mine; mine = mine->next)
	{
		if (owner_of(mine) != bit_of(party) || !read_place(mine, queue, &own) ||
			(upgrade && !own.c.writer))
			continue;
		*found = true;
		own.upgrade = upgrade;
		for (FakeNode *node = fake_tree_first(); node; node = node->next)
			if (!(owner_of(node) & gone) && read_place(node, queue, &other) &&
				is_in_the_way(&other, &own, gone))
				before |= owner_of(node);
	}
	return before;
}

/* Everybody in a queue. */
static unsigned
all_in_queue(const char *queue, unsigned gone)
{
	unsigned	all = 0;
	Place		place;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (read_place(node, queue, &place))
			all |= owner_of(node);
	return all & ~gone;
}


/*
 * What a party needs
 */

static bool
is_kazoo(void)
{
	return scene_config.dialect == ZKL_DIALECT_KAZOO;
}

/* Who has permits, if there is none left, and what the party gave up is gone. */
static unsigned
permit_owners(const Party *party, const Ask *ask, unsigned gone)
{
	const char *parent = pool_of(ask->names[0], is_kazoo() ? "" : "/leases");
	int			held = permits_of(party, ask->names[0]);
	unsigned	owners = 0;
	int			n = 0;
	int			own = 0;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
	{
		unsigned	owner = owner_of(node);

		if (!fake_tree_child(node->path, parent) || (owner & gone) || node->owner == 0)
			continue;
		n++;
		owners |= owner;
		own += owner == bit_of(party);
	}
	if (own > held + 1 || n - (own > held) < ask->size)
		return 0;
	return owners;
}

static Truth
truth_of_permit(const Party *party, const Ask *ask, unsigned gone)
{
	Truth		truth = {0, 0};
	bool		found = false;

	truth.all_of = before_in_queue(party, pool_of(ask->names[0], is_kazoo() ? "-__lock__" : "/locks"),
								   false, gone, &found);
	if (found && truth.all_of == 0)
		truth.any_of = permit_owners(party, ask, gone);
	return truth;
}

static unsigned
needs_of_locks(const Party *party, const Ask *ask, unsigned gone)
{
	unsigned	needs = 0;
	bool		found;

	for (int i = 0; i < ask->n; i++)
	{
		char		queue[300];

		snprintf(queue, sizeof(queue), "%s/%s", SCENE_LOCKS, ask->names[i]);
		needs |= before_in_queue(party, queue,
								 mode_of(party, ask->names[i]) == ZKL_MODE_SHARED,
								 gone, &found);
	}
	return needs;
}

/* Who stood in line would take the place of who has gone, at the end of the queue. */
static unsigned
needs_in_line(const Party *first, unsigned gone)
{
	Ask		   *ask = pending_of(first);
	unsigned	needs = 0;

	for (int i = 0; ask && i < ask->n; i++)
		needs |= all_in_queue(path_of(ask->names[i]), gone);
	return needs;
}

static Truth
truth_of(const Party *party, unsigned gone)
{
	Truth		truth = {0, 0};
	Party	   *other = waits_locally_for(party);
	Ask		   *ask = pending_of(party);

	if (ask && ask->size > 0)
		truth = truth_of_permit(party, ask, gone);
	else if (ask)
		truth.all_of = needs_of_locks(party, ask, gone);
	if (other && !(bit_of(other) & gone))
		truth.all_of |= bit_of(other);
	else if (other && waits_in_line(party))
		truth.all_of |= needs_in_line(other, gone) & ~bit_of(party);
	return truth;
}


/*
 * Deadlocks
 */

/* Whom of the set does it wait for, because nobody else could help it? */
static unsigned
waits_within(const Truth *truth, unsigned set)
{
	unsigned	needs = truth->all_of & set;

	if (truth->any_of != 0 && (truth->any_of & ~set) == 0)
		needs |= truth->any_of;
	return needs;
}

static bool
is_one_deadlock(const Truth *truths, unsigned set)
{
	for (int v = 0; v < MAX_PARTIES; v++)
	{
		unsigned	reached = 0;

		if (!(set >> v & 1))
			continue;
		for (int round = 0; round < MAX_PARTIES; round++)
			for (int i = 0; i < MAX_PARTIES; i++)
				if ((i == v || reached >> i & 1) && set >> i & 1)
					reached |= waits_within(&truths[i], set);
		if (reached != set)
			return false;
	}
	return true;
}

bool
would_be_deadlocked(const Party *party, unsigned gone)
{
	Truth		truths[MAX_PARTIES] = {{0, 0}};

	for (int i = 0; i < MAX_PARTIES; i++)
		if (parties[i].session && !(gone >> i & 1))
			truths[i] = truth_of(&parties[i], gone);
	for (unsigned set = 1; set < STRANGER; set++)
		if ((set & bit_of(party)) && !(set & gone) && is_one_deadlock(truths, set))
			return true;
	return false;
}

bool
is_truly_deadlocked(const Party *party)
{
	return would_be_deadlocked(party, 0);
}
