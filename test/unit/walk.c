/*-------------------------------------------------------------------------
 *
 * walk.c
 *		The common part of random walks over a scene.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "walk.h"

static unsigned state;

int
dice(int n)
{
	return (int) (rand_r(&state) / 7 % (unsigned) n);
}

void
ask_randomly(Party *party, const char *const *names, int n_names, int n_wanted,
			 bool non_blocking)
{
	const char *wanted[MAX_ITEMS];
	ZklMode		modes[MAX_ITEMS];
	int			n = 0;

	for (int i = dice(n_names); n_wanted > 0; n_wanted--, i = (i + 1) % n_names)
	{
		ZklMode		mode = dice(3) ? ZKL_MODE_EXCLUSIVE : ZKL_MODE_SHARED;

		if (mode_of(party, names[i]) < mode)
		{
			wanted[n] = names[i];
			modes[n++] = mode;
		}
	}
	give_up_all(party);
	if (n > 0)
		ask_all(party, n, wanted, modes, non_blocking);
}

void
ask_permit_randomly(Party *party, const char *const *semaphores, int n_semaphores)
{
	int			which = dice(n_semaphores);

	if (permits_of(party, semaphores[which]) > which)
		return;
	give_up_all(party);
	ask_permit(party, semaphores[which], which + 1);
}

void
disturb_connection(Party *party, bool with_expiry)
{
	static const FakeFault faults[] = {
		FAULT_DROP, FAULT_APPLY_DROP, FAULT_APPLY_ALL_DROP, FAULT_DELAY,
		FAULT_REFUSE, FAULT_THROTTLE, FAULT_FORGET,
	};
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
					   faults[dice(sizeof(faults) / sizeof(*faults))]);
			break;
		default:
			fake_release(client);
			fake_connect(client);
	}
}

static bool
fails(const char *(*walk) (unsigned seed), unsigned seed)
{
	const char *failed;

	state = seed * 2654435761u + 1;
	failed = walk(seed);
	if (failed)
	{
		diag("seed %u: %s", seed, failed);
		for (FakeNode *node = fake_tree_first(); node; node = node->next)
			diag("  %s", node->path);
	}
	scene_end(NULL);
	return failed != NULL;
}

void
walk_all(int argc, char **argv, unsigned n_seeds,
		 const char *(*walk) (unsigned seed), const char *promise)
{
	unsigned	first = argc > 1 ? (unsigned) atoi(argv[1]) : 1;
	unsigned	n = argc > 2 ? (unsigned) atoi(argv[2]) : argc > 1 ? 1 : n_seeds;
	int			failures = 0;

	for (unsigned seed = first; seed < first + n && failures < 5; seed++)
		failures += fails(walk, seed);
	is_int(failures, 0, "%u random schedules %s", n, promise);
}
