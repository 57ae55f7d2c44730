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

#include "play.h"

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

static bool
is_woken(const Party *party)
{
	struct pollfd fd = {zkl_session_fd(party->session), POLLIN, 0};

	return poll(&fd, 1, 0) == 1;
}

static const Play plays[] = {
	{
		"several names cost one multi, one list for each, and one read, and are released together",
		"A lock abc, A release, A lock abc, A sends mlllg, A has XXX abc, A release, all nodes 0"
	},
	{
		"a request for several names has one watch, for the only name that another session holds",
		"A lock abc, A release, C lock b, A lock abc, A sends mlllgw"
	},
	{
		"no name is granted alone, and a later request for one of them waits behind",
		"C lock b, A lock abc, A is pending, A has 000 abc, B lock a, B is pending,"
		" C release, A has XXX abc, A release, B has X"
	},
	{
		"an array with upgrades waits for sharers, and is granted as a whole",
		"A share a, A share b, B share a, A lock abc, A is pending, B release, A has XXX abc"
	},
	{
		"an attempt for several names that fails for one of them leaves no node",
		"A share c, A lock b, B tryshare abc, B is busy, B nodes 0, B share a, B has S a"
	},
	{
		"a node that was first and is removed by hand is noticed before the grant",
		"A lock a, A giveup, B lock ab, B is pending, B delete b, A lock b, A has XX ab,"
		" A release a, B is pending, A release b, B has XX ab"
	},
};

static void
test_array(void)
{
	ZklRequestInfo info;

	scene_begin(2);
	ask_all(A, 3, abc, xxx, false);
	fake_run_all();
	ok(token_of(A, "a") > 0 && token_of(A, "a") == token_of(A, "b") &&
	   token_of(A, "b") == fake_tree_find(node_of(A, "b"))->czxid,
	   "the tokens of several names are the multi's transaction id");
	reduce(A, "a", NONE);
	reduce(A, "c", NONE);
	Ask		   *b = ask_all(B, 3, abc, xxx, false);

	fake_run_all();
	zkl_request_info(b->request, &info);
	is_int(info.culprit, 1, "the waiting request shows which name it waits for");
	scene_end("exclusion, several names");
}

/* Names that the session shares already keep their tokens. */
static void
test_array_tokens(void)
{
	scene_begin(1);
	forget(lock_now(A, "b", S));
	ask_all(A, 3, abc, xxx, false);
	fake_run_all();
	ok(token_of(A, "c") > token_of(A, "b"), "each name keeps its own token");
	scene_end(NULL);
}

/* "a" was released on this server, so its node will be deleted; "b" is held elsewhere. */
static void
test_attempt_behind_both(void)
{
	Ask		   *ask;

	scene_begin(3);
	lock_now(A, "a", X);
	lock_now(B, "b", X);
	scene_neighbour = fake_session_id(A->client);
	ask = ask_all(C, 3, abc, xxx, true);
	fake_run_all();
	is_int(ask->status, ZKL_BUSY,
		   "an attempt for several names is refused because of one name, although the released node of another name still exists");
	scene_neighbour = 0;
	scene_end("exclusion, an attempt for several names");
}

/* The owner decided about C's contender, but meanwhile B's is the first one. */
static void
test_attempt_decided_late(void)
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
	ok(info.is_refused && info.refused_by == c, "an attempt is refused by the contender before it");
	zkl_request_wait(request, c);
	fake_run_all();
	zkl_session_receive(A->session);
	fake_count(A->client);
	give_up_all(C);
	fake_run_all();
	zkl_request_info(request, &info);
	ok(info.is_refused && info.refused_by == b, "an attempt is then refused by another contender");
	is_int(is_woken(A), 1, "the owner is woken for the other contender");
	is_str(fake_trace(A->client), "sl", "the other contender is not watched");
	zkl_request_wait(request, c);
	fake_run_all();
	is_str(fake_trace(A->client), "sl", "the other contender is not watched after a late decision to wait for the first one");
	zkl_request_refuse(request, c);
	is_int(zkl_request_status(request), ZKL_PENDING, "a late refusal has no effect");
	zkl_request_refuse(request, b);
	is_int(zkl_request_status(request), ZKL_BUSY, "a refusal in time ends the attempt");
	zkl_request_end(request);
	fake_run_all();
	is_int(nodes_of(A, "a"), 0, "the refused attempt leaves no node");
	scene_end("exclusion, a late decision about an attempt");
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
	is_int(stuck, 0, "two requests for the same names in opposite orders are both granted");
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
	is_int(a->status, ZKL_NO_AUTH, "a refused name refuses the whole request");
	is_int(nodes_of(NULL, NULL), 0, "the refused request leaves no node");
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
	is_int(a->status, ZKL_OK, "the greatest allowed number of nodes is granted");
	is_int(lock_now(A, "d", X)->status, ZKL_TOO_MANY, "one more node is refused");
	reduce(A, "a", NONE);
	is_int(lock_now(A, "d", X)->status, ZKL_OK, "one more node is granted after a release");
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
	is_int(zkl_request_status(request), ZKL_TOO_MANY, "paths of more bytes than fit into a packet are refused");
	is_int(fake_counted(A->client), 0, "these paths are refused before a request is sent");
	zkl_request_end(request);
	memset(longest, 'd', sizeof(longest) - 1);
	items[0].name = "a";
	for (int i = 0; i < 600; i++)
		items[i].name = "a";
	request = zkl_lock_request(A->session, items, 600, false, longest, 999);
	is_int(zkl_request_status(request), ZKL_TOO_MANY, "data of more bytes than fit into a packet are refused");
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
	is_int(mode_of(A, "a"), X, "children of unknown names are ignored");
	reduce(A, "a", NONE);
	fake_run_all();
	strcpy(path, foreign_node("a", "_c_0c8e4c7b-0000-0000-0000-000000000000-lock-", 99));
	Ask		   *a = lock_now(A, "a", S);

	is_int(a->status, ZKL_PENDING, "a session waits for Curator's mutex");
	fake_tree_set(path, "__REVOKE__");
	fake_run_all();
	is_int(a->status, ZKL_PENDING, "the session still waits when the mutex's data change");
	is_int(fake_watches(A->client), 1, "the session watches the mutex again");
	strcpy(path, foreign_node("a", "5d6f3a0b4c8e4c7b8d9e0f1a2b3c4d5e__rlock__", 99));
	fake_tree_end_session(99);
	fake_run_all();
	is_int(mode_of(A, "a"), S, "the lock is granted when the mutex is released");
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
	is_int(mode_of(A, "a"), X, "the last sequence number can be held");
	reduce(A, "a", NONE);
	fake_run_all();
	forget(lock_now(A, "a", X));
	is_int(mode_of(A, "a"), X, "a number beyond the limit is released, and the lock's znode is created again");
	ok(strstr(node_of(A, "a"), "__WRIT__0000000000") != NULL, "the numbers start again from zero");
	is_int(nodes_of(A, NULL), 1, "no other node is left");
	scene_end("exclusion and tokens, numbers restarted");

	scene_begin_near_limit(2, SCENE_LIMIT);
	forget(lock_now(A, "a", X));
	Ask		   *b = lock_now(B, "a", X);

	is_int(b->status, ZKL_PENDING, "a session that got a number beyond the limit waits for the sequence restart");
	is_int(nodes_of(B, "a"), 0, "this session has no node in the queue");
	ZklRequestInfo info;

	zkl_request_info(b->request, &info);
	ok(info.blocked, "this session's request shows that it waits");
	is_str(info.blocker, "party 0", "this session's request shows the holder");
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(mode_of(B, "a"), X, "this session gets the lock after the restart");
	scene_end("exclusion and tokens, a sequence restart");

	scene_begin_near_limit(2, SCENE_LIMIT);
	forget(lock_now(A, "a", S));
	forget(lock_now(A, "a", X));
	is_int(mode_of(A, "a"), X, "an upgrade may use a number beyond the limit");
	scene_end(NULL);

	scene_begin_near_limit(2, SCENE_LIMIT);
	forget(lock_now(A, "a", X));
	b = lock_now(B, "a", X);
	forget(b);
	fake_run_all();
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "a request given up during a sequence restart leaves no node");
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
	   "a number beyond the limit is released, even if the answer to its create was lost");
	is_int(mode_of(B, "a"), X, "the lock is granted after the lost answer");
	scene_end("exclusion and tokens, a sequence restart after a lost answer");
}

static void
test_sequence_restart_ends(void)
{
	Ask		   *ask;

	scene_begin_near_limit(2, SCENE_LIMIT);
	forget(lock_now(A, "a", X));
	ask = try_for(B, "a", X);
	fake_run_all();
	is_int(ask->status, ZKL_BUSY, "a non-blocking attempt does not wait for the sequence restart");
	reduce(A, "a", NONE);
	fake_run_all();
	ask = try_for(B, "a", X);
	fake_run_all();
	is_int(ask->status, ZKL_OK, "a non-blocking attempt gets a free lock whose numbers are used up");
	scene_end("exclusion, an attempt and a sequence restart");

	scene_begin_near_limit(2, SCENE_LIMIT);
	foreign_node("a", "lease_holder", 99);
	fake_tree_find(path_of("a"))->counter = SCENE_LIMIT + 1;
	ask = lock_now(B, "a", X);
	is_int(ask->status, ZKL_SEQUENCE_BLOCKED, "foreign children that prevent the sequence restart are reported");
	is_int(nodes_of(B, NULL), 0, "the session leaves no node");
	scene_end(NULL);

	scene_begin(2);
	scene_set_number("a", -5);
	forget(lock_now(A, "a", X));
	ok(strstr(node_of(A, "a"), "__WRIT__0000000000") != NULL, "negative numbers are never used");
	scene_end(NULL);

	scene_begin(2);
	scene_set_number("a", INT32_MAX);
	forget(lock_now(A, "a", X));
	ok(strstr(node_of(A, "a"), "__WRIT__0000000000") != NULL, "the number of a counter that is stuck is never used");
	scene_end(NULL);

	scene_begin(2);
	scene_set_number("b", ZKL_SEQUENCE_LIMIT + 1);
	ask = ask_all(A, 3, abc, xxx, false);
	fake_run_all();
	is_int(ask->status, ZKL_OK, "a request for several names restarts the sequence of one of them");
	is_int(nodes_of(A, NULL), 3, "the request has one node for each name");
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
	is_int(mode_of(B, "a"), X, "the faster of two sessions restarts the sequence");
	fake_run_all();
	is_int(nodes_of(C, "a"), 1, "the slower session queues as soon as the sequence has restarted");
	lock_now(D, "a", X);
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(mode_of(C, "a"), X, "later sessions do not overtake the slower session");
	release_all(C);
	fake_run_all();
	is_int(mode_of(D, "a"), X, "the later session is granted afterwards");
	release_all(D);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "no node is left");
	scene_end("exclusion and tokens, two sessions that restart a sequence");
}

int
main(void)
{
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_array();
	test_array_tokens();
	test_attempt_behind_both();
	test_attempt_decided_late();
	test_array_no_deadlock();
	test_array_refused();
	test_too_many();
	test_foreign();
	test_sequence_restart();
	test_sequence_restart_after_loss();
	test_sequence_restart_ends();
	test_two_sequence_restarts();
	return done();
}
