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
#include <stdlib.h>
#include <string.h>

#include "scene.h"

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

static unsigned state;
static bool with_expiry;

static int
dice(int n)
{
	return (int) (rand_r(&state) / 7 % (unsigned) n);
}

/* Asks for what the party does not hold yet of one name or several. */
static void
act_ask(Party *party)
{
	const char *wanted[N_NAMES];
	ZklMode		modes[N_NAMES];
	int			n = 0;
	bool		many = dice(4) == 0;

	if (pending_of(party))
		return;
	for (int i = dice(N_NAMES), left = many ? N_NAMES : 1; left > 0; left--, i = (i + 1) % N_NAMES)
	{
		ZklMode		mode = dice(2) ? X : S;

		if (mode_of(party, names[i]) < mode)
		{
			wanted[n] = names[i];
			modes[n++] = mode;
		}
	}
	give_up_all(party);			/* what is decided */
	if (n > 0)
		ask_all(party, n, wanted, modes, dice(5) == 0);
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
act_network(Party *party)
{
	ZklClient  *client = party->client;

	switch (dice(6))
	{
		case 0:
			fake_disconnect(client);
			break;
		case 1:
			fake_fail_attempt(client);
			break;
		case 2:
			fake_fault(client, fake_counted(client) + 1 + dice(3),
					   with_expiry && dice(8) == 0 ? FAULT_EXPIRE :
					   (FakeFault[]) {FAULT_DROP, FAULT_APPLY_DROP, FAULT_APPLY_ALL_DROP,
									  FAULT_DELAY, FAULT_REFUSE, FAULT_THROTTLE, FAULT_FORGET}[dice(7)]);
			break;
		default:
			fake_release(client);
			fake_connect(client);
	}
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
		act_network(party);
	else if (kind < 27)
		fake_advance(dice(120));
	else if (kind < 28)
		fake_tree_reap();
	else if (kind < 64)
		fake_apply(party->client);
	else
		fake_deliver(party->client);
}

static bool
run(unsigned seed)
{
	const char *failed = NULL;
	char		text[512];

	state = seed * 2654435761u + 1;
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
		failed = "somebody waits for nobody";
	else if (nodes_of(NULL, NULL) > 0)
		failed = "nodes are left";
	else if (objections() > 0)
		failed = strncpy(text, first_objection(), sizeof(text) - 1);
	if (failed)
	{
		diag("seed %u: %s", seed, failed);
		for (FakeNode *node = fake_tree_first(); node; node = node->next)
			diag("  %s", node->path);
	}
	scene_end(NULL);
	return failed == NULL;
}

int
main(int argc, char **argv)
{
	unsigned	first = argc > 1 ? (unsigned) atoi(argv[1]) : 1;
	unsigned	n = argc > 2 ? (unsigned) atoi(argv[2]) : argc > 1 ? 1 : N_SEEDS;
	int			failures = 0;

	for (unsigned seed = first; seed < first + n && failures < 5; seed++)
		failures += !run(seed);
	is_int(failures, 0, "%u random schedules keep exclusion, tokens and order, and leave nothing", n);
	return done();
}
