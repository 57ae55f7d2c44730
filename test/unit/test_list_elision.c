/*-------------------------------------------------------------------------
 *
 * test_list_elision.c
 *		Promises about locks that are acquired repeatedly: when a children list can
 *		be left out.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scene.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE

static Party *const A = &parties[0];
static Party *const B = &parties[1];

static const char *const ab[] = {"a", "b"};
static const ZklMode xx[] = {X, X};

static void
release(Party *party)
{
	release_all(party);
	fake_run_all();
}

/* Acquires and releases the lock until no list is sent any more. */
static void
acquire_repeatedly(Party *party, const char *name, int times)
{
	for (int i = 0; i < times; i++)
	{
		forget(lock_now(party, name, X));
		release(party);
	}
	fake_count(party->client);
}

static void
test_alone(void)
{
	scene_begin(1);
	acquire_repeatedly(A, "a", 1);
	lock_now(A, "a", X);
	is_str(fake_trace(A->client), "cl", "the second acquisition costs a create and a list");
	release(A);
	acquire_repeatedly(A, "a", 1);
	is_int(lock_now(A, "a", X)->status, ZKL_OK, "a lock without other contenders is granted again");
	is_str(fake_trace(A->client), "c", "... the third time without a list");
	is_int(token_of(A, "a"), fake_tree_find(node_of(A, "a"))->czxid, "... with the node's czxid as token");
	release(A);
	fake_count(A->client);
	is_int(lock_now(A, "a", S)->status, ZKL_OK, "a shared lock is granted the same way");
	is_str(fake_trace(A->client), "c", "... a shared lock needs no list");
	release(A);
	fake_count(A->client);
	lock_now(A, "a", X);
	is_str(fake_trace(A->client), "c", "the next shared lock needs no list either");
	scene_end("exclusion, one session");
}

static void
test_others(void)
{
	scene_begin(2);
	acquire_repeatedly(A, "a", 3);
	forget(lock_now(B, "a", X));
	fake_count(A->client);
	is_int(lock_now(A, "a", X)->status, ZKL_PENDING, "a contender that queued in between is waited for");
	is_str(fake_trace(A->client), "clw", "a list finds this contender, a round trip later");
	release(B);
	is_int(mode_of(A, "a"), X, "the lock is granted after its release");
	release(A);
	fake_count(A->client);
	lock_now(A, "a", X);
	is_str(fake_trace(A->client), "cl", "after a missed contender the list is sent at once");
	release(A);

	acquire_repeatedly(A, "a", 3);
	acquire_repeatedly(B, "a", 1);
	lock_now(A, "a", X);
	is_int(mode_of(A, "a"), X, "a contender that has gone again is not waited for");
	scene_end("exclusion, two sessions");
}

static void
test_sharers(void)
{
	scene_begin(2);
	acquire_repeatedly(A, "a", 3);
	forget(lock_now(B, "a", S));
	forget(lock_now(A, "a", S));
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(lock_now(A, "a", X)->status, ZKL_PENDING,
		   "a sharer before the session's own last node is waited for");
	scene_end("exclusion, with sharers");
}

/* In one transaction, replaces the container, as a server that lost it would. */
static void
renew_container(const char *name, const char *child)
{
	char		old[256];
	ZklOp		ops[] = {
		{.kind = ZKL_OP_DELETE, .path = old},
		{.kind = ZKL_OP_DELETE, .path = path_of(name)},
		{.kind = ZKL_OP_CREATE, .path = path_of(name), .create_kind = ZKL_CREATE_CONTAINER},
		{.kind = ZKL_OP_CREATE, .path = child, .create_kind = ZKL_CREATE_EPHEMERAL_SEQUENTIAL},
	};
	ZklResultCode codes[4];
	char	   *paths[4];

	strcpy(old, node_of(A, name));
	is_int(fake_tree_multi(ops, 4, 77, codes, paths), ZKL_RC_OK, "(a new container is created)");
	for (int i = 0; i < 4; i++)
		free(paths[i]);
}

/* The fewest transactions in which another container can have reached the same number. */
static void
test_renewed(void)
{
	char		child[256];

	for (int times = 2; times < 6; times++)
	{
		scene_begin(1);
		acquire_repeatedly(A, "a", times);
		forget(lock_now(A, "a", X));
		strcpy(child, path_of("a"));
		strcat(child, "/lock-");
		renew_container("a", child);
		for (int i = 0; i < times; i++)
			foreign_node("a", "lock-", 77);
		release(A);
		is_int(lock_now(A, "a", X)->status, ZKL_PENDING,
			   "a new container that has counted to %d is distinguished from the old one", times + 1);
		scene_end("exclusion, container renewed");
	}
}

static void
test_reconnected(void)
{
	scene_begin(1);
	acquire_repeatedly(A, "a", 3);
	fake_disconnect(A->client);
	fake_connect(A->client);
	fake_run_all();
	fake_count(A->client);
	lock_now(A, "a", X);
	is_str(fake_trace(A->client), "cl", "after a reconnect the list is sent");
	scene_end(NULL);

	scene_begin(1);
	acquire_repeatedly(A, "a", 3);
	fake_fault(A->client, 1, FAULT_APPLY_DROP);
	ask_for(A, "a", X);
	fake_run_all();
	heal();
	is_int(mode_of(A, "a"), X, "the lock is granted although an answer is lost");
	ok(strchr(fake_trace(A->client), 'l') != NULL, "the queue is listed after a lost answer: %s",
	   fake_trace(A->client));
	scene_end("exclusion, answer lost");
}

static void
test_limit(void)
{
	scene_begin(1);
	scene_leave(A);
	scene_config.sequence_limit = 5;
	scene_join(A);
	for (int i = 0; i < 12; i++)
	{
		Ask		   *ask = lock_now(A, "a", X);

		is_int(ask->status, i % 7 == 6 ? ZKL_SEQUENCE_USED_UP : ZKL_OK,
			   "a lock is granted, unless its number is beyond the limit");
		forget(ask);
		if (mode_of(A, "a") != X)
			continue;
		ok(strcmp(node_of(A, "a") + strlen(node_of(A, "a")) - 10, "0000000005") <= 0,
		   "no held node has a number beyond the limit");
		release(A);
	}
	scene_end(NULL);
}

static void
test_several(void)
{
	scene_begin(2);
	for (int i = 0; i < 4; i++)
	{
		fake_count(A->client);
		ask_all(A, 2, ab, xx, false);
		fake_run_all();
		ok(mode_of(A, "a") == X && mode_of(A, "b") == X, "two names are granted");
		if (i > 0)
			is_str(fake_trace(A->client), "mllg", "two names need lists at first");
		release(A);
	}
	fake_count(A->client);
	ask_all(A, 2, ab, xx, false);
	fake_run_all();
	is_str(fake_trace(A->client), "mg", "later the transaction's id suffices");
	ok(token_of(A, "a") > 0 && token_of(A, "a") == token_of(A, "b"), "this id is the token of both locks");
	release(A);

	forget(lock_now(B, "b", X));
	fake_count(A->client);
	Ask		   *ask = ask_all(A, 2, ab, xx, false);

	fake_run_all();
	is_int(ask->status, ZKL_PENDING, "a lock that another session holds is waited for");
	is_str(fake_trace(A->client), "mglw", "this lock's queue is listed");
	release(B);
	is_int(ask->status, ZKL_OK, "both locks are granted after the release");
	scene_end("exclusion, several names");
}

/* Acquires more locks than the session remembers. */
static void
test_many(void)
{
	char		name[16];
	int			granted = 0;

	scene_begin(1);
	for (int i = 0; i < 4200; i++)
	{
		snprintf(name, sizeof(name), "n%d", i);
		forget(lock_now(A, name, X));
		granted += mode_of(A, name) == X;
		release(A);
		fake_tree_reap();
	}
	is_int(granted, 4200, "4200 locks are granted, one after the other");
	acquire_repeatedly(A, "a", 3);
	lock_now(A, "a", X);
	is_str(fake_trace(A->client), "c", "the last one is granted again without a list");
	scene_end("exclusion, many names");
}

int
main(void)
{
	test_alone();
	test_others();
	test_sharers();
	test_renewed();
	test_reconnected();
	test_limit();
	test_several();
	test_many();
	return done();
}
