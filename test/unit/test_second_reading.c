/*-------------------------------------------------------------------------
 *
 * test_second_reading.c
 *		No false alarm: each member of a deadlock has read its queues
 *		again since all members reported for the first time.  What it read before,
 *		or on a server that lags behind, does not count.
 *
 * A waits for b, which B, C and E share, and learns only of E's release, the last one
 * before it.  So its report names B until it reads the queue again.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>

#include "waiters.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];
static Party *const D = &parties[3];
static Party *const E = &parties[4];

static void
holds(Party *party, const char *name, ZklMode mode)
{
	forget(lock_now(party, name, mode));
}

/* The party's backend looks at its wait, and everything sent is answered. */
static bool
becomes_victim(Party *party)
{
	bool		verdict = is_victim_now(party);

	fake_run_all();
	return verdict;
}

/* A has a, D has d, and B, C and E share b. */
static void
begin_holding(const char *servers)
{
	scene_begin(5);
	waiters_begin(servers);
	holds(A, "a", X);
	holds(B, "b", S);
	holds(C, "b", S);
	holds(E, "b", S);
	holds(D, "d", X);
}

/* A has reported that it waits for B, C and E. */
static void
begin(void)
{
	begin_holding("abcad");
	lock_now(A, "b", X);
	(void) becomes_victim(A);
}

/* A has reported that it waits for B's permit. */
static void
begin_permit(void)
{
	scene_begin(5);
	waiters_begin("abcad");
	holds(A, "a", X);
	forget(permit_now(B, "b", 1));
	holds(D, "d", X);
	permit_now(A, "b", 1);
	(void) becomes_victim(A);
}

/* B releases all, waits for A, and claims to be the victim. */
static void
b_claims(void)
{
	release_all(B);
	lock_now(B, "a", X);
	for (int i = 0; i < 3; i++)
		(void) becomes_victim(B);
}

/* The same; its probe of A is sent. */
static void
b_probes_a(void)
{
	b_claims();
	(void) is_victim_now(B);
	ok(fake_n_traced(B->client, 'd') == 3, "B removes its node in b, its report, and A's");
}

/* B and, if "both", A look at their waits for three seconds. */
static void
b_goes_on(bool both, const char *name)
{
	bool		verdict = false;

	for (int i = 0; i < 30 && !verdict; i++)
	{
		verdict = (both && becomes_victim(A)) || becomes_victim(B);
		fake_advance(100);
	}
	ok(!verdict, "%s: nobody gives way", name);
	scene_end(NULL);
}

/* A replaces its report, because D waits for it now, before it learns of the probe. */
static void
test_own_change(void)
{
	begin();
	fake_count(B->client);
	fake_advance(1000);
	b_probes_a();
	fake_apply(B->client);
	wait_locally(D, A);
	(void) becomes_victim(A);
	b_goes_on(true, "a report that changes while it is probed");
}

/* A learns of the probe, loses its connection, and connects to a server that lags. */
static void
test_lag(void)
{
	begin();
	fake_count(B->client);
	fake_lag(A->client, true);
	b_probes_a();
	fake_run_all();
	fake_catch_up(A->client, 100);
	while (fake_deliver(A->client))
		;
	fake_disconnect(A->client);
	fake_connect(A->client);
	fake_run_all();
	b_goes_on(true, "a server that lags behind");
}

/* A replaces its report, because D waits for it now, but the delete fails. */
static void
a_fails_to_delete(void)
{
	fake_advance(1000);
	wait_locally(D, A);
	fake_count(A->client);
	fake_fault(A->client, 1, FAULT_THROTTLE);
	(void) becomes_victim(A);
}

/* Meanwhile, with A's backend slow, B releases b and sees A's outdated report. */
static void
test_lost_delete(void)
{
	begin();
	fake_count(B->client);
	a_fails_to_delete();
	b_claims();
	(void) becomes_victim(A);
	b_goes_on(true, "a report whose delete has failed");
}

/* Another program creates a permit node and deletes it. */
static void
permit_comes_and_goes(void)
{
	char		path[256];
	char	   *made;
	int64_t		czxid;

	snprintf(path, sizeof(path), "%s/other", pool_of("b", "/leases"));
	fake_tree_create(path, "", 0, ZKL_CREATE_EPHEMERAL, 77, &made, &czxid);
	free(made);
	fake_tree_delete(path);
}

/* A looks for the report whose delete has failed. */
static void
a_looks(void)
{
	fake_stall(1000);
	fake_count(A->client);
	(void) fake_ring(A->client);
}

/* E releases b, or another program's permit comes and goes: A lists what it waits for. */
static void
a_lists(bool is_permit)
{
	if (is_permit)
		permit_comes_and_goes();
	else
		reduce(E, "b", NONE);
	while (fake_step(E->client) || fake_deliver(A->client))
		;
}

/*
 * Behind the answers to what A has sent, B releases b and sees A's outdated report.  Then
 * A receives these n answers; and later ones, from this one on, late.
 */
static void
b_overtakes(int n, int first_late, const char *name)
{
	fake_run_all();
	fake_count(B->client);
	b_probes_a();
	fake_count(A->client);
	fake_fault(A->client, first_late, FAULT_DELAY);
	fake_release(A->client);
	for (int i = 0; i < n; i++)
		(void) fake_deliver(A->client);
	(void) becomes_victim(A);
	b_goes_on(true, name);
}

/* A lists what it waits for before it deletes its outdated report again. */
static void
test_list_in_flight(bool is_permit)
{
	if (is_permit)
		begin_permit();
	else
		begin();
	a_fails_to_delete();
	a_looks();
	a_lists(is_permit);
	is_str(fake_trace(A->client), is_permit ? "slsL" : "slsl", "A lists its reports, then what it waits for");
	fake_fault(A->client, 1, FAULT_DELAY);
	b_overtakes(4, is_permit ? 1 : 0, is_permit
				? "permits counted before the report was deleted"
				: "a queue listed before the report was deleted");
}

/* The same, with a list sent behind a create, because another program deletes A's node. */
static void
test_create_in_flight(void)
{
	begin();
	a_fails_to_delete();
	fake_tree_delete(node_of(A, "b"));
	a_lists(false);
	(void) fake_apply(A->client);
	(void) fake_apply(A->client);
	a_looks();
	while (fake_deliver(A->client))
		;
	is_str(fake_trace(A->client), "slgdcl", "A lists its reports, creates its node, and lists the queue");
	fake_fault(A->client, 1, FAULT_DELAY);
	b_overtakes(6, 0, "a node created before the report was deleted");
}

/* B's server lags behind A, which reports its wait again and then gives up. */
static void
test_victim_lags(void)
{
	begin();
	lock_now(B, "a", X);
	for (int i = 0; i < 4; i++)
		(void) becomes_victim(B);
	ok(reported_by(A) == 0, "B probes A");
	(void) becomes_victim(A);
	ok(reported_by(A) == 1, "A reports again");
	fake_lag(B->client, true);
	give_up_all(A);
	fake_run_all();
	b_goes_on(false, "a wait that has ended");
}

/*
 * A waits for B, B for D, and D for A.  When A has probed the others, D gives up, and B
 * gives up, releases what A waits for, and waits for A.
 */
static void
test_sum(void)
{
	begin_holding("abcde");
	lock_now(B, "d", X);
	lock_now(D, "a", X);
	lock_now(A, "b", X);
	(void) becomes_victim(B);
	(void) becomes_victim(D);
	fake_count(A->client);
	for (int i = 0; i < 4; i++)
		(void) becomes_victim(A);
	ok(reported_by(B) + reported_by(D) == 0, "A probes the others");
	give_up_all(D);
	give_up_all(B);
	reduce(B, "b", NONE);
	lock_now(B, "a", X);
	b_goes_on(true, "another wait instead of two");
}

/* B's downgrade of x, for which C waits, is tried again and again. */
static void
test_downgrade(void)
{
	scene_begin(3);
	waiters_begin("abc");
	holds(B, "x", X);
	holds(C, "y", X);
	lock_now(C, "x", S);
	fake_quirks.deny = "/zklock/locks/x";
	fake_quirks.deny_breaks = true;
	reduce(B, "x", S);
	lock_now(B, "y", X);
	publish_all();
	ok(!deadlock_of(B) && !deadlock_of(C), "a downgrade that is under way: nobody gives way");
	fake_quirks.deny = NULL;
	heal();
	fake_advance(10000);
	ok(mode_of(C, "x") == S, "... and the wait ends by itself");
	scene_end(NULL);
}

int
main(void)
{
	test_own_change();
	test_lag();
	test_lost_delete();
	test_list_in_flight(false);
	test_list_in_flight(true);
	test_create_in_flight();
	test_victim_lags();
	test_sum();
	test_downgrade();
	return done();
}
