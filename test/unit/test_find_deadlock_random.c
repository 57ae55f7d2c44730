/*-------------------------------------------------------------------------
 *
 * test_find_deadlock_random.c
 *		The pure search compared with the true wait-for graph, in random situations.
 *
 * Sessions of three servers lock, upgrade, downgrade, take permits, wait for each other's
 * rows and places, and lose their connections.  From time to time each session that waits
 * searches what the ensemble shows at that moment.  A session must find a deadlock if and
 * only if the true graph (truth.c) has one that it is part of, all members must find the same
 * victim, and its failure must end them all.  In every second walk only those sessions report that must.
 *
 * usage: test_find_deadlock_random [first seed [number of seeds]]
 *
 * Promise: 7.2
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/deadlock/find_deadlock.h"
#include "recipe/queue/queue_order.h"
#include "waiters.h"
#include "walk.h"

#define N_NAMES 3
#define N_SEMAPHORES 2
#define ACTIONS 60
#define MAX_NODES 64

#ifdef SHORT_RUN
#define N_SEEDS 300
#else
#define N_SEEDS 3000
#endif

static const char *const names[N_NAMES] = {"a", "b", "c"};

static const char *const semaphores[N_SEMAPHORES] = {"s", "t"};

static bool must_report_all;
static bool has_pending[MAX_PARTIES];	/* releases that its lost connection delays */
static int64_t czxids[MAX_PARTIES]; /* of the reports; 0: none */
static int64_t last_czxid;
static int	n_victims;
static int	n_needless;			/* so many of their failures leave all deadlocks */
static const char *failure;

static uint64_t
session_of(const Party *party)
{
	return (uint64_t) fake_session_id(party->client);
}


/*
 * What happens
 */

static void
end_wait(Party *party)
{
	if (!fake_is_connected(party->client))
		has_pending[party - parties] = true;
	end_transaction(party);
}

static void
act_local(Party *party)
{
	Party	   *other = &parties[(party - parties + 3) % MAX_PARTIES];

	if (waits_locally_for(other) == party)
		return;
	if (pending_of(other) && pending_of(other)->size == 0 && dice(2))
		wait_behind_waiter(party, other);
	else
		wait_locally(party, other);
}

static void
act_downgrade(Party *party)
{
	const char *name = names[dice(N_NAMES)];

	if (mode_of(party, name) != ZKL_MODE_EXCLUSIVE)
		return;
	if (!fake_is_connected(party->client))
		has_pending[party - parties] = true;
	reduce(party, name, ZKL_MODE_SHARED);
}

static void
act(void)
{
	Party	   *party = &parties[dice(MAX_PARTIES)];
	int			kind = dice(20);

	if (kind < 10 && !is_busy(party))
		ask_randomly(party, names, N_NAMES, dice(4) ? 1 : 2, false);
	else if (kind < 12 && !is_busy(party))
		ask_permit_randomly(party, semaphores, N_SEMAPHORES);
	else if (kind < 14 && !is_busy(party))
		act_local(party);
	else if (kind < 15 && !is_busy(party))
		act_downgrade(party);
	else if (kind < 17 && !is_truly_deadlocked(party))
		end_wait(party);
	else if (kind < 18)
		fake_disconnect(party->client);
	else if (kind < 20)
	{
		fake_connect(party->client);
		has_pending[party - parties] = false;
	}
	fake_run_all();
}


/*
 * What the ensemble shows
 */

static const Party *
owner_of(const FakeNode *node)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (parties[i].session && node->owner == fake_session_id(parties[i].client))
			return &parties[i];
	return NULL;
}

static const char *
path_of_place(ZklWaitPlace place, const char *name)
{
	static ZklScratch path;

	zkl__scratch_free(&path);
	return zkl_place_path(&path, "/zklock", place, name);
}

/* Returns the party's last node at the place; of an upgrade the writer's. */
static const char *
last_node(const Party *party, ZklWaitPlace place, const char *name)
{
	const char *parent = path_of_place(place, name);
	const char *last = NULL;
	ZklContender c;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
	{
		const char *child = fake_tree_child(node->path, parent);

		if (child && owner_of(node) == party &&
			(last == NULL || !zkl_parse_child(last, &c) || !c.writer))
			last = child;
	}
	return last;
}

/* Is the party's node a writer's, and the nearest one before it a reader's? */
static bool
follows_reader(const Party *party, const char *name)
{
	const char *own = last_node(party, ZKL_PLACE_LOCK, name);
	const char *parent = path_of_place(ZKL_PLACE_LOCK, name);
	const char *nearest = NULL;
	ZklContender mine;
	ZklContender before = {.writer = true};

	if (own == NULL || !zkl_parse_child(own, &mine) || !mine.writer)
		return false;
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
	{
		const char *child = fake_tree_child(node->path, parent);
		ZklContender c;

		if (child == NULL || !zkl_parse_child(child, &c) ||
			!zkl_is_before(c.number, child, mine.number, own) ||
			(nearest && zkl_is_before(c.number, child, before.number, nearest)))
			continue;
		nearest = child;
		before = c;
	}
	return !before.writer;
}

/* A report, with the memory that it needs; its local waiters are valid until the next one. */
typedef struct Made
{
	ZklReport	report;
	ZklWaitNode nodes[MAX_ITEMS + 1];
} Made;

static void
add_node(const Party *party, Made *made, ZklWaitPlace place, const char *name, int capacity)
{
	const char *child = last_node(party, place, name);

	if (child)
		made->nodes[made->report.n_nodes++] = (ZklWaitNode)
	{
		place, name, child, capacity
	};
}

/* Returns whether the party waits in the ensemble, and makes its report. */
static bool
make_report(Party *party, Made *made)
{
	Ask		   *ask = pending_of(party);
	ZklRequestInfo info;
	bool		needed;

	memset(made, 0, sizeof(*made));
	if (ask == NULL || has_pending[party - parties])
		return false;
	zkl_request_info(ask->request, &info);
	if (!info.blocked)
		return false;
	made->report = (ZklReport)
	{
		.server = "",.nodes = made->nodes
	};
	needed = must_report_all || ask->n > 1 || next_hold(party, NULL);
	for (int i = 0; i < ask->n && ask->size == 0; i++)
	{
		add_node(party, made, ZKL_PLACE_LOCK, ask->names[i], 0);
		needed = needed || follows_reader(party, ask->names[i]);
	}
	if (ask->size > 0)
	{
		add_node(party, made, ZKL_PLACE_MUTEX, ask->names[0], 0);
		add_node(party, made, ZKL_PLACE_PERMITS, ask->names[0], ask->size);
		needed = needed || made->report.n_nodes == 2;
	}
	made->report.n_waiters = owner_find_waiters(party, &made->report.waiters);
	return needed || made->report.n_waiters > 0;
}


/*
 * The search
 */

static ZklScratch scratch;

static void
add_waiting(ZklSnapshot *s)
{
	char		text[MAX_NODES][ZKL_WAITING_NAME_SIZE];
	const char *children[MAX_NODES];
	int			n = 0;
	Made		made;

	for (int i = 0; i < MAX_PARTIES; i++)
	{
		bool		reports = parties[i].session && make_report(&parties[i], &made);

		if (!reports)
			czxids[i] = 0;
		else if (czxids[i] == 0)
			czxids[i] = ++last_czxid;
		if (!reports)
			continue;
		zkl_waiting_name(session_of(&parties[i]), 0, text[n++]);
		for (int k = 0; k < made.report.n_waiters; k++)
			zkl_waiting_name(session_of(&parties[i]), (uint64_t) made.report.waiters[k].session_id, text[n++]);
	}
	for (int i = 0; i < n; i++)
		children[i] = text[i];
	zkl_snapshot_add_waiting(s, children, n);
}

static Party *
party_of(uint64_t session)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (parties[i].session && session_of(&parties[i]) == session)
			return &parties[i];
	return NULL;
}

static void
answer(ZklSnapshot *s, const ZklWant *want)
{
	const char *children[MAX_NODES];
	const char *parent;
	Party	   *party;
	Made		made;
	int			length;
	char	   *data;
	int			n = 0;

	if (want->kind == ZKL_WANT_REPORT)
	{
		party = party_of(want->session);
		make_report(party, &made);
		data = zkl_report_encode(&scratch, &made.report, &length);
		zkl_snapshot_add_report(s, want->session, want->session, czxids[party - parties], 0,
								data, length);
		return;
	}
	parent = path_of_place(want->place, want->name);
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (fake_tree_child(node->path, parent))
			children[n++] = fake_tree_child(node->path, parent);
	zkl_snapshot_add_queue(s, want->place, want->name, owner_key_of(want->name), children, n);
}

/* Returns the victim of the deadlock that the party finds, or NULL. */
static Party *
search(const Party *party, ZklFound *found)
{
	ZklSnapshot *s = zkl_snapshot_new(&scratch, session_of(party));
	ZklDeadlockFound result;
	ZklWant		want;
	Party	   *victim = NULL;

	add_waiting(s);
	while ((want = zkl_snapshot_next(s)).kind != ZKL_WANT_NOTHING)
		answer(s, &want);
	result = zkl_snapshot_find_deadlock(s);
	*found = result.kind;
	if (result.victim)
		victim = party_of(result.victim->session);
	zkl__scratch_free(&scratch);
	return victim;
}

static bool
all_are_settled(void)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (has_pending[i] || !fake_is_connected(parties[i].client))
			return false;
	return true;
}

static bool
reports(Party *party)
{
	Made		made;

	return party->session && make_report(party, &made);
}

/* Compares a search with the truth; returns the victim. */
static Party *
check(Party *party, ZklFound *found)
{
	ZklFound	found_by_victim;
	Party	   *victim = search(party, found);
	bool		is_true = is_truly_deadlocked(party);

	if (victim && !is_true)
		failure = "a deadlock is found that is none";
	else if (victim == NULL && is_true && all_are_settled())
		failure = "a deadlock is not found by a member";
	else if (victim && !reports(victim))
		failure = "a victim that does not search";
	else if (victim && (search(victim, &found_by_victim) != victim || *found != found_by_victim))
		failure = "the victim finds another victim";
	return victim;
}

/* All members of deadlocks search; victims fail. */
static void
search_all(void)
{
	for (int i = 0; i < MAX_PARTIES && failure == NULL; i++)
	{
		ZklFound	found;
		Party	   *victim = reports(&parties[i]) ? check(&parties[i], &found) : NULL;

		if (victim == NULL || failure)
			continue;
		n_victims++;
		n_needless += found == ZKL_FOUND_VICTIM && !breaks_deadlock(victim);
		end_wait(victim);
		fake_run_all();
		i = -1;
	}
	for (int i = 0; i < MAX_PARTIES && failure == NULL && all_are_settled(); i++)
		if (is_truly_deadlocked(&parties[i]))
			failure = "a deadlock is left";
}

static const char *
walk(unsigned seed)
{
	must_report_all = seed % 2 == 0;
	failure = NULL;
	memset(has_pending, 0, sizeof(has_pending));
	memset(czxids, 0, sizeof(czxids));
	scene_begin(0);
	for (int i = 0; i < MAX_PARTIES; i++)
		scene_join(&parties[i]);
	waiters_begin("abcabc");
	for (int i = 0; i < ACTIONS && failure == NULL; i++)
	{
		act();
		if (dice(4) == 0)
			search_all();
	}
	return failure;
}

int
main(int argc, char **argv)
{
	walk_all(argc, argv, N_SEEDS, walk, "find what the true graph shows");
	if (argc == 1)
		ok(n_victims > N_SEEDS / 10, "%d victims", n_victims);
	ok(n_needless * 50 <= n_victims, "at most one failure of fifty breaks no deadlock: %d of %d",
	   n_needless, n_victims);
	return done();
}
