/*-------------------------------------------------------------------------
 *
 * test_deadlock_permits.c
 *		Deadlocks through permits of semaphores.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "waiters.h"

#define X ZKL_MODE_EXCLUSIVE
#define CURATORS_PERMIT "_c_11111111-2222-3333-4444-555555555555-lease-0000000000"

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];
static Party *const D = &parties[3];

static void
begin(int n, const char *servers)
{
	scene_begin(n);
	waiters_begin(servers);
}

static void
holds(Party *party, const char *name)
{
	forget(lock_now(party, name, X));
}

static void
has_permit(Party *party, const char *name, int size)
{
	forget(permit_now(party, name, size));
}

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

static void
has_no_victim(const char *name)
{
	publish_all();
	is_int(verdicts(), 0, "%s: no session is a victim", name);
}

/* One session is the victim, and its failure ends the deadlock. */
static void
has_one_victim(const char *name)
{
	publish_all();
	is_int(verdicts(), 1, "%s: one session is the victim", name);
	if (victim())
		end_transaction(victim());
	fake_run_all();
	for (int i = 0; i < MAX_PARTIES; i++)
		if (parties[i].session && is_truly_deadlocked(&parties[i]))
			ok(false, "the other sessions can proceed");
	ok(scene_settles() && reported_by(NULL) == 0, "the other sessions continue, and no wait report is left");
	scene_end(NULL);
}


/*
 * Deadlocks, and waits that are no deadlock
 */

static void
test_mutexes(void)
{
	begin(2, "ab");
	has_permit(A, "a", 1);
	has_permit(B, "b", 1);
	permit_now(A, "b", 1);
	has_no_victim("a session that waits for a permit");
	permit_now(B, "a", 1);
	has_one_victim("two sessions that wait for each other's only permit");

	begin(3, "abb");
	has_permit(A, "s", 1);
	holds(B, "x");
	lock_now(A, "x", X);
	permit_now(C, "s", 1);
	wait_locally(B, C);
	has_one_victim("a cycle of a lock, a permit, and a row");

	begin(3, "abc");
	has_permit(A, "s", 1);
	holds(C, "x");
	permit_now(B, "s", 1);
	permit_now(C, "s", 1);
	has_no_victim("a queue for permits");
	lock_now(A, "x", X);
	has_one_victim("a member that is second in the queue for permits");
}

static void
test_any(void)
{
	begin(3, "abc");
	has_permit(A, "s", 2);
	has_permit(B, "s", 2);
	holds(C, "x");
	permit_now(C, "s", 2);
	lock_now(A, "x", X);
	has_no_victim("two holders of permits, one of which can proceed");
	lock_now(B, "x", X);
	has_one_victim("two holders of permits, both of which wait");

	begin(3, "abc");
	has_permit(A, "s", 2);
	has_permit(A, "s", 2);
	holds(C, "x");
	permit_now(C, "s", 2);
	lock_now(A, "x", X);
	has_one_victim("a member that has both permits");

	begin(2, "ab");
	has_permit(A, "s", 3);
	has_permit(B, "s", 3);
	has_permit(A, "s", 3);
	permit_now(A, "s", 3);
	has_no_victim("a session that waits for another permit of its own semaphore");
	permit_now(B, "s", 3);
	has_one_victim("two sessions that wait for another permit of their own semaphore");

	begin(4, "abcd");
	has_permit(A, "s", 2);
	has_permit(B, "s", 2);
	holds(C, "x");
	holds(D, "y");
	permit_now(C, "s", 2);
	lock_now(A, "x", X);
	lock_now(B, "y", X);
	has_no_victim("a holder that waits for a session that can proceed");
	lock_now(D, "x", X);
	has_one_victim("a holder that waits for a session that waits itself");
}

/* Permits of other programs, or of no session. */
static void
test_strangers(void)
{
	static const char *const who[] = {CURATORS_PERMIT, "stranger"};

	for (int i = 0; i < 2; i++)
	{
		char		path[256];
		char	   *made = NULL;
		int64_t		czxid;

		begin(3, "abc");
		has_permit(A, "s", 2);
		holds(C, "x");
		snprintf(path, sizeof(path), "%s/%s", pool_of("s", "/leases"), who[i]);
		fake_tree_create(path, "", 0, ZKL_CREATE_EPHEMERAL, 77, &made,
						 &czxid);
		free(made);
		permit_now(C, "s", 2);
		lock_now(A, "x", X);
		ok(is_truly_deadlocked(C) == false, "a permit of an unknown session is in use");
		has_no_victim(i == 0 ? "a permit of another program" : "a permit without a known holder");
		fake_tree_delete(path);
		fake_run_all();
		ok(permits_of(C, "s") == 1, "the wait ends when the permit is released");
		scene_end(NULL);
	}
}

/* Reports that are outdated when they are checked. */
static void
test_stale(void)
{
	char		permits[256];

	begin(3, "abc");
	has_permit(A, "s", 2);
	has_permit(B, "s", 2);
	holds(C, "x");
	permit_now(C, "s", 2);
	lock_now(A, "x", X);
	for (int i = 0; i < 3; i++)
	{
		(void) is_victim_now(A);
		(void) is_victim_now(C);
		fake_run_all();
	}
	release_all(B);
	fake_run_all();
	is_int(permits_of(C, "s"), 1, "after a release the waiter has the permit");
	has_no_victim("a session with a permit that outdated reports show as waiting");
	scene_end(NULL);

	/* A session does not wait for a node that has been given up but not deleted yet. */
	begin(3, "abc");
	has_permit(A, "s", 2);
	has_permit(B, "s", 2);
	holds(C, "x");
	permit_now(C, "s", 2);
	lock_now(B, "x", X);
	snprintf(permits, sizeof(permits), "%s", pool_of("s", "/leases"));
	fake_quirks.deny = permits;
	fake_quirks.deny_breaks = true;
	release_permit(A, "s");
	lock_now(A, "x", X);
	is_int(permits_of(C, "s"), 0, "the node of a released permit cannot be deleted yet");
	has_no_victim("a wait for a released permit");
	fake_quirks.deny = NULL;
	publish_all();
	is_int(permits_of(C, "s"), 1, "the permit is granted after the delete");
	scene_end(NULL);
}

static void
test_descriptions(void)
{
	const ZklDeadlock *deadlock;

	begin(3, "abc");
	has_permit(A, "s", 1);
	holds(C, "x");
	permit_now(B, "s", 1);
	permit_now(C, "s", 1);
	lock_now(A, "x", X);
	publish_all();
	deadlock = victim() ? deadlock_of(victim()) : NULL;
	ok(deadlock && deadlock->n >= 2, "there is a verdict");
	for (int i = 0; deadlock && i < deadlock->n; i++)
		is_str(wait_text(&deadlock->edges[i]), deadlock->edges[i].pid == 1
			   ? "exclusive x" : "permit s",
			   "the wait of session %d is described", deadlock->edges[i].pid);
	scene_end(NULL);
}

/* 10 of the design page's schedules: a permit with thousands of nodes is no deadlock that a multi could check. */
static void
test_large_permit(void)
{
	char		path[200];
	char	   *made;
	int64_t		unused;

	begin(3, "abc");
	has_permit(A, "s", 1);
	holds(B, "x");
	for (int i = 0; i < 3000; i++)
	{
		snprintf(path, sizeof(path), "%s/%s%06d", pool_of("s", "/leases"),
				 "_c_11111111-2222-3333-4444-555555", i);
		fake_tree_create(path, "", 0, ZKL_CREATE_EPHEMERAL, 77, &made, &unused);
		free(made);
	}
	permit_now(B, "s", 1);
	lock_now(A, "x", X);
	has_no_victim("a permit among thousands");
	scene_end(NULL);
}


int
main(void)
{
	test_mutexes();
	test_any();
	test_strangers();
	test_stale();
	test_descriptions();
	test_large_permit();
	return done();
}
