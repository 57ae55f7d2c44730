/*-------------------------------------------------------------------------
 *
 * test_hold_watch.c
 *		A holder that loses its lock is notified at once, and
 *		a node deleted by hand is a loss.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "letters.h"
#include "observed.h"

#define T SCENE_TIMEOUT_MS

static bool
is_lost(const char *name)
{
	return zkl_lock_is_lost(hold_of(A, name)->lock);
}

static void
remove_by_hand(const char *name)
{
	char		path[256];

	strcpy(path, node_of(A, name));
	fake_tree_delete(path);
	fake_run_all();
}

static void
test_removed(void)
{
	begin_observed(1);
	forget(lock_now(A, "a", X));
	forget(lock_now(A, "b", S));
	fake_count(A->client);
	fake_advance(T);
	is_str(fake_trace(A->client), "ww", "each held node is watched once");
	forget(lock_now(A, "c", X));
	fake_count(A->client);
	fake_advance(T);
	is_str(fake_trace(A->client), "w", "a node that is held later is watched without another read of the others");
	remove_by_hand("a");
	ok(is_lost("a") && losses_reported == 1, "a node removed by hand is a loss, reported at once");
	ok(!is_lost("b"), "the other lock is not lost");
	fake_advance(T);
	is_int(losses_reported, 1, "the loss is reported once");
	reduce(A, "a", NONE);
	fake_run_all();
	forget(lock_now(A, "a", X));
	ok(!is_lost("a"), "the lock can be acquired again");
	scene_end("exclusion, removed nodes");

	begin_observed(1);
	forget(lock_now(A, "a", X));
	remove_by_hand("a");
	is_int(losses_reported, 0, "a removal before the node is watched is not reported at once");
	fake_advance(T);
	ok(is_lost("a") && losses_reported == 1, "setting the watch detects the removal");
	scene_end("exclusion, nodes removed early");

	begin_observed(1);
	forget(lock_now(A, "a", X));
	fake_advance(500);
	forget(lock_now(A, "b", X));
	fake_advance(500);
	is_int(fake_watches(A->client), 1, "after a second a node is watched, and not one that is held for half a second");
	fake_advance(1000);
	is_int(fake_watches(A->client), 2, "... which is watched a second later");
	scene_end("exclusion, nodes held one after the other");
}

/* Data that other clients write into the node are no loss. */
static void
test_changed(void)
{
	begin_watched();
	fake_tree_set(node_of(A, "a"), "x");
	fake_run_all();
	fake_advance(T);
	ok(!is_lost("a") && losses_reported == 0, "a change of the node's data is no loss");
	remove_by_hand("a");
	ok(is_lost("a") && losses_reported == 1, "a removal after the change is a loss");
	scene_end("exclusion, changed data");
}

static void
test_disconnected(void)
{
	begin_watched();
	fake_disconnect(A->client);
	fake_run_all();
	remove_by_hand("a");
	fake_connect(A->client);
	fake_run_all();
	fake_advance(T);
	ok(is_lost("a") && losses_reported == 1, "a removal during an outage is reported after it");
	scene_end("exclusion, removed during an outage");

	begin_watched();
	fake_disconnect(A->client);
	fake_run_all();
	fake_connect(A->client);
	fake_run_all();
	fake_advance(T);
	remove_by_hand("a");
	ok(is_lost("a") && losses_reported == 1, "a removal after an outage is reported if the server has lost the watch");
	scene_end("exclusion, lost watches");

	begin_watched();
	fake_disconnect(A->client);
	fake_run_all();
	fake_advance(zkl_session_deadline_io(A->session) - fake_now() - 1);
	is_int(losses_reported, 0, "an outage that ends before the deadline is no loss");
	fake_advance(1);
	ok(losses_reported == 1 && is_lost("a"), "the lock is lost at the deadline");
	scene_end("exclusion, long outage");
}

static void
test_downgraded(void)
{
	begin_observed(2);
	forget(lock_now(A, "a", X));
	fake_advance(T);
	fake_count(A->client);
	reduce(A, "a", S);
	fake_run_all();
	fake_advance(T);
	is_str(fake_trace(A->client), "mw", "the new node of a downgrade is watched");
	ok(!is_lost("a") && losses_reported == 0, "the delete of the old node is no loss");
	remove_by_hand("a");
	ok(is_lost("a") && losses_reported == 1, "a removal of the new node is a loss");
	scene_end("exclusion, downgrade");

	begin_observed(1);
	forget(lock_now(A, "a", X));
	fake_tree_delete(node_of(A, "a"));
	fake_count(A->client);
	fake_stall(1000);
	fake_ring(A->client);
	reduce(A, "a", S);
	fake_run_all();
	is_str(fake_trace(A->client), "wmdd", "the lock is downgraded while the read that sets the watch is in flight");
	ok(is_lost("a") && losses_reported == 1, "a removal that this read detects is a loss, reported once");
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "no node is left");
	scene_end("exclusion, downgrade of a removed node");
}

static void
test_released(void)
{
	begin_observed(2);
	forget(lock_now(A, "a", X));
	fake_advance(T);
	is_int(fake_watches(A->client), 1, "a held node has a watch");
	ask_for(B, "a", X);
	fake_run_all();
	reduce(A, "a", NONE);
	fake_run_all();
	ok(fake_watches(A->client) == 0 && losses_reported == 0, "a release removes the watch and is no loss");
	is_int(mode_of(B, "a"), X, "the next session holds the lock");
	fake_expire(A->client);
	fake_connect(A->client);
	fake_run_all();
	is_int(losses_reported, 0, "the expiry of a session that holds nothing is no loss");
	scene_end("exclusion, released");
}

/* The end of a request that is not granted, or whose grant is not taken, is no loss. */
static void
test_not_taken(void)
{
	begin_observed(2);
	forget(lock_now(B, "a", X));
	ask_for(A, "a", X);
	fake_run_all();
	fake_expire(A->client);
	fake_connect(A->client);
	fake_run_all();
	is_int(losses_reported, 0, "the expiry of a session that waits is no loss");
	scene_end("exclusion, expired while waiting");
}

static void
test_expired(void)
{
	begin_observed(1);
	forget(lock_now(A, "a", X));
	forget(lock_now(A, "b", S));
	fake_expire(A->client);
	fake_connect(A->client);
	fake_run_all();
	ok(is_lost("a") && is_lost("b") && losses_reported == 1, "an expiry is reported once for all locks");
	scene_end("exclusion, expired");
}

/* Whatever happens to the read that sets the watch, a deletion is detected. */
static void
test_faults(void)
{
	for (FakeFault fault = FAULT_NONE; fault < N_FAULTS; fault++)
	{
		begin_observed(1);
		forget(lock_now(A, "a", X));
		fake_count(A->client);
		fake_fault(A->client, 1, fault);
		fake_advance(1000);
		heal();
		fake_release(A->client);
		if (!fake_is_expired(A->client))
			remove_by_hand("a");
		for (int i = 0; i < 3; i++)
		{
			fake_advance(T / 3);
			heal();
		}
		ok(is_lost("a") && losses_reported == 1, "the loss is reported (%s)", fake_fault_name(fault));
		scene_end(NULL);
	}
}

int
main(void)
{
	test_removed();
	test_changed();
	test_disconnected();
	test_downgraded();
	test_released();
	test_not_taken();
	test_expired();
	test_faults();
	return done();
}
