/*-------------------------------------------------------------------------
 *
 * test_modes.c
 *		Promises about holding several modes: upgrade and downgrade.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "scene.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];
static Party *const D = &parties[3];

static void
test_sole_sharer(void)
{
	scene_begin(3);
	forget(lock_now(A, "a", S));
	forget(lock_now(A, "a", X));
	is_int(mode_of(A, "a"), X, "a sole sharer upgrades at once");
	is_int(nodes_of(A, "a"), 2, "... keeping its reader node");
	reduce(A, "a", S);
	fake_run_all();
	is_int(nodes_of(A, "a"), 1, "back to sharing, it has one node");
	forget(lock_now(B, "a", S));
	is_int(mode_of(B, "a"), S, "... and others may share");
	reduce(A, "a", NONE);
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "nothing is left");
	forget(lock_now(A, "a", S));
	forget(lock_now(A, "a", X));
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "an upgraded lock can be released at once");
	scene_end("exclusion, sole sharer");
}

static void
test_ahead_of_writer(void)
{
	scene_begin(3);
	forget(lock_now(A, "a", S));
	lock_now(B, "a", X);
	fake_count(A->client);
	forget(lock_now(A, "a", X));
	is_int(mode_of(A, "a"), X, "a sole sharer upgrades ahead of a waiting writer");
	is_str(fake_trace(A->client), "clml", "... by moving to its place first");
	is_int(mode_of(B, "a"), NONE, "... which waits on");
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(mode_of(B, "a"), X, "... and gets it next");
	scene_end("exclusion, ahead of a writer");

	scene_begin(3);
	forget(lock_now(A, "a", S));
	lock_now(B, "a", X);
	forget(try_for(A, "a", X));
	fake_run_all();
	is_int(nodes_of(A, "a"), 1, "a try for an upgrade given up leaves the reader node");
	try_for(A, "a", X);
	fake_run_all();
	is_int(mode_of(A, "a"), X, "a try upgrades ahead of a waiting writer, too");
	scene_end("exclusion, try to upgrade");
}

/* The writer gives up while the upgrader holds the lock; readers behind it stay out. */
static void
test_readers_behind_upgrade(void)
{
	scene_begin(4);
	forget(lock_now(A, "a", S));
	Ask		   *b = lock_now(B, "a", X);

	lock_now(C, "a", S);
	lock_now(A, "a", X);
	is_int(mode_of(A, "a"), X, "an upgrade does not wait for readers behind the writer");
	forget(b);
	fake_run_all();
	is_int(mode_of(C, "a"), NONE, "when the writer gives up, readers behind it stay out");
	lock_now(D, "a", S);
	is_int(mode_of(D, "a"), NONE, "... and new ones as well");
	reduce(A, "a", S);
	fake_run_all();
	ok(mode_of(C, "a") == S && mode_of(D, "a") == S, "until the upgrade is reduced");
	scene_end("exclusion, barred readers");
}

/* The same, with the writer leaving after each step of the upgrade. */
static void
test_writer_leaves_meanwhile(void)
{
	int			bad = 0;

	for (int steps = 0; steps < 24; steps++)
	{
		scene_begin(3);
		forget(lock_now(A, "a", S));
		Ask		   *b = lock_now(B, "a", X);

		lock_now(C, "a", S);
		Ask		   *a = ask_for(A, "a", X);

		for (int i = 0; i < steps / 2; i++)
			fake_step(A->client);
		forget(b);
		fake_step(B->client);
		if (steps % 2)
			fake_step(C->client);
		fake_run_all();
		bad += objections() > 0;
		if (a->status == ZKL_PENDING)
			reduce(C, "a", NONE);
		fake_run_all();
		bad += a->status != ZKL_OK;
		scene_end(NULL);
	}
	is_int(bad, 0, "a writer that gives up at any moment neither breaks exclusion nor stops the upgrade");
}

static void
test_other_sharer(void)
{
	scene_begin(3);
	forget(lock_now(A, "a", S));
	forget(lock_now(B, "a", S));
	Ask		   *a = lock_now(A, "a", X);

	is_int(a->status, ZKL_PENDING, "an upgrade waits for another sharer");
	is_int(mode_of(A, "a"), S, "... holding what it had");
	lock_now(C, "a", S);
	is_int(mode_of(C, "a"), NONE, "a new reader waits behind the upgrade");
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(mode_of(A, "a"), X, "it is granted when the other sharer leaves");
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(mode_of(C, "a"), S, "then the reader gets in");
	scene_end("exclusion, two sharers");

	scene_begin(3);
	forget(lock_now(A, "a", S));
	forget(lock_now(B, "a", S));
	forget(try_for(A, "a", X));
	Ask		   *try = try_for(A, "a", X);

	fake_run_all();
	is_int(try->status, ZKL_BUSY, "a try to upgrade does not wait for another sharer");
	is_int(nodes_of(A, "a"), 1, "... and leaves the reader node");
	ok(!zkl_lock_is_lost(hold_of(A, "a")->lock), "... which stays held");
	scene_end("exclusion, try among sharers");
}

static void
test_given_up(void)
{
	scene_begin(4);
	forget(lock_now(A, "a", S));
	forget(lock_now(B, "a", S));
	lock_now(C, "a", X);
	lock_now(D, "a", S);
	forget(lock_now(A, "a", X));
	fake_run_all();
	is_int(nodes_of(A, "a"), 1, "an upgrade given up leaves the reader node");
	reduce(A, "a", NONE);
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(mode_of(C, "a"), X, "... and the writer waiting gets in as if nothing had been");
	scene_end("exclusion, upgrade given up");
}

static void
two_upgraders(bool writer_waits)
{
	Ask		   *a;
	Ask		   *b;

	scene_begin(3);
	forget(lock_now(A, "a", S));
	forget(lock_now(B, "a", S));
	if (writer_waits)
		lock_now(C, "a", X);
	a = ask_for(A, "a", X);
	b = ask_for(B, "a", X);
	fake_run_all();
	ok((a->status == ZKL_DEADLOCK) + (b->status == ZKL_DEADLOCK) == 1,
	   "of two upgraders exactly one gets the deadlock error%s",
	   writer_waits ? ", a writer waiting" : "");
	Party	   *victim = a->status == ZKL_DEADLOCK ? A : B;
	Party	   *other = victim == A ? B : A;

	is_int(mode_of(victim, "a"), S, "... and keeps its shared hold");
	is_int(nodes_of(victim, "a"), 1, "... with one node");
	is_int(mode_of(other, "a"), S, "the other waits");
	reduce(victim, "a", NONE);
	fake_run_all();
	is_int(mode_of(other, "a"), X, "... until the victim has left");
	scene_end("exclusion, two upgraders");
}

static void
test_downgrade(void)
{
	char		number[32];

	scene_begin(4);
	forget(lock_now(A, "a", X));
	lock_now(B, "a", S);
	lock_now(C, "a", X);
	lock_now(D, "a", S);
	strcpy(number, strstr(node_of(A, "a"), "__WRIT__") + 8);
	fake_count(A->client);
	reduce(A, "a", S);
	fake_run_all();
	is_str(fake_trace(A->client), "m", "a downgrade is one step");
	is_int(nodes_of(A, "a"), 1, "it leaves one node");
	is_str(strstr(node_of(A, "a"), "__READ__") + 8, number, "... of the same number");
	is_int(mode_of(B, "a"), S, "the reader behind gets in");
	ok(mode_of(C, "a") == NONE && mode_of(D, "a") == NONE, "the writer and who is behind it do not");
	ok(!zkl_lock_is_lost(hold_of(A, "a")->lock), "the lock stays held");
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(mode_of(C, "a"), NONE, "no writer slips in while the downgraded holder shares");
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(mode_of(C, "a"), X, "then it gets in");
	scene_end("exclusion, downgrade");
}

static void
test_downgrade_and_upgrade(void)
{
	scene_begin(3);
	forget(lock_now(A, "a", X));
	reduce(A, "a", S);
	fake_run_all();
	lock_now(B, "a", X);
	forget(lock_now(A, "a", X));
	is_int(mode_of(A, "a"), X, "a downgraded holder can upgrade again");
	reduce(A, "a", S);
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(nodes_of(A, "a"), 0, "... and leave");
	is_int(mode_of(B, "a"), X, "... to the writer waiting");
	scene_end("exclusion, down and up");

	scene_begin(3);
	forget(lock_now(A, "a", X));
	lock_now(C, "a", S);
	reduce(A, "a", S);
	lock_now(A, "a", X);
	is_int(mode_of(A, "a"), S, "an upgrade right behind the downgrade waits for the reader let in");
	reduce(C, "a", NONE);
	fake_run_all();
	is_int(mode_of(A, "a"), X, "... and is granted then");
	scene_end("exclusion, down and up at once");

	scene_begin(2);
	forget(lock_now(A, "a", X));
	reduce(A, "a", S);
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "downgrade and release in one go leave nothing");
	scene_end(NULL);
}

static void
test_kazoo(void)
{
	scene_begin(1);
	scene_config.node_names = ZKL_NODE_NAMES_KAZOO;
	scene_join(B);
	scene_config.node_names = ZKL_NODE_NAMES_CURATOR_MUTEX;
	scene_join(C);
	forget(lock_now(B, "a", X));
	ok(strstr(node_of(B, "a"), "__lock__") != NULL, "a kazoo writer is named so");
	lock_now(A, "a", S);
	lock_now(C, "a", X);
	reduce(B, "a", S);
	fake_run_all();
	ok(strstr(node_of(B, "a"), "__rlock__") != NULL, "downgraded, it is a kazoo reader");
	ok(mode_of(A, "a") == S && mode_of(C, "a") == NONE, "dialects share and exclude each other");
	forget(lock_now(B, "a", X));
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(mode_of(B, "a"), S, "(a request that was ended is not granted)");
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(mode_of(C, "a"), X, "a Curator mutex follows");
	is_int(lock_now(C, "b", S)->status, ZKL_NOT_SUPPORTED, "it has no shared mode");
	reduce(C, "a", S);
	fake_run_all();
	is_int(lock_now(A, "a", S)->status, ZKL_PENDING, "... so its downgrade lets nobody in");
	reduce(C, "a", NONE);
	fake_run_all();
	is_int(mode_of(A, "a"), S, "... until the release");
	scene_end("exclusion between dialects");
}

/* Promise 5.4: the reader node below an upgrade was deleted by hand. */
static void
test_anchor_deleted(void)
{
	char		path[256];

	scene_begin(3);
	forget(lock_now(A, "a", S));
	strcpy(path, node_of(A, "a"));
	fake_tree_delete(path);
	lock_now(B, "a", X);
	Ask		   *a = lock_now(A, "a", X);

	is_int(mode_of(B, "a"), X, "whose node was deleted by hand does not hold others up");
	ok(a->status != ZKL_OK || zkl_lock_is_lost(hold_of(A, "a")->lock),
	   "an upgrade notices that the node it builds on is gone");
	scene_end(NULL);
}

/*
 * A writer that was given up but not deleted yet still blocks readers, also a
 * reader of its own session: another session's upgrade relies on that.
 */
static void
test_reader_beside_own_writer(void)
{
	scene_begin(3);
	forget(lock_now(A, "a", S));
	Ask		   *b = lock_now(B, "a", X);

	fake_fault(B->client, fake_counted(B->client) + 1, FAULT_REFUSE);
	forget(b);
	lock_now(B, "a", S);
	is_int(nodes_of(B, "a"), 2, "a writer given up may stay for a while");
	lock_now(A, "a", X);
	heal();
	is_int(nodes_of(B, "a"), 1, "... and goes then");
	is_int((mode_of(A, "a") == X) + (mode_of(B, "a") == S), 1,
		   "either the reader of its session got in, or the upgrade elsewhere");
	if (mode_of(A, "a") == X)
		reduce(A, "a", NONE);
	else
		reduce(B, "a", NONE);
	heal();
	is_int((mode_of(A, "a") == X) + (mode_of(B, "a") == S), 1, "... and the other one next");
	scene_end("exclusion, a reader beside its own leaving writer");
}

int
main(void)
{
	test_sole_sharer();
	test_ahead_of_writer();
	test_readers_behind_upgrade();
	test_writer_leaves_meanwhile();
	test_other_sharer();
	test_given_up();
	two_upgraders(false);
	two_upgraders(true);
	test_downgrade();
	test_downgrade_and_upgrade();
	test_kazoo();
	test_reader_beside_own_writer();
	test_anchor_deleted();
	return done();
}
