/*-------------------------------------------------------------------------
 *
 * test_deadlock.c
 *		Deadlocks among sessions of several servers are found, one
 *		participant is the victim, and no report is left when a wait is over,
 *		whatever goes wrong.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "waiters.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];
static Party *const D = &parties[3];

static const char *const abc[] = {"a", "b", "c"};
static const ZklMode xxx[] = {X, X, X};

static void
begin(int n, const char *servers)
{
	scene_begin(n);
	waiters_begin(servers);
}

/* How many parties have a verdict? */
static int
verdicts(void)
{
	int			n = 0;

	for (int i = 0; i < MAX_PARTIES; i++)
		n += verdict_of(&parties[i])[0] != '\0';
	return n;
}

static Party *
victim(void)
{
	for (int i = 0; i < MAX_PARTIES; i++)
		if (verdict_of(&parties[i])[0] != '\0')
			return &parties[i];
	return NULL;
}

/* The victim releases everything; do all others proceed? */
static bool
others_continue(void)
{
	Party	   *v = victim();

	if (v == NULL)
		return false;
	give_up_all(v);
	release_all(v);
	wait_locally(v, NULL);
	for (int i = 0; i < MAX_PARTIES; i++)
		if (waits_locally_for(&parties[i]) == v)
			wait_locally(&parties[i], NULL);
	return scene_settles();
}

static void
has_one_victim(const char *name)
{
	publish_all();
	is_int(verdicts(), 1, "%s: one session is the victim", name);
	ok(others_continue(), "%s: the other sessions continue", name);
	is_int(reported_by(NULL), 0, "%s: no wait report is left", name);
	scene_end(NULL);
}

static void
has_no_victim(const char *name)
{
	publish_all();
	is_int(verdicts(), 0, "%s: no session is a victim", name);
	scene_end(NULL);
}

static void
holds(Party *party, const char *name, ZklMode mode)
{
	forget(lock_now(party, name, mode));
}


/*
 * Deadlocks, and waits that are no deadlock
 */

static void
two(void)
{
	begin(2, "ab");
	holds(A, "a", X);
	holds(B, "b", X);
	lock_now(A, "b", X);
	lock_now(B, "a", X);
}

static void
test_shapes(void)
{
	two();
	has_one_victim("two servers");

	begin(3, "abc");
	holds(A, "a", X);
	holds(B, "b", X);
	holds(C, "c", X);
	lock_now(A, "b", X);
	lock_now(B, "c", X);
	has_no_victim("a chain");

	begin(3, "abc");
	holds(A, "a", X);
	holds(B, "b", X);
	holds(C, "c", X);
	lock_now(A, "b", X);
	lock_now(B, "c", X);
	lock_now(C, "a", S);
	has_one_victim("three servers");

	begin(3, "abc");
	holds(A, "a", S);
	holds(B, "a", S);
	holds(C, "b", X);
	lock_now(A, "b", S);
	lock_now(C, "a", X);
	has_one_victim("one of two sharers");

	begin(3, "abc");
	holds(A, "a", S);
	holds(B, "a", S);
	holds(A, "b", X);
	lock_now(A, "a", X);
	lock_now(B, "b", X);
	has_one_victim("an upgrade");

	begin(3, "abc");
	holds(A, "c", X);
	holds(B, "b", X);
	ask_all(A, 2, abc, xxx, false);
	fake_run_all();
	lock_now(B, "c", X);
	has_one_victim("several names at once");

	begin(3, "abc");
	holds(C, "a", X);
	holds(B, "b", X);
	ask_all(A, 2, abc, xxx, false);
	fake_run_all();
	lock_now(B, "a", X);
	has_one_victim("several names at once, one of which has a queue");

	begin(3, "abc");
	holds(C, "a", X);
	holds(B, "b", X);
	ask_all(A, 2, abc, xxx, false);
	fake_run_all();
	has_no_victim("several names at once, whose holders can proceed");

	begin(3, "abc");
	holds(A, "a", X);
	foreign_node("b", "_c_11111111-2222-3333-4444-555555555555-__WRIT__", 77);
	lock_now(A, "b", X);
	lock_now(B, "a", X);
	ok(pending_of(A) && pending_of(B), "sessions wait for a holder of another program");
	has_no_victim("a holder of another program");
}

/* Waits in the lock manager of a server. */
static void
test_local(void)
{
	begin(4, "abba");
	holds(B, "a", X);
	holds(D, "b", X);
	lock_now(A, "a", X);
	lock_now(C, "b", X);
	wait_locally(B, C);
	publish_all();
	is_int(verdicts(), 0, "rows of two servers: no victim before the cycle is complete");
	wait_locally(D, A);
	has_one_victim("rows of two servers, a row last");

	begin(3, "aab");
	holds(B, "a", X);
	lock_now(A, "a", X);
	publish_all();
	wait_locally(B, A);
	has_one_victim("one server, and the ensemble");

	begin(4, "aaab");
	holds(C, "a", X);
	holds(D, "b", X);
	lock_now(A, "b", X);
	wait_locally(B, A);
	wait_locally(C, B);
	lock_now(D, "a", X);
	has_one_victim("through local waiters");
}

/* The text of the verdict. */
static void
test_description(void)
{
	const ZklDeadlock *deadlock;
	Party	   *v;

	begin(3, "aab");
	holds(B, "x", X);
	holds(C, "y", S);
	lock_now(A, "y", X);
	lock_now(C, "x", X);
	wait_locally(B, A);
	publish_all();
	v = victim();
	deadlock = v ? deadlock_of(v) : NULL;
	ok(deadlock && deadlock->n == 3, "the deadlock has all three members");
	for (int i = 0; deadlock && i < deadlock->n; i++)
	{
		const ZklDeadlockEdge *e = &deadlock->edges[i];
		int			next = deadlock->edges[(i + 1) % 3].pid;

		is_str(wait_text(e), e->pid == 1 ? "exclusive y" : e->pid == 2 ? "a row" : "exclusive x",
			   "the wait of session %d is described", e->pid);
		is_int(next, e->pid == 1 ? 3 : e->pid == 3 ? 2 : 1, "the next member is the one that this session waits for");
		is_str(e->server, "server?of?mine", "the member has the name of its server, in one line");
	}
	ok(deadlock && deadlock->edges[0].pid == (int) (v - parties) + 1,
	   "the first member is the victim");
	scene_end(NULL);
}


/*
 * Outdated reports
 */

static void
test_stale(void)
{
	/* B and C were before A; B, not the nearest, has left, and then waits itself. */
	begin(3, "abc");
	holds(A, "a", X);
	holds(B, "b", S);
	holds(C, "b", S);
	lock_now(A, "b", X);
	publish_all();
	reduce(B, "b", ZKL_MODE_NONE);
	lock_now(B, "a", X);
	publish_all();
	is_int(verdicts(), 0, "a blocker that has left: no victim");
	fake_count(A->client);
	for (int i = 0; i < 200; i++)
	{
		(void) is_victim_now(A);
		(void) is_victim_now(B);
		fake_run_all();
		fake_advance(500);
	}
	ok(strlen(fake_trace(A->client)) < 20, "outdated reports cause no repeated reads: %s",
	   fake_trace(A->client));
	scene_end(NULL);

	/* The same, but A is the last that reports, because D waits for it, too. */
	begin(4, "abca");
	holds(A, "a", X);
	holds(B, "b", S);
	holds(C, "b", S);
	holds(D, "d", X);
	lock_now(A, "b", X);
	publish_all();
	reduce(B, "b", ZKL_MODE_NONE);
	lock_now(B, "a", X);
	(void) is_victim_now(B);
	fake_run_all();
	wait_locally(D, A);
	fake_advance(1000);
	for (int i = 0; i < 10; i++)
	{
		ok(!is_victim_now(A), "a blocker that has left, of the last that reports: no victim (%d)", i);
		fake_run_all();
		ok(i < 4 || !is_victim_now(B), "the blocker that has left is no victim either");
		fake_run_all();
		fake_advance(100);
	}
	scene_end(NULL);

	/* B's wait for a row behind A ends before any session notices. */
	begin(3, "aab");
	holds(B, "x", X);
	holds(C, "y", X);
	lock_now(A, "y", X);
	wait_locally(B, A);
	for (int i = 0; i < 3; i++)
	{
		(void) is_victim_now(A);
		fake_run_all();
	}
	wait_locally(B, NULL);
	lock_now(C, "x", X);
	for (int i = 0; i < 5; i++)
	{
		ok(!is_victim_now(C), "a wait for a row that is over: no session is a victim (%d)", i);
		fake_run_all();
		fake_advance(100);
	}
	publish_all();
	is_int(verdicts(), 0, "after its report is withdrawn no session is a victim either");
	scene_end(NULL);

	/* A participant does not answer. */
	two();
	fake_advance(10);
	(void) is_victim_now(A);
	fake_run_all();
	for (int i = 0; i < 50; i++)
	{
		ok(!is_victim_now(B), "a participant that does not answer: no session is a victim (%d)", i);
		fake_run_all();
		fake_advance(100);
	}
	has_one_victim("a participant that answers again");
}

/* A deadlock that was returned stays readable, whatever happens meanwhile. */
static void
test_kept(void)
{
	const ZklDeadlock *deadlock = NULL;
	Party	   *v = NULL;

	two();
	for (int i = 0; i < 100 && deadlock == NULL; i++)
	{
		v = i % 2 ? A : B;
		deadlock = publish(v);
		fake_run_all();
		fake_advance(100);
	}
	ok(deadlock != NULL, "there is a verdict");
	release_all(v == A ? B : A);
	fake_run_all();
	ok(pending_of(v) == NULL, "the other session releases, and the victim's wait ends");
	is_str(deadlock ? deadlock->edges[0].server : "", "server?of?mine",
		   "the verdict can still be read");
	scene_end(NULL);
}

/* When a wait ends, its report is withdrawn. */
static void
test_ends(void)
{
	two();
	publish_at_once(A);
	is_int(reported_by(A), 1, "a long wait is published");
	give_up_all(A);
	fake_run_all();
	is_int(reported_by(A), 0, "the report is removed when the session gives up");
	scene_end(NULL);

	two();
	publish_at_once(A);
	release_all(B);
	fake_run_all();
	ok(mode_of(A, "b") == X && reported_by(A) == 0, "the report is removed when the session gets the lock");
	scene_end(NULL);

	two();
	publish_at_once(A);
	fake_expire(A->client);
	fake_run_all();
	is_int(reported_by(NULL), 0, "the report is removed with the session");
	scene_end(NULL);
}

/* Without permission the wait continues, unreported. */
static void
test_refused(void)
{
	begin(2, "ab");
	fake_quirks.deny = WAITING;
	holds(A, "a", X);
	holds(B, "b", X);
	lock_now(A, "b", X);
	lock_now(B, "a", X);
	fake_count(A->client);
	publish_all();
	is_int(verdicts(), 0, "without permission to report no session is a victim");
	is_str(fake_trace(A->client), "mccw", "the report is not repeated (w: the held lock is watched)");
	release_all(B);
	fake_run_all();
	is_int(mode_of(A, "b"), X, "the waiter is granted the lock");
	scene_end(NULL);
}


/*
 * Each fault at each operation
 */

static int
count_operations(void)
{
	int			n;

	two();
	fake_count(A->client);
	publish_all();
	n = fake_counted(A->client);
	scene_end(NULL);
	return n;
}

static void
fault_at(int k, FakeFault fault, Party *party, bool give_up)
{
	bool		good;
	const char *what = "";

	two();
	fake_count(party->client);
	fake_fault(party->client, k, fault);
	for (int i = 0; i < 6 && !fake_fault_happened(party->client); i++)
	{
		(void) is_victim_now(A);
		(void) is_victim_now(B);
		fake_run_all();
		fake_advance(100);
	}
	if (give_up)
	{
		give_up_all(party);
		release_all(party);
	}
	for (int i = 0; i < 6; i++)
	{
		heal();
		for (int p = 0; p < 2; p++)
			if (zkl_session_state(parties[p].session) >= ZKL_SESSION_EXPIRED)
				scene_rejoin(&parties[p]);
		publish_all();
		fake_advance(1000);
	}
	good = verdicts() <= 1;
	if (!good)
		what = "two victims";
	if (good && victim())
	{
		give_up_all(victim());
		release_all(victim());
	}
	if (good && (!scene_settles() || is_truly_deadlocked(A)))
	{
		good = false;
		what = "the sessions still wait";
	}
	if (good && reported_by(NULL) > 0)
	{
		good = false;
		what = "a wait report is left";
	}
	if (!good)
		ok(false, "%s at operation %d of %s%s: %s", fake_fault_name(fault), k,
		   party == A ? "A" : "B", give_up ? ", which gives up" : "", what);
	scene_end(NULL);
}

static void
test_faults(void)
{
	int			n = count_operations();

	ok(n > 8, "the searches have %d operations", n);
	for (FakeFault fault = FAULT_DROP; fault < N_FAULTS; fault++)
		for (int k = 1; k <= n + 4; k++)
			for (int who = 0; who < 4; who++)
				fault_at(k, fault, who & 1 ? A : B, (who & 2) != 0);
	ok(true, "each fault at each operation: at most one victim, and no report is left");
}

int
main(void)
{
	test_shapes();
	test_local();
	test_description();
	test_stale();
	test_kept();
	test_ends();
	test_refused();
	test_faults();
	return done();
}
