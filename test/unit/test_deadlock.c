/*-------------------------------------------------------------------------
 *
 * test_deadlock.c
 *		Deadlocks among sessions of several servers are found, one
 *		participant is the victim, and no report is left when a wait is over,
 *		whatever goes wrong.
 *
 * Promise: 7.2
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "letters.h"
#include "victims.h"

/* A and B, of two servers, wait for each other. */
#define TWO "A lock a, B lock b, A lock b, B lock a"

/* What B of A's server holds, and C waits for, B releases while its connection is down, or not. */
#define RELEASED "all servers aab, C lock y, "
#define CIRCLE ", B row A, A lock y, all victim "
#define NO_DEADLOCK CIRCLE "none, B connect, C is ok"

static const Play plays[] = {
	{HERE, "two servers", "all servers ab, " TWO ", all victim AB"},
	{HERE, "a chain is no deadlock",
	"all servers abc, A lock a, B lock b, C lock c, A lock b, B lock c, all victim none"},
	{HERE, "three servers",
	"all servers abc, A lock a, B lock b, C lock c, A lock b, B lock c, C share a, all victim ABC"},
	{HERE, "one of two sharers", "all servers abc, A share a, B share a, C lock b, A share b, C lock a, all victim AC"},
	{HERE, "an upgrade", "all servers abc, A share a, B share a, A lock b, A lock a, B lock b, all victim AB"},
	{HERE, "several names at once", "all servers abc, A lock c, B lock b, A lock ab, B lock c, all victim AB"},
	{HERE, "several names at once, one of which has a queue",
	"all servers abc, C lock a, B lock b, A lock ab, B lock a, all victim AB"},
	{HERE, "several names at once, whose holders can proceed",
	"all servers abc, C lock a, B lock b, A lock ab, all victim none"},
	{HERE, "a holder of another program is in no deadlock",
	"all servers abc, A lock b, D foreign, A lock a, B lock b, A is pending, B is pending, all victim none"},

	/* waits in the lock manager of a server */
	{HERE, "rows of two servers, of which one is waited for last",
	"all servers abba, B lock a, D lock b, A lock a, C lock b, B row C, all victim none, D row A, all victim ABCD"},
	{HERE, "one server, and the ensemble", "all servers aab, B lock a, A lock a, all victim none, B row A, all victim AB"},
	{HERE, "through local waiters",
	"all servers aaab, C lock a, D lock b, A lock b, B row A, C row B, D lock a, all victim ABCD"},

	/* locks that are released, while their nodes exist */
	{HERE, "the only lock released", RELEASED "B lock x, C lock x, B disconnect!, B release! x" NO_DEADLOCK},
	{HERE, "a lock released, another one held",
	RELEASED "B lock z, B lock x, C lock x, B disconnect!, B release! x" NO_DEADLOCK},
	{HERE, "a lock released, another one held, and a sharer that waits",
	RELEASED "B lock z, B lock x, C share x, B disconnect!, B release! x" NO_DEADLOCK},
	{HERE, "a shared lock released", RELEASED "B lock z, B share x, C lock x, B disconnect!, B release! x" NO_DEADLOCK},
	{HERE, "a downgrade, and a sharer that waits",
	RELEASED "B lock z, B lock x, C share x, B disconnect!, B downgrade! x" NO_DEADLOCK},
	{HERE, "a downgrade, and a writer that waits",
	RELEASED "B lock z, B lock x, C lock x, B disconnect!, B downgrade! x" CIRCLE "AC"},
	{HERE, "a downgrade that an ACL forbids",
	"all servers ab, A lock a, B lock b, B lock a, all deny /zklock/locks/a, A downgrade a, A lock b, all victim AB"},
	{HERE, "an earlier report, which an ACL has forbidden to delete for a while",
		"all servers ab, A lock a, B lock b, A lock b, A publish, A reports 1, all deny /zklock/waiting, A giveup,"
	" all pass 20000, A reports 1, all deny, all pass 6000, A reports 0, B lock a, A lock b, all victim AB"},
	{HERE, "a lock still held", RELEASED "B lock z, B lock x, C lock x, B disconnect!" CIRCLE "AC"},
	{HERE, "a shared lock still held", RELEASED "B lock z, B share x, C lock x, B disconnect!" CIRCLE "AC"},
	{HERE, "two permits released", RELEASED "B lock z, B permit p, B permit p, C permit p, B disconnect!,"
	" B giveback! p, B giveback! p" NO_DEADLOCK},
	{HERE, "a permit released, and a lock of that name held", RELEASED "B lock p, B permit p, A permit p,"
	" C permit p, B disconnect!, B giveback! p" NO_DEADLOCK},
	{HERE, "one of two permits released", RELEASED "B lock z, B permit p, B permit p, C permit p, B disconnect!,"
	" B giveback! p" NO_DEADLOCK},
	{HERE, "a permit still held", RELEASED "B lock z, B permit p, A permit p, C permit p, B disconnect!" CIRCLE "AC"},
	{HERE, "two permits still held", RELEASED "B lock z, B permit p, B permit p, C permit p, B disconnect!" CIRCLE "AC"},
	{HERE, "a node in the queue, given up", "all servers aabb, C lock y, D share x, B lock x, C share x, B disconnect!,"
	" B giveup!" NO_DEADLOCK},

	/* places in queues */
	{HERE, "a writer that holds nothing keeps a reader waiting",
	"all servers abc, A share x, B lock y, C lock x, B share x, A lock y, all victim AB"},
	{HERE, "a session that completes the cycle, but only has a place, must not fail",
		"all servers abc, A share x, B lock y, C lock x, B share x, A lock y, A publish, B publish,"
	" all reports 2, all victim AB"},
	{HERE, "a downgrade in front of a writer that does not report",
	"all servers abcd, A lock a, D foreign, B lock a, C lock y, A downgrade a, C share a, A lock y, all victim AC"},
	{HERE, "a downgrade in front of a writer that has waited for long, and has not seen a reader",
	"all servers abcd, A lock a, D foreign, B lock a, B publish, C lock y, A downgrade a, B publish, C share a, A lock y, all victim AC"},
	{HERE, "a sharer from the start in front of a writer that does not report",
	"all servers abcd, A share a, D foreign, B lock a, C lock y, C share a, A lock y, all victim AC"},
	{HERE, "a downgrade in front of a writer of go-zookeeper",
	"all servers abcd, A lock a, D foreign go, B lock a, C lock y, A downgrade a, C share a, A lock y, all victim AC"},
	{HERE, "an upgrade that is undone in front of a writer that does not report",
	"all servers abcd, A lock a, D foreign, B lock a, C lock y, A downgrade a, A lock a, A downgrade a, C share a, A lock y, all victim AC"},
	{HERE, "a downgrade behind which an upgrade waits; the other program's writer is between",
	"all servers abcd, A lock a, D foreign, B lock a, A downgrade a, C lock y, A lock a, C lock a, A lock y, all victim AC"},
	{HERE, "a request for two names, one of which is granted",
	"all servers abc, A lock b, B lock y, C lock ab, B lock a, A lock y, all victim ABC"},
	{HERE, "a reader behind a writer does not block an upgrade",
	"all servers abcd, A share a, B share a, D lock h, C lock a, D share a, A lock a, all victim none"},

	/* permits */
	{HERE, "two sessions that wait for each other's only permit",
	"all servers ab, A permit a1, B permit b1, A permit b1, all victim none, B permit a1, all victim AB"},
	{HERE, "a cycle of a lock, a permit, and a row",
	"all servers abb, A permit s1, B lock x, A lock x, C permit s1, B row C, all victim ABC"},
	{HERE, "a member that is second in the queue for permits; the first one has a place",
	"all servers abc, A permit s1, C lock x, B permit s1, C permit s1, all victim none, A lock x, all victim AC"},
	{HERE, "two holders of permits that both wait; before, one can proceed",
		"all servers abc, A permit s, B permit s, C lock x, C permit s, A lock x, all victim none,"
	" B lock x, all victim ABC"},
	{HERE, "a member that has both permits", "all servers abc, A permit s, A permit s, C lock x, C permit s, A lock x, all victim AC"},
	{HERE, "two sessions that wait for another permit of their own semaphore; one alone is in no deadlock",
	"all servers ab, A permit s3, B permit s3, A permit s3, A permit s3, all victim none, B permit s3, all victim AB"},
	{HERE, "a holder that waits for a session that waits itself; before, that can proceed",
		"all servers abcd, A permit s, B permit s, C lock x, D lock y, C permit s, A lock x, B lock y, all victim none,"
	" D lock x, all victim ABCD"},
	{HERE, "a session with a permit that outdated reports show as waiting",
		"all servers abc, A permit s, B permit s, C lock x, C permit s, A lock x, A publish, C publish,"
	" B release, C permits 1 s, all victim none"},

	/* the end of a wait */
	{HERE, "a long wait is reported, until the session gives up",
	"all servers ab, " TWO ", A publish, A reports 1, A giveup, A reports 0"},
	{HERE, "a long wait is reported, until the session gets the lock", "all servers ab, " TWO ", A publish, A reports 1, B release, A has X b, A reports 0"},
	{HERE, "a long wait is reported, until the session ends", "all servers ab, " TWO ", A publish, A reports 1, A expire, all reports 0"},
};

#define CURATORS_PERMIT "_c_11111111-2222-3333-4444-555555555555-lease-0000000000"

static Party *
victim(void)
{
	return victims_are()[0] ? &parties[victims_are()[0] - 'A'] : NULL;
}

/* Everything runs, and then so much time passes. */
static void
run(int ms)
{
	fake_run_all();
	fake_advance(ms);
}

/* The text of the verdict. */
static void
test_description(void)
{
	const ZklDeadlock *deadlock;

	begin_waiters("aab", "B lock x, C share y, A lock y, C lock x, B row A");
	publish_all();
	deadlock = victim() ? deadlock_of(victim()) : NULL;
	ok(deadlock && deadlock->n == 3, "the deadlock has all three members");
	for (int i = 0; deadlock && i < deadlock->n; i++)
	{
		const ZklDeadlockEdge *e = &deadlock->edges[i];
		int			next = deadlock->edges[(i + 1) % 3].pid;

		is_str(wait_text(e), e->pid == 1 ? "exclusive y" : e->pid == 2 ? "a row" : "exclusive x",
			   "the wait of session %d is described", e->pid);
		is_int(next, e->pid == 1 ? 3 : e->pid == 3 ? 2 : 1, "the next member is the one that this session waits for");
		is_str(e->server, "server?of?mine", "the member has the name of its server, in one line");
		ok(e->session_id == fake_session_id(parties[e->pid - 1].client), "the member has the id of its session");
	}
	ok(deadlock && deadlock->edges[0].pid == (int) (victim() - parties) + 1,
	   "the first member is the victim");
	scene_end(NULL);

	begin_waiters("abc", "A permit s1, C lock x, B permit s1, C permit s1, A lock x");
	publish_all();
	deadlock = victim() ? deadlock_of(victim()) : NULL;
	ok(deadlock && deadlock->n >= 2, "there is a verdict");
	for (int i = 0; deadlock && i < deadlock->n; i++)
		is_str(wait_text(&deadlock->edges[i]), deadlock->edges[i].pid == 1 ? "exclusive x" : "permit s",
			   "the wait of session %d is described", deadlock->edges[i].pid);
	scene_end(NULL);
}


/*
 * Outdated reports
 */

static void
test_stale(void)
{
	/* B and C were before A; B, not the nearest, has left, and then waits itself. */
	begin_waiters("abc", "A lock a, B share b, C share b, A lock b");
	publish_all();
	play_act("B release b, B lock a", true);
	publish_all();
	is_str(victims_are(), "", "a blocker that has left: no victim");
	fake_count(A->client);
	for (int i = 0; i < 200; i++)
	{
		(void) is_victim_now(A);
		(void) is_victim_now(B);
		run(500);
	}
	ok(strlen(fake_trace(A->client)) < 20, "outdated reports cause no repeated reads: %s",
	   fake_trace(A->client));
	scene_end(NULL);

	/* The same, but A is the last that reports, because D waits for it, too. */
	begin_waiters("abca", "A lock a, B share b, C share b, D lock d, A lock b");
	publish_all();
	play_act("B release b, B lock a", true);
	(void) is_victim_now(B);
	fake_run_all();
	wait_locally(D, A);
	fake_advance(1000);
	for (int i = 0; i < 10; i++)
	{
		ok(!is_victim_now(A), "a blocker that has left, of the last that reports: no victim (%d)", i);
		fake_run_all();
		ok(i < 4 || !is_victim_now(B), "the blocker that has left is no victim either");
		run(100);
	}
	scene_end(NULL);

	/* B's wait for a row behind A ends before any session notices. */
	begin_waiters("aab", "B lock x, C lock y, A lock y, B row A");
	for (int i = 0; i < 3; i++)
	{
		(void) is_victim_now(A);
		fake_run_all();
	}
	play_act("B row, C lock x", true);
	for (int i = 0; i < 5; i++)
	{
		ok(!is_victim_now(C), "a wait for a row that is over: no session is a victim (%d)", i);
		run(100);
	}
	publish_all();
	is_str(victims_are(), "", "after its report is withdrawn no session is a victim either");
	scene_end(NULL);

	/* A participant does not answer. */
	begin_waiters("ab", TWO);
	fake_advance(10);
	(void) is_victim_now(A);
	fake_run_all();
	for (int i = 0; i < 50; i++)
	{
		ok(!is_victim_now(B), "a participant that does not answer: no session is a victim (%d)", i);
		run(100);
	}
	has_one_victim("a participant that answers again", "AB");
}

/* A deadlock that was returned stays readable, whatever happens meanwhile. */
static void
test_kept(void)
{
	const ZklDeadlock *deadlock = NULL;
	Party	   *v = NULL;

	begin_waiters("ab", TWO);
	for (int i = 0; i < 100 && deadlock == NULL; i++)
	{
		v = i % 2 ? A : B;
		deadlock = publish(v);
		run(100);
	}
	ok(deadlock != NULL, "there is a verdict");
	release_all(v == A ? B : A);
	fake_run_all();
	ok(pending_of(v) == NULL, "the other session releases, and the victim's wait ends");
	is_str(deadlock ? deadlock->edges[0].server : "", "server?of?mine",
		   "the verdict can still be read");
	scene_end(NULL);
}

/* Without permission the wait continues, unreported. */
static void
test_refused(void)
{
	begin_waiters("ab", TWO);
	fake_quirks.deny = WAITING;
	fake_count(A->client);
	publish_all();
	is_str(victims_are(), "", "without permission to report no session is a victim");
	is_str(fake_trace(A->client), "mccw", "the report is not repeated (w: the held lock is watched)");
	release_all(B);
	fake_run_all();
	is_int(mode_of(A, "b"), X, "the waiter is granted the lock");
	scene_end(NULL);
}


/* Permits of other programs, or of no session. */
static void
test_strangers(void)
{
	static const char *const who[] = {CURATORS_PERMIT, "stranger"};

	for (int i = 0; i < 2; i++)
	{
		char		path[256];

		begin_waiters("abc", "A permit s, C lock x");
		snprintf(path, sizeof(path), "%s/%s", pool_of("s", "/leases"), who[i]);
		make_node(path, "", ZKL_CREATE_EPHEMERAL, 77);
		play_act("C permit s, A lock x", true);
		ok(!is_truly_deadlocked(C), "a permit of an unknown session is in use");
		publish_all();
		is_str(victims_are(), "", "a permit of %s: no victim", who[i]);
		fake_tree_delete(path);
		fake_run_all();
		ok(permits_of(C, "s") == 1, "the wait ends when the permit is released");
		scene_end(NULL);
	}
}

/* B's report, which is cut off, still says that C holds what it has released. */
static void
test_old_report(void)
{
	static const char *const steps[] = {
		"C lock x, B lock w, C row B, B publish, B disconnect!, C disconnect!, C release! x, C row D, D lock y, A lock x",
		"C permit p1, B lock w, C row B, B publish, B disconnect!, C disconnect!, C giveback! p, C row D, D lock y, A permit p1"
	};

	for (int i = 0; i < 2; i++)
	{
		begin_waiters("abbba", "A lock y, E lock w, C lock z");
		play_act(steps[i], true);
		publish_all();
		is_str(victims_are(), "", "another report, which is not old, does not vouch for it: %s", i ? "permit" : "lock");
		scene_end(NULL);
	}
}

/* A session does not wait for a node that has been given up but not deleted yet. */
static void
test_pending_delete(void)
{
	char		path[256];

	begin_waiters("abc", "A permit s, B permit s, C lock x, C permit s, B lock x");
	snprintf(path, sizeof(path), "%s", pool_of("s", "/leases"));
	fake_quirks.deny = path;
	fake_quirks.deny_breaks = true;
	play_act("A giveback s, A lock x", true);
	is_int(permits_of(C, "s"), 0, "the node of a released permit cannot be deleted yet");
	publish_all();
	is_str(victims_are(), "", "a wait for a released permit: no victim");
	fake_quirks.deny = NULL;
	publish_all();
	is_int(permits_of(C, "s"), 1, "the permit is granted after the delete");
	scene_end(NULL);

	begin_waiters("ab", "A lock x, A lock z, B lock y, B lock x");
	fake_quirks.deny = SCENE_LOCKS "/x";
	fake_quirks.deny_breaks = true;
	play_act("A release x, A lock y", true);
	publish_all();
	is_int(reported_by(A), 0, "a session with an unfinished delete reports nothing");
	publish_all();
	is_str(victims_are(), "", "a session with an unfinished delete is no victim");
	scene_end(NULL);
}

/* A permit with thousands of nodes is no deadlock that a multi could check. */
static void
test_large_permit(void)
{
	char		path[200];

	begin_waiters("abc", "A permit s1, B lock x");
	for (int i = 0; i < 3000; i++)
	{
		snprintf(path, sizeof(path), "%s/%s%06d", pool_of("s", "/leases"),
				 "_c_11111111-2222-3333-4444-555555", i);
		make_node(path, "", ZKL_CREATE_EPHEMERAL, 77);
	}
	play_act("B permit s1, A lock x", true);
	has_no_victim("a permit among thousands");
}


/*
 * Each fault at each operation
 */

static int
count_operations(void)
{
	int			n;

	begin_waiters("ab", TWO);
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

	begin_waiters("ab", TWO);
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
	good = strlen(victims_are()) <= 1;
	if (!good)
		what = "two victims";
	if (good && (owner_is_limited(A) || owner_is_limited(B)))
	{
		good = false;
		what = "a deadlock may stay hidden, it says";
	}
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
	play_verbs = deadlock_verbs;
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_description();
	test_stale();
	test_kept();
	test_refused();
	test_strangers();
	test_old_report();
	test_pending_delete();
	test_large_permit();
	test_faults();
	return done();
}
