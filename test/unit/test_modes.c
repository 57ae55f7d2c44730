/*-------------------------------------------------------------------------
 *
 * test_modes.c
 *		Promises about holding several modes: upgrade and downgrade.
 *
 * Promises: 1.3, 1.4
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "letters.h"
#include "play.h"

static const Play plays[] = {
	{HERE,
		"a sole sharer upgrades at once, and keeps its reader node",
		"A share, A lock, A has X, A nodes 2, A downgrade, A nodes 1,"
		" B share, B has S, A release, B release, all nodes 0"
	},
	{HERE,
		"an upgraded lock can be released at once",
		"A share, A lock, A release, all nodes 0"
	},
	{HERE,
		"a sole sharer upgrades ahead of a waiting writer, and first moves up to its place",
		"A share, B lock, A lock, A has X, A sends clml, B has 0, A release, B has X"
	},
	{HERE,
		"a non-blocking attempt also upgrades ahead of a waiting writer",
		"A share, B lock, A try!, A giveup, A nodes 1, A try, A has X"
	},
	{HERE,
		"readers behind a writer that gives up wait for the upgraded holder, as new readers do",
		"A share, B lock, C share, A lock, A has X, B giveup, C has 0, D share, D has 0,"
		" A downgrade, C has S, D has S"
	},
	{HERE,
		"an upgrade waits for another sharer, keeps its shared lock, and is before new readers",
		"A share, B share, A lock, A is pending, A has S, C share, C has 0,"
		" B release, A has X, A release, C has S"
	},
	{HERE,
		"a non-blocking attempt to upgrade does not wait for another sharer, and loses nothing",
		"A share, B share, A try!, A giveup, A try, A is busy, A nodes 1, A lost 0"
	},
	{HERE,
		"a non-blocking attempt to upgrade beside another upgrade is refused, which is no deadlock",
		"A share, B share, A lock, A is pending, B try, B is busy, B nodes 1, B lost 0,"
		" B release, A has X"
	},
	{HERE,
		"an upgrade behind an attempt to upgrade, which does not wait, is in no deadlock, and is granted after the release",
		"A share, B share, B try!, B apply!, A lock!, A until g, A is pending, B is busy, B nodes 1, B lock, B is deadlock,"
		" B release, A has X, all pass 0, B share, A release, B has S"
	},
	{HERE,
		"nor is an upgrade in a deadlock with an attempt whose connection is lost, also not before a waiting writer",
		"A share, B share, C lock, B try!, B apply!, B disconnect, A lock, A is pending, B connect, B is busy, A is pending,"
		" B release, A has X, A release, C has X"
	},
	{HERE,
		"an attempt to upgrade behind an upgrade, which moves up to the attempt, leaves it its place",
		"A share, B share, B try!, B until! l, A lock!, A until m, B is busy, B nodes 1, A is pending, A nodes 2, B release, A has X"
	},
	{HERE,
		"an upgrade that is given up before another one has read its node is no rival",
		"A share, B share, A lock, B lock!, B apply!, B apply!, B deliverall!, A giveup!, A apply!, all pass 0, B is pending,"
		" A release, B has X"
	},
	{HERE,
		"an attempt to upgrade beside another upgrade does not ask whether the other session only keeps its node",
		"A keep, A share, B share, A lock, A disconnect, B try, B is busy, A connect, B release, A has X"
	},
	{HERE,
		"a session that gives up sharing and requests the lock exclusively at once is no upgrader",
		"A share, B share!, B apply!, B giveup!, B lock!, B apply!, B apply!, A lock!, A until! g, A deliver,"
		" all pass 0, A has X, B is pending, A release, B has X"
	},
	{HERE,
		"nor is it after an outage, which took the answer to the create",
		"A share, B share!, B apply!, B disconnect!, B giveup!, B lock!, B connect!, B deliverall!, B apply!, B apply!, B apply!,"
		" A lock!, A until! g, A deliver, all pass 0, A has X, B is pending, A release, B has X"
	},
	{HERE,
		"an upgrade that is given up leaves the reader node, and the waiting writer is next",
		"A share, B share, C lock, D share, A lock, A giveup, A nodes 1,"
		" A release, B release, C has X"
	},
	{HERE,
		"a downgrade costs one multi, and admits the reader behind, but no writer",
		"A lock, B share, C lock, D share, A downgrade, A sends m, A nodes 1, A lost 0,"
		" B has S, C has 0, D has 0, B release, C has 0, A release, C has X"
	},
	{HERE,
		"a downgraded holder can upgrade again, and be released at once",
		"A lock, A downgrade, B lock, A lock, A has X, A downgrade!, A release, A nodes 0, B has X"
	},
	{HERE,
		"an upgrade immediately after the downgrade waits for the admitted reader",
		"A lock, C share, A downgrade!, A lock, A has S, C release, A has X"
	},
	{HERE,
		"a downgraded node keeps its number",
		"A lock, A release, A lock, A named __WRIT__0000000001, A downgrade, A named __READ__0000000001"
	},
	{HERE,
		"locks with different node names share and exclude each other; a kazoo writer is downgraded to its reader",
		"B join names=kazoo, C join names=mutex, B lock, B named __lock__, A share, C lock, B downgrade,"
		" B named __rlock__, A has S, C has 0, B lock, B giveup, A release, B has S, B release, C has X"
	},
	{HERE,
		"a Curator mutex has no shared mode, and its downgrade admits no reader",
		"C join names=mutex, C share, C is not-supported, C lock, C has X, C downgrade, A share, A is pending,"
		" C release, A has S"
	},
	{HERE,
		"a downgrade and an immediate release leave no node",
		"A lock, A downgrade!, A release, all nodes 0"
	},
};

/* The writer leaves after each step of the upgrade, while a reader waits behind it. */
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

/* The reader node below an upgrade was deleted by hand. */
static void
test_anchor_deleted(void)
{
	scene_begin(3);
	forget(lock_now(A, "a", S));
	delete_by_hand(node_of(A, "a"));
	lock_now(B, "a", X);
	Ask		   *a = lock_now(A, "a", X);

	is_int(mode_of(B, "a"), X, "a session whose node was deleted by hand does not block others");
	ok(a->status != ZKL_OK || zkl_lock_is_lost(hold_of(A, "a")->lock),
	   "an upgrade detects that its reader node is gone");
	scene_without_referee();	/* a holder whose node is deleted learns it later */
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
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_writer_leaves_meanwhile();
	two_upgraders(false);
	two_upgraders(true);
	test_reader_beside_own_writer();
	test_anchor_deleted();
	return done();
}
