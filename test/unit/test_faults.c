/*-------------------------------------------------------------------------
 *
 * test_faults.c
 *		Promises that hold whatever goes wrong, wherever it goes wrong.
 *
 * Each scenario is played once to count what party A submits; then again for
 * every submission and every kind of fault there.  When the connection is
 * back, the request must be decided; when A has let go of everything, no node
 * of its may be left and others must get in.  All of that once more with A
 * giving up at some moment after the fault.
 *
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
} Scenario;


/*
 * What happens in scenarios
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
	forget(ask_all(A, 3, abc, xxx, false));
	fake_run_all();
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
	zkl_session_confirm(A->session);
}

static const Scenario scenarios[] = {
	{"first use", nothing, {ask_exclusive}, ZKL_OK, 0},
	{"first use of several", nothing, {ask_array}, ZKL_OK, 0},
	{"exclusive", used_before, {ask_exclusive}, ZKL_OK, 0},
	{"shared", b_shares, {ask_shared}, ZKL_OK, 0},
	{"try, free", used_before, {ask_try}, ZKL_OK, 0},
	{"try, held", b_holds, {ask_try}, ZKL_BUSY, 0},
	{"wait", b_holds, {ask_exclusive, b_leaves}, ZKL_OK, 0},
	{"wait to share", b_holds, {ask_shared, b_leaves}, ZKL_OK, 0},
	{"wait and give up", b_holds, {ask_exclusive, give_up}, ZKL_OK, 0},
	{"sole upgrade", a_shares, {ask_exclusive}, ZKL_OK, 0},
	{"upgrade before writer", a_shares_b_waits, {ask_exclusive}, ZKL_OK, 0},
	{"upgrade, writer leaves", a_shares_b_waits, {ask_exclusive, b_leaves}, ZKL_OK, 0},
	{"upgrade waits", both_share, {ask_exclusive, b_leaves}, ZKL_OK, 0},
	{"upgrade waits, writer behind", both_share_c_waits, {ask_exclusive, b_leaves}, ZKL_OK, 0},
	{"upgrade given up", both_share_c_waits, {ask_exclusive, give_up}, ZKL_OK, 0},
	{"two upgrades", b_upgrades, {ask_exclusive}, ZKL_DEADLOCK, 0},
	{"upgrade reduced", a_upgraded, {downgrade, release}, ZKL_OK, 0},
	{"upgrade released", a_upgraded, {release}, ZKL_OK, 0},
	{"downgrade", a_holds_all_wait, {downgrade}, ZKL_OK, 0},
	{"downgrade and upgrade", a_holds, {downgrade, ask_exclusive}, ZKL_OK, 0},
	{"downgrade and release", a_holds_all_wait, {downgrade, release}, ZKL_OK, 0},
	{"several", used_before, {ask_array}, ZKL_OK, 0},
	{"several, waiting", b_holds, {ask_array, b_leaves}, ZKL_OK, 0},
	{"several, given up", b_holds, {ask_array, give_up}, ZKL_OK, 0},
	{"several, upgrade", both_share, {ask_array, b_leaves}, ZKL_OK, 0},
	{"release", a_holds_all_wait, {release}, ZKL_OK, 0},
	{"release several", a_holds_three, {release}, ZKL_OK, 0},
	{"release and ask", a_holds_all_wait, {release, b_leaves, give_up}, ZKL_OK, 0},
	{"numbers used up", numbers_used_up, {ask_exclusive}, ZKL_OK, LIMIT},
	{"drain", b_has_last_number, {ask_exclusive, b_leaves}, ZKL_OK, LIMIT},
	{"drain given up", b_has_last_number, {ask_exclusive, give_up, b_leaves}, ZKL_OK, LIMIT},
	{"confirm", a_holds_three, {confirm}, ZKL_OK, 0},
};

#define N_SCENARIOS ((int) (sizeof(scenarios) / sizeof(scenarios[0])))


/*
 * One play
 */

static const Scenario *scenario;
static FakeFault fault;
static int	fault_at;
static int	patience;			/* steps after the fault until A gives up; -1: never */
static int	failures;

static void
complain(const char *what)
{
	if (failures++ < 20)
		diag("%s, %s at %d, giving up after %d (%s): %s", scenario->name,
			 fake_fault_name(fault), fault_at, patience, fake_trace(A->client), what);
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

/* Runs until nothing moves; true if A lost its patience meanwhile. */
static bool
run(int *waited)
{
	bool		moved = true;

	while (moved)
	{
		if (patience >= 0 && fake_fault_happened(A->client) && (*waited)++ >= patience)
			return true;
		moved = fake_step(A->client);
		moved = fake_step(B->client) || moved;
		moved = fake_step(C->client) || moved;
	}
	return false;
}

static bool
play(void)
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

/* A delete that the server refuses is not tried again: its node stays in the queue. */
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
		((fault == FAULT_OTHER || fault == FAULT_NO_AUTH) && status == ZKL_SERVER_ERROR);
}

static void
check_decided(void)
{
	if (asked && !is_decided_well())
		complain(zkl_status_text(asked->status));
	if (scenario->stage[0] == confirm &&
		zkl_session_confirmed(A->session) == ZKL_PENDING)
		complain("confirming does not end");
	if (fake_is_expired(A->client) && zkl_session_state(A->session) !=
		(fault == FAULT_AUTH ? ZKL_SESSION_AUTH_FAILED : ZKL_SESSION_EXPIRED))
		complain("the expiry is not noticed");
}

/* No hold is lost by a fault that leaves the session alive and says nothing of nodes. */
static void
check_not_lost(void)
{
	bool		answered = fault == FAULT_NO_AUTH || fault == FAULT_OTHER;

	for (int i = 0; i < 3; i++)
	{
		Hold	   *hold = hold_of(A, abc[i]);

		if (hold && !answered && !fake_is_expired(A->client) &&
			zkl_lock_is_lost(hold->lock))
			complain("a lock is lost without need");
	}
}

static void
check_aftermath(void)
{
	give_up_all(A);
	release_all(A);
	heal();
	if (nodes_of(A, NULL) > 0 && !delete_refused())
		complain("nodes are left");
	give_up_all(B);
	release_all(B);
	give_up_all(C);
	release_all(C);
	heal();
	if (!delete_refused() && !scenario->sequence_limit)
		for (int i = 0; i < 3; i++)
			if (lock_now(C, abc[i], X)->status != ZKL_OK)
				complain("another session is not granted");
	if (objections() > 0)
		complain(first_objection());
	scene_end(NULL);
}

static int
play_all(void)
{
	int			submitted;

	begin();
	if (play())
	{
		check_decided();
		check_not_lost();
	}
	submitted = fake_counted(A->client);
	check_aftermath();
	return submitted;
}

static void
walk(int first_patience, int last_patience)
{
	int			n;

	fault = FAULT_NONE;
	fault_at = 0;
	patience = -1;
	n = play_all();
	for (patience = first_patience; patience <= last_patience; patience++)
		for (fault_at = 1; fault_at <= n; fault_at++)
			for (fault = FAULT_NONE + 1; fault < N_FAULTS; fault++)
				play_all();
}

int
main(void)
{
	for (int i = 0; i < N_SCENARIOS; i++)
	{
		scenario = &scenarios[i];
		failures = 0;
		walk(-1, -1);
		is_int(failures, 0, "%s: any fault anywhere is got over", scenario->name);
		failures = 0;
		walk(0, 9);
		is_int(failures, 0, "%s: who gives up after it leaves nothing", scenario->name);
	}
	return done();
}
