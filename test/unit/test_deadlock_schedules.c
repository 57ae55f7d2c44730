/*-------------------------------------------------------------------------
 *
 * test_deadlock_schedules.c
 *		Schedules in which a simpler protocol would raise a false deadlock, miss a
 *		deadlock, or choose two victims; those without a certain order of answers are scenes
 *		of test_deadlock.c.
 *
 * Promise: 7.2
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "letters.h"
#include "recipe/deadlock/detector.h"
#include "victims.h"

/*
 * The owner is late, or its server is crowded
 */

static bool
await_nothing(void *arg, ZklBatch *batch)
{
	(void) arg;
	(void) batch;
	return false;
}

static bool
pause_never(void *arg, int ms)
{
	(void) arg;
	(void) ms;
	return false;
}

static int
find_none(void *arg, const ZklLocalWaiter **waiters)
{
	(void) arg;
	*waiters = NULL;
	return 0;
}

static uint32_t
no_key(void *arg, const char *name)
{
	(void) arg;
	(void) name;
	return 0;
}

/* The request fails, and its nodes are deleted and freed, before the owner looks (sanitizers). */
static void
test_decided_before(void)
{
	static const ZklDetectorCallbacks callbacks = {await_nothing, pause_never, find_none, no_key};
	ZklDetectorConfig config = {.pid = 1,.server = "here"};
	ZklDetector *detector;
	Ask		   *ask;
	int64_t		next_ms;
	bool		is_limited;

	begin_waiters("ab", "A permit s1, B lock x, B permit s1");
	ask = pending_of(B);
	detector = zkl_detector_begin(B->session, ask->request, &config, &callbacks, NULL);
	fake_count(B->client);
	fake_fault(B->client, 1, FAULT_NO_AUTH);
	release_permit(A, "s");
	fake_run_all();
	is_int(zkl_request_status(ask->request), ZKL_NO_AUTH, "a count is refused");
	is_int(nodes_of(B, NULL), 1, "only the lock's node is left");
	ok(zkl_detector_step(detector, &next_ms, &is_limited) == NULL, "a step after that reports nothing");
	is_int(reported_by(B), 0, "a step after that leaves no report in the ensemble");
	zkl_detector_end(detector);
	scene_end(NULL);
}

#define N_CROWD 600
static int	crowd;

static int
find_crowd(Party *party, const ZklLocalWaiter **waiters)
{
	static ZklLocalWaiter all[N_CROWD];
	static ZklHeld held = {.key = 1,.kind = ZKL_HELD_EXCLUSIVE};

	for (int i = 0; i < crowd; i++)
		all[i] = (ZklLocalWaiter)
	{
		.session_id = 1000 + i,.pid = i,.identity = 1,.waits_for = "a row",.held = &held,.n_held = 1
	};
	*waiters = all;
	return party == B ? crowd : 0;
}

/* A report with too many local waiters is not written, and a later one is, when they are fewer. */
static void
test_crowd_goes(void)
{
	char		path[100];
	const FakeNode *report;
	int32_t		version;

	begin_waiters("abb", "A lock a, B lock b, B lock a");
	owner_find_waiters = find_crowd;
	crowd = 400;
	publish_at_once(B);
	is_int(reported_by(B), 1, "a wait is reported");
	crowd = N_CROWD;
	for (int i = 0; i < 5; i++)
	{
		fake_advance(500);
		publish_at_once(B);
	}
	ok(owner_is_limited(B), "the report would be too large");
	snprintf(path, sizeof(path), "%s/%" PRIx64, WAITING, (uint64_t) fake_session_id(B->client));
	report = fake_tree_find(path);
	version = report ? report->version : -1;
	crowd = 2;
	fake_advance(500);
	publish_at_once(B);
	report = fake_tree_find(path);
	is_int(report ? report->version : -2, version + 1, "when the local waiters are fewer, the report is replaced");
	scene_end(NULL);
}

/*
 * Answers that prove nothing
 */

/*
 * V waits for x of L, which waits locally for M, directly or through P; M waits for y of V.
 * All but V have reported.
 */
static Party *const V = &parties[0];
static Party *const M = &parties[1];
static Party *const L = &parties[2];
static Party *const P = &parties[3];
static Party *const K = &parties[4];

static void
begin_local(bool through_p)
{
	begin_waiters("abbbb", through_p ? "A lock y, C lock x, E lock z, C row D, D row B, B lock y"
				  : "A lock y, C lock x, E lock z, C row B, B lock y");
	owner_goes_on(M, 20, NULL);
	is_int(reported_by(M), 1, "a member has reported its local waiters");
	fake_advance(1000);
	ask_for(V, "x", X);
	while (fake_step(V->client))
		;
}

/* Lets V report, find the deadlock and ring; M does not answer yet. */
static void
v_rings(void)
{
	owner_goes_on(V, 50, NULL);
	ok(owner_is_in_step(V), "the claimant waits for answers");
}

static bool
v_gives_verdict(void)
{
	int			n = fake_n_traced(V->client, 'm');

	for (int i = 0; i < 50; i++)
	{
		const ZklDeadlock *deadlock = publish(V);

		if (deadlock)
			return true;
		while (fake_step(V->client))
			;
		if (!owner_is_in_step(V))
			break;
	}
	return fake_n_traced(V->client, 'm') > n;
}

static void
test_late_write(void)
{
	begin_local(false);
	wait_locally(K, M);
	(void) publish(M);			/* sends a report with L and K */
	wait_locally(L, NULL);
	v_rings();
	fake_step(M->client);
	ok(!v_gives_verdict(), "a report that was decided before the ring and written after it is no answer");
	owner_goes_on(M, 20, NULL);
	ok(!v_gives_verdict(), "the answer shows that the local wait has ended");
	has_no_victim("a local wait that ended before the ring");
}

/* Somebody rings; M reads its bell while L stops waiting and V rings. */
static void
test_look_before_bell(void)
{
	begin_local(false);
	ring(M);
	while (fake_step(M->client))
		;
	zkl_session_receive(M->session);
	(void) publish(M);
	ok(owner_is_in_step(M), "a member reads its bell");
	wait_locally(L, NULL);
	v_rings();
	for (int i = 0; i < 50 && owner_is_in_step(M); i++)
	{
		while (fake_step(M->client))
			;
		(void) publish(M);
	}
	ok(!owner_is_in_step(M), "the member has answered; later it looks again");
	ok(!v_gives_verdict(), "what a member saw before it read its bell is no answer");
	has_no_victim("a local wait that ended while the bell was read");
}

static void
test_path(void)
{
	begin_local(true);
	wait_locally(P, NULL);
	v_rings();
	wait_locally(P, M);
	owner_goes_on(M, 20, NULL);
	ok(!v_gives_verdict(), "a wait on the way that has ended and begun again is another one");
	has_one_victim("the same sessions wait again", "AB");
}

/* L waits locally for V itself, which is the claimant, and stops before the verdict. */
static void
test_own_server(void)
{
	int			n;

	begin_waiters("aba", "B lock y, C lock x, C row A, B lock x");
	owner_goes_on(M, 20, NULL);
	fake_advance(1000);
	ask_for(V, "y", X);
	while (fake_step(V->client))
		;
	v_rings();
	n = fake_n_traced(M->client, 'm');
	for (int i = 0; i < 500 && fake_n_traced(M->client, 'm') == n; i++)
		if (!fake_step(M->client))
			(void) publish(M);
	ok(fake_n_traced(M->client, 'm') > n, "the member has answered; then it would ring V");
	while (fake_step(M->client))
		;
	wait_locally(L, NULL);
	ok(!v_gives_verdict(), "the claimant looks at its own server last");
	scene_end(NULL);
}


/*
 * Several deadlocks
 */

static void
test_several_cycles(void)
{
	begin_waiters("abcdef", "A lock a, B lock b, C lock c, D lock d, E lock e, F lock f,"
				  " A lock b, B lock a, C lock d, D lock c, E lock f, F lock e");
	publish_all();
	publish_all();
	is_int((int64_t) strlen(victims_are()), 3, "three cycles at once have three victims: %s", victims_are());
	scene_end(NULL);
}

/* F holds x; all others share f and wait for x; F waits for f. */
static void
test_shared_member(void)
{
	int			n = 0;

	begin_waiters("abcdef", "A share f, B share f, C share f, D share f, E share f, F lock x,"
				  " A share x, B share x, C share x, D share x, E share x, F lock f");
	for (int round = 0; round < 200 && n < 5; round++)
	{
		for (int i = 0; i < 6; i++)
		{
			const ZklDeadlock *deadlock = publish(&parties[i]);

			if (deadlock == NULL)
				continue;
			ok(is_truly_deadlocked(&parties[i]), "a victim is in a deadlock");
			n = i == 5 ? 5 : n + 1;
			end_transaction(&parties[i]);
		}
		fake_run_all();
		fake_advance(50);
	}
	is_int(n, 5, "five cycles with a common member end, within ten seconds");
	ok(scene_settles() && reported_by(NULL) == 0, "nothing is left of five cycles");
	scene_end(NULL);
}

static const FakeNode *
report_of(const Party *party)
{
	char		path[100];

	snprintf(path, sizeof(path), WAITING "/%" PRIx64, (uint64_t) fake_session_id(party->client));
	return fake_tree_find(path);
}

/* A's predecessor leaves while A reads the bell that has rung. */
static void
test_ring_while_looking(void)
{
	const FakeNode *report;
	int32_t		version;

	begin_waiters("ab", "A lock a, B lock b, A lock b");
	publish_at_once(A);
	report = report_of(A);
	ok(report && memmem(report->data, (size_t) report->data_len, "\nl 0 0 0 0 b/", 13), "the report of a lock has its words");
	version = report ? report->version : -1;
	ring(A);
	fake_deliver(A->client);
	(void) publish(A);
	play_act("B release! b, B apply!, A deliver!", true);
	while (owner_is_in_step(A) && fake_step(A->client))
		(void) publish(A);
	report = report_of(A);
	is_int(report ? report->version : -1, version, "a ring is not answered while the session looks for whom it waits");
	fake_run_all();
	is_int(mode_of(A, "b"), X, "it waits for nobody");
	scene_end(NULL);
}


/*
 * Forged reports; many permits are in test_deadlock.c
 */

static void
forge(uint64_t session, const char *data, int length)
{
	char		path[100];
	char	   *made;
	int64_t		unused;

	snprintf(path, sizeof(path), WAITING "/%" PRIx64, session);
	fake_tree_create(path, data, length, ZKL_CREATE_EPHEMERAL, (int64_t) session, &made, &unused);
	free(made);
}

static void
test_forged(void)
{
	static const char *const names[] = {"../../x", "a/b", "", "\n"};
	char	   *large = calloc(1, 200000);
	ZklScratch	scratch = {0};

	begin_waiters("ab", "A lock a, B lock b, A lock b");
	publish_all();
	forge(0x77, large, 200000);
	for (int i = 0; i < 4; i++)
	{
		ZklWaitNode node = {ZKL_PLACE_LOCK, names[i], names[i], 0};
		ZklReport	report = {.server = "s", .nodes = &node, .n_nodes = 1};
		int			length;
		char	   *data = zkl_report_encode(&scratch, &report, &length);

		forge(0x80 + (uint64_t) i, data, length);
	}
	forge(0x78, "waits", 5);
	lock_now(&parties[1], "a", X);
	has_one_victim("beside forged reports", "AB");
	zkl__scratch_free(&scratch);
	free(large);
}

int
main(void)
{
	test_decided_before();
	test_crowd_goes();
	test_late_write();
	test_look_before_bell();
	test_path();
	test_own_server();
	test_several_cycles();
	test_shared_member();
	test_ring_while_looking();
	test_forged();
	return done();
}
