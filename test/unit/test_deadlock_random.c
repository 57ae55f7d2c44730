/*-------------------------------------------------------------------------
 *
 * test_deadlock_random.c
 *		Deadlocks under random schedules: sessions of three servers lock, upgrade, downgrade,
 *		wait for each other's rows, give up, lose their connections and read from
 *		servers that lag, while other programs queue, and reports and answers are still under
 *		way.
 *
 * The true wait-for graph is derived from the nodes in the ensemble and from the row
 * waits.  Every victim must be in a deadlock when it gets its verdict; and if
 * nothing happens any more except that victims fail, no deadlock is left.
 *
 * usage: test_deadlock_random [first seed [number of seeds]]
 *
 * Promise: 7.2
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "waiters.h"
#include "walk.h"

#define N_NAMES 4
#define N_SEMAPHORES 2
#define ACTIONS 400

#ifdef SHORT_RUN
#define N_SEEDS 300
#else
#define N_SEEDS 3000
#endif

static const char *const names[N_NAMES] = {"a", "b", "c", "d"};

static const char *const semaphores[N_SEMAPHORES] = {"one", "two"};

/* The session of another program, and its node; or "". */
#define STRANGER 77
static char foreign[256];

static bool with_faults;
static int	n_victims;

/* Waits for a row of another party of the server; PostgreSQL finds cycles there. */
static void
act_row(Party *party)
{
	Party	   *other = &parties[(party - parties + 3) % MAX_PARTIES];

	if (waits_locally_for(other) != party)
		wait_locally(party, other);
}

/*
 * If another party ended a deadlock just before the verdict, the verdict would look
 * false; so only waits outside of a deadlock end here.
 */
static void
act_end(Party *party)
{
	if (is_truly_deadlocked(party))
		return;
	if (with_faults && dice(3) == 0)
	{
		fake_disconnect(party->client);
		end_transaction(party);
		act_row(party);			/* with the deletes of its nodes pending */
	}
	else
		end_transaction(party);
}

/* The party shares what it held exclusively, or has upgraded. */
static void
act_downgrade(Party *party)
{
	const char *name = names[dice(N_NAMES)];

	if (mode_of(party, name) == ZKL_MODE_EXCLUSIVE)
		reduce(party, name, ZKL_MODE_SHARED);
}

/* A writer of another program queues, or the one that does goes. */
static void
act_foreign(void)
{
	if (foreign[0])
	{
		fake_tree_delete(foreign);
		foreign[0] = '\0';
	}
	else
		strcpy(foreign, foreign_node(names[dice(N_NAMES)], "_c_11111111-2222-4333-8444-555555555555-__WRIT__", STRANGER));
}

static void
act(void)
{
	Party	   *party = &parties[dice(MAX_PARTIES)];
	int			kind = dice(100);

	wake_owners();
	if (zkl_session_state(party->session) == ZKL_SESSION_EXPIRED)
		begin_again(party);
	else if (kind < 8 && !is_busy(party))
		ask_randomly(party, names, N_NAMES, dice(4) ? 1 : 2, false);
	else if (kind < 10 && !is_busy(party))
		ask_permit_randomly(party, semaphores, N_SEMAPHORES);
	else if (kind < 12 && !is_busy(party))
		act_row(party);
	else if (kind < 14 && !is_busy(party))
		act_downgrade(party);
	else if (kind < 15)
		act_end(party);
	else if (kind < 16)
		act_foreign();
	else if (kind < 19 && with_faults)
		disturb_connection(party, false);
	else if (kind < 20 && with_faults)
		fake_lag(party->client, dice(2));
	else if (kind < 21)
		fake_advance(dice(700));
	else if (kind < 34)
		on_error(party);
	else if (kind < 65)
		fake_apply(party->client);
	else
		fake_deliver(party->client);
}

static const char *
walk(unsigned seed)
{
	const char *failed = NULL;

	with_faults = seed % 2 == 0;
	foreign[0] = '\0';
	scene_begin(0);
	if (seed % 4 > 1)
		scene_config.node_names = ZKL_NODE_NAMES_KAZOO;
	for (int i = 0; i < MAX_PARTIES; i++)
		scene_join(&parties[i]);
	waiters_begin("abcabc");
	for (int i = 0; i < ACTIONS && !false_deadlocks(); i++)
		act();
	if (false_deadlocks())
		failed = "a false deadlock";
	else if (!deadlocks_end() || false_deadlocks())
		failed = false_deadlocks() ? "a false deadlock at the end" : "a deadlock is left";
	n_victims += victims();
	if (failed)
		return failed;
	for (int i = 0; i < MAX_PARTIES; i++)
		end_transaction(&parties[i]);
	if (foreign[0])
		act_foreign();
	return scene_settles() && reported_by(NULL) == 0 ? NULL : "a wait report is left";
}

int
main(int argc, char **argv)
{
	walk_all(argc, argv, N_SEEDS, walk, "end every deadlock, without a false deadlock");
	if (argc == 1)
		ok(n_victims > N_SEEDS / 10, "%d sessions were victims", n_victims);
	return done();
}
