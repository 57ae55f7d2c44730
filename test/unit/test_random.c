/*-------------------------------------------------------------------------
 *
 * test_random.c
 *		Promises under random schedules: sessions request, upgrade, give up and close
 *		while connections break at any step, and another client deletes nodes that are
 *		not granted yet; and the same with servers that lag, commits, and sessions that
 *		expire by the clock.
 *
 * usage: test_random [first seed [number of seeds]]
 *
 * Promises: 1.1, 4.2
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>

#include "walk.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE

#define N_PARTIES 4
#define N_NAMES 3
#define ACTIONS 250

#ifdef SHORT_RUN
#define N_SEEDS 400
#define N_LAG_SEEDS 400
#else
#define N_SEEDS 3000
#define N_LAG_SEEDS 3000
#endif

#define T SCENE_TIMEOUT_MS

static const char *const names[N_NAMES] = {"a", "b", "c"};

static bool with_expiry;
static bool committing[N_PARTIES];	/* a commit check is pending */
static char broken[80];			/* a broken promise of the lease */

static void
act_ask(Party *party)
{
	if (!pending_of(party))
		ask_randomly(party, names, N_NAMES, dice(4) ? 1 : N_NAMES, dice(5) == 0);
}

/* Requests one more permit; sometimes with another capacity, which is refused. */
static void
act_ask_permit(Party *party)
{
	int			size = dice(12) ? 2 : 3;

	if (pending_of(party))
		return;
	give_up_all(party);
	if (dice(4) == 0)
		try_permit(party, names[dice(N_NAMES)], size);
	else
		ask_permit(party, names[dice(N_NAMES)], size);
}

/* Does not release what a pending upgrade builds on: no owner does. */
static void
act_reduce(Party *party)
{
	const char *name = names[dice(N_NAMES)];

	if (!pending_of(party) && mode_of(party, name) != NONE)
		reduce(party, name, dice(3) == 0 && mode_of(party, name) == X ? S : NONE);
}

static void
act_give_up(Party *party)
{
	if (pending_of(party))
		forget(pending_of(party));
}


/* Returns whether the node is that of a lock's or permit's request which is not granted. */
static bool
is_pending(const Party *party, const char *path)
{
	for (int i = 0; i < N_NAMES; i++)
		if (fake_tree_child(path, path_of(names[i])))
			return mode_of(party, names[i]) == NONE;
		else if (fake_tree_child(path, pool_of(names[i], "/leases")))
			return permits_of(party, names[i]) == 0;
	return false;
}

/* Another client deletes a node, while the connection of its session is lost. */
static void
act_delete(const Party *party)
{
	FakeNode   *node = fake_tree_first();

	if (fake_is_connected(party->client) || fake_is_expired(party->client))
		return;
	while (node && (node->owner != fake_session_id(party->client) || dice(3) == 0 ||
					!is_pending(party, node->path)))
		node = node->next;
	if (node)
		fake_tree_delete(node->path);
}


/*
 * Lagging servers, and time
 */

/*
 * The leader may expire a session whose last heartbeat is older than the session
 * timeout.  The last heartbeat that the leader has received is at most T/3 and half a
 * tick, T/4, older than the last write.
 */
static bool
may_expire(const Party *party)
{
	return fake_now() > fake_last_write_ms(party->client) + T - T / 3 - T / 4;
}

static void
act_lag(Party *party)
{
	ZklClient  *client = party->client;

	switch (dice(8))
	{
		case 0:
		case 1:
			fake_lag(client, true);
			break;
		case 2:
			fake_catch_up(client, 1 + dice(3));
			break;
		case 3:
			fake_fail_sync(client, dice(2) ? ZKL_RC_OTHER : ZKL_RC_CONNECTION_LOSS);
			break;
		case 4:
			fake_fault(client, fake_counted(client) + 1 + dice(3), FAULT_DELAY);
			break;
		case 5:
			fake_fault(client, fake_counted(client) + 1 + dice(3),
					   dice(2) ? FAULT_APPLY_OTHER : FAULT_STALE);
			break;
		case 6:
			if (!fake_is_expired(client) && may_expire(party))
			{
				if (fake_is_connected(client))
					fake_expire_silently(client);
				else
					fake_expire(client);
			}
			break;
		default:
			fake_release(client);
	}
}

/* Checks, like a transaction that holds locks, whether it may commit. */
static void
act_commit(int i)
{
	ZklSession *session = parties[i].session;

	if (!committing[i])
		zkl_session_confirm(session, dice(2));
	else if (zkl_session_confirmed(session) == ZKL_PENDING)
		return;
	else if (zkl_session_confirmed(session) == ZKL_OK &&
			 fake_is_expired(parties[i].client))
		snprintf(broken, sizeof(broken), "%s commits after its session", parties[i].data);
	committing[i] = !committing[i];
}

static void
check_lease(const Party *party)
{
	if (zkl_session_info(party->session).lease_ms > 0 && fake_is_expired(party->client))
		snprintf(broken, sizeof(broken), "the lease of %s outlives its session", party->data);
}

static void
rejoin(Party *party)
{
	int			keep_ms = party->keep_ms;

	committing[party - parties] = false;
	scene_rejoin(party);
	party->keep_ms = keep_ms;
}


/*
 * Random walks
 */

static void
act_with(Party *party, int kind)
{
	if (kind < 9)
		act_ask(party);
	else if (kind < 12)
		act_ask_permit(party);
	else if (kind < 16)
		act_reduce(party);
	else if (kind < 18)
		release_permit(party, names[dice(N_NAMES)]);
	else if (kind < 20)
		act_give_up(party);
	else if (kind < 25)
		disturb_connection(party, with_expiry);
	else if (kind < 27)
		fake_advance(dice(120));
	else if (kind < 28)
		fake_tree_reap();
	else if (kind < 30 && with_expiry)
	{
		/* This is enough time for a session to delete unused znodes. */
		fake_stall(dice(T));
		(void) fake_ring(party->client);
	}
	else if (kind < 64)
		fake_apply(party->client);
	else
		fake_deliver(party->client);
}

static void
act(bool lagging)
{
	int			i = dice(N_PARTIES);
	Party	   *party = &parties[i];
	int			kind = dice(lagging ? 130 : 115);

	if (zkl_session_state(party->session) == ZKL_SESSION_EXPIRED)
		rejoin(party);
	else if (kind < 100)
		act_with(party, kind);
	else if (kind < 115)
		act_delete(party);
	else if (kind < 122)
		act_lag(party);
	else if (kind < 128)
		act_commit(i);
	else
	{
		fake_stall(dice(T / 2));
		(void) fake_ring(party->client);
	}
	if (lagging)
		check_lease(party);
}

static const char *
walk_with(unsigned seed, bool lagging, bool keeping)
{
	with_expiry = seed % 3 == 0 && !lagging;
	broken[0] = '\0';
	scene_begin(0);
	scene_config.sequence_limit = seed % 2 ? 6 + dice(10) : 0;
	for (int i = 0; i < N_PARTIES; i++)
	{
		committing[i] = false;
		scene_config.node_names = dice(4) ? ZKL_NODE_NAMES_CURATOR : ZKL_NODE_NAMES_KAZOO;
		scene_join(&parties[i]);
		parties[i].keep_ms = keeping && dice(3) ? 1 + dice(2 * T) : 0;
	}
	for (int i = 0; i < ACTIONS && !broken[0]; i++)
		act(lagging);
	if (broken[0])
		return broken;
	if (!scene_settles())
		return "a session waits, but no other session blocks it";
	if (nodes_of(NULL, NULL) > 0)
		return "nodes are left";
	return objections() > 0 ? first_objection() : NULL;
}

static const char *
walk(unsigned seed)
{
	return walk_with(seed, false, false);
}

static const char *
walk_lagging(unsigned seed)
{
	return walk_with(seed, true, false);
}

static const char *
walk_keeping(unsigned seed)
{
	return walk_with(seed, false, true);
}

static const char *
walk_keeping_lagging(unsigned seed)
{
	return walk_with(seed, true, true);
}

int
main(int argc, char **argv)
{
	walk_all(argc, argv, N_SEEDS, walk, "keep exclusion, tokens and order, and leave no node");
	walk_all(argc, argv, N_LAG_SEEDS, walk_lagging,
			 "with lagging servers keep them, too, and no commit outlives its lease");
	walk_all(argc, argv, N_SEEDS, walk_keeping, "with sessions that keep what they release keep them, too");
	walk_all(argc, argv, N_LAG_SEEDS, walk_keeping_lagging, "with lagging servers, too, sessions that keep what they release keep them");
	return done();
}
