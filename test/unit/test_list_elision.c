/*-------------------------------------------------------------------------
 *
 * test_list_elision.c
 *		Promises about locks that are acquired repeatedly: when a children list can
 *		be left out.
 *
 * Promise: 1.1
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "letters.h"
#include "play.h"


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

/* From now on A needs no list. */
#define THRICE "A lock, A release, A lock, A release, A lock, A release, "

static const Play plays[] = {
	{HERE,
		"the first node in a new queue needs no list, in any mode",
		"A lock, A has X, A sends clcccccc, A lock b, A sends clcc, A share c, A sends clcc, A has XXS abc"
	},
	{HERE,
		"a session that finds another one's node in a new queue waits for it",
		"A lock b, A release b, A lock, B lock, B sends clw, B is pending, A release, B has X"
	},
	{HERE,
		"a lock without other contenders needs no list from the fourth time on, in any mode",
		"A lock, A release, A lock, A sends cl, A release, A lock, A release, A lock, A has X, A sends c,"
		" A release, A share, A has S, A sends c, A release, A lock, A sends c"
	},
	{HERE,
		"a contender that queued in between is waited for: a list finds it, and the next one is sent at once",
		THRICE "B lock, A lock, A is pending, A sends clw, B release, A has X,"
		" A release, A lock, A sends cl"
	},
	{HERE,
		"without a list the token is the node's czxid, too",
		THRICE "A lock, A sends c, A token czxid"
	},
	{HERE,
		"two names need lists at first, then the transaction's id suffices, which is the token of both",
		"A lock ab, A release ab, A lock ab, A sends mllg, A release ab, A lock ab, A sends mllg, A release ab,"
		" A lock ab, A sends mllg, A release ab, A lock ab, A sends mg, A has XX ab, A token czxid ab"
	},
	{HERE,
		"of two names, the queue of the one that another session holds is listed",
		"A lock ab, A release ab, A lock ab, A release ab, A lock ab, A release ab, A lock ab, A release ab, A lock ab, A release ab,"
		" B lock b, A lock ab, A is pending, A sends mlgw, B release, A is ok"
	},
	{HERE,
		"a late answer grants nothing, and a node that is deleted meanwhile is not granted: the next one has the lock",
		THRICE "A lock!, A apply!, all stall! 2000, A deliver!, A is pending, A disconnect, A delete, B lock,"
		" A connect, A is pending, B has X"
	},
	{HERE,
		"a late answer grants nothing in an array, of which one name is proven to be first, when the connection is lost with the other's list",
		"B lock, B release, B lock, B release, A lock! ab, A until! g, A disconnect, A delete b, B lock b, A connect,"
		" A is pending, B has X b"
	},
	{HERE,
		"a contender that has gone again is not waited for",
		THRICE "B lock, B release, A lock, A has X"
	},
	{HERE,
		"a sharer before the session's own last node is waited for",
		THRICE "B share, A share, A release, A lock, A is pending"
	},
	{HERE,
		"a sharer that needed a list sends it at once the next time",
		THRICE "B lock z, B release z, B lock z, B release z, B lock z, B release z, A share, A has S, A sends cl,"
		" A release, A share!, A sends cl"
	},
	{HERE,
		"an attempt that was refused sends the list at once the next time",
		THRICE "B lock, A try, A is busy, A try!, A sends cl"
	},
	{HERE,
		"a kept lock that was taken again needs no list later",
		"A keep, A lock, A release, A leavekept, A lock, A release, A leavekept, A lock, A release, A leavekept,"
		" A lock, A release, A lock, A release, A leavekept, A lock!, A sends c"
	},
	{HERE,
		"after a reconnect the list is sent",
		THRICE "A disconnect!, A connect, A lock, A sends cl"
	},
};

/*
 * In one transaction, replaces the container of A's lock, as a server that lost it would; then
 * another program creates so many nodes in it.
 */
static void
renew_container(const char *name, int n_nodes)
{
	char		old[256];
	char		child[256];
	ZklOp		ops[] = {
		{.kind = ZKL_OP_DELETE, .path = old},
		{.kind = ZKL_OP_DELETE, .path = path_of(name)},
		{.kind = ZKL_OP_CREATE, .path = path_of(name), .create_kind = ZKL_CREATE_CONTAINER},
		{.kind = ZKL_OP_CREATE, .path = child, .create_kind = ZKL_CREATE_EPHEMERAL_SEQUENTIAL},
	};
	ZklResultCode codes[4];
	char	   *paths[4];

	snprintf(old, sizeof(old), "%s", node_of(A, name));
	snprintf(child, sizeof(child), "%s/lock-", path_of(name));
	is_int(fake_tree_multi(ops, 4, 77, codes, paths), ZKL_RC_OK, "(a new container is created)");
	for (int i = 0; i < 4; i++)
		free(paths[i]);
	for (int i = 1; i < n_nodes; i++)
		foreign_node(name, "lock-", 77);
	release(A);
}

/* The fewest transactions in which another container can have reached the same number. */
static void
test_renewed(void)
{
	for (int times = 2; times < 6; times++)
	{
		scene_begin(1);
		acquire_repeatedly(A, "a", times);
		forget(lock_now(A, "a", X));
		renew_container("a", times + 1);
		is_int(lock_now(A, "a", X)->status, ZKL_PENDING,
			   "a new container that has counted to %d is distinguished from the old one", times + 1);
		scene_end("exclusion, container renewed");
	}

	scene_begin(1);
	for (int i = 0; i < 3; i++)
	{
		release(A);
		ask_all(A, 2, ab, xx, false);
		fake_run_all();
	}
	renew_container("a", 3);
	ask_all(A, 2, ab, xx, false);
	fake_run_all();
	ok(pending_of(A) != NULL, "a lock that is not proven to be first waits for its list also in an array");
	scene_end("exclusion, container renewed, array");
}

static void
test_answer_lost(void)
{
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
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_renewed();
	test_answer_lost();
	test_limit();
	test_many();
	return done();
}
