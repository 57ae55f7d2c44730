/*-------------------------------------------------------------------------
 *
 * test_leave.c
 *		Promises about nodes that are given up together.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "letters.h"

static const char *const abc[] = {"a", "b", "c"};
static const ZklMode xxx[] = {X, X, X};

/* Two sessions; the first holds three names, and its submissions count from now. */
static void
begin(void)
{
	scene_begin(2);
	forget(ask_all(A, 3, abc, xxx, false));
	fake_run_all();
	for (int i = 0; i < 3; i++)
		forget(lock_now(A, abc[i], X));
	fake_count(A->client);
}

static void
release_together(void)
{
	zkl_releases_begin(A->session);
	release_all(A);
	zkl_releases_end(A->session);
}

static void
test_together(void)
{
	begin();
	release_together();
	is_str(fake_trace(A->client), "m", "locks that are released together cost one multi");
	fake_run_all();
	is_int(nodes_of(A, NULL), 0, "the multi deletes all nodes");
	lock_now(A, "a", X);
	fake_count(A->client);
	release_together();
	is_str(fake_trace(A->client), "d", "a lock that is released alone costs a delete");
	fake_run_all();
	is_int(nodes_of(A, NULL), 0, "the delete removes the node");
	fake_count(A->client);
	release_together();
	is_str(fake_trace(A->client), "", "releasing no lock costs no request");
	scene_end("exclusion, released together");

	begin();
	zkl_releases_begin(A->session);
	reduce(A, "a", NONE);
	reduce(A, "b", S);
	reduce(A, "c", NONE);
	is_str(fake_trace(A->client), "m", "a downgrade does not wait for releases");
	zkl_releases_end(A->session);
	fake_run_all();
	is_str(fake_trace(A->client), "mm", "the other locks are released together");
	ok(nodes_of(A, NULL) == 1 && mode_of(A, "b") == S, "the downgraded lock is kept");
	scene_end("exclusion, some released");
}

static void
test_given_up(void)
{
	begin();
	Ask		   *b = ask_all(B, 3, abc, xxx, false);

	fake_run_all();
	fake_count(B->client);
	forget(b);
	is_str(fake_trace(B->client), "m", "giving up a request for several names costs one multi");
	fake_run_all();
	is_int(nodes_of(B, NULL), 0, "no node is left");
	scene_end("exclusion, request given up");
}

static void
test_removed(void)
{
	for (int i = 0; i < 3; i++)
	{
		begin();
		fake_tree_delete(node_of(A, abc[i]));
		release_together();
		fake_run_all();
		is_str(fake_trace(A->client), "mddd", "if another client has deleted a node, each node is deleted alone");
		is_int(nodes_of(A, NULL), 0, "all nodes are deleted");
		scene_end(NULL);
	}
}

/* Counts the log lines about this lock's refused delete since the last call. */
static int
logged_refusals(const char *lock)
{
	char		line[512];
	int			n = 0;

	while (zkl_log_take(line, sizeof(line)))
		n += strstr(line, "an ACL forbids to delete ") && strstr(line, lock);
	return n;
}

static void
test_refused(void)
{
	begin();
	logged_refusals("");
	fake_quirks.deny = path_of("b");
	release_together();
	fake_run_all();
	is_int(nodes_of(A, NULL), 1, "if an ACL protects one node, the other nodes are deleted");
	forget(lock_now(A, "d", X));
	forget(lock_now(A, "e", X));
	fake_count(A->client);
	release_together();
	fake_run_all();
	is_str(fake_trace(A->client), "m", "later releases are sent without the protected node");
	fake_advance(5000);
	is_int(nodes_of(A, NULL), 1, "the protected node stays");
	is_int(logged_refusals(path_of("b")), 1, "the refused delete is logged once");
	fake_quirks.deny = NULL;
	fake_advance(5000);
	is_int(nodes_of(A, NULL), 0, "the delete is repeated when the ACL allows it");
	scene_end(NULL);
}

static void
test_connection(void)
{
	static const FakeFault faults[] = {FAULT_DROP, FAULT_APPLY_DROP, FAULT_REFUSE, FAULT_THROTTLE};

	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
	{
		begin();
		fake_fault(A->client, 1, faults[i]);
		release_together();
		fake_run_all();
		heal();
		fake_advance(100);
		is_int(nodes_of(A, NULL), 0, "the fault \"%s\" leaves no node",
			   fake_fault_name(faults[i]));
		lock_now(B, "b", X);
		is_int(mode_of(B, "b"), X, "the next session gets the lock");
		scene_end("exclusion, fault at a release");
	}

	begin();
	fake_disconnect(A->client);
	fake_run_all();
	release_together();
	is_str(fake_trace(A->client), "", "a release without a connection is queued");
	fake_connect(A->client);
	fake_run_all();
	is_int(nodes_of(A, NULL), 0, "the release is sent after the reconnect");
	scene_end(NULL);

	begin();
	zkl_releases_begin(A->session);
	release_all(A);
	fake_disconnect(A->client);
	fake_connect(A->client);
	fake_run_all();
	zkl_releases_end(A->session);
	fake_run_all();
	is_str(fake_trace(A->client), "m", "a reconnect before the answer costs no further request");
	is_int(nodes_of(A, NULL), 0, "all nodes are deleted");
	scene_end(NULL);

	begin();
	zkl_releases_begin(A->session);
	release_all(A);
	fake_expire(A->client);
	fake_disconnect(A->client);
	fake_connect(A->client);
	fake_run_all();
	zkl_releases_end(A->session);
	fake_run_all();
	is_int(nodes_of(A, NULL), 0, "no node is left after the end of the session");
	scene_end(NULL);
}

int
main(void)
{
	test_together();
	test_given_up();
	test_removed();
	test_refused();
	test_connection();
	return done();
}
