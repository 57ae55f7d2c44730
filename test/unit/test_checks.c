/*-------------------------------------------------------------------------
 *
 * test_checks.c
 *		Nodes that another client deletes before their request is granted, while the
 *		connection is lost or answers are late; and what proves that nobody is before a node.
 *
 * Promises: 1.1, 5.4
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "letters.h"
#include "play.h"
#include "recipe/queue/queue.h"

static const char *const ab[] = {"a", "b"};
static const ZklMode xx[] = {X, X};

/* Another client deletes A's node during an outage, another session has the lock, and A's next server lags. */
static const Play plays[] = {
	{HERE, "a session whose kept node was deleted does not have the lock as well",
		"A keep, A lock, A release, A nodes 1, A disconnect, A delete, B lock, B has X, A lag!, A connect,"
	" A lock, A is pending"},
	{HERE, "a session whose kept node was deleted does not have the lock either if its request began before the new connection",
	"A keep, A lock, A release, A disconnect, A delete, B lock, B has X, A lock!, A lag!, A connect, A is pending"},
	{HERE, "a waiter whose server lags is checked, too",
		"B lock, A lock, A is pending, A disconnect, B release, A delete, C lock, C has X, A lag!, A connect!,"
	" A catchup 1, A is pending"},
	{HERE, "a node whose list was lost is checked, too",
		"B lock, B release, A lock!, A apply!, A deliver!, A disconnect, A delete, C lock, C has X, A lag!, A connect,"
	" A is pending"},
};

/*
 * A waits with a permit node; its connection is lost; C releases; then both nodes of A are
 * deleted, and B has the permit.  A's next server has not seen the deletes.  A count that A sends before
 * it learns of the loss is answered by that server.
 */
static void
test_permit(bool counts)
{
	Ask		   *ask;

	scene_begin(3);
	permit_now(C, "s", 1);
	ask = permit_now(A, "s", 1);
	is_int(ask->status, ZKL_PENDING, "A waits for the permit");
	fake_disconnect(A->client);
	if (counts)
		zkl_request_look_again(ask->request);
	fake_run_all();
	release_permit(C, "s");
	fake_run_all();
	delete_by_hand(node_below(A, pool_of("s", "/locks")));
	delete_by_hand(node_below(A, pool_of("s", "/leases")));
	fake_run_all();
	is_int(permit_now(B, "s", 1)->status, ZKL_OK, "B has the only permit");
	fake_lag(A->client, true);
	fake_connect(A->client);
	fake_catch_up(A->client, 1);
	for (int i = 0; i < 10; i++)
	{
		fake_run_all();
		if (ask->status == ZKL_PENDING)
			fake_catch_up(A->client, 1);
	}
	is_int(permits_of(A, "s") + permits_of(B, "s"), 1, "one permit of one is out");
	scene_end("never more permits than the capacity, permit node deleted during an outage");
}

/* Has A sent a proof, or a check of its nodes? */
static bool
has_proof(int n)
{
	return fake_proofs(A->client) + fake_n_traced(A->client, 'm') > (n > 1);
}

/* No connection is lost: the create's answer comes late, and the node is deleted before the proof. */
static void
test_late(bool elided, int n)
{
	Ask		   *ask;

	scene_begin(2);
	for (int i = 0; elided && i < 3; i++)
	{
		ask_all(A, n, ab, xx, false);
		fake_run_all();
		release_all(A);
		fake_run_all();
	}
	if (!elided)
	{
		ask_all(B, n, ab, xx, false);
		fake_run_all();
		release_all(B);
		fake_run_all();
	}
	fake_count(A->client);
	ask = ask_all(A, n, ab, xx, false);
	while (fake_apply(A->client))
		;
	fake_stall(SCENE_TIMEOUT_MS / 6 + 1);
	while (!has_proof(n) && fake_deliver(A->client))
		while (n > 1 && !has_proof(n) && fake_apply(A->client))
			;
	is_int(ask->status, ZKL_PENDING, "a late answer grants nothing (sent: %s, %d proofs)", fake_trace(A->client),
		   fake_proofs(A->client));
	delete_by_hand(node_of(A, "a"));
	forget(lock_now(B, "a", X));
	fake_run_all();
	is_int(mode_of(A, "a") == X && mode_of(B, "a") == X, false, "not both have the lock");
	scene_end("exclusion, deleted before the proof that the grant waits for");
}

/*
 * U upgrades two locks; "a" is first at the number of the waiting writer W, before which W's
 * name is sorted, and "b" waits.  During an outage U's reader node of "a" is deleted: W has it.
 */
static void
test_anchor(void)
{
	static const ZklMode ss[] = {S, S};
	Party	   *W = &parties[0];
	Party	   *U = &parties[1];
	Ask		   *w;
	Ask		   *u;
	char		node[256];

	scene_begin(3);
	ask_all(U, 2, ab, ss, false);
	fake_run_all();
	snprintf(node, sizeof(node), "%s", node_of(U, "a"));
	lock_now(C, "b", S);
	w = lock_now(W, "a", X);
	u = ask_all(U, 2, ab, xx, false);
	fake_run_all();
	is_int(w->status, ZKL_PENDING, "W waits");
	is_int(u->status, ZKL_PENDING, "U waits for C");
	fake_disconnect(U->client);
	fake_run_all();
	delete_by_hand(node);
	fake_run_all();
	is_int(mode_of(W, "a"), X, "W has the lock");
	release_all(C);
	fake_run_all();
	fake_count(U->client);
	fake_connect(U->client);
	fake_run_all();
	is_int(mode_of(W, "a") == X && mode_of(U, "a") == X && lost_of(U) == 0, false,
		   "U does not have it as well (sent: %s)", fake_trace(U->client));
	scene_without_referee();	/* a holder whose node is deleted learns it later */
	scene_end(NULL);
}

/* The answer of the check comes late, too. */
static void
test_late_check(void)
{
	Ask		   *ask;

	scene_begin(2);
	lock_now(B, "a", X);
	ask = ask_all(A, 2, ab, xx, false);
	fake_run_all();
	release_all(B);
	fake_count(A->client);
	while (fake_n_traced(A->client, 'm') == 0 && (fake_step(B->client) || fake_step(A->client)))
		;
	is_str(fake_trace(A->client), "lm", "(A has sent its checks)");
	while (fake_apply(A->client))
		;
	fake_stall(SCENE_TIMEOUT_MS / 6 + 1);
	for (int before = fake_proofs(A->client); fake_proofs(A->client) == before && fake_deliver(A->client);)
		;
	is_int(ask->status, ZKL_PENDING, "checks that are answered late grant nothing (%s, %d proofs)",
		   fake_trace(A->client), fake_proofs(A->client));
	fake_run_all();
	is_int(ask->status, ZKL_OK, "checks that are answered after a proof grant the lock");
	scene_end(NULL);
}

/* An upgrade without its reader node, in a new queue. */
static void
test_upgrade(void)
{
	Ask		   *ask;

	scene_begin(2);
	lock_now(A, "a", S);
	delete_by_hand(node_of(A, "a"));
	forget(lock_now(B, "a", X));
	is_int(mode_of(B, "a"), X, "another session has the lock meanwhile");
	release_all(B);
	fake_run_all();
	delete_by_hand(path_of("a"));
	ask = lock_now(A, "a", X);
	is_int(ask->status, ZKL_LOCK_LOST, "an upgrade whose node has number 0 needs its reader node");
	scene_without_referee();	/* a holder whose node is deleted learns it later */
	scene_end(NULL);
}

/* The last grant in another queue, in the same slot of the hash table. */
static void
test_collision(void)
{
	static const char *const one = "n29";
	static const char *const other = "n106";

	scene_begin(2);
	is_int((int) (zkl_hash(ZKL_HASH, path_of(one), strlen(path_of(one))) % ZKL_LAST_GRANTS),
		   (int) (zkl_hash(ZKL_HASH, path_of(other), strlen(path_of(other))) % ZKL_LAST_GRANTS),
		   "(two locks in one slot)");
	lock_now(B, one, X);
	release_all(B);
	fake_run_all();
	for (int i = 0; i < 2; i++)
	{
		release_all(B);
		fake_run_all();
		lock_now(B, other, X);
	}
	lock_now(A, one, X);
	is_int(lock_now(A, other, X)->status, ZKL_PENDING, "the number before in another queue is no proof");
	scene_end("exclusion, two locks in one slot");
}

/*
 * An array that nobody else blocks: the read of the czxid is refused by a throttling server
 * for a while (ZTHROTTLEDOP), while proofs keep the lease fresh.
 */
static void
test_throttled_array(bool holds)
{
	Ask		   *ask;
	int64_t		from;

	scene_begin(2);
	ask_all(B, 2, ab, xx, false);
	fake_run_all();
	release_all(B);
	fake_run_all();
	if (holds)
		lock_now(A, "z", X);
	fake_count(A->client);
	ask = ask_all(A, 2, ab, xx, false);
	from = fake_now();
	fake_fault(A->client, 4, FAULT_THROTTLE);
	fake_run_all();
	is_int(ask->status, ZKL_PENDING, "the czxid is not known yet");
	delete_by_hand(node_of(A, "b"));
	is_int(lock_now(B, "b", X)->status, ZKL_OK, "B has b");
	for (int i = 0; i < 10 && fake_now() - from < 2 * SCENE_TIMEOUT_MS / 6; i++)
	{
		fake_count(A->client);
		fake_fault(A->client, 1, FAULT_THROTTLE);
		fake_advance(fake_timer(A->client) - fake_now());
		if (ask->status != ZKL_PENDING)
			break;
	}
	fake_count(A->client);
	fake_advance(4000);
	is_int(mode_of(A, "b") == X && mode_of(B, "b") == X && lost_of(A) == 0, false, "not both have b");
	scene_end("exclusion, array, czxid read throttled");
}

/* Late answer: a server without a quorum does not answer the check.  Does A try another one? */
static void
test_drop(void)
{
	Ask		   *ask;
	int64_t		from;

	scene_begin(1);
	fake_count(A->client);
	lock_now(A, "a", X);
	release_all(A);
	fake_run_all();
	fake_count(A->client);
	ask = ask_for(A, "a", X);
	while (fake_apply(A->client))
		;
	fake_stall(SCENE_TIMEOUT_MS / 6 + 1);
	for (int k = 0; k < 2; k++)
		fake_deliver(A->client);
	is_int(ask->status, ZKL_PENDING, "a late answer grants nothing");
	from = fake_now();
	while (fake_drops(A->client) == 0 && fake_now() < from + 5 * SCENE_TIMEOUT_MS)
	{
		fake_stall(50);			/* the server answers nothing any more */
		fake_ring(A->client);
	}
	is_int(fake_drops(A->client), 1, "a server that does not answer what a grant waits for is left");
	is_int(fake_now() - from <= SCENE_TIMEOUT_MS / 3, true, "a server that does not answer what a grant waits for is left after T/6");
	scene_end(NULL);
}

int
main(void)
{
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_permit(false);
	test_permit(true);
	test_anchor();
	test_late(true, 1);
	test_late(false, 1);
	test_late(true, 2);
	test_late_check();
	test_throttled_array(true);
	test_throttled_array(false);
	test_drop();
	test_upgrade();
	test_collision();
	return done();
}
