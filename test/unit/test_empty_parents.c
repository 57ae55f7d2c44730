/*-------------------------------------------------------------------------
 *
 * test_empty_parents.c
 *		Promises about the znodes of locks and semaphores that are not in use: they
 *		are deleted soon, and no contender is disturbed.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>

#include "letters.h"
#include "play.h"

static int
parents(void)
{
	int			n = 0;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		n += node->container;
	return n;
}

static void
find_parents(const Step *step, char *found)
{
	(void) step;
	sprintf(found, "%d", parents());
}

/* "parents 3", of all: how many znodes of locks and semaphores there are. */
static const PlayVerb parent_verbs[] = {
	{"parents", .find = find_parents},
	{.word = NULL}
};

static const Play plays[] = {
	{HERE, "the znode of a held lock stays, and is deleted some seconds after the release",
	"A lock, A pass 30000, all parents 1, A has X, A release, all pass 10000, all parents 0"},
	{HERE, "the znode of another session's lock stays; if its delete was refused, it is left to the server",
		"A lock, A release, B lock, A lock b, A release b, A pass 6000, all parents 1, B has X,"
	" A release, B release, B pass 60000, A sends , all parents 1"},
	{HERE, "a lock's znode stays, because kazoo's programs expect it; those of a semaphore are deleted",
	"A join names=kazoo, A lock, A release, A permit a, A giveback a, all parents 4, A pass 20000, all parents 1"},
	{HERE, "a contender that queues at the time of the delete gets the lock",
	"A lock, A release, B lock!, A pass 6000, B is ok"},
	{HERE, "the znodes of a held permit stay, and are deleted some seconds after the release",
	"A permit s, A pass 30000, all parents 3, A sends w, A giveback s, all pass 10000, all parents 0"},
	{HERE, "a znode whose create was not answered is deleted, too",
	"B lock b, A fault apply-and-drop@3, A lock, A giveup, A connect, B release b, all pass 60000, all reap, all parents 0"},
	{HERE, "the znodes of a semaphore whose creates were not answered are deleted, too",
	"B permit t, A fault apply-and-drop@3, A permit s, A giveup, A connect, B giveback t, all pass 60000, all reap, all parents 0"},
	{HERE, "a semaphore whose create has no answer may be another session's, and is left to the server",
		"B permit t, A fault drop@3, A permit s, B permit s, B expire, A connect, A is ok, A giveback s,"
	" all pass 10000, all parents 6"},
	{HERE, "a session that ends deletes its znodes at once",
	"A lock, A release, A lock b, A lock c, A release! c, A close, all parents 1"},
	{HERE, "a session that ends deletes a single znode at once", "A lock, A release, A close, all parents 0"},
	{HERE, "a session that ends deletes the znodes of its semaphores at once",
	"A permit s, A giveback s, A permit s, A permit t, A giveback! s, A giveback! t, A close, all parents 0"},
	{HERE, "a session that ends deletes its znodes without waiting for deletes in flight",
	"A permit s, A giveback s, A lock, A release, A lock, A release!, A close, all parents 0"},
	{HERE, "the znodes of another session's permit stay, and a semaphore in use keeps its capacity",
		"A permit s, A giveback s, B permit s, A permit t, A giveback t, A pass 6000, all parents 3,"
	" B permits 1 s, A permit s1, A is other-capacity"},
};

static void
use_once(Party *party, const char *name)
{
	forget(lock_now(party, name, X));
	reduce(party, name, NONE);
	fake_run_all();
}

static void
test_used_once(void)
{
	char		name[16];

	scene_begin(1);
	for (int i = 0; i < 250; i++)
	{
		snprintf(name, sizeof(name), "order:%d", i);
		use_once(A, name);
	}
	is_int(parents(), 250, "each new name has a znode");
	fake_advance(4000);
	is_int(parents(), 250, "the znodes stay for some seconds");
	fake_count(A->client);
	fake_advance(2000);
	is_int(parents(), 0, "all znodes are deleted then");
	is_int(fake_n_traced(A->client, 'd'), 250, "each znode costs one delete");
	fake_advance(20000);
	is_int(fake_n_traced(A->client, 'd'), 250, "each znode is deleted once");
	forget(lock_now(A, "order:1", X));
	is_int(mode_of(A, "order:1"), X, "a name can be used again");
	scene_end("exclusion, names used once");
}

/*
 * The request is given up before the answer to the create of the znode; its node was not
 * created, because memory was exhausted.
 */
static void
test_given_up(void)
{
	Ask		   *a;

	scene_begin(1);
	use_once(A, "other");
	fake_advance(6000);
	fake_count(A->client);
	a = ask_for(A, "a", X);
	fake_fault(A->client, 4, FAULT_REFUSE);
	while (!fake_fault_happened(A->client) && fake_step(A->client))
		;
	is_str(fake_trace(A->client), "clcc", "the znode is created, but not the node");
	forget(a);
	fake_run_all();
	is_int(parents(), 1, "the request is given up, and the znode exists");
	fake_advance(6000);
	is_int(parents(), 0, "this znode is deleted after some seconds");
	scene_end("exclusion, given up before the znode was created");
}

/* Deletes that became due during an outage are sent in groups. */
static void
test_many_due(void)
{
	char		name[16];

	scene_begin(1);
	for (int i = 0; i < 250; i++)
	{
		snprintf(name, sizeof(name), "n%d", i);
		use_once(A, name);
	}
	fake_disconnect(A->client);
	fake_run_all();
	fake_stall(5500);
	fake_count(A->client);
	fake_connect(A->client);
	fake_deliver(A->client);
	ok(fake_n_traced(A->client, 'd') <= 100, "at most a hundred deletes are in flight: %d",
	   fake_n_traced(A->client, 'd'));
	fake_run_all();
	is_int(parents(), 0, "all znodes are deleted");
	scene_end("exclusion, deletes after an outage");
}


/*
 * Semaphores
 */

static void
permit_once(Party *party, const char *name)
{
	forget(permit_now(party, name, 2));
	release_permit(party, name);
	fake_run_all();
}

static void
test_permit_used_once(void)
{
	char		name[16];

	scene_begin(1);
	for (int i = 0; i < 100; i++)
	{
		snprintf(name, sizeof(name), "job:%d", i);
		permit_once(A, name);
	}
	is_int(parents(), 300, "each new semaphore has three znodes");
	fake_count(A->client);
	fake_advance(6000);
	is_int(parents(), 0, "all znodes are deleted some seconds after their use");
	is_int(fake_n_traced(A->client, 'm'), 100, "one request deletes the znodes of a semaphore");
	fake_advance(20000);
	is_int(fake_n_traced(A->client, 'm'), 100, "the znodes of each semaphore are deleted once");
	is_int(permit_now(A, "job:1", 5)->status, ZKL_OK, "a name can be used again, with another capacity");
	scene_end("semaphores used once");
}

/* Another session has only queued for the mutex: none of the three znodes is deleted. */
static void
test_permit_together(void)
{
	char		place[128];

	scene_begin(1);
	permit_once(A, "s");
	snprintf(place, sizeof(place), "%s/_c_00112233-4455-6677-8899-aabbccddeeff-lock-",
			 pool_of("s", "/locks"));
	make_node(place, "", ZKL_CREATE_EPHEMERAL_SEQUENTIAL, 99);
	fake_advance(6000);
	is_int(parents(), 3, "a contender without a permit keeps all three");
	scene_end("a contender of a semaphore");

	for (int i = 0; i < 3; i++)
	{
		static const char *const below[] = {"/locks", "/leases", ""};

		scene_begin(1);
		permit_once(A, "s");
		permit_once(A, "t");
		for (int j = i == 2 ? 0 : i; j <= i; j++)
			fake_tree_delete(pool_of("s", below[j]));
		fake_advance(10000);
		is_int(parents(), i == 2 ? 0 : 2, "a semaphore without all parts is left to the server: %s",
			   i == 2 ? "all" : below[i]);
		scene_end(NULL);
	}
}

/* A contender queues "lead" steps before the delete, or after it. */
static void
race(int lead, int size, bool non_blocking)
{
	Ask		   *b;

	scene_begin(2);
	permit_once(A, "s");
	fake_stall(5500);
	b = non_blocking ? try_permit(B, "s", size) : ask_permit(B, "s", size);
	for (int i = 0; i < lead; i++)
		fake_step(B->client);
	(void) fake_ring(A->client);
	fake_apply(A->client);
	fake_run_all();
	if (size == 2)
		is_int(b->status, ZKL_OK, "%d steps before the delete: granted", lead);
	else
		ok(b->status == ZKL_OK || b->status == ZKL_OTHER_CAPACITY,
		   "another capacity, %d steps before the delete: granted or refused", lead);
	forget(b);
	release_permit(B, "s");
	fake_advance(30000);
	for (int i = 0; i < 3; i++)
		fake_tree_reap();
	is_int(parents(), 0, "no znode is left that the server would keep");
	scene_end("race with the delete of a semaphore");
}

static void
test_permit_race(void)
{
	for (int lead = 0; lead < 24; lead++)
	{
		race(lead, 2, false);
		race(lead, 2, true);
		race(lead, 3, false);
	}
}


/*
 * Both
 */

/* "use" leaves this many znodes of a name. */
static void
test_faults(void (*use) (Party *, const char *), int znodes)
{
	static const FakeFault faults[] = {
		FAULT_DROP, FAULT_APPLY_DROP, FAULT_REFUSE, FAULT_THROTTLE, FAULT_NO_AUTH, FAULT_OTHER
	};

	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
	{
		bool		deleted = faults[i] == FAULT_APPLY_DROP;

		scene_begin(2);
		use(A, "a");
		use(A, "b");
		fake_count(A->client);
		fake_fault(A->client, 1, faults[i]);
		fake_advance(6000);
		ok(fake_fault_happened(A->client), "the fault \"%s\" happens", fake_fault_name(faults[i]));
		heal();
		fake_advance(10000);
		ok(parents() <= 2 * znodes, "znodes whose delete failed are left to the server: %d", parents());
		ok(!deleted || parents() <= znodes, "a delete without an answer is not repeated");
		use(B, "a");
		scene_end("exclusion, fault at the delete");
	}
}

int
main(void)
{
	play_verbs = parent_verbs;
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_used_once();
	test_given_up();
	test_many_due();
	test_permit_used_once();
	test_permit_together();
	test_permit_race();
	test_faults(use_once, 1);
	test_faults(permit_once, 3);
	return done();
}
