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
	is_int(nodes_of(A, "a"), 2, "the upgraded lock keeps its reader node");
	reduce(A, "a", S);
	fake_run_all();
	is_int(nodes_of(A, "a"), 1, "after the upgrade is reduced the lock has one node");
	forget(lock_now(B, "a", S));
	is_int(mode_of(B, "a"), S, "other sessions may share then");
	reduce(A, "a", NONE);
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "no node is left");
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
	is_str(fake_trace(A->client), "clml", "the upgrade first moves up to the writer's place in the queue");
	is_int(mode_of(B, "a"), NONE, "the writer still waits");
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(mode_of(B, "a"), X, "the writer gets the lock next");
	scene_end("exclusion, ahead of a writer");

	scene_begin(3);
	forget(lock_now(A, "a", S));
	lock_now(B, "a", X);
	forget(try_for(A, "a", X));
	fake_run_all();
	is_int(nodes_of(A, "a"), 1, "an attempt to upgrade that is given up leaves the reader node");
	try_for(A, "a", X);
	fake_run_all();
	is_int(mode_of(A, "a"), X, "a non-blocking attempt also upgrades ahead of a waiting writer");
	scene_end("exclusion, attempt to upgrade");
}

/* The writer gives up while the upgrader holds the lock; readers behind it still wait. */
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
	is_int(mode_of(C, "a"), NONE, "readers behind a writer that gives up wait for the upgraded holder");
	lock_now(D, "a", S);
	is_int(mode_of(D, "a"), NONE, "a new reader waits for the upgraded holder");
	reduce(A, "a", S);
	fake_run_all();
	ok(mode_of(C, "a") == S && mode_of(D, "a") == S, "the readers share after the upgrade is reduced");
	scene_end("exclusion, readers behind an upgrade");
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
	is_int(bad, 0, "a writer may give up at any moment: exclusion holds and the upgrade is granted");
}

static void
test_other_sharer(void)
{
	scene_begin(3);
	forget(lock_now(A, "a", S));
	forget(lock_now(B, "a", S));
	Ask		   *a = lock_now(A, "a", X);

	is_int(a->status, ZKL_PENDING, "an upgrade waits for another sharer");
	is_int(mode_of(A, "a"), S, "the upgrading session keeps its shared lock");
	lock_now(C, "a", S);
	is_int(mode_of(C, "a"), NONE, "a new reader waits behind the upgrade");
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(mode_of(A, "a"), X, "the upgrade is granted when the other sharer releases");
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(mode_of(C, "a"), S, "the new reader is granted afterwards");
	scene_end("exclusion, two sharers");

	scene_begin(3);
	forget(lock_now(A, "a", S));
	forget(lock_now(B, "a", S));
	forget(try_for(A, "a", X));
	Ask		   *attempt = try_for(A, "a", X);

	fake_run_all();
	is_int(attempt->status, ZKL_BUSY, "a non-blocking attempt to upgrade does not wait for another sharer");
	is_int(nodes_of(A, "a"), 1, "the failed attempt leaves the reader node");
	ok(!zkl_lock_is_lost(hold_of(A, "a")->lock), "the reader node is still held");
	scene_end("exclusion, attempt among sharers");
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
	is_int(nodes_of(A, "a"), 1, "an upgrade that is given up leaves the reader node");
	reduce(A, "a", NONE);
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(mode_of(C, "a"), X, "the waiting writer then gets the lock");
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
	   writer_waits ? ", with a waiting writer" : "");
	Party	   *victim = a->status == ZKL_DEADLOCK ? A : B;
	Party	   *other = victim == A ? B : A;

	is_int(mode_of(victim, "a"), S, "the victim keeps its shared lock");
	is_int(nodes_of(victim, "a"), 1, "the victim has one node");
	is_int(mode_of(other, "a"), S, "the other session waits");
	reduce(victim, "a", NONE);
	fake_run_all();
	is_int(mode_of(other, "a"), X, "the other session gets the lock after the victim's release");
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
	is_str(fake_trace(A->client), "m", "a downgrade costs one multi");
	is_int(nodes_of(A, "a"), 1, "a downgraded lock has one node");
	is_str(strstr(node_of(A, "a"), "__READ__") + 8, number, "the node keeps its number");
	is_int(mode_of(B, "a"), S, "the reader behind the downgraded lock is granted");
	ok(mode_of(C, "a") == NONE && mode_of(D, "a") == NONE, "the writer and the session behind it still wait");
	ok(!zkl_lock_is_lost(hold_of(A, "a")->lock), "the downgraded lock is held");
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(mode_of(C, "a"), NONE, "a writer waits while the downgraded holder shares");
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(mode_of(C, "a"), X, "the writer is granted afterwards");
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
	is_int(nodes_of(A, "a"), 0, "the lock is released");
	is_int(mode_of(B, "a"), X, "the waiting writer gets the lock");
	scene_end("exclusion, downgrade and upgrade");

	scene_begin(3);
	forget(lock_now(A, "a", X));
	lock_now(C, "a", S);
	reduce(A, "a", S);
	lock_now(A, "a", X);
	is_int(mode_of(A, "a"), S, "an upgrade immediately after the downgrade waits for the admitted reader");
	reduce(C, "a", NONE);
	fake_run_all();
	is_int(mode_of(A, "a"), X, "the upgrade is granted after the reader's release");
	scene_end("exclusion, downgrade and immediate upgrade");

	scene_begin(2);
	forget(lock_now(A, "a", X));
	reduce(A, "a", S);
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "a downgrade and an immediate release leave no node");
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
	ok(strstr(node_of(B, "a"), "__lock__") != NULL, "the node of a kazoo writer has kazoo's name");
	lock_now(A, "a", S);
	lock_now(C, "a", X);
	reduce(B, "a", S);
	fake_run_all();
	ok(strstr(node_of(B, "a"), "__rlock__") != NULL, "the node of a downgraded kazoo writer has the name of a kazoo reader");
	ok(mode_of(A, "a") == S && mode_of(C, "a") == NONE, "locks with different node names share and exclude each other");
	forget(lock_now(B, "a", X));
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(mode_of(B, "a"), S, "(a request that was ended is not granted)");
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(mode_of(C, "a"), X, "a Curator mutex is granted next");
	is_int(lock_now(C, "b", S)->status, ZKL_NOT_SUPPORTED, "a Curator mutex has no shared mode");
	reduce(C, "a", S);
	fake_run_all();
	is_int(lock_now(A, "a", S)->status, ZKL_PENDING, "the downgrade of a Curator mutex admits no reader");
	reduce(C, "a", NONE);
	fake_run_all();
	is_int(mode_of(A, "a"), S, "the reader is granted after the release");
	scene_end("exclusion between node names");
}

/* The reader node below an upgrade was deleted by hand. */
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

	is_int(mode_of(B, "a"), X, "a session whose node was deleted by hand does not block others");
	ok(a->status != ZKL_OK || zkl_lock_is_lost(hold_of(A, "a")->lock),
	   "an upgrade detects that its reader node is gone");
	scene_end(NULL);
}

/*
 * A writer that was given up but not deleted yet still blocks readers, including
 * readers of its own session: another session's upgrade relies on this.
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
	is_int(nodes_of(B, "a"), 2, "a writer that was given up may exist for a while");
	lock_now(A, "a", X);
	heal();
	is_int(nodes_of(B, "a"), 1, "this writer is deleted afterwards");
	is_int((mode_of(A, "a") == X) + (mode_of(B, "a") == S), 1,
		   "either the reader of its session or the other session's upgrade is granted");
	if (mode_of(A, "a") == X)
		reduce(A, "a", NONE);
	else
		reduce(B, "a", NONE);
	heal();
	is_int((mode_of(A, "a") == X) + (mode_of(B, "a") == S), 1, "the other of the two is granted next");
	scene_end("exclusion, a reader beside a released writer of its session");
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
