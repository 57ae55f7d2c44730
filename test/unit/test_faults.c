/*-------------------------------------------------------------------------
 *
 * test_faults.c
 *		Promises that hold whatever fails, and wherever it fails.
 *
 * Each scenario runs once to count the submissions of party A, then again for every
 * submission and every kind of fault there.  After the reconnect the request must be
 * decided; when A has released everything, none of its nodes may be left, and other
 * sessions must be granted.  Then each of these runs is repeated with A giving up at
 * each step after the fault.
 *
 * Promises: 1.1, 3.5, 4.2
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "letters.h"
#include "play.h"

#define LIMIT 5

static const char *const abc[] = {"a", "b", "c"};

typedef struct Scenario
{
	const char *name;
	const char *setup;
	const char *stage[4];		/* the first has A's request */
	ZklStatus	expected;		/* of A's request */
	void		(*prepare) (void);	/* after the setup */
	int32_t		sequence_limit;
	bool		semaphore;
	bool		asks;			/* an attempt asks a keeper */
	bool		confirms;		/* the last stage requests a confirmation */
} Scenario;

/* Steps of setups; the znodes of all locks, or of the semaphore, exist. */
#define USED "C lock abc, C leave"
#define B_HOLDS USED ", B lock b, B lock a, B giveup"
#define A_HOLDS USED ", A lock, A giveup"
#define A_SHARES USED ", A share, A giveup"
#define BOTH_SHARE USED ", B share, B giveup, A share, A giveup"
#define ALL_WAIT A_HOLDS ", B share, C lock"
#define A_HOLDS_THREE USED ", A lock abc, A giveup"
#define A_KEEPS USED ", A keep, A lock, A release"
#define PERMITS "C permit, C leave"
#define B_HAS_ALL PERMITS ", B permit, B permit, B giveup"
#define B_WAITS PERMITS ", C permit, C permit, C giveup, B permit"
#define A_HAS_TWO PERMITS ", A permit, A permit, A giveup"

static void
use_numbers_up(void)
{
	fake_tree_find(path_of("a"))->counter = LIMIT + 1;
}

static void
give_b_last_number(void)
{
	fake_tree_find(path_of("a"))->counter = LIMIT;
	forget(lock_now(B, "a", X));
}

/* Another program created the semaphore, and its capacity is not set yet. */
static void
forget_capacity(void)
{
	fake_tree_set(pool_of("a", ""), "");
}

static void
use_another_capacity(void)
{
	forget(permit_now(B, "a", PLAY_SIZE + 1));
}

static void
use_queue_numbers_up(void)
{
	fake_tree_find(pool_of("a", "/locks"))->counter = LIMIT + 1;
}

static const Scenario scenarios[] = {
	{"first use", "", {"A lock"}, .expected = ZKL_OK},
	{"first use of several", "", {"A lock abc"}, .expected = ZKL_OK},
	{"exclusive", USED, {"A lock"}, .expected = ZKL_OK},
	{"shared", USED ", B share, B giveup", {"A share"}, .expected = ZKL_OK},
	{"attempt, free", USED, {"A try"}, .expected = ZKL_OK},
	{"attempt, held", B_HOLDS, {"A try"}, .expected = ZKL_BUSY},
	{"wait", B_HOLDS, {"A lock", "B leave"}, .expected = ZKL_OK},
	{"wait to share", B_HOLDS, {"A share", "B leave"}, .expected = ZKL_OK},
	{"wait and give up", B_HOLDS, {"A lock", "A giveup"}, .expected = ZKL_OK},
	{"sole upgrade", A_SHARES, {"A lock"}, .expected = ZKL_OK},
	{"upgrade before writer", A_SHARES ", B lock", {"A lock"}, .expected = ZKL_OK},
	{"upgrade, writer leaves", A_SHARES ", B lock", {"A lock", "B leave"}, .expected = ZKL_OK},
	{"upgrade waits", BOTH_SHARE, {"A lock", "B leave"}, .expected = ZKL_OK},
	{"upgrade waits, writer behind", BOTH_SHARE ", C lock", {"A lock", "B leave"}, .expected = ZKL_OK},
	{"upgrade behind an attempt", BOTH_SHARE, {"B try, B apply, A lock", "B leave"}, .expected = ZKL_OK},
	{"upgrade given up", BOTH_SHARE ", C lock", {"A lock", "A giveup"}, .expected = ZKL_OK},
	{"two upgrades", BOTH_SHARE ", B lock", {"A lock"}, .expected = ZKL_DEADLOCK},
	{"upgrade reduced", A_SHARES ", B lock, A lock, A giveup", {"A downgrade", "A release"}, .expected = ZKL_OK},
	{"upgrade released", A_SHARES ", B lock, A lock, A giveup", {"A release"}, .expected = ZKL_OK},
	{"downgrade", ALL_WAIT, {"A downgrade"}, .expected = ZKL_OK},
	{"downgrade and upgrade", A_HOLDS, {"A downgrade", "A lock"}, .expected = ZKL_OK},
	{"downgrade and release", ALL_WAIT, {"A downgrade", "A release"}, .expected = ZKL_OK},
	{"several", USED, {"A lock abc"}, .expected = ZKL_OK},
	{"several, waiting", B_HOLDS, {"A lock abc", "B leave"}, .expected = ZKL_OK},
	{"several, given up", B_HOLDS, {"A lock abc", "A giveup"}, .expected = ZKL_OK},
	{"several, upgrade", BOTH_SHARE, {"A lock abc", "B leave"}, .expected = ZKL_OK},
	{"release", ALL_WAIT, {"A release"}, .expected = ZKL_OK},
	{"release several", A_HOLDS_THREE, {"A release"}, .expected = ZKL_OK},
	{"release several, one by one", A_HOLDS_THREE, {"A release abc"}, .expected = ZKL_OK},
	{"release and ask", ALL_WAIT, {"A release", "B leave", "A giveup"}, .expected = ZKL_OK},
	{"numbers used up", USED, {"A lock"}, .expected = ZKL_SEQUENCE_USED_UP, .prepare = use_numbers_up,
	.sequence_limit = LIMIT},
	{"numbers used up, held", USED, {"A lock", "B leave"}, .expected = ZKL_SEQUENCE_USED_UP, .prepare = give_b_last_number,
	.sequence_limit = LIMIT},
	{"numbers used up, given up", USED, {"A lock", "A giveup", "B leave"}, .expected = ZKL_SEQUENCE_USED_UP, .prepare = give_b_last_number,
	.sequence_limit = LIMIT},
	{"confirm", A_HOLDS_THREE, {"A confirm"}, .expected = ZKL_OK, .confirms = true},
	{"confirm a downgrade", A_HOLDS, {"A downgrade", "A confirm"}, .expected = ZKL_OK, .confirms = true},
	{"confirm a downgrade at once", A_HOLDS, {"A downgrade, A confirm"}, .expected = ZKL_OK, .confirms = true},
	{"keep", USED ", A keep", {"A lock", "A release", "A lock"}, .expected = ZKL_OK},
	{"again, with a proof", A_KEEPS ", A pass 1500", {"A lock"}, .expected = ZKL_OK},
	{"again, and given up", A_KEEPS ", A pass 1500", {"A lock", "A giveup"}, .expected = ZKL_OK},
	{"again, asked before", A_KEEPS ", A pass 1500", {"B lock, A lock", "B leave"}, .expected = ZKL_OK},
	{"again, as an attempt", A_KEEPS ", A pass 1500", {"A try"}, .expected = ZKL_OK},
	{"kept in another mode", A_KEEPS, {"A share"}, .expected = ZKL_OK},
	{"kept, array", A_KEEPS, {"A lock abc"}, .expected = ZKL_OK},
	{"kept, upgrade", USED ", A keep, A share, A release", {"A share", "A lock"}, .expected = ZKL_OK},
	{"in use, asked", USED ", A keep", {"A lock", "B lock", "A release"}, .expected = ZKL_OK},
	{"in use, asked by an attempt", USED ", A keep", {"A lock", "B try", "A release"}, .expected = ZKL_OK},
	{"asks a keeper", USED ", B keep, B lock, B release", {"A lock"}, .expected = ZKL_OK},
	{"asks two keepers", USED ", B keep, B share, B release, C keep, C share, C release", {"A lock"}, .expected = ZKL_OK},
	{"asks a keeper, as a keeper", USED ", A keep, B keep, B lock, B release", {"A lock", "A release", "A lock"}, .expected = ZKL_OK},
	{"asks a holder", USED ", B keep, B lock", {"A lock", "B release"}, .expected = ZKL_OK},
	{"attempt, kept", USED ", B keep, B lock, B release", {"A try"}, .expected = ZKL_OK},
	{"attempt, in use by a keeper", USED ", B keep, B lock", {"A try"}, .expected = ZKL_BUSY, .asks = true},
	{"permit, first use", "", {"A permit"}, .expected = ZKL_OK, .semaphore = true},
	{"permit", PERMITS, {"A permit"}, .expected = ZKL_OK, .semaphore = true},
	{"two permits", PERMITS, {"A permit", "A permit"}, .expected = ZKL_OK, .semaphore = true},
	{"permit, full", B_HAS_ALL, {"A permit", "B leave"}, .expected = ZKL_OK, .semaphore = true},
	{"permit, full, given up", B_HAS_ALL, {"A permit", "A giveup"}, .expected = ZKL_OK, .semaphore = true},
	{"permit, behind a waiter", B_WAITS, {"A permit", "C leave", "B leave"}, .expected = ZKL_OK, .semaphore = true},
	{"permit, behind a waiter, given up", B_WAITS, {"A permit", "A giveup"}, .expected = ZKL_OK, .semaphore = true},
	{"permit, foreign semaphore", PERMITS, {"A permit"}, .expected = ZKL_OK, .prepare = forget_capacity, .semaphore = true},
	{"permit, other capacity", "", {"A permit"}, .expected = ZKL_OTHER_CAPACITY, .prepare = use_another_capacity, .semaphore = true},
	{"permit, attempt", PERMITS, {"A trypermit"}, .expected = ZKL_OK, .semaphore = true},
	{"permit, attempt, full", B_HAS_ALL, {"A trypermit"}, .expected = ZKL_BUSY, .semaphore = true},
	{"permit, attempt behind a waiter", B_WAITS, {"A trypermit"}, .expected = ZKL_BUSY, .semaphore = true},
	/* B's node is in the queue before A's, and B's request is still pending. */
	{"permit, attempt while another is acquired", PERMITS, {"B permit, B apply, A trypermit"}, .expected = ZKL_OK, .semaphore = true},
	{"permit, attempt while the last is acquired", PERMITS ", C permit, C giveup", {"B permit, B apply, A trypermit"}, .expected = ZKL_BUSY, .semaphore = true},
	{"permits released", A_HAS_TWO, {"A release"}, .expected = ZKL_OK, .semaphore = true},
	{"permit released and acquired", A_HAS_TWO, {"A release", "A permit"}, .expected = ZKL_OK, .semaphore = true},
	{"permits confirmed", A_HAS_TWO, {"A confirm"}, .expected = ZKL_OK, .semaphore = true, .confirms = true},
	{"permit, numbers used up", PERMITS, {"A permit"}, .expected = ZKL_SEQUENCE_USED_UP, .prepare = use_queue_numbers_up,
	.sequence_limit = LIMIT, .semaphore = true},
};

#define N_SCENARIOS ((int) (sizeof(scenarios) / sizeof(scenarios[0])))

/*
 * One run
 */

static const Scenario *scenario;
static FakeFault fault;
static int	fault_at;
static int	timeout;			/* steps after the fault until A gives up; -1: never */
static int	failures;

static void
report_failure(const char *what)
{
	if (failures++ < 20)
		diag("%s, %s at %d, giving up after %d (%s): %s", scenario->name,
			 fake_fault_name(fault), fault_at, timeout, fake_trace(A->client), what);
}

static void
begin(void)
{
	scene_begin(0);
	scene_config.sequence_limit = scenario->sequence_limit;
	for (int i = 0; i < 3; i++)
		scene_join(&parties[i]);
	play_begin();
	play_act(scenario->setup, true);
	if (scenario->prepare)
		scenario->prepare();
	fake_run_all();
	fake_count(A->client);
	fake_fault(A->client, fault_at, fault);
}

/* Runs until nothing changes; returns true if A gave up meanwhile. */
static bool
run(int *waited)
{
	bool		moved = true;

	while (moved)
	{
		if (timeout >= 0 && fake_fault_happened(A->client) && (*waited)++ >= timeout)
			return true;
		moved = fake_step(A->client);
		moved = fake_step(B->client) || moved;
		moved = fake_step(C->client) || moved;
	}
	return false;
}

static bool
run_scenario(void)
{
	int			waited = 0;

	for (int i = 0; i < 4 && scenario->stage[i]; i++)
	{
		play_act(scenario->stage[i], false);
		if (run(&waited))
			return false;
		heal();
	}
	return true;
}

/* A refused delete is not repeated: the node stays in the queue. */
static bool
delete_refused(void)
{
	return fault == FAULT_NO_AUTH && fault_at > 0 &&
		fake_trace(A->client)[fault_at - 1] == 'd';
}

/* Does the server answer the request, with an error? */
static bool
is_answered(void)
{
	return fault == FAULT_NO_AUTH || fault == FAULT_OTHER || fault == FAULT_APPLY_OTHER;
}

/* The owner ends an attempt that gets no answer within a second (has_asked). */
static bool
is_question_lost(void)
{
	return scenario->asks && fault_at > 0 && strchr("gu", fake_trace(A->client)[fault_at - 1]);
}

static bool
is_decided_well(ZklStatus status)
{
	if (fake_is_expired(A->client))
		return status == (fault == FAULT_AUTH ? ZKL_AUTH_FAILED : ZKL_SESSION_LOST) ||
			status == ZKL_OK || status == scenario->expected;
	if (delete_refused() || (is_question_lost() && status == ZKL_PENDING))
		return true;
	return status == scenario->expected ||
		(fault == FAULT_NO_AUTH && status == ZKL_NO_AUTH) ||
		(is_answered() && status == ZKL_SERVER_ERROR);
}

/* An unfinished downgrade is no loss. */
static bool
is_confirmed_well(ZklStatus status)
{
	if (fake_is_expired(A->client))
		return status == (fault == FAULT_AUTH ? ZKL_AUTH_FAILED : ZKL_SESSION_LOST);
	return status == ZKL_OK || (status != ZKL_PENDING && is_answered());
}

static void
check_decided(void)
{
	Ask		   *asked = play_asked(A);

	if (asked && !is_decided_well(asked->status))
	{
		diag("status %d", asked->status);
		report_failure("a request ends in a wrong way");
	}
	if (scenario->confirms && !is_confirmed_well(zkl_session_confirmed(A->session)))
		report_failure("a confirmation ends in a wrong way, or not at all");
	if (fake_is_expired(A->client) && zkl_session_state(A->session) !=
		(fault == FAULT_AUTH ? ZKL_SESSION_AUTH_FAILED : ZKL_SESSION_EXPIRED))
		report_failure("the expiry is not detected");
}

/* A fault that leaves the session alive and reports nothing about nodes loses no hold. */
static void
check_not_lost(void)
{
	if (!is_answered() && !fake_is_expired(A->client) && lost_of(A) > 0)
		report_failure("a lock is lost although the session lives");
}

/* Can other sessions acquire the locks that A released? */
static void
check_free(void)
{
	for (int i = 0; i < 3 && !scenario->semaphore; i++)
		if (lock_now(C, abc[i], X)->status != ZKL_OK)
			report_failure("another session is not granted");
	for (int i = 0; i < PLAY_SIZE && scenario->semaphore; i++)
		if (permit_now(C, "a", PLAY_SIZE)->status != ZKL_OK &&
			scenario->expected != ZKL_OTHER_CAPACITY)
			report_failure("another session gets no permit");
}

static void
check_no_nodes(void)
{
	if (nodes_of(A, NULL) > 0 && !delete_refused())
		report_failure("nodes are left");
}

/* A keeper gives up what it keeps when another session is granted. */
static void
check_aftermath(void)
{
	give_up_all(A);
	release_all(A);
	heal();
	if (A->keep_ms == 0)
		check_no_nodes();
	give_up_all(B);
	release_all(B);
	give_up_all(C);
	release_all(C);
	heal();
	if (!delete_refused() && !scenario->sequence_limit)
		check_free();
	check_no_nodes();
	if (objections() > 0)
		report_failure(first_objection());
	scene_end(NULL);
}

static int
run_all_faults(void)
{
	int			submitted;

	begin();
	if (run_scenario())
	{
		check_decided();
		check_not_lost();
	}
	submitted = fake_counted(A->client);
	check_aftermath();
	return submitted;
}

static void
walk(int first_timeout, int last_timeout)
{
	int			n;

	fault = FAULT_NONE;
	fault_at = 0;
	timeout = -1;
	n = run_all_faults();
	for (timeout = first_timeout; timeout <= last_timeout; timeout++)
		for (fault_at = 1; fault_at <= n; fault_at++)
			for (fault = FAULT_NONE + 1; fault < N_FAULTS; fault++)
				run_all_faults();
}

static void
test_scenario(void)
{
	failures = 0;
	walk(-1, -1);
	is_int(failures, 0, "%s: any fault anywhere is survived", scenario->name);
	failures = 0;
	walk(0, 9);
	is_int(failures, 0, "%s: a session that gives up after the fault leaves no node", scenario->name);
}

int
main(void)
{
	for (int i = 0; i < N_SCENARIOS; i++)
	{
		scenario = &scenarios[i];
		test_scenario();
	}
	return done();
}
