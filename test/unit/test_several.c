/*-------------------------------------------------------------------------
 *
 * test_several.c
 *		Promises about several names at once, limits, and the end of sequence numbers.
 *
 * Promise: 1.5
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "letters.h"
#include "play.h"


/* The highest number, ZKL_SEQUENCE_LIMIT, is the next one. */
#define LAST_NUMBER "A lock, A release, all number 2147000000, "

static const Play plays[] = {
	{HERE,
		"several names cost one multi, one list for each, and one read, and are released together",
		"A lock abc, A release, A lock abc, A sends mlllg, A has XXX abc, A token czxid abc, A release, all nodes 0"
	},
	{HERE,
		"a request for several names has one watch, for the only name that another session holds",
		"A lock abc, A release, C lock b, A lock abc, A sends mlllgw"
	},
	{HERE,
		"names that the session shares already keep their tokens",
		"A share b, A lock abc, A has XXX abc, A token czxid abc"
	},
	{HERE,
		"the waiting request shows which name it waits for",
		"A lock abc, A release a, A release c, B lock abc, B behind b/party-0"
	},
	{HERE,
		"no name is granted alone, and a later request for one of them waits behind",
		"C lock b, A lock abc, A is pending, A has 000 abc, B lock a, B is pending,"
		" C release, A has XXX abc, A release, B has X"
	},
	{HERE,
		"an array with upgrades waits for sharers, and is granted as a whole",
		"A share a, A share b, B share a, A lock abc, A is pending, B release, A has XXX abc"
	},
	{HERE,
		"an attempt for several names that fails for one of them leaves no node",
		"A share c, A lock b, B tryshare abc, B is busy, B nodes 0, B share a, B has S a"
	},
	{HERE,
		"a refused name refuses the whole request, which leaves no node",
		"A lock ab, A release, all deny /zklock/locks/c, A lock abc, A is no-auth, all nodes 0"
	},
	{HERE,
		"an attempt for several names is refused because of one, although the released node of another still exists",
		"A join tag=7, C join tag=7, A lock a, B lock b, C try abc, C is busy"
	},
	{HERE,
		"the greatest allowed number of nodes is granted, and one more after a release",
		"A join nodes=3, A lock abc, A is ok, A lock d, A is too-many, A release a, A lock d, A is ok"
	},
	{HERE,
		"the last sequence number can be held; what draws one beyond the limit fails, and leaves no node",
		LAST_NUMBER "A lock, A has X, B lock, B is used-up, B nodes 0, A nodes 1, B tryshare, B is used-up, B nodes 0"
	},
	{HERE,
		"the first request after the queue was empty fails, too, and deletes the znode: the numbers start again",
		LAST_NUMBER "A lock, A release, B lock, B is used-up, B lock, B is ok, B named __WRIT__0000000000, B nodes 1"
	},
	{HERE,
		"an upgrade may use a number beyond the limit",
		LAST_NUMBER "A share, A lock, A has X"
	},
	{HERE,
		"a request beyond the limit fails, even if the answer to its create was lost",
		LAST_NUMBER "A lock, B fault apply-and-drop, B lock, B connect, B is used-up, B nodes 0"
	},
	{HERE,
		"a negative number is never used",
		"A lock, A release, all number -5, A lock, A is used-up, A lock, A is ok"
	},
	{HERE,
		"nor is the greatest one",
		"A lock, A release, all number 2147483647, A lock, A is used-up, A lock, A is ok"
	},
	{HERE,
		"a request for several names fails if one of them has no numbers left, and the next one is granted",
		"A lock b, A release, all number 2147000001 b, A lock abc, A is used-up, A nodes 0, A lock abc, A is ok"
	},
	{HERE,
		"a node that was first and is removed by hand is noticed before the grant",
		"A lock a, A giveup, B lock ab, B is pending, B delete b, A lock b, A has XX ab,"
		" A release a, B is pending, A release b, B has XX ab"
	},
};

/* The server deletes empty containers one after the other, while an array creates them again. */
static void
test_parents_deleted(void)
{
	enum
	{
		N = 8,
		N_DELETES = 25
	};
	char		texts[N][4];
	const char *names[N];
	ZklMode		modes[N];
	int			n_deleted = 0;
	const Ask  *ask;

	scene_begin(1);
	for (int i = 0; i < N; i++)
	{
		snprintf(texts[i], sizeof(texts[i]), "n%d", i);
		names[i] = texts[i];
		modes[i] = X;
	}
	ask = ask_all(A, N, names, modes, false);
	while (fake_step(A->client))
	{
		int			n_found = 0;

		for (int i = 0; i < N; i++)
			n_found += fake_tree_find(path_of(names[i])) != NULL;
		if (n_found == N && n_deleted < N_DELETES && fake_tree_delete(path_of(names[0])) == ZKL_RC_OK)
			n_deleted++;
	}
	is_int(n_deleted, N_DELETES, "a znode of an array was deleted again and again");
	is_int(ask->status, ZKL_OK, "an array is granted although its znode was deleted again and again");
	scene_end("an array whose znodes are deleted");
}

static void
test_too_many(void)
{
	char		longest[1000];
	ZklLockItem *items = calloc(600, sizeof(ZklLockItem));
	ZklRequest *request;

	scene_begin(0);
	scene_config.max_nodes = 100000;
	scene_join(A);
	memset(longest, 'n', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	for (int i = 0; i < 600; i++)
		items[i] = (ZklLockItem) {.name = longest,.mode = X};
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

/* Each name counts towards the limit: one is longer than a packet. */
static void
test_too_long(void)
{
	static char longest[600000];

	memset(longest, 'n', sizeof(longest) - 1);
	scene_begin(1);
	for (int place = 0; place < 3; place++)
	{
		ZklLockItem items[3] = {{.name = "a",.mode = X}, {.name = "b",.mode = X}, {.name = "c",.mode = X}};
		ZklRequest *request;

		items[place].name = longest;
		request = zkl_lock_request(A->session, items, 3, false, "", 0);
		is_int(zkl_request_status(request), ZKL_TOO_MANY, "a name that is longer than a packet is refused at place %d of an array", place);
		zkl_request_end(request);
	}
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
use_numbers_up(void)
{
	play_begin();
	play_act("A lock, A leave, all number 2147000001", true);
}

/* Two requests fail at the same time, in any order of their operations. */
static void
test_numbers_used_up_together(void)
{
	for (int steps = 0; steps < 12; steps++)
	{
		scene_begin(3);
		use_numbers_up();
		ask_for(B, "a", X);
		ask_for(C, "a", X);
		for (int i = 0; i < steps; i++)
			fake_step(B->client);
		fake_run_all();
		for (int i = 1; i < 3; i++)
		{
			give_up_all(&parties[i]);
			release_all(&parties[i]);
		}
		fake_run_all();
		forget(lock_now(A, "a", X));
		if (mode_of(A, "a") != X)
		{
			give_up_all(A);
			forget(lock_now(A, "a", X));
		}
		is_int(mode_of(A, "a"), X, "the lock is granted after two requests drew numbers beyond the limit (%d steps)", steps);
		ok(strstr(node_of(A, "a"), "__WRIT__000000000") != NULL, "the lock is granted with a small number");
		scene_end("exclusion and tokens, two requests without numbers");
	}
}

static void
test_foreign_children(void)
{
	scene_begin(2);
	use_numbers_up();
	foreign_node("a", "lease_holder", 99);
	is_int(lock_now(B, "a", X)->status, ZKL_SEQUENCE_USED_UP, "foreign children keep the numbers");
	ok(fake_tree_find(path_of("a")) != NULL, "foreign children are not deleted");
	is_int(nodes_of(B, NULL), 0, "the session leaves no node");
	scene_end(NULL);
}

int
main(void)
{
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_parents_deleted();
	test_too_many();
	test_too_long();
	test_foreign();
	test_numbers_used_up_together();
	test_foreign_children();
	return done();
}
