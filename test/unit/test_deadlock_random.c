/*-------------------------------------------------------------------------
 *
 * test_deadlock_random.c
 *		Promise 7.2 under random schedules: sessions of three servers that
 *		lock, upgrade, wait for each other's rows, give up and lose their
 *		connections, while what they tell and read is on its way.
 *
 * The truth is taken from the nodes in the ensemble and from the rows.  Nobody is
 * told to give way who is not in a deadlock at that moment; and when nothing
 * happens any more, but that those told so give way, no deadlock stays.
 *
 * usage: test_deadlock_random [first seed [number of seeds]]
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "waiters.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE

#define N_NAMES 4
#define ACTIONS 400

#ifdef SHORT_RUN
#define N_SEEDS 300
#else
#define N_SEEDS 3000
#endif

static const char *const names[N_NAMES] = {"a", "b", "c", "d"};

static unsigned state;
static bool with_faults;
static int	wrong;
static int	n_victims;

static int
dice(int n)
{
	return (int) (rand_r(&state) / 7 % (unsigned) n);
}

/* A party that waits, here or there, does nothing else. */
static bool
is_busy(Party *party)
{
	return pending_of(party) || waits_locally_for(party);
}

/* Who waits for a row goes on when its holder ends its transaction. */
static void
let_rows_go(const Party *party)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (waits_locally_for(&parties[i]) == party)
			wait_locally(&parties[i], NULL);
}

static void
end_transaction(Party *party)
{
	give_up_all(party);
	release_all(party);
	wait_locally(party, NULL);
	let_rows_go(party);
}

static void
act_ask(Party *party)
{
	const char *wanted[N_NAMES];
	ZklMode		modes[N_NAMES];
	int			n = 0;

	for (int i = dice(N_NAMES), left = dice(4) ? 1 : 2; left > 0; left--, i = (i + 1) % N_NAMES)
	{
		ZklMode		mode = dice(3) ? X : S;

		if (mode_of(party, names[i]) < mode)
		{
			wanted[n] = names[i];
			modes[n++] = mode;
		}
	}
	give_up_all(party);
	if (n > 0)
		ask_all(party, n, wanted, modes, false);
}

/* For a row of another one of the same server; PostgreSQL finds circles there. */
static void
act_row(Party *party)
{
	Party	   *other = &parties[(party - parties + 3) % MAX_PARTIES];

	if (waits_locally_for(other) != party)
		wait_locally(party, other);
}

/*
 * A deadlock that is ended by somebody else in the very moment of the verdict
 * would be taken for a false one; only waits outside of it are ended here.
 */
static void
act_end(Party *party)
{
	if (!is_truly_deadlocked(party))
		end_transaction(party);
}

static void
act_network(Party *party)
{
	switch (dice(4))
	{
		case 0:
			fake_disconnect(party->client);
			break;
		case 1:
			fake_fault(party->client, fake_counted(party->client) + 1 + dice(3),
					   (FakeFault[]) {FAULT_DROP, FAULT_APPLY_DROP, FAULT_APPLY_ALL_DROP,
									  FAULT_DELAY, FAULT_REFUSE, FAULT_THROTTLE, FAULT_FORGET}[dice(7)]);
			break;
		default:
			fake_release(party->client);
			fake_connect(party->client);
	}
}

static void
act_tell(Party *party)
{
	const ZklDeadlock *deadlock;

	zkl_session_clear_wakeup(party->session);
	deadlock = tell(party);
	if (deadlock == NULL)
		return;
	if (!is_truly_deadlocked(party))
	{
		wrong++;
		diag("party %d is told of a deadlock that is none", (int) (party - parties));
	}
	n_victims++;
	end_transaction(party);
}

/* Owners whose descriptor is readable look at once. */
static void
wake_owners(void)
{
	for (int i = 0; i < MAX_PARTIES; i++)
	{
		struct pollfd fd = {.fd = zkl_session_fd(parties[i].session), .events = POLLIN};

		if (poll(&fd, 1, 0) > 0)
			act_tell(&parties[i]);
	}
}

/* Its session is over, and with it what it held; its transaction fails. */
static void
begin_anew(Party *party)
{
	let_rows_go(party);
	wait_locally(party, NULL);
	scene_rejoin(party);
}

static void
act(void)
{
	Party	   *party = &parties[dice(MAX_PARTIES)];
	int			kind = dice(100);

	wake_owners();
	if (zkl_session_state(party->session) == ZKL_SESSION_EXPIRED)
		begin_anew(party);
	else if (kind < 8 && !is_busy(party))
		act_ask(party);
	else if (kind < 10 && !is_busy(party))
		act_row(party);
	else if (kind < 13)
		act_end(party);
	else if (kind < 16 && with_faults)
		act_network(party);
	else if (kind < 18)
		fake_advance(dice(300));
	else if (kind < 34)
		act_tell(party);
	else if (kind < 65)
		fake_apply(party->client);
	else
		fake_deliver(party->client);
}

static bool
any_deadlock(void)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (is_truly_deadlocked(&parties[i]))
			return true;
	return false;
}

/* Nothing new; those who are told to give way do. */
static bool
is_resolved(void)
{
	for (int round = 0; round < 60; round++)
	{
		heal();
		wake_owners();
		if (!any_deadlock())
			return true;
		for (int i = 0; i < MAX_PARTIES; i++)
			if (zkl_session_state(parties[i].session) == ZKL_SESSION_EXPIRED)
				begin_anew(&parties[i]);
			else
				act_tell(&parties[i]);
		fake_run_all();
	}
	return false;
}

static bool
run(unsigned seed)
{
	const char *failed = NULL;

	state = seed * 2654435761u + 1;
	with_faults = seed % 2 == 0;
	wrong = 0;
	scene_begin(MAX_PARTIES);
	waiters_begin("abcabc");
	for (int i = 0; i < ACTIONS && !wrong; i++)
		act();
	if (wrong)
		failed = "a false alarm";
	else if (!is_resolved() || wrong)
		failed = wrong ? "a false alarm in the end" : "a deadlock stays";
	else
	{
		for (int i = 0; i < MAX_PARTIES; i++)
			end_transaction(&parties[i]);
		if (!scene_settles() || told_by(NULL) > 0)
			failed = "something is still told";
	}
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
	is_int(failures, 0, "%u random schedules: every deadlock is ended, and nothing else", n);
	if (argc == 1)
		ok(n_victims > N_SEEDS / 5, "... in which %d gave way", n_victims);
	return done();
}
