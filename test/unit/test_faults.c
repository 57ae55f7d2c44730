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
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "scene.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE
#define LIMIT 5

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];

static const char *const abc[] = {"a", "b", "c"};
static const ZklMode xxx[] = {X, X, X};

static Ask *asked;				/* A's request, or NULL */

typedef struct Scenario
{
	const char *name;
	void		(*setup) (void);
	void		(*stage[4]) (void);
	ZklStatus	expected;		/* of A's request */
	int32_t		sequence_limit;
	bool		semaphore;
} Scenario;

/* Capacity of the semaphore. */
#define SIZE 2


/*
 * Steps of the scenarios
 */

static void
nothing(void)
{
}

static void
used_before(void)
{
	ask_all(C, 3, abc, xxx, false);
	fake_run_all();
	give_up_all(C);
	release_all(C);
}

static void
b_holds(void)
{
	used_before();
	fake_run_all();
	forget(lock_now(B, "b", X));
	forget(lock_now(B, "a", X));
}

static void
b_shares(void)
{
	used_before();
	fake_run_all();
	forget(lock_now(B, "a", S));
}

static void
a_shares(void)
{
	used_before();
	fake_run_all();
	forget(lock_now(A, "a", S));
}

static void
both_share(void)
{
	b_shares();
	forget(lock_now(A, "a", S));
}

static void
a_shares_b_waits(void)
{
	a_shares();
	lock_now(B, "a", X);
}

static void
both_share_c_waits(void)
{
	both_share();
	lock_now(C, "a", X);
}

static void
b_upgrades(void)
{
	both_share();
	lock_now(B, "a", X);
}

static void
a_holds(void)
{
	used_before();
	fake_run_all();
	forget(lock_now(A, "a", X));
}

static void
a_holds_all_wait(void)
{
	a_holds();
	lock_now(B, "a", S);
	lock_now(C, "a", X);
}

static void
a_holds_three(void)
{
	used_before();
	fake_run_all();
	Ask		   *ask = ask_all(A, 3, abc, xxx, false);

	fake_run_all();
	forget(ask);
}

static void
a_upgraded(void)
{
	a_shares_b_waits();
	forget(lock_now(A, "a", X));
}

static void
numbers_used_up(void)
{
	used_before();
	fake_run_all();
	fake_tree_find(path_of("a"))->counter = LIMIT + 1;
}

static void
b_has_last_number(void)
{
	used_before();
	fake_run_all();
	fake_tree_find(path_of("a"))->counter = LIMIT;
	forget(lock_now(B, "a", X));
}

static void
permits_used(void)
{
	permit_now(C, "a", SIZE);
	release_all(C);
	fake_run_all();
}

static void
b_has_all(void)
{
	permits_used();
	permit_now(B, "a", SIZE);
	forget(permit_now(B, "a", SIZE));
}

static void
c_has_all_b_waits(void)
{
	permits_used();
	forget(permit_now(C, "a", SIZE));
	forget(permit_now(C, "a", SIZE));
	permit_now(B, "a", SIZE);
}

/* Another program created the semaphore, and its capacity is not set yet. */
static void
foreign_semaphore(void)
{
	permits_used();
	fake_tree_set(pool_of("a", ""), "");
}

static void
c_has_one(void)
{
	permits_used();
	forget(permit_now(C, "a", SIZE));
}

static void
b_uses_another_size(void)
{
	forget(permit_now(B, "a", SIZE + 1));
}

static void
a_has_two(void)
{
	permits_used();
	forget(permit_now(A, "a", SIZE));
	forget(permit_now(A, "a", SIZE));
}

static void
queue_numbers_used_up(void)
{
	permits_used();
	fake_tree_find(pool_of("a", "/locks"))->counter = LIMIT + 1;
}

static void
take_permit(void)
{
	asked = ask_permit(A, "a", SIZE);
}

static void
take_another_permit(void)
{
	if (asked)
		forget(asked);
	asked = ask_permit(A, "a", SIZE);
}

static void
take_permit_if_free(void)
{
	asked = try_permit(A, "a", SIZE);
}

/* B's node is in the queue before A's, and B's request is still pending. */
static void
race_for_permit(void)
{
	ask_permit(B, "a", SIZE);
	fake_apply(B->client);
	take_permit_if_free();
}

static void
c_leaves(void)
{
	give_up_all(C);
	release_all(C);
}

static void
ask_exclusive(void)
{
	asked = ask_for(A, "a", X);
}

static void
ask_shared(void)
{
	asked = ask_for(A, "a", S);
}

static void
ask_try(void)
{
	asked = try_for(A, "a", X);
}

static void
ask_array(void)
{
	asked = ask_all(A, 3, abc, xxx, false);
}

static void
b_leaves(void)
{
	give_up_all(B);
	release_all(B);
}

static void
give_up(void)
{
	if (asked)
		forget(asked);
	asked = NULL;
}

static void
downgrade(void)
{
	if (mode_of(A, "a") == X)
		reduce(A, "a", S);
}

static void
release(void)
{
	release_all(A);
}

static void
confirm(void)
{
	zkl_session_confirm(A->session, false);
}

static const Scenario scenarios[] = {
	{"first use", nothing, {ask_exclusive}, ZKL_OK, 0, false},
	{"first use of several", nothing, {ask_array}, ZKL_OK, 0, false},
	{"exclusive", used_before, {ask_exclusive}, ZKL_OK, 0, false},
	{"shared", b_shares, {ask_shared}, ZKL_OK, 0, false},
	{"attempt, free", used_before, {ask_try}, ZKL_OK, 0, false},
	{"attempt, held", b_holds, {ask_try}, ZKL_BUSY, 0, false},
	{"wait", b_holds, {ask_exclusive, b_leaves}, ZKL_OK, 0, false},
	{"wait to share", b_holds, {ask_shared, b_leaves}, ZKL_OK, 0, false},
	{"wait and give up", b_holds, {ask_exclusive, give_up}, ZKL_OK, 0, false},
	{"sole upgrade", a_shares, {ask_exclusive}, ZKL_OK, 0, false},
	{"upgrade before writer", a_shares_b_waits, {ask_exclusive}, ZKL_OK, 0, false},
	{"upgrade, writer leaves", a_shares_b_waits, {ask_exclusive, b_leaves}, ZKL_OK, 0, false},
	{"upgrade waits", both_share, {ask_exclusive, b_leaves}, ZKL_OK, 0, false},
	{"upgrade waits, writer behind", both_share_c_waits, {ask_exclusive, b_leaves}, ZKL_OK, 0, false},
	{"upgrade given up", both_share_c_waits, {ask_exclusive, give_up}, ZKL_OK, 0, false},
	{"two upgrades", b_upgrades, {ask_exclusive}, ZKL_DEADLOCK, 0, false},
	{"upgrade reduced", a_upgraded, {downgrade, release}, ZKL_OK, 0, false},
	{"upgrade released", a_upgraded, {release}, ZKL_OK, 0, false},
	{"downgrade", a_holds_all_wait, {downgrade}, ZKL_OK, 0, false},
	{"downgrade and upgrade", a_holds, {downgrade, ask_exclusive}, ZKL_OK, 0, false},
	{"downgrade and release", a_holds_all_wait, {downgrade, release}, ZKL_OK, 0, false},
	{"several", used_before, {ask_array}, ZKL_OK, 0, false},
	{"several, waiting", b_holds, {ask_array, b_leaves}, ZKL_OK, 0, false},
	{"several, given up", b_holds, {ask_array, give_up}, ZKL_OK, 0, false},
	{"several, upgrade", both_share, {ask_array, b_leaves}, ZKL_OK, 0, false},
	{"release", a_holds_all_wait, {release}, ZKL_OK, 0, false},
	{"release several", a_holds_three, {release}, ZKL_OK, 0, false},
	{"release and ask", a_holds_all_wait, {release, b_leaves, give_up}, ZKL_OK, 0, false},
	{"numbers used up", numbers_used_up, {ask_exclusive}, ZKL_SEQUENCE_USED_UP, LIMIT, false},
	{"numbers used up, held", b_has_last_number, {ask_exclusive, b_leaves}, ZKL_SEQUENCE_USED_UP, LIMIT, false},
	{"numbers used up, given up", b_has_last_number, {ask_exclusive, give_up, b_leaves}, ZKL_SEQUENCE_USED_UP, LIMIT, false},
	{"confirm", a_holds_three, {confirm}, ZKL_OK, 0, false},
	{"permit, first use", nothing, {take_permit}, ZKL_OK, 0, true},
	{"permit", permits_used, {take_permit}, ZKL_OK, 0, true},
	{"two permits", permits_used, {take_permit, take_another_permit}, ZKL_OK, 0, true},
	{"permit, full", b_has_all, {take_permit, b_leaves}, ZKL_OK, 0, true},
	{"permit, full, given up", b_has_all, {take_permit, give_up}, ZKL_OK, 0, true},
	{"permit, behind a waiter", c_has_all_b_waits, {take_permit, c_leaves, b_leaves}, ZKL_OK, 0, true},
	{"permit, behind a waiter, given up", c_has_all_b_waits, {take_permit, give_up}, ZKL_OK, 0, true},
	{"permit, foreign semaphore", foreign_semaphore, {take_permit}, ZKL_OK, 0, true},
	{"permit, other capacity", b_uses_another_size, {take_permit}, ZKL_OTHER_CAPACITY, 0, true},
	{"permit, attempt", permits_used, {take_permit_if_free}, ZKL_OK, 0, true},
	{"permit, attempt, full", b_has_all, {take_permit_if_free}, ZKL_BUSY, 0, true},
	{"permit, attempt behind a waiter", c_has_all_b_waits, {take_permit_if_free}, ZKL_BUSY, 0, true},
	{"permit, attempt while another is acquired", permits_used, {race_for_permit}, ZKL_OK, 0, true},
	{"permit, attempt while the last is acquired", c_has_one, {race_for_permit}, ZKL_BUSY, 0, true},
	{"permits released", a_has_two, {release}, ZKL_OK, 0, true},
	{"permit released and acquired", a_has_two, {release, take_permit}, ZKL_OK, 0, true},
	{"permits confirmed", a_has_two, {confirm}, ZKL_OK, 0, true},
	{"permit, numbers used up", queue_numbers_used_up, {take_permit}, ZKL_SEQUENCE_USED_UP, LIMIT, true},
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
	asked = NULL;
	scenario->setup();
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
		scenario->stage[i] ();
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

static bool
is_decided_well(void)
{
	ZklStatus	status = asked->status;

	if (fake_is_expired(A->client))
		return status == (fault == FAULT_AUTH ? ZKL_AUTH_FAILED : ZKL_SESSION_LOST) ||
			status == ZKL_OK || status == scenario->expected;
	if (delete_refused())
		return true;
	return status == scenario->expected ||
		(fault == FAULT_NO_AUTH && status == ZKL_NO_AUTH) ||
		((fault == FAULT_OTHER || fault == FAULT_APPLY_OTHER || fault == FAULT_NO_AUTH) &&
		 status == ZKL_SERVER_ERROR);
}

static void
check_decided(void)
{
	if (asked && !is_decided_well())
		report_failure(zkl_status_text(asked->status));
	if (scenario->stage[0] == confirm &&
		zkl_session_confirmed(A->session) == ZKL_PENDING)
		report_failure("a confirmation does not end");
	if (fake_is_expired(A->client) && zkl_session_state(A->session) !=
		(fault == FAULT_AUTH ? ZKL_SESSION_AUTH_FAILED : ZKL_SESSION_EXPIRED))
		report_failure("the expiry is not detected");
}

/* A fault that leaves the session alive and reports nothing about nodes loses no hold. */
static void
check_not_lost(void)
{
	bool		answered = fault == FAULT_NO_AUTH || fault == FAULT_OTHER ||
		fault == FAULT_APPLY_OTHER;

	if (!answered && !fake_is_expired(A->client) && lost_of(A) > 0)
		report_failure("a lock is lost although the session lives");
}

/* Can other sessions acquire the locks that A released? */
static void
check_free(void)
{
	for (int i = 0; i < 3 && !scenario->semaphore; i++)
		if (lock_now(C, abc[i], X)->status != ZKL_OK)
			report_failure("another session is not granted");
	for (int i = 0; i < SIZE && scenario->semaphore; i++)
		if (permit_now(C, "a", SIZE)->status != ZKL_OK &&
			scenario->expected != ZKL_OTHER_CAPACITY)
			report_failure("another session gets no permit");
}

static void
check_aftermath(void)
{
	give_up_all(A);
	release_all(A);
	heal();
	if (nodes_of(A, NULL) > 0 && !delete_refused())
		report_failure("nodes are left");
	give_up_all(B);
	release_all(B);
	give_up_all(C);
	release_all(C);
	heal();
	if (!delete_refused() && !scenario->sequence_limit)
		check_free();
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
