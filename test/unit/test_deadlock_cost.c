/*-------------------------------------------------------------------------
 *
 * test_deadlock_cost.c
 *		What long waits cost the ensemble, by a simulated clock: nothing for a crowd of
 *		sessions that hold nothing, a few requests for one that holds something, and few
 *		writes however often its local waiters change.
 *
 * Promise: 7.3
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "letters.h"
#include "victims.h"

/* Lets time pass while all owners look every half a second. */
static void
pass(int seconds)
{
	for (int ms = 0; ms < seconds * 1000; ms += 500)
	{
		for (int i = 0; i < MAX_PARTIES; i++)
			if (parties[i].session)
				publish_at_once(&parties[i]);
		fake_advance(500);
	}
}

static void
test_crowd(void)
{
	bool		silent = true;

	begin_waiters("abcdef", "A lock a");
	for (int i = 1; i < 6; i++)
	{
		ask_for(&parties[i], "a", X);
		fake_run_all();
		fake_count(parties[i].client);
	}
	pass(300);
	for (int i = 1; i < 6; i++)
		silent = silent && fake_counted(parties[i].client) == 0;
	ok(silent, "waiters that hold nothing send no request");
	is_int(reported_by(NULL), 0, "waiters that hold nothing report nothing");
	scene_end(NULL);
}

/* Readers behind the writers wait for the first writer, which waits for the reader before. */
static void
test_crowd_behind_reader(void)
{
	begin_waiters("abcdef", "A share a, B lock a, C lock a, D lock a");
	ask_for(&parties[4], "a", X);
	ask_for(&parties[5], "a", X);
	fake_run_all();
	for (int i = 2; i < 6; i++)
		fake_count(parties[i].client);
	pass(300);
	is_int(reported_by(NULL), 1, "of writers behind a reader the first one reports");
	for (int i = 2; i < 6; i++)
		is_str(fake_trace(parties[i].client), "", "of writers behind a reader another than the first sends no request (%d)", i);
	give_up_all(B);
	fake_run_all();
	pass(1);
	is_int(reported_by(C), 1, "the next writer reports when it is the first");
	is_int(reported_by(NULL), 1, "the next writer alone reports when it is the first");
	scene_end(NULL);
}

/* Local waiters that hold nothing block no session in the ensemble. */
static void
test_local_crowd(void)
{
	begin_waiters("abb", "A lock a, B lock a");
	fake_count(B->client);
	for (int i = 0; i < 20; i++)
	{
		wait_locally(C, i % 2 ? NULL : B);
		pass(1);
	}
	is_str(fake_trace(B->client), "", "local waiters that hold nothing cost no request");
	scene_end(NULL);
}

/* B holds b and waits for a; C, which holds c, may wait for B. */
static void
begin(void)
{
	begin_waiters("abb", "A lock a, B lock b, C lock c, B lock a");
	fake_advance(2000);
	fake_count(B->client);
	publish_at_once(B);
}

static void
test_one(void)
{
	begin();
	is_str(fake_trace(B->client), "mccmwslgl", "the first long wait ever: its znodes and their parents, a watch, a sync, and a list, the report and the queue");
	fake_count(B->client);
	pass(1000);
	ok(fake_counted(B->client) <= 4 * 10 && fake_n_traced(B->client, 's') >= 7,
	   "then a search in two minutes: %s", fake_trace(B->client));
	is_int(fake_n_traced(B->client, 'm'), 0, "the searches of a long wait write nothing");
	fake_count(B->client);
	give_up_all(B);
	fake_run_all();
	is_str(fake_trace(B->client), "md", "the end of the wait deletes the report and the bell together, and its node");
	scene_end(NULL);
}

static void
test_changes(void)
{
	begin();
	pass(1);
	fake_count(B->client);
	wait_locally(C, B);
	pass(2);
	is_int(fake_n_traced(B->client, 'm'), 1, "a new local waiter: one write");
	is_int(fake_n_traced(B->client, 's'), 1, "a new local waiter: one search");
	fake_count(B->client);
	for (int ms = 0; ms < 10000; ms += 50)
	{
		wait_locally(C, ms / 50 % 2 ? NULL : B);
		(void) is_victim_now(B);
		fake_run_all();
		fake_advance(50);
	}
	ok(fake_n_traced(B->client, 'm') <= 21, "local waiters that come and go: two writes a second at most, %d",
	   fake_n_traced(B->client, 'm'));
	scene_end(NULL);
}

/* A ring is answered with a search at once, but no more than five searches a second. */
static void
test_rings(void)
{
	int			n;

	begin();
	pass(5);
	fake_count(B->client);
	ring(B);
	fake_run_all();
	publish_at_once(B);
	is_int(fake_n_traced(B->client, 's'), 1, "a ring: one search at once");
	for (int ms = 0; ms < 10000; ms += 50)
	{
		ring(B);
		fake_run_all();
		publish_at_once(B);
		fake_advance(50);
	}
	n = fake_n_traced(B->client, 's');
	ok(n > 20 && n <= 52, "ten seconds of rings: at most five searches a second, %d", n);
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

	begin_waiters("abba", "A lock a, B lock b, C lock c, D lock d, A lock b, B lock a");
	for (int ms = 0; ms < 2000 && victims_at < 0; ms += 10)
	{
		wait_locally(C, waits_locally_for(C) ? NULL : B);
		wait_locally(D, waits_locally_for(D) ? NULL : A);
		if (is_victim_now(A) || is_victim_now(B))
			victims_at = ms;
		fake_run_all();
		fake_advance(10);
	}
	ok(victims_at >= 0, "a deadlock among sessions whose local waiters change all the time is found: %d ms", victims_at);
	scene_end(NULL);
}

int
main(void)
{
	test_crowd();
	test_crowd_behind_reader();
	test_local_crowd();
	test_one();
	test_changes();
	test_rings();
	test_churn();
	return done();
}
