/*-------------------------------------------------------------------------
 *
 * truth.c
 *		The true wait-for graph of a scene's parties.
 *
 * Derived from the nodes in the fake ensemble and from the test's own calls, not
 * from the wait reports.  Sets of parties are bits.  Declared in waiters.h.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "recipe/queue/queue_order.h"
#include "waiters.h"

/* A session that is no party: it can proceed. */
#define STRANGER (1u << MAX_PARTIES)

/* One party needs all of "all_of", and any of "any_of" (0: no such condition). */
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
typedef struct Queued
{
	const char *queue;
	const char *name;
	ZklContender c;
	bool		upgrade;
} Queued;

static bool
read_queued(const FakeNode *node, const char *queue, Queued *queued)
{
	queued->queue = queue;
	queued->name = fake_tree_child(node->path, queue);
	return queued->name && zkl_parse_child(queued->name, &queued->c);
}

/* Returns the party that waits for a row and owns the node, or NULL. */
static const Party *
waits_for_row(unsigned owner)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (owner == 1u << i && waits_locally_for(&parties[i]) && !pending_of(&parties[i]))
			return &parties[i];
	return NULL;
}

/*
 * Reads a node that may block others: a released node blocks none, and the node of
 * a downgraded writer counts as a reader.
 */
static bool
read_obstacle(const FakeNode *node, const char *queue, Queued *queued)
{
	const Party *party;
	ZklMode		mode;

	if (!read_queued(node, queue, queued))
		return false;
	party = waits_for_row(owner_of(node));
	if (party == NULL)
		return true;
	mode = mode_of(party, strrchr(queue, '/') + 1);
	queued->c.writer = queued->c.writer && mode == ZKL_MODE_EXCLUSIVE;
	return mode != ZKL_MODE_NONE;
}

static bool
is_before(const Queued *a, const Queued *b)
{
	return zkl_is_before(a->c.number, a->name, b->c.number, b->name);
}

/* Is another session's writer before the sharer, leaving out the parties in "gone"? */
static bool
is_behind_writer(const Queued *sharer, const Queued *own, unsigned gone)
{
	Queued		w;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (!(owner_of(node) & gone) && read_obstacle(node, own->queue, &w) &&
			w.c.writer && w.c.owner != own->c.owner && is_before(&w, sharer))
			return true;
	return false;
}

/* Must the other node go before the own node is first? */
static bool
is_blocker(const Queued *other, const Queued *own, unsigned gone)
{
	if (other->c.owner == own->c.owner || !is_before(other, own))
		return false;
	if (!own->upgrade)
		return other->c.writer || own->c.writer;
	return !other->c.writer && !is_behind_writer(other, own, gone);
}

/* Returns the owners of all nodes before the party's; *found: does it have a node? */
static unsigned
before_in_queue(const Party *party, const char *queue, bool upgrade,
				unsigned gone, bool *found)
{
	unsigned	before = 0;
	Queued		own;
	Queued		other;

	for (FakeNode *mine = fake_tree_first(); mine; mine = mine->next)
	{
		if (owner_of(mine) != bit_of(party) || !read_queued(mine, queue, &own) ||
			(upgrade && !own.c.writer))
			continue;
		*found = true;
		own.upgrade = upgrade;
		for (FakeNode *node = fake_tree_first(); node; node = node->next)
			if (!(owner_of(node) & gone) && read_obstacle(node, queue, &other) &&
				is_blocker(&other, &own, gone))
				before |= owner_of(node);
	}
	return before;
}

/* Returns the owners of all nodes in a queue, except those in "gone". */
static unsigned
all_in_queue(const char *queue, unsigned gone)
{
	unsigned	all = 0;
	Queued		queued;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (read_queued(node, queue, &queued))
			all |= owner_of(node);
	return all & ~gone;
}


/*
 * Conditions of a party
 */

/* Does the owner have a permit node that it has released? */
static bool
has_released_permit(unsigned owner, const char *semaphore, const char *parent)
{
	const Party *party = waits_for_row(owner);
	int			n = 0;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		n += fake_tree_child(node->path, parent) && owner_of(node) == owner;
	return party && permits_of(party, semaphore) < n;
}

/* The permits' owners, if no permit is left and those the party released are gone. */
static unsigned
permit_owners(const Party *party, const Ask *ask, unsigned gone)
{
	const char *parent = pool_of(ask->names[0], "/leases");
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
		owners |= has_released_permit(owner, ask->names[0], parent) ? STRANGER : owner;
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

	truth.all_of = before_in_queue(party, pool_of(ask->names[0], "/locks"),
								   false, gone, &found);
	if (found && truth.all_of == 0)
		truth.any_of = permit_owners(party, ask, gone);
	return truth;
}

static unsigned
node_sets_of_locks(const Party *party, const Ask *ask, unsigned gone)
{
	unsigned	node_sets = 0;
	bool		found;

	for (int i = 0; i < ask->n; i++)
	{
		char		queue[300];

		snprintf(queue, sizeof(queue), "%s/%s", SCENE_LOCKS, ask->names[i]);
		node_sets |= before_in_queue(party, queue,
									 mode_of(party, ask->names[i]) == ZKL_MODE_SHARED,
									 gone, &found);
	}
	return node_sets;
}

/* If "first" is gone, its local waiters queue in the ensemble, behind all these. */
static unsigned
node_sets_behind_waiter(const Party *first, unsigned gone)
{
	Ask		   *ask = pending_of(first);
	unsigned	node_sets = 0;

	for (int i = 0; ask && i < ask->n; i++)
		node_sets |= all_in_queue(path_of(ask->names[i]), gone);
	return node_sets;
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
		truth.all_of = node_sets_of_locks(party, ask, gone);
	if (other && !(bit_of(other) & gone))
		truth.all_of |= bit_of(other);
	else if (other && waits_behind_waiter(party))
		truth.all_of |= node_sets_behind_waiter(other, gone) & ~bit_of(party);
	return truth;
}


/*
 * Deadlocks
 */

/* Which of the set does it wait for, because nobody outside the set can help? */
static unsigned
waits_within(const Truth *truth, unsigned set)
{
	unsigned	node_sets = truth->all_of & set;

	if (truth->any_of != 0 && (truth->any_of & ~set) == 0)
		node_sets |= truth->any_of;
	return node_sets;
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
breaks_deadlock(const Party *party)
{
	Truth		before[MAX_PARTIES] = {{0, 0}};
	Truth		after[MAX_PARTIES] = {{0, 0}};

	for (int i = 0; i < MAX_PARTIES; i++)
		if (parties[i].session)
		{
			before[i] = truth_of(&parties[i], 0);
			after[i] = truth_of(&parties[i], bit_of(party));
		}
	for (unsigned set = 1; set < STRANGER; set++)
	{
		unsigned	rest = set & ~bit_of(party);
		bool		stays = false;

		if (rest == set || !is_one_deadlock(before, set))
			continue;
		for (unsigned left = rest; left && !stays; left = (left - 1) & rest)
			stays = is_one_deadlock(after, left);
		if (!stays)
			return true;
	}
	for (int i = 0; i < MAX_PARTIES; i++)
		if (&parties[i] != party && parties[i].session &&
			would_be_deadlocked(&parties[i], 0) &&
			!would_be_deadlocked(&parties[i], bit_of(party)))
			return true;
	return false;
}

bool
is_truly_deadlocked(const Party *party)
{
	return would_be_deadlocked(party, 0);
}
