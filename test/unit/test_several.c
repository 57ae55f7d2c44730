/*-------------------------------------------------------------------------
 *
 * test_several.c
 *		Promises about several names at once, limits, and the end of sequence numbers.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scene.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];
static Party *const D = &parties[3];

static const char *const abc[] = {"a", "b", "c"};
static const char *const cba[] = {"c", "b", "a"};
static const ZklMode xxx[] = {X, X, X};
static const ZklMode sxs[] = {S, X, S};

static bool
is_woken(const Party *party)
{
	struct pollfd fd = {zkl_session_fd(party->session), POLLIN, 0};

	return poll(&fd, 1, 0) == 1;
}

static void
test_array(void)
{
	ZklRequestInfo info;

	scene_begin(3);
	Ask		   *a = ask_all(A, 3, abc, xxx, false);

	is_str(fake_trace(A->client), "mlll", "several names are one multi, and their lists");
	fake_run_all();
	is_int(a->status, ZKL_OK, "free names are granted together");
	ok(token_of(A, "a") > 0 && token_of(A, "a") == token_of(A, "b") &&
	   token_of(A, "b") == fake_tree_find(node_of(A, "b"))->czxid,
	   "the tokens are the multi's transaction");
	release_all(A);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "all are released");

	lock_now(C, "b", X);
	fake_count(A->client);
	a = ask_all(A, 3, abc, xxx, false);
	fake_run_all();
	is_int(a->status, ZKL_PENDING, "one name held elsewhere makes all wait");
	is_str(fake_trace(A->client), "mlllgw", "... with one watch");
	zkl_request_info(a->request, &info);
	is_int(info.culprit, 1, "... and it is known which name it is");
	is_int(mode_of(A, "a"), NONE, "nothing is granted in part");
	Ask		   *b = lock_now(B, "a", X);

	is_int(b->status, ZKL_PENDING, "who asks for one of them later is behind");
	reduce(C, "b", NONE);
	fake_run_all();
	is_int(a->status, ZKL_OK, "all are granted when the last one is");
	release_all(A);
	fake_run_all();
	is_int(mode_of(B, "a"), X, "then it is the next one's turn");
	scene_end("exclusion, several names");
}

/* "a" was released on this server, so its node will go; "b" is held elsewhere. */
static void
test_try_behind_both(void)
{
	Ask		   *ask;

	scene_begin(3);
	lock_now(A, "a", X);
	lock_now(B, "b", X);
	scene_neighbour = fake_session_id(A->client);
	ask = ask_all(C, 3, abc, xxx, true);
	fake_run_all();
	is_int(ask->status, ZKL_BUSY,
		   "a try of several names is refused for one of them while another, released one's node is there");
	scene_neighbour = 0;
	scene_end("exclusion, a try of several names");
}

/* The owner decided about C's contender, but B's is the first one by now. */
static void
test_try_decided_late(void)
{
	ZklLockItem item = {"a", X, NULL};
	ZklRequest *request;
	ZklRequestInfo info;
	int64_t		b;
	int64_t		c;

	scene_begin(3);
	b = fake_session_id(B->client);
	c = fake_session_id(C->client);
	forget(lock_now(B, "a", X));
	lock_now(C, "a", X);
	request = zkl_lock_request(A->session, &item, 1, true, "", 0);
	fake_run_all();
	zkl_request_info(request, &info);
	ok(info.is_refused && info.refused_by == c, "a try is refused by the contender before it");
	zkl_request_wait(request, c);
	fake_run_all();
	zkl_session_receive(A->session);
	fake_count(A->client);
	give_up_all(C);
	fake_run_all();
	zkl_request_info(request, &info);
	ok(info.is_refused && info.refused_by == b, "... then by another one");
	is_int(is_woken(A), 1, "... for which the owner wakes up");
	is_str(fake_trace(A->client), "sl", "... and which is not watched");
	zkl_request_wait(request, c);
	fake_run_all();
	is_str(fake_trace(A->client), "sl", "... also after a late decision to wait for the first one");
	zkl_request_refuse(request, c);
	is_int(zkl_request_status(request), ZKL_PENDING, "a late refusal is none");
	zkl_request_refuse(request, b);
	is_int(zkl_request_status(request), ZKL_BUSY, "... and one that is not late is");
	zkl_request_end(request);
	fake_run_all();
	is_int(nodes_of(A, "a"), 0, "... and leaves nothing");
	scene_end("exclusion, a late decision about a try");
}

static void
test_array_modes(void)
{
	scene_begin(3);
	forget(lock_now(A, "a", S));
	forget(lock_now(A, "b", S));
	forget(lock_now(B, "a", S));
	Ask		   *a = ask_all(A, 3, abc, xxx, false);

	fake_run_all();
	is_int(a->status, ZKL_PENDING, "upgrades among several names wait for sharers");
	reduce(B, "a", NONE);
	fake_run_all();
	ok(mode_of(A, "a") == X && mode_of(A, "b") == X && mode_of(A, "c") == X,
	   "... and all are granted together");
	ok(token_of(A, "c") > token_of(A, "b"), "each keeps its own token");
	release_all(A);
	fake_run_all();
	ask_all(A, 3, abc, sxs, false);
	fake_run_all();
	ask_all(B, 3, abc, sxs, true);
	fake_run_all();
	is_int(nodes_of(B, NULL), 0, "a try for several that fails for one leaves nothing");
	lock_now(B, "a", S);
	lock_now(B, "b", S);
	ok(mode_of(B, "a") == S && mode_of(B, "b") == NONE, "each name has its own mode");
	scene_end("exclusion, several modes");
}

/* All queues have the requests in one order: no deadlock, whatever the names' order. */
static void
test_array_no_deadlock(void)
{
	int			stuck = 0;

	for (int steps = 0; steps < 20; steps++)
	{
		scene_begin(2);
		ask_all(A, 3, abc, xxx, false);
		for (int i = 0; i < steps; i++)
			fake_step(A->client);
		ask_all(B, 3, cba, xxx, false);
		for (int i = 0; i < 4; i++)
		{
			fake_run_all();
			release_all(A);
			release_all(B);
		}
		fake_run_all();
		stuck += nodes_of(NULL, NULL) > 0 || objections() > 0;
		scene_end(NULL);
	}
	is_int(stuck, 0, "two that want the same names in opposite orders both get them");
}

/* A node that was first early is deleted by hand while another node still waits. */
static void
test_array_checked(void)
{
	Ask		   *b;

	scene_begin(2);
	forget(lock_now(A, "a", X));
	b = ask_all(B, 2, abc, xxx, false);
	fake_run_all();
	is_int(b->status, ZKL_PENDING, "several names wait for the one that is held");
	fake_tree_delete(node_of(B, "b"));
	forget(lock_now(A, "b", X));
	is_int(mode_of(A, "b"), X, "a node removed by hand makes way");
	fake_count(B->client);
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(b->status, ZKL_PENDING, "... and is noticed before the grant");
	reduce(A, "b", NONE);
	fake_run_all();
	is_int(b->status, ZKL_OK, "... which comes when all names are free");
	scene_end("exclusion, with a node removed by hand");
}

static void
test_array_refused(void)
{
	scene_begin(2);
	ask_all(A, 2, abc, xxx, false);
	fake_run_all();
	release_all(A);
	fake_run_all();
	fake_quirks.deny = path_of("c");
	Ask		   *a = ask_all(A, 3, abc, xxx, false);

	fake_run_all();
	is_int(a->status, ZKL_NO_AUTH, "one name refused refuses all");
	is_int(nodes_of(NULL, NULL), 0, "... and nothing is left of the others");
	scene_end(NULL);
}

static void
test_too_many(void)
{
	char		longest[1000];
	ZklLockItem *items = calloc(600, sizeof(ZklLockItem));
	ZklRequest *request;

	scene_begin(0);
	scene_config.max_nodes = 3;
	scene_join(A);
	Ask		   *a = ask_all(A, 3, abc, xxx, false);

	fake_run_all();
	is_int(a->status, ZKL_OK, "as many nodes as allowed are allowed");
	is_int(lock_now(A, "d", X)->status, ZKL_TOO_MANY, "one more is not");
	reduce(A, "a", NONE);
	is_int(lock_now(A, "d", X)->status, ZKL_OK, "a released one makes room");
	scene_end(NULL);

	scene_begin(0);
	scene_config.max_nodes = 100000;
	scene_join(A);
	memset(longest, 'n', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	for (int i = 0; i < 600; i++)
		items[i] = (ZklLockItem) {longest, X, NULL};
	fake_count(A->client);
	request = zkl_lock_request(A->session, items, 600, false, "", 0);
	is_int(zkl_request_status(request), ZKL_TOO_MANY, "paths of more bytes than a packet holds are refused");
	is_int(fake_counted(A->client), 0, "... before anything is sent");
	zkl_request_end(request);
	memset(longest, 'd', sizeof(longest) - 1);
	items[0].name = "a";
	for (int i = 0; i < 600; i++)
		items[i].name = "a";
	request = zkl_lock_request(A->session, items, 600, false, longest, 999);
	is_int(zkl_request_status(request), ZKL_TOO_MANY, "data of more bytes, too");
	zkl_request_end(request);
	free(items);
	scene_end(NULL);
}

static void
test_foreign(void)
{
	char		path[512];

	scene_begin(2);
	forget(lock_now(A, "a", X));
	reduce(A, "a", NONE);
	fake_run_all();
	foreign_node("a", "lease_holder", 99);
	foreign_node("a", "x-12-", 99);
	forget(lock_now(A, "a", X));
	is_int(mode_of(A, "a"), X, "children that nobody knows are ignored");
	reduce(A, "a", NONE);
	fake_run_all();
	strcpy(path, foreign_node("a", "_c_0c8e4c7b-0000-0000-0000-000000000000-lock-", 99));
	Ask		   *a = lock_now(A, "a", S);

	is_int(a->status, ZKL_PENDING, "a Curator mutex is waited for");
	fake_tree_set(path, "__REVOKE__");
	fake_run_all();
	is_int(a->status, ZKL_PENDING, "... also when its data changes");
	is_int(fake_watches(A->client), 1, "... with a watch again");
	strcpy(path, foreign_node("a", "5d6f3a0b4c8e4c7b8d9e0f1a2b3c4d5e__rlock__", 99));
	fake_tree_end_session(99);
	fake_run_all();
	is_int(mode_of(A, "a"), S, "until it leaves");
	scene_end("exclusion, foreign contenders");
}


/*
 * The end of sequence numbers
 */

static void
test_sequence_restart(void)
{
	scene_begin_near_limit(2, SCENE_LIMIT);
	forget(lock_now(A, "a", X));
	is_int(mode_of(A, "a"), X, "the last number is good");
	reduce(A, "a", NONE);
	fake_run_all();
	forget(lock_now(A, "a", X));
	is_int(mode_of(A, "a"), X, "the one above is released, and the lock is created again");
	ok(strstr(node_of(A, "a"), "__WRIT__0000000000") != NULL, "... with numbers from nought");
	is_int(nodes_of(A, NULL), 1, "nothing else is left");
	scene_end("exclusion and tokens, numbers restarted");

	scene_begin_near_limit(2, SCENE_LIMIT);
	forget(lock_now(A, "a", X));
	Ask		   *b = lock_now(B, "a", X);

	is_int(b->status, ZKL_PENDING, "who draws a number too high waits for the queue to drain");
	is_int(nodes_of(B, "a"), 0, "... outside it");
	ZklRequestInfo info;

	zkl_request_info(b->request, &info);
	ok(info.blocked, "... and knows that it waits");
	is_str(info.blocker, "party 0", "... and for whom");
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(mode_of(B, "a"), X, "... and gets the lock");
	scene_end("exclusion and tokens, a drain");

	scene_begin_near_limit(2, SCENE_LIMIT);
	forget(lock_now(A, "a", S));
	forget(lock_now(A, "a", X));
	is_int(mode_of(A, "a"), X, "an upgrade may pass the limit");
	scene_end(NULL);

	scene_begin_near_limit(2, SCENE_LIMIT);
	forget(lock_now(A, "a", X));
	b = lock_now(B, "a", X);
	forget(b);
	fake_run_all();
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "a drain given up leaves nothing");
	scene_end(NULL);
}

/* The answer to the create is lost, and the node is found with its number. */
static void
test_sequence_restart_after_loss(void)
{
	scene_begin_near_limit(2, SCENE_LIMIT);
	forget(lock_now(A, "a", X));
	fake_fault(B->client, fake_counted(B->client) + 1, FAULT_APPLY_DROP);
	lock_now(B, "a", X);
	heal();
	reduce(A, "a", NONE);
	heal();
	ok(strstr(node_of(B, "a"), "__WRIT__0000000000") != NULL,
	   "a number too high is released, also when its answer was lost");
	is_int(mode_of(B, "a"), X, "... and the lock is granted");
	scene_end("exclusion and tokens, a drain after a loss");
}

static void
test_sequence_restart_ends(void)
{
	Ask		   *ask;

	scene_begin_near_limit(2, SCENE_LIMIT);
	forget(lock_now(A, "a", X));
	ask = try_for(B, "a", X);
	fake_run_all();
	is_int(ask->status, ZKL_BUSY, "a try does not wait for the queue to drain");
	reduce(A, "a", NONE);
	fake_run_all();
	ask = try_for(B, "a", X);
	fake_run_all();
	is_int(ask->status, ZKL_OK, "a try gets a free lock, numbers used up or not");
	scene_end("exclusion, try and drain");

	scene_begin_near_limit(2, SCENE_LIMIT);
	foreign_node("a", "lease_holder", 99);
	fake_tree_find(path_of("a"))->counter = SCENE_LIMIT + 1;
	ask = lock_now(B, "a", X);
	is_int(ask->status, ZKL_SEQUENCE_BLOCKED, "foreign children that hold the znode are reported");
	is_int(nodes_of(B, NULL), 0, "... and nothing of ours is left");
	scene_end(NULL);

	scene_begin(2);
	scene_set_number("a", -5);
	forget(lock_now(A, "a", X));
	ok(strstr(node_of(A, "a"), "__WRIT__0000000000") != NULL, "negative numbers are never used");
	scene_end(NULL);

	scene_begin(2);
	scene_set_number("a", INT32_MAX);
	forget(lock_now(A, "a", X));
	ok(strstr(node_of(A, "a"), "__WRIT__0000000000") != NULL, "a counter that sticks is not used");
	scene_end(NULL);

	scene_begin(2);
	scene_set_number("b", ZKL_SEQUENCE_LIMIT + 1);
	ask = ask_all(A, 3, abc, xxx, false);
	fake_run_all();
	is_int(ask->status, ZKL_OK, "one exhausted name among several is created again");
	is_int(nodes_of(A, NULL), 3, "... with one node each");
	scene_end(NULL);
}

/* Of two sessions that wait for a restart, one restarts the numbers; the other queues. */
static void
test_two_sequence_restarts(void)
{
	scene_begin_near_limit(4, SCENE_LIMIT);
	forget(lock_now(A, "a", X));
	lock_now(B, "a", X);
	lock_now(C, "a", X);
	reduce(A, "a", NONE);
	fake_step(A->client);
	while (mode_of(B, "a") != X && fake_step(B->client))
		;
	is_int(mode_of(B, "a"), X, "the quicker of two drainers makes the lock again");
	fake_run_all();
	is_int(nodes_of(C, "a"), 1, "the other queues as soon as the numbers have restarted");
	lock_now(D, "a", X);
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(mode_of(C, "a"), X, "... and is not overtaken by later ones");
	release_all(C);
	fake_run_all();
	is_int(mode_of(D, "a"), X, "... which follow");
	release_all(D);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "nothing is left");
	scene_end("exclusion and tokens, two drainers");
}

int
main(void)
{
	test_array();
	test_try_behind_both();
	test_try_decided_late();
	test_array_modes();
	test_array_no_deadlock();
	test_array_checked();
	test_array_refused();
	test_too_many();
	test_foreign();
	test_sequence_restart();
	test_sequence_restart_after_loss();
	test_sequence_restart_ends();
	test_two_sequence_restarts();
	return done();
}
