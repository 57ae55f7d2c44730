/*-------------------------------------------------------------------------
 *
 * test_random.c
 *		Promises under random schedules: sessions that ask, upgrade, give up
 *		and leave while connections break at any step.
 *
 * usage: test_random [first seed [number of seeds]]
 *
 *-------------------------------------------------------------------------
 */
#include "walk.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE

#define N_PARTIES 4
#define N_NAMES 3
#define ACTIONS 250

#ifdef SHORT_RUN
#define N_SEEDS 400
#else
#define N_SEEDS 3000
#endif

static const char *const names[N_NAMES] = {"a", "b", "c"};

static bool with_expiry;

static void
act_ask(Party *party)
{
	if (!pending_of(party))
		ask_by_chance(party, names, N_NAMES, dice(4) ? 1 : N_NAMES, dice(5) == 0);
}

/* For one more permit; now and then with another size, which is refused. */
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

/* What a pending upgrade builds on is not let go: its owner could not do so. */
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

static void
act(void)
{
	Party	   *party = &parties[dice(N_PARTIES)];
	int			kind = dice(100);

	if (zkl_session_state(party->session) == ZKL_SESSION_EXPIRED)
		scene_rejoin(party);
	else if (kind < 9)
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
		shake_connection(party, with_expiry);
	else if (kind < 27)
		fake_advance(dice(120));
	else if (kind < 28)
		fake_tree_reap();
	else if (kind < 64)
		fake_apply(party->client);
	else
		fake_deliver(party->client);
}

static const char *
walk(unsigned seed)
{
	with_expiry = seed % 3 == 0;
	scene_begin(0);
	scene_config.sequence_limit = seed % 2 ? 6 + dice(10) : 0;
	for (int i = 0; i < N_PARTIES; i++)
	{
		scene_config.dialect = dice(4) ? ZKL_DIALECT_CURATOR : ZKL_DIALECT_KAZOO;
		scene_join(&parties[i]);
	}
	for (int i = 0; i < ACTIONS; i++)
		act();
	if (!scene_settles())
		return "somebody waits for nobody";
	if (nodes_of(NULL, NULL) > 0)
		return "nodes are left";
	return objections() > 0 ? first_objection() : NULL;
}

int
main(int argc, char **argv)
{
	walk_all(argc, argv, N_SEEDS, walk, "keep exclusion, tokens and order, and leave nothing");
	return done();
}
