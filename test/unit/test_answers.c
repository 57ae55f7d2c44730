/*-------------------------------------------------------------------------
 *
 * test_answers.c
 *		Promises about the effect of single answers and events, found by mutants
 *		that no test detected.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "letters.h"
#include "play.h"

#define T SCENE_TIMEOUT_MS

static void
test_loss_wakes(void)
{
	struct pollfd fd;

	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_advance(T);
	zkl_session_receive(A->session);
	fake_tree_delete(node_of(A, "a"));
	fake_run_all();
	fd = (struct pollfd)
	{
		zkl_session_fd(A->session), POLLIN, 0
	};
	ok(lost_of(A) == 1 && poll(&fd, 1, 0) == 1, "a node removed by hand wakes the owner");
	scene_end(NULL);
}

/* The node is watched, however many other locks are acquired and released meanwhile. */
static void
test_watched_in_time(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	for (int i = 0; i < 100; i++)
	{
		forget(lock_now(A, "b", X));
		reduce(A, "b", NONE);
		fake_advance(100);
	}
	ok(fake_n_traced(A->client, 'w') > 0, "a held node is watched in time");
	scene_end(NULL);
}

/* The check of several locks before their grant renews the lease. */
static void
test_verified_lease(void)
{
	static const char *const names[] = {"a", "b"};
	static const ZklMode modes[] = {X, X};

	scene_begin(2);
	forget(lock_now(B, "b", X));
	ask_all(A, 2, names, modes, false);
	fake_run_all();
	fake_advance(T);
	is_int(zkl_session_info(A->session).lease_ms, 0, "a waiter has no lease");
	release_all(B);
	fake_run_all();
	is_int(zkl_session_info(A->session).lease_ms, T / 3, "a waiter has a whole lease when it is granted");
	scene_end("exclusion, several locks after a wait");
}

static const Play plays[] = {
	{
		"after an unexpected error the node is found and removed at once",
		"A lock b, A release, A fault apply-and-other-error, A lock b, A is error, A nodes 0"
	},
	{
		"the node of a request that was given up before an unexpected error is found and removed",
		"A lock b, A release, A fault apply-and-other-error, A lock! b, A giveup, A nodes 0"
	}
};

/* The lists that search for a node with an unknown outcome are refused for a while. */
static void
test_create_unclear(void)
{
	scene_begin(1);
	forget(lock_now(A, "b", X));
	release_all(A);
	fake_run_all();
	fake_count(A->client);
	fake_fault(A->client, 1, FAULT_APPLY_DROP);
	ask_for(A, "b", X);
	fake_run_all();
	fake_quirks.deny_read = path_of("b");
	fake_connect(A->client);
	fake_run_all();
	is_int(nodes_of(A, NULL), 1, "after a failed list the node still exists");
	fake_quirks.deny_read = NULL;
	fake_advance(5000);
	is_int(nodes_of(A, NULL), 0, "the node is searched for again and removed");
	scene_end(NULL);
}

static void
acquire_and_release_permit(void)
{
	forget(permit_now(A, "s", 1));
	release_all(A);
	fake_run_all();
	fake_count(A->client);
}

static void
test_permit_cost(void)
{
	scene_begin(1);
	acquire_and_release_permit();
	forget(permit_now(A, "s", 1));
	is_int(fake_n_traced(A->client, 'c'), 2, "a permit creates two nodes, and no parents that exist: %s",
		   fake_trace(A->client));
	scene_end(NULL);
}

/* The permit node is deleted "steps" steps after the answer to its create was lost. */
static void
remove_permit_after(int fault_at, int steps)
{
	char		path[256] = "";

	scene_begin(1);
	acquire_and_release_permit();
	fake_fault(A->client, fault_at, FAULT_APPLY_DROP);
	ask_permit(A, "s", 1);
	fake_run_all();
	fake_connect(A->client);
	for (int i = 0; i < steps; i++)
		fake_step(A->client);
	for (FakeNode *node = fake_tree_first(); node && pending_of(A); node = node->next)
		if (strstr(node->path, "-lease-"))
			snprintf(path, sizeof(path), "%s", node->path);
	fake_tree_delete(path);
	fake_run_all();
	if (permits_of(A, "s") != 1)
		ok(false, "a permit whose node is removed %d steps after the answer to operation %d was lost",
		   steps, fault_at);
	scene_end(NULL);
}

static void
test_permit_removed(void)
{
	for (int fault_at = 1; fault_at <= 8; fault_at++)
		for (int steps = 0; steps < 20; steps++)
			remove_permit_after(fault_at, steps);
	ok(true, "a permit node that is removed before its czxid is known is created again");
}

int
main(void)
{
	test_loss_wakes();
	test_watched_in_time();
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_verified_lease();
	test_create_unclear();
	test_permit_cost();
	test_permit_removed();
	return done();
}
