/*-------------------------------------------------------------------------
 *
 * test_lock.c
 *		Promises about one lock in a healthy ensemble.
 *
 * Promises: 1.1, 2.1, 2.2
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "letters.h"
#include "play.h"

/* Does this lock's znode exist, as a container? */
static bool
is_container(const char *name)
{
	FakeNode   *node = fake_tree_find(path_of(name));

	return node && node->container;
}

static void
test_containers(void)
{
	scene_begin(1);
	lock_now(A, "a", X);
	ok(is_container("a"), "the lock's znode is a container");
	ok(!fake_tree_find("/zklock")->container && !fake_tree_find(SCENE_LOCKS)->container,
	   "the parents above are no containers");
	scene_end(NULL);
}

static void
test_no_chroot(void)
{
	scene_begin(1);
	fake_quirks.no_chroot = true;
	is_int(lock_now(A, "a", X)->status, ZKL_NO_CHROOT, "a missing chroot is reported");
	scene_end(NULL);
}

/* A and B are of one server. */
#define TAGS "A join tag=7, B join tag=7, C join tag=8, "

static const Play plays[] = {
	{HERE,
		"create and list are sent together; the lock's znode is created, then all missing parents",
		"A lock!, A sends cl, all pass 0, A sends clcccccc, A has X, A release, all nodes 0,"
		" B lock b, B sends clcc, B release b, A lock, A sends cl, A token czxid, A named __WRIT__0000000001,"
		" A release, A sends d"
	},
	{HERE,
		"each waiter sends three requests, watches one node, and shows its predecessor; a release wakes only the next",
		"A lock, B lock, C lock, D lock, B is pending, B watches 1, C watches 1, D watches 1, C sends clw,"
		" C behind a/party-1, A release, B has X, C has 0, B behind none/any-more, B sends clwl, C sends clw, D sends clw"
	},
	{HERE,
		"tokens grow, although the numbers restart with a new container",
		"A lock, A release, all reap, B lock, B named __WRIT__0000000000, B release, all reap, A lock,"
		" A named __WRIT__0000000000, A release, all reap, B lock, B token czxid"
	},
	{HERE,
		"an upgrade keeps the token, also when it is reduced; so does a downgrade",
		"A share, A lock, A token czxid, A downgrade, A token czxid, A release, A lock, A note, A downgrade, A token noted,"
		" B share, B token czxid"
	},
	{HERE,
		"readers share, a writer waits for all of them, and a reader behind the writer",
		"A share, B share, A has S, B has S, C lock, C is pending, D share, D is pending,"
		" A release, C has 0, B release, C has X, C release, D has S"
	},
	{HERE,
		"a release admits all readers at the head of the queue, and no writer",
		"A lock, B share, C share, D lock, A release, B has S, C has S, D has 0"
	},
	{HERE,
		"a non-blocking attempt gets a free lock; behind a holder it leaves no node and no watch",
		"A try!, A is pending, A giveup, A try, A has X, B tryshare, B is busy, B nodes 0, B watches 0"
	},
	{HERE,
		"a non-blocking attempt for sharing does not pass a waiting writer",
		"A share, B lock, C tryshare, C is busy"
	},
	{HERE,
		"a waiter whose node another client deleted does not block others",
		"A lock, B lock, C lock, B delete, B is pending, A release, C has X"
	},
	{HERE,
		"this waiter queues again with one node",
		"A lock, B lock, B delete, A release, B has X, B nodes 1"
	},
	{HERE,
		"a session that releases and requests again queues behind a waiter",
		"A lock, A giveup, B lock, A release!, A lock, B has X, A is pending, B release, A has X"
	},
	{HERE,
		"a request that ends before its answers leaves no node",
		"A lock!, A giveup, all nodes 0"
	},
	{HERE,
		"a request that ends after its grant keeps the lock, and a failed attempt leaves no node",
		"A lock, A giveup, A nodes 1, B try, B giveup, B nodes 0"
	},
	{HERE,
		"a lock may be released before its request ends",
		"A lock, A release, A giveup, all nodes 0"
	},
	{HERE,
		"an attempt waits for a node of its server, which is a pending delete; one of another server fails, after"
		" one more list behind a sync",
		TAGS "A lock, B try, B is pending, B sends clw, C try, C is busy, C sends clsld, A release, B is ok"
	},
	{HERE,
		"an attempt whose owner says that no delete is pending looks once more behind a sync, and fails",
		TAGS "A lock, B try, B is pending, B again, B sends sld, B is busy, B nodes 0"
	},
	{HERE,
		"an attempt whose owner says so gets a lock that is free by then",
		TAGS "A lock, B try!, B pass 0, A release!, B again, B is ok"
	},
	{HERE,
		"an attempt waits for a waiter of its server that is about to give up",
		TAGS "C share, A lock, B tryshare, B is pending, A giveup, B is ok"
	},
	{HERE,
		"an attempt fails if another server holds the lock when its server's node is gone",
		TAGS "C share, A lock, B try, B is pending, A giveup, B is busy"
	},
	{HERE,
		"a refused create of the root is reported",
		"all deny /zklock, A lock, A is no-auth"
	},
	{HERE,
		"the session needs no permission to create a root that exists",
		"A lock x, all denyexactly /zklock, A lock, A is ok"
	},
	{HERE,
		"a refused create of the node is reported, and leaves no node",
		"A lock x, all deny /zklock/locks/a, A lock, A is no-auth, A giveup, A nodes 1"
	},
	{HERE,
		"a container that is removed before the create is created again, and may be deleted with its last node",
		"A lock, A release, A lock!, all reap, A has X, A release!, A apply!, all reap, all nodes 0"
	},
	{HERE,
		"a waiter that gives up leaves no node, and is passed over",
		"A lock, B lock, C lock, B giveup, B nodes 0, A release, C has X"
	},
};

/* Nodes of sessions of an earlier version, whose names have no server tag. */
static void
test_attempt_old_names(void)
{
	static const char *const old[] = {
		"_c_01000000-abcd-0001-0000-000000000007-__WRIT__",
		"_c_01000000-abcd-0001-0000-000000000007-lock-",
		"01000000abcd00010000000000000007__lock__",
	};

	for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++)
	{
		char		made[256];
		Ask		   *b;

		scene_begin(2);
		forget(lock_now(A, "a", X));
		reduce(A, "a", NONE);
		fake_run_all();
		strcpy(made, foreign_node("a", old[i], 99));
		b = try_for(B, "a", X);
		fake_run_all();
		is_int(b->status, ZKL_BUSY, "a node of an earlier version refuses an attempt: %s", old[i]);
		give_up_all(B);
		b = lock_now(B, "a", X);
		is_int(b->status, ZKL_PENDING, "a node of an earlier version keeps a waiter waiting");
		fake_tree_delete(made);
		fake_run_all();
		is_int(b->status, ZKL_OK, "a waiter is granted the lock when the node of an earlier version is gone");
		scene_end("exclusion, with an earlier version");
	}
}

static void
test_ending_before_connection(void)
{
	scene_begin(0);
	scene_open(A);
	ask_for(A, "a", X);
	is_int(fake_counted(A->client), 0, "nothing is sent before the session is connected");
	fake_connect(A->client);
	fake_run_all();
	is_int(mode_of(A, "a"), X, "the request starts when the session is connected");
	scene_end(NULL);

	scene_begin(0);
	scene_open(A);
	forget(ask_for(A, "a", X));
	fake_connect(A->client);
	fake_run_all();
	is_int(fake_counted(A->client), 0, "a request that ends before the session is connected never starts");
	scene_end(NULL);
}

/*
 * The grant comes after the owner's last status check and before zkl_request_end(),
 * as in a cancel: a grant that the owner has not seen must not stay held.
 */
static void
test_ending_unseen(void)
{
	ZklLockItem item = {.name = "a",.mode = X};
	ZklRequest *request;

	scene_begin(2);
	request = zkl_lock_request(A->session, &item, 1, false, "", 0);
	fake_run_all();
	zkl_request_end(request);
	fake_run_all();
	is_int(nodes_of(A, "a"), 0, "a request that is granted and ends before its owner has looked leaves no node");

	forget(lock_now(A, "b", S));
	item.name = "b";
	item.held = hold_of(A, "b")->lock;
	request = zkl_lock_request(A->session, &item, 1, false, "", 0);
	fake_run_all();
	zkl_request_end(request);
	fake_run_all();
	is_int(nodes_of(A, "b"), 1, "an upgrade that ends unseen keeps the shared lock");
	is_int(lock_now(B, "b", S)->status, ZKL_OK, "other sessions may share this lock");
	scene_end("exclusion, grants not seen");
}

/* The answers to the create and to the first list that searches for the node are lost. */
static void
test_ending_unknown(void)
{
	static const FakeFault faults[] = {FAULT_REFUSE, FAULT_THROTTLE, FAULT_OTHER, FAULT_DROP};

	for (int i = 0; i < 8; i++)
	{
		scene_begin(1);
		forget(lock_now(A, "a", X));
		release_all(A);
		fake_run_all();
		fake_count(A->client);
		fake_fault(A->client, 1, FAULT_APPLY_DROP);
		Ask		   *ask = lock_now(A, "a", X);

		forget(ask);
		fake_count(A->client);
		fake_fault(A->client, 1 + i / 4, faults[i % 4]);
		heal();
		is_int(nodes_of(A, NULL), 0, "a node whose create had no answer is found and deleted (%s)",
			   fake_fault_name(faults[i % 4]));
		scene_end(NULL);
	}
}

int
main(void)
{
	test_containers();
	test_no_chroot();
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_attempt_old_names();
	test_ending_before_connection();
	test_ending_unseen();
	test_ending_unknown();
	return done();
}
