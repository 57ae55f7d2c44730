/*-------------------------------------------------------------------------
 *
 * test_small.c
 *		Promises that depend on single lines, or on single answers and events, found by mutants
 *		that no test detected.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "letters.h"
#include "play.h"

#define T SCENE_TIMEOUT_MS


static void
test_root_removed(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	release_all(A);
	fake_run_all();
	fake_advance(60000);
	fake_tree_reap();
	fake_tree_delete(path_of("a"));
	is_int(fake_tree_delete(SCENE_LOCKS), ZKL_RC_OK, "another client removes the root");
	fake_tree_delete("/zklock");
	is_int(lock_now(A, "a", X)->status, ZKL_OK, "an existing session creates the root again");
	scene_end(NULL);
}

static void
deny_reader(const Step *step)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s", node_of(step->party, "a"));
	memcpy(strstr(path, "__WRIT__"), "__READ__", 8);
	fake_quirks.deny_exactly = path;
}

/* "denyreader": an ACL refuses the name that the party's writer node would get by a downgrade. */
static const PlayVerb reader_verbs[] = {
	{"denyreader", .act = deny_reader},
	{.word = NULL}
};

static const Play plays[] = {
	{HERE,
		"a waiter for a permit counts the permits again after a reconnect",
		"A permit, A permit, B permit, B is pending, B disconnect, A release, B connect, B is ok"
	},
	{HERE,
		"a lock released during its downgrade leaves no node, and a pending confirmation succeeds",
		"A lock a, A lock b, A downgrade! a, A confirm!, A release a, A nodes 1, A confirmed ok"
	},
	{HERE,
		"a downgraded node whose answer was lost is deleted by both names",
		"A lock, A fault apply-and-drop, A downgrade, A nodes 1, A release, A connect, A nodes 0"
	},
	{HERE,
		"a downgrade whose node is missing is a loss, and is not repeated",
		"A lock, A delete!, A downgrade, A lost 1, A sends mdd"
	},
	{HERE,
		"after an unexpected error the node is found and removed at once",
		"A lock b, A release, A fault apply-and-other-error, A lock b, A is error, A nodes 0"
	},
	{HERE,
		"the node of a request that was given up before an unexpected error is found and removed",
		"A lock b, A release, A fault apply-and-other-error, A lock! b, A giveup, A nodes 0"
	},
	{HERE,
		"the check of several locks before their grant renews the lease, which a waiter does not have",
		"B lock b, A lock ab, all pass 6000, A lease 0, B release, A lease 2000"
	},
	{HERE,
		"a session is intact unless it has lost a lock that it has not released, or is lost itself",
		"A intact yes, A lock a, A lock b, A intact yes, A delete! a, A confirm, A intact no, A release a, A intact yes,"
		" A expire, A connect, A intact no"
	},
	{HERE,
		"a refused downgrade is repeated, but not at once; the node is kept, and a confirmation does not wait",
		"A lock, A denyreader, A downgrade, A sends m, A nodes 1, A confirm, A confirmed ok, all denyexactly,"
		" all pass 1000, A named __READ__"
	},
	{HERE,
		"a refused downgrade delays no confirmation after the release, which deletes the node",
		"A lock, A denyreader, A downgrade!, A release, A sends dd, A nodes 0, A confirm, A confirmed ok, all denyexactly"
	},
	{HERE,
		"the node of a refused downgrade is watched under its old name",
		"A lock, A denyreader, A downgrade, A confirm, A confirmed ok, A delete, A confirm, A lost 1, all denyexactly"
	},
	{HERE,
		"the node of a refused downgrade is watched under its old name also while the downgrade is repeated",
		"A lock, A denyreader, A downgrade, A confirm, A confirmed ok, all stall! 1000, A ring!, A sends m, A delete,"
		" A confirm, A lost 1, all denyexactly"
	},
	{HERE,
		"a confirmation waits for a downgrade that is repeated",
		"A lock, A fault no-auth, A downgrade, all stall! 1000, A ring!, A sends m, A confirm, A confirmed ok,"
		" A named __READ__, A lost 0"
	},
	{HERE,
		"a downgrade that is answered without answers to its operations is repeated",
		"A lock, A fault no-auth, A downgrade, A named __WRIT__, all pass 5000, A named __READ__"
	},
	{HERE,
		"a downgrade that is answered with another error is repeated",
		"A lock, A fault other-error, A downgrade, A named __WRIT__, all pass 5000, A named __READ__"
	},
	{HERE,
		"a downgrade that a busy server refuses is repeated",
		"A lock, A fault throttle, A downgrade, A named __WRIT__, all pass 5000, A named __READ__"
	},
	{HERE,
		"a node that an ACL forbids to delete does not slow down other retries: a create that a busy server has refused",
		"A lock, all deny /zklock/locks/a, A release, A pass 30000, A fault throttle, A lock b, A has 0 b, A pass 50, A has X b"
	},
	{HERE,
		"a downgrade that an ACL forbids does not slow down other retries",
		"A lock, all deny /zklock/locks/a, A downgrade, A pass 30000, A fault throttle, A lock b, A has 0 b, A pass 50, A has X b"
	},
	{HERE,
		"a node with an unknown outcome is searched for again, after a list was refused",
		"A lock b, A release, A fault apply-and-drop, A lock b, all denyread /zklock/locks/b, A connect, A nodes 1,"
		" all denyread, all pass 5000, A nodes 0"
	}
};

static void
test_loss_wakes(void)
{
	struct pollfd fd;

	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_advance(T);
	zkl_session_receive(A->session);
	fake_tree_delete(node_of(A, "a"));
	fake_run_all();
	fd = (struct pollfd)
	{
		zkl_session_fd(A->session), POLLIN, 0
	};
	ok(lost_of(A) == 1 && poll(&fd, 1, 0) == 1, "a node removed by hand wakes the owner");
	scene_end(NULL);
}

/* The node is watched, however many other locks are acquired and released meanwhile. */
static void
test_watched_in_time(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	for (int i = 0; i < 100; i++)
	{
		forget(lock_now(A, "b", X));
		reduce(A, "b", NONE);
		fake_advance(100);
	}
	ok(fake_n_traced(A->client, 'w') > 0, "a held node is watched in time");
	scene_end(NULL);
}


static void
acquire_and_release_permit(void)
{
	forget(permit_now(A, "s", 1));
	release_all(A);
	fake_run_all();
	fake_count(A->client);
}

static void
test_permit_cost(void)
{
	scene_begin(1);
	acquire_and_release_permit();
	forget(permit_now(A, "s", 1));
	is_int(fake_n_traced(A->client, 'c'), 2, "a permit creates two nodes, and no parents that exist: %s",
		   fake_trace(A->client));
	scene_end(NULL);
}

/* How many permit nodes were deleted. */
static int	removed;

/* The permit node is deleted "steps" steps after the answer to its create was lost. */
static void
remove_permit_after(int fault_at, int steps)
{
	scene_begin(1);
	acquire_and_release_permit();
	fake_fault(A->client, fault_at, FAULT_APPLY_DROP);
	ask_permit(A, "s", 1);
	fake_run_all();
	fake_connect(A->client);
	for (int i = 0; i < steps; i++)
		fake_step(A->client);
	if (pending_of(A))
	{
		fake_tree_delete(node_below(A, pool_of("s", "/leases")));
		removed++;
	}
	fake_run_all();
	if (permits_of(A, "s") != 1)
		ok(false, "a permit whose node is removed %d steps after the answer to operation %d was lost",
		   steps, fault_at);
	scene_end(NULL);
}

static void
test_permit_removed(void)
{
	for (int fault_at = 1; fault_at <= 8; fault_at++)
		for (int steps = 0; steps < 20; steps++)
			remove_permit_after(fault_at, steps);
	ok(removed > 0, "a permit node that is removed before its czxid is known is created again (%d times)", removed);
}

int
main(void)
{
	test_root_removed();
	play_verbs = reader_verbs;
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_loss_wakes();
	test_watched_in_time();
	test_permit_cost();
	test_permit_removed();
	return done();
}
