/*-------------------------------------------------------------------------
 *
 * test_empty_parents.c
 *		Promises about the znodes of locks that are not in use: they are deleted
 *		soon, and no contender is disturbed.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>

#include "scene.h"

#define X ZKL_MODE_EXCLUSIVE
#define NONE ZKL_MODE_NONE

static Party *const A = &parties[0];
static Party *const B = &parties[1];

static int
parents(void)
{
	int			n = 0;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		n += node->container;
	return n;
}

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
	is_int(parents(), 250, "... which stays for some seconds");
	fake_count(A->client);
	fake_advance(2000);
	is_int(parents(), 0, "... and is deleted then");
	is_str(fake_trace(A->client), "mmm", "a hundred in one request");
	fake_advance(20000);
	is_str(fake_trace(A->client), "mmm", "... and once");
	forget(lock_now(A, "order:1", X));
	is_int(mode_of(A, "order:1"), X, "a name can be used again");
	scene_end("exclusion, names that are used once");
}

static void
test_in_use(void)
{
	scene_begin(2);
	forget(lock_now(A, "a", X));
	fake_count(A->client);
	fake_advance(30000);
	ok(parents() == 1 && mode_of(A, "a") == X, "the znode of a held lock stays");
	reduce(A, "a", NONE);
	fake_advance(10000);
	is_int(parents(), 0, "... until some seconds after the release");

	forget(lock_now(A, "a", X));
	reduce(A, "a", NONE);
	forget(lock_now(B, "a", X));
	use_once(A, "b");
	fake_advance(6000);
	ok(parents() == 1 && mode_of(B, "a") == X,
	   "another session's lock stays, and the others of its batch are deleted");
	reduce(B, "a", NONE);
	fake_advance(6000);
	is_int(parents(), 0, "... and it is deleted when that session has released it");

	use_once(A, "a");
	forget(lock_now(B, "a", X));
	fake_advance(12000);
	reduce(B, "a", NONE);
	fake_advance(6000);
	is_int(parents(), 0, "the third attempt deletes it, too");

	use_once(A, "a");
	forget(lock_now(B, "a", X));
	fake_advance(60000);
	fake_count(A->client);
	fake_advance(60000);
	is_str(fake_trace(A->client), "", "a name that others use is left to the server");
	scene_end("exclusion, other sessions use the name");
}

static void
test_race(void)
{
	scene_begin(2);
	use_once(A, "a");
	Ask		   *b = ask_for(B, "a", X);

	fake_advance(6000);
	is_int(b->status, ZKL_OK, "a contender that comes with the delete gets the lock");
	forget(b);
	reduce(B, "a", NONE);
	fake_run_all();
	scene_end("exclusion, race with the delete");
}

static void
test_faults(void)
{
	static const FakeFault faults[] = {
		FAULT_DROP, FAULT_APPLY_DROP, FAULT_REFUSE, FAULT_THROTTLE, FAULT_NO_AUTH, FAULT_OTHER
	};

	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
	{
		bool		gives_up = faults[i] == FAULT_NO_AUTH || faults[i] == FAULT_OTHER;

		scene_begin(2);
		use_once(A, "a");
		use_once(A, "b");
		fake_count(A->client);
		fake_fault(A->client, 1, faults[i]);
		fake_advance(6000);
		ok(fake_fault_happened(A->client), "the fault \"%s\" strikes", fake_fault_name(faults[i]));
		heal();
		fake_advance(10000);
		is_int(parents(), gives_up ? 2 : 0, gives_up ? "... and the server is left to do it"
			   : "... and they are deleted nevertheless");
		use_once(B, "a");
		scene_end("exclusion, fault at the delete");
	}
}

static void
test_close(void)
{
	scene_begin(2);
	use_once(A, "a");
	forget(lock_now(A, "b", X));
	forget(lock_now(A, "c", X));
	reduce(A, "c", NONE);
	fake_count(A->client);
	scene_leave(A);
	fake_run_all();
	ok(fake_tree_find(path_of("a")) == NULL && fake_tree_find(path_of("c")) == NULL,
	   "the end of a session does not wait for the time");
	scene_end("exclusion, end of a session");
}

static void
test_other_layouts(void)
{
	scene_begin(0);
	scene_config.node_names = ZKL_NODE_NAMES_KAZOO;
	scene_join(A);
	use_once(A, "a");
	fake_advance(20000);
	ok(fake_tree_find(path_of("a")) != NULL, "kazoo's programs expect the znode to stay");
	scene_end(NULL);

	scene_begin(1);
	forget(permit_now(A, "a", 2));
	release_permit(A, "a");
	fake_advance(20000);
	ok(fake_tree_find(pool_of("a", "")) != NULL || parents() > 0,
	   "a semaphore's znode has its capacity as data, and stays");
	scene_end(NULL);
}

int
main(void)
{
	test_used_once();
	test_in_use();
	test_race();
	test_faults();
	test_close();
	test_other_layouts();
	return done();
}
