/*-------------------------------------------------------------------------
 *
 * test_pace.c
 *		How much a long wait costs the ensemble, and how often its session searches
 *		for deadlocks, by a simulated clock.  test/t/474_deadlock_cost.pl tests the
 *		first minute with real clocks.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "waiters.h"

#define X ZKL_MODE_EXCLUSIVE
#define SEARCH_MS 500			/* pause between two calls of the backend */

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];

/* A holds what B waits for; C, on B's server, may wait for B later. */
static void
begin(void)
{
	scene_begin(3);
	waiters_begin("abb");
	forget(lock_now(A, "a", X));
	lock_now(B, "a", X);
	fake_count(B->client);
	(void) is_victim_now(B);
	fake_run_all();
}

/*
 * Lets time pass while B waits; "moments" lists the seconds in which requests were
 * sent.
 */
static void
let_b_wait(int seconds, char *moments, size_t size)
{
	size_t		length = 0;

	moments[0] = '\0';
	for (int ms = 0; ms < seconds * 1000; ms += SEARCH_MS)
	{
		int			before = fake_counted(B->client);

		(void) is_victim_now(B);
		fake_run_all();
		fake_advance(SEARCH_MS);
		if (fake_counted(B->client) > before && length < size)
			length += (size_t) snprintf(moments + length, size - length, "%s%d",
										length ? " " : "", (ms + SEARCH_MS) / 1000);
	}
}

static void
test_schedule(void)
{
	char		moments[400];

	begin();
	is_str(fake_trace(B->client), "cccwl", "the wait report costs a node, the node's parent, a watch and a list");
	fake_count(B->client);
	let_b_wait(1000, moments, sizeof(moments));
	is_str(moments, "10 30 70 150 270 390 510 630 750 870 990",
		   "the reports are listed after 10, 30, 70, 150 seconds, then every two minutes");
	is_str(fake_trace(B->client), "lllllllllll", "each search is one list");
	scene_end(NULL);
}

/* A new local waiter: one new report and one search at once, then the old pace. */
static void
test_change(void)
{
	char		moments[400];

	begin();
	forget(lock_now(C, "c", X));
	let_b_wait(100, moments, sizeof(moments));
	wait_locally(C, B);
	fake_count(B->client);
	let_b_wait(2, moments, sizeof(moments));
	is_str(fake_trace(B->client), "dslwcwl", "a change costs a read of the queue, a new node for the old one, and a list");
	fake_count(B->client);
	let_b_wait(1000, moments, sizeof(moments));
	is_str(fake_trace(B->client), "llllllll", "then the pauses are as long as before");
	scene_end(NULL);
}

/* A local waiter that holds nothing is in no deadlock, so the report does not change. */
static void
test_unimportant(void)
{
	begin();
	fake_count(B->client);
	for (int i = 0; i < 20; i++)
	{
		wait_locally(C, i % 2 ? NULL : B);
		(void) is_victim_now(B);
		fake_run_all();
		fake_advance(SEARCH_MS / 2);
	}
	is_str(fake_trace(B->client), "", "local waiters that hold nothing cost no request");
	scene_end(NULL);
}

/*
 * A and B are deadlocked, and have local waiters that hold something, come and go all
 * the time, and are in no deadlock.
 */
static void
test_churn(void)
{
	int			victims_at = -1;
	Party	   *D = &parties[3];

	scene_begin(4);
	waiters_begin("abba");
	forget(lock_now(A, "a", X));
	forget(lock_now(B, "b", X));
	forget(lock_now(C, "c", X));
	forget(lock_now(D, "d", X));
	lock_now(A, "b", X);
	lock_now(B, "a", X);
	fake_count(A->client);
	for (int ms = 0; ms < 2000 && victims_at < 0; ms += 10)
	{
		wait_locally(C, waits_locally_for(C) ? NULL : B);
		wait_locally(D, waits_locally_for(D) ? NULL : A);
		if (is_victim_now(A) || is_victim_now(B))
			victims_at = ms;
		fake_run_all();
		fake_advance(10);
	}
	ok(victims_at >= 0, "a deadlock among sessions whose local waiters change all the time is found");
	ok(fake_counted(A->client) < 60, "the search needs few requests: %s", fake_trace(A->client));
	scene_end(NULL);
}

/* The next wait starts with the first pause again. */
static void
test_next_wait(void)
{
	char		moments[400];

	begin();
	let_b_wait(1000, moments, sizeof(moments));
	give_up_all(B);
	lock_now(B, "a", X);
	fake_count(B->client);
	let_b_wait(31, moments, sizeof(moments));
	is_str(moments, "0 10 30", "the next wait is searched as often as the first");
	scene_end(NULL);
}

static bool
becomes_victim(Party *party)
{
	bool		verdict = is_victim_now(party);

	fake_run_all();
	return verdict;
}

/* A and B share what C waits for, and each waits for C. */
static void
begin_two(void)
{
	scene_begin(3);
	waiters_begin("abc");
	forget(lock_now(C, "c", X));
	forget(lock_now(A, "a", ZKL_MODE_SHARED));
	forget(lock_now(B, "a", ZKL_MODE_SHARED));
	lock_now(C, "a", X);
	lock_now(A, "c", X);
	lock_now(B, "c", ZKL_MODE_SHARED);
}

/*
 * Two deadlocks: A and C, B and C.  After one victim has failed, the others are still in a
 * deadlock.
 */
static void
test_two(void)
{
	int			failed_at[2] = {-1, -1};

	begin_two();
	(void) becomes_victim(C);
	(void) becomes_victim(A);
	(void) becomes_victim(B);
	for (int ms = 0; ms < 5000; ms += 10)
	{
		for (int i = 0; i < 3; i++)
			if (becomes_victim(&parties[i]))
			{
				failed_at[failed_at[0] >= 0] = ms;
				give_up_all(&parties[i]);
				release_all(&parties[i]);
			}
		fake_run_all();
		fake_advance(10);
	}
	ok(failed_at[0] >= 0 && failed_at[1] >= 0, "two deadlocks that share a member are found");
	ok(failed_at[1] - failed_at[0] < 2000, "the second deadlock is found soon after the first: %d, %d ms",
	   failed_at[0], failed_at[1]);
	is_int(reported_by(NULL), 0, "no wait report is left");
	scene_end(NULL);
}

/* The same, but B gives up after A has probed it. */
static void
test_gone(void)
{
	int			gone_at = -1;
	int			failed_at = -1;

	begin_two();
	(void) becomes_victim(B);
	(void) becomes_victim(C);
	(void) becomes_victim(A);
	for (int ms = 0; ms < 5000 && failed_at < 0; ms += 10)
	{
		if (gone_at >= 0)
			(void) becomes_victim(C);
		if (becomes_victim(A))
			failed_at = ms;
		if (gone_at < 0 && reported_by(B) == 0)
		{
			gone_at = ms;
			give_up_all(B);
			release_all(B);
		}
		fake_advance(10);
	}
	ok(gone_at >= 0 && failed_at >= 0 && failed_at - gone_at < 2000,
	   "a member gives up: the rest of the deadlock is found soon after that: %d, %d ms", gone_at, failed_at);
	scene_end(NULL);
}

int
main(void)
{
	test_schedule();
	test_change();
	test_unimportant();
	test_churn();
	test_next_wait();
	test_two();
	test_gone();
	return done();
}
