/*-------------------------------------------------------------------------
 *
 * test_deadlock_choice.c
 *		Exactly one participant of a deadlock is the victim, and its
 *		failure ends that deadlock.
 *
 * Cases by hand, and many random ones: sessions of two servers take locks and
 * permits, and then each waits for something.  An oracle that tries all sets of
 * sessions checks each victim: its failure leaves nothing of some deadlock, or frees
 * another session from all deadlocks.
 *
 * usage: test_deadlock_choice [first seed [number of seeds]]
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "waiters.h"
#include "walk.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED

#define N_NAMES 4
#define N_SEMAPHORES 2

#ifdef SHORT_RUN
#define N_SEEDS 300
#else
#define N_SEEDS 3000
#endif

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];

static const char *const names[N_NAMES] = {"a", "b", "c", "d"};

/* The first one has one permit, the second one two. */
static const char *const semaphores[N_SEMAPHORES] = {"one", "two"};

/* Has the party requeued already?  Once in a wait. */
static bool is_back[MAX_PARTIES];
static int	n_requeued;
static int	n_needless;			/* needless victims, which ended no deadlock */

static void
begin(int n, const char *servers, bool kazoo)
{
	scene_begin(0);
	scene_config.node_names = kazoo ? ZKL_NODE_NAMES_KAZOO : ZKL_NODE_NAMES_CURATOR;
	for (int i = 0; i < n; i++)
		scene_join(&parties[i]);
	waiters_begin(servers);
	memset(is_back, 0, sizeof(is_back));
	n_needless = 0;
}


/*
 * Consequences of a verdict
 */

/* The first local waiter replaces the party that has gone in the queue. */
static void
move_up(const char *name, const Party *gone)
{
	Party	   *first = NULL;

	for (int i = 0; i < MAX_PARTIES; i++)
	{
		Party	   *party = &parties[i];

		if (waits_locally_for(party) != gone)
			continue;
		if (!waits_behind_waiter(party))
			wait_locally(party, NULL);
		else if (first)
			wait_behind_waiter(party, first);
		else
		{
			first = party;
			wait_locally(party, NULL);
			ask_for(party, name, X);
		}
	}
}

static void
fail_party(Party *party)
{
	Ask		   *ask = pending_of(party);
	char		name[32];

	strcpy(name, ask->names[0]);
	give_up_all(party);
	release_all(party);
	move_up(name, party);
}

/*
 * The party becomes the last local waiter, and keeps what it holds.  Returns false
 * if no local waiter is behind it.
 */
static bool
requeue(Party *party)
{
	Ask		   *ask = pending_of(party);
	Party	   *first = NULL;
	char		name[32];

	strcpy(name, ask->names[0]);
	for (int i = 0; i < MAX_PARTIES && first == NULL; i++)
		if (waits_locally_for(&parties[i]) == party && waits_behind_waiter(&parties[i]))
			first = &parties[i];
	if (first == NULL || ask->size > 0)
		return false;
	give_up_all(party);
	wait_locally(first, NULL);
	for (int i = 0; i < MAX_PARTIES; i++)
		if (waits_locally_for(&parties[i]) == party && waits_behind_waiter(&parties[i]))
			wait_behind_waiter(&parties[i], first);
	ask_for(first, name, X);
	wait_behind_waiter(party, first);
	n_requeued++;
	is_back[party - parties] = true;
	return true;
}

static bool
any_deadlock(unsigned gone)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (would_be_deadlocked(&parties[i], gone))
			return true;
	return false;
}

/* All waiters publish until no deadlock is left; returns -1 if a deadlock is left, or there was none. */
static int
count_victims(void)
{
	int			n = 0;

	for (int round = 0; round < 200; round++)
	{
		for (int i = 0; i < MAX_PARTIES; i++)
		{
			Party	   *party = &parties[i];
			ZklDeadlock *deadlock = party->session ? publish(party) : NULL;
			bool		keeps_place = deadlock && deadlock->keeps_place;

			if (deadlock == NULL)
				continue;
			zkl_deadlock_free(deadlock);
			if (!is_truly_deadlocked(party))
				return -1;
			if (keeps_place && !is_back[i])
			{
				if (!requeue(party))
					return -1;
				continue;
			}
			n++;
			n_needless += !keeps_place && !breaks_deadlock(party);
			fail_party(party);
		}
		fake_run_all();
		if (!any_deadlock(0))
			return n;
		fake_advance(100);
	}
	return -1;
}

static int
bits(unsigned set)
{
	return set ? (set & 1) + bits(set >> 1) : 0;
}

/* No set of victims ends the deadlock. */
#define NEVER_ENOUGH MAX_PARTIES

static int
least_of(unsigned waiters)
{
	int			least = NEVER_ENOUGH;

	for (unsigned set = 0; set < 1u << MAX_PARTIES; set++)
		if ((set & ~waiters) == 0 && bits(set) < least && !any_deadlock(set))
			least = bits(set);
	return least;
}

/*
 * Returns the least number of victims.  If the waiters in the ensemble only represent
 * local waiters, the local waiters count as well.
 */
static int
least_victims(void)
{
	unsigned	waiters = 0;
	unsigned	only_behind_waiter = 0;
	int			least;

	for (int i = 0; i < MAX_PARTIES; i++)
	{
		if (parties[i].session && pending_of(&parties[i]))
			waiters |= 1u << i;
		if (parties[i].session && waits_behind_waiter(&parties[i]))
			only_behind_waiter |= 1u << i;
	}
	least = least_of(waiters);
	return least == NEVER_ENOUGH ? least_of(waiters | only_behind_waiter) : least;
}

static void
has_one_victim(const char *name)
{
	is_int(least_victims(), 1, "%s: one victim is necessary", name);
	is_int(count_victims(), 1, "%s: one session is the victim", name);
	is_int(n_needless, 0, "%s: the victim's failure ends a deadlock", name);
	ok(scene_settles(), "%s: the other sessions continue", name);
	scene_end(NULL);
}


/*
 * Cases by hand
 */

/* The party publishes, but does not search yet. */
static void
publish_only(Party *party)
{
	(void) is_victim_now(party);
	fake_apply(party->client);
}

/* C waits already.  A closes the cycle; before A searches, B reports its wait. */
static void
publish_with_b_last(void)
{
	(void) is_victim_now(C);
	fake_run_all();
	publish_only(A);
	publish_only(B);
}

static void
test_between(bool kazoo)
{
	begin(3, "abc", kazoo);
	forget(lock_now(A, "l", X));
	forget(lock_now(C, "x", X));
	lock_now(B, "l", X);
	lock_now(C, "l", X);
	lock_now(A, "x", X);
	publish_with_b_last();
	has_one_victim("a member between two others in a queue, which reports last");

	begin(3, "abc", kazoo);
	forget(permit_now(A, "one", 1));
	forget(lock_now(C, "x", X));
	permit_now(B, "one", 1);
	permit_now(C, "one", 1);
	lock_now(A, "x", X);
	publish_with_b_last();
	has_one_victim("a member that is first in the queue for permits, and reports last");
}

static void
test_common(bool kazoo)
{
	int			n;

	begin(3, "abc", kazoo);
	forget(lock_now(A, "x", X));
	forget(lock_now(A, "y", X));
	forget(lock_now(B, "z", S));
	forget(lock_now(C, "z", S));
	lock_now(A, "z", X);
	lock_now(B, "x", X);
	lock_now(C, "y", X);
	n = count_victims();
	ok(n == 1 || n == 2, "two cycles with one common member: at most one victim in each");
	is_int(n_needless, 0, "two cycles with one common member: no needless victim");
	ok(scene_settles(), "two cycles with one common member: the other sessions continue");
	scene_end(NULL);
}

/*
 * On each of two servers, a waiter holds nothing; a local waiter behind it holds the
 * lock that the other server's waiter waits for.
 */
static void
test_places(bool kazoo)
{
	for (int last = 0; last < 4; last++)
	{
		Party	   *D = &parties[3];
		int			before = n_requeued;

		begin(4, "aabb", kazoo);
		forget(lock_now(B, "x", X));
		forget(lock_now(D, "y", X));
		lock_now(A, "y", X);
		lock_now(C, "x", X);
		if (last % 2)
			wait_behind_waiter(B, A);
		(void) is_victim_now(last < 2 ? A : C);
		fake_run_all();
		wait_behind_waiter(B, A);
		wait_behind_waiter(D, C);
		is_int(count_victims(), 1, "two waiters that hold nothing: one victim");
		ok(n_requeued > before, "the victim is a local waiter behind a session that has requeued");
		fake_run_all();
		scene_end(NULL);
	}
}

/* B holds y and waits for the place of A, which waits for x, held by C. */
static void
test_place(bool kazoo)
{
	begin(3, "aab", kazoo);
	forget(lock_now(C, "x", X));
	forget(lock_now(B, "y", X));
	lock_now(A, "x", X);
	wait_behind_waiter(B, A);
	lock_now(C, "y", X);
	(void) is_victim_now(C);
	fake_run_all();
	has_one_victim("a waiter that holds nothing, but has a local waiter, and reports last");

	/* The same, but A holds what C waits for. */
	begin(3, "aab", kazoo);
	forget(lock_now(C, "x", X));
	forget(lock_now(A, "y", X));
	lock_now(A, "x", X);
	wait_behind_waiter(B, A);
	lock_now(C, "y", X);
	has_one_victim("a waiter that has a local waiter, and holds a lock that another session waits for");
}


/*
 * Random cases
 */

static void
acquire_something(Party *party)
{
	int			which = dice(N_NAMES);

	if (dice(3) == 0)
		forget(try_permit(party, semaphores[which % N_SEMAPHORES], which % N_SEMAPHORES + 1));
	else if (mode_of(party, names[which]) == ZKL_MODE_NONE)
		forget(try_for(party, names[which], dice(3) ? X : S));
	fake_run_all();
}

static bool
is_busy(const Party *party)
{
	return pending_of(party) || waits_locally_for(party);
}

/* Would other wait for party, through other local waits? */
static bool
is_behind(const Party *other, const Party *party)
{
	while (other && other != party)
		other = waits_locally_for(other);
	return other == party;
}

static void
wait_for_neighbour(Party *party)
{
	Party	   *other = &parties[(party - parties) / 3 * 3 + dice(3)];
	Ask		   *ask = pending_of(other);

	if (is_behind(other, party))
		return;
	if (ask && ask->size == 0 && dice(2) &&
		mode_of(party, ask->names[0]) == ZKL_MODE_NONE)
		wait_behind_waiter(party, other);
	else
		wait_locally(party, other);
}

static void
wait_for_something(Party *party)
{
	int			which = dice(N_NAMES);

	if (dice(3) == 0)
		wait_for_neighbour(party);
	else if (dice(3) == 0 &&
			 permits_of(party, semaphores[which % N_SEMAPHORES]) <= which % N_SEMAPHORES)
		ask_permit(party, semaphores[which % N_SEMAPHORES], which % N_SEMAPHORES + 1);
	else if (mode_of(party, names[which]) == ZKL_MODE_NONE)
		ask_for(party, names[which], dice(4) ? X : S);
	fake_run_all();
}

static void
make_waits(void)
{
	for (int i = 0; i < 10; i++)
		acquire_something(&parties[dice(MAX_PARTIES)]);
	for (int i = 0; i < 20; i++)
	{
		Party	   *party = &parties[dice(MAX_PARTIES)];

		if (!is_busy(party))
			wait_for_something(party);
	}
}

static int	n_found[MAX_PARTIES + 1];	/* by the least number of victims */
static int	n_needed;
static int	n_victims;

static const char *
walk(unsigned seed)
{
	int			least;
	int			n;

	begin(MAX_PARTIES, "aaabbb", seed % 2 == 0);
	make_waits();
	least = least_victims();
	n_found[least]++;
	n_needed += least;
	n = count_victims();
	n_victims += n;
	if (n >= 0 && n_needless == 0)
		return NULL;
	return n < 0 ? "a deadlock is left, or there was none" : "a victim is needless";
}

int
main(int argc, char **argv)
{
	for (int kazoo = 0; argc == 1 && kazoo < 2; kazoo++)
	{
		test_between(kazoo);
		test_common(kazoo);
		test_place(kazoo);
		test_places(kazoo);
	}
	walk_all(argc, argv, N_SEEDS, walk, "have only victims that end a deadlock");
	if (argc == 1)
		ok(n_found[1] > N_SEEDS / 20 && n_found[2] > 0,
		   "in %d of them one victim was necessary, in %d two; %d victims instead of %d",
		   n_found[1], n_found[2], n_victims, n_needed);
	return done();
}
