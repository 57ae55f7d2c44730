/*-------------------------------------------------------------------------
 *
 * test_root_removed.c
 *		Another client deletes the root and everything below it while requests run.
 *		The requests create all znodes again, and no request fails.
 *
 * usage: test_root_removed [first seed [number of seeds]]
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>

#include "letters.h"
#include "waiters.h"
#include "walk.h"

#define N_PARTIES 3

#ifdef SHORT_RUN
#define N_SEEDS 300
#else
#define N_SEEDS 3000
#endif

/* More operations of one session than its request needs after each removal. */
#define MAX_SUBMISSIONS 100

static const char *const abc[] = {"a", "b", "c"};

/* The youngest znodes come first, so children come before their parents. */
static void
remove_root(void)
{
	FakeNode   *next;

	for (FakeNode *node = fake_tree_first(); node; node = next)
	{
		next = node->next;
		fake_tree_delete(node->path);
	}
}

static Ask *
ask_for_something(Party *party)
{
	const ZklMode modes[] = {X, dice(2) ? X : S, X};

	if (mode_of(party, "a") == S)
		return ask_for(party, "a", X);
	switch (dice(6))
	{
		case 0:
			return ask_for(party, "a", modes[1]);
		case 1:
			return try_for(party, "a", modes[1]);
		case 2:
			return ask_all(party, 3, abc, modes, dice(2));
		case 3:
			return try_permit(party, "s", 1);
		default:
			return ask_permit(party, "s", 1);
	}
}

static void
run_randomly(int n_steps)
{
	for (int i = 0; i < n_steps; i++)
	{
		Party	   *party = &parties[dice(N_PARTIES)];

		if (dice(20) == 0)
			(void) publish(party);
		else if (dice(2))
			fake_apply(party->client);
		else
			fake_deliver(party->client);
	}
}

/* Returns what is wrong with the request, or NULL.  An upgrade's lock may be lost. */
static const char *
problem_of(const Ask *ask)
{
	static char text[80];

	if (fake_counted(ask->party->client) > MAX_SUBMISSIONS)
		return "a session sends too many requests";
	switch (ask->status)
	{
		case ZKL_OK:
		case ZKL_PENDING:
		case ZKL_BUSY:
		case ZKL_LOCK_LOST:
		case ZKL_DEADLOCK:
			return NULL;
		default:
			snprintf(text, sizeof(text), "a request fails: status %d", ask->status);
			return text;
	}
}

static const char *
walk(unsigned seed)
{
	Ask		   *asks[N_PARTIES];
	const char *problem = NULL;

	scene_begin(0);
	waiters_begin("abc");
	scene_config.node_names = seed % 2 ? ZKL_NODE_NAMES_CURATOR : ZKL_NODE_NAMES_KAZOO;
	for (int i = 0; i < N_PARTIES; i++)
		scene_join(&parties[i]);
	for (int i = 0; i < N_PARTIES; i++)
		if (seed % 8 == 0)
			forget(lock_now(&parties[i], "a", S));
	for (int i = 0; i < N_PARTIES; i++)
	{
		fake_count(parties[i].client);
		asks[i] = ask_for_something(&parties[i]);
	}
	run_randomly(dice(40));
	for (int n = 1 + dice(2); n > 0; n--)
	{
		run_randomly(dice(80));
		remove_root();
	}
	run_randomly(300);
	fake_run_all();
	for (int i = 0; i < N_PARTIES && problem == NULL; i++)
		problem = problem_of(asks[i]);
	publish_all();
	for (int i = 0; i < N_PARTIES; i++)
		if (problem == NULL && pending_of(&parties[i]) && pending_of(&parties[i])->n > 1 &&
			reported_by(&parties[i]) == 0)
			problem = "a session does not report its wait for several names";
	if (problem == NULL && !scene_settles())
		problem = "a session waits, but no other session blocks it";
	if (problem == NULL && reported_by(NULL) + nodes_of(NULL, NULL) > 0)
		problem = "nodes are left";
	scene_without_referee();	/* a holder whose node is deleted learns it later */
	return problem;
}

static void
apply_all(const Party *party)
{
	while (fake_apply(party->client))
		;
}

/* Neither the create of a wait report nor that of its parent finds a znode above. */
static void
test_wait_report(void)
{
	static const ZklMode modes[] = {X, X};

	scene_begin(3);
	waiters_begin("abc");
	forget(lock_now(B, "a", X));
	ask_all(A, 2, abc, modes, false);
	fake_run_all();
	(void) publish(A);
	remove_root();
	apply_all(A);
	while (fake_deliver(A->client))
		;
	apply_all(A);
	ask_for(C, "a", X);
	while (fake_step(C->client))
		;
	fake_run_all();
	ok(pending_of(A) && mode_of(C, "a") == X, "a session waits again after the root was removed");
	publish_all();
	is_int(reported_by(A), 1, "the session reports its wait");
	scene_without_referee();	/* a holder whose node is deleted learns it later */
	scene_end(NULL);
}

/* Another client deletes a lock's znode whenever it is empty. */
static void
remove_lock(void)
{
	fake_tree_delete(SCENE_LOCKS "/a");
}

static void
test_always_removed(void)
{
	Ask		   *ask;

	scene_begin(1);
	fake_after_step = remove_lock;
	ask = ask_for(A, "a", X);
	fake_run_all();
	is_int(zkl_request_status(ask->request), ZKL_SERVER_ERROR, "a request whose parent is deleted again and again fails");
	fake_after_step = NULL;
	is_int(zkl_request_status(lock_now(A, "a", X)->request), ZKL_OK, "the next request, after the parent is no longer deleted, does not fail");
	scene_end(NULL);
}

int
main(int argc, char **argv)
{
	walk_all(argc, argv, N_SEEDS, walk, "with the root removed let no request fail");
	test_wait_report();
	test_always_removed();
	return done();
}
