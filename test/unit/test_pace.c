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
wait_on(int seconds, char *moments, size_t size)
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
	is_str(fake_trace(B->client), "cccwl", "told: a node, its parent before it, a watch, a list");
	fake_count(B->client);
	wait_on(1000, moments, sizeof(moments));
	is_str(moments, "10 30 70 150 270 390 510 630 750 870 990",
		   "looked at after 10, 30, 70, 150 seconds, then every two minutes");
	is_str(fake_trace(B->client), "lllllllllll", "by one list each");
	scene_end(NULL);
}

/* A new local waiter: one new report and one search at once, then the old pace. */
static void
test_change(void)
{
	char		moments[400];

	begin();
	wait_on(100, moments, sizeof(moments));
	wait_locally(C, B);
	fake_count(B->client);
	wait_on(2, moments, sizeof(moments));
	is_str(fake_trace(B->client), "cdwl", "what changes: a new node for the old one, and a list");
	fake_count(B->client);
	wait_on(1000, moments, sizeof(moments));
	is_str(fake_trace(B->client), "llllllll", "then as rarely as before");
	scene_end(NULL);
}

/* The next wait starts with the first pause again. */
static void
test_next_wait(void)
{
	char		moments[400];

	begin();
	wait_on(1000, moments, sizeof(moments));
	give_up_all(B);
	lock_now(B, "a", X);
	fake_count(B->client);
	wait_on(31, moments, sizeof(moments));
	is_str(moments, "0 10 30", "the next wait is looked at as often as the first");
	scene_end(NULL);
}

int
main(void)
{
	test_schedule();
	test_change();
	test_next_wait();
	return done();
}
