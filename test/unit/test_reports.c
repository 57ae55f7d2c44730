/*-------------------------------------------------------------------------
 *
 * test_reports.c
 *		A session that must not write, read or delete its wait report, or whose
 *		reports another program forges, does not retry forever, and leaves no report.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "waiters.h"

#define X ZKL_MODE_EXCLUSIVE

static Party *const A = &parties[0];
static Party *const B = &parties[1];

/* B holds what A waits for; A has reported a wait before, so the parent exists. */
static void
begin(void)
{
	scene_begin(3);
	waiters_begin("abc");
	forget(lock_now(B, "a", X));
	lock_now(A, "a", X);
	(void) is_victim_now(A);
	fake_run_all();
	is_int(reported_by(A), 1, "a wait is reported");
	give_up_all(A);
	fake_run_all();
	lock_now(A, "a", X);
	fake_count(A->client);
}

/* A reports its wait; then at most "n" steps run. */
static void
report(int n)
{
	(void) is_victim_now(A);
	while (n-- > 0 && fake_step(A->client))
		;
}

static void
test_create_refused(void)
{
	begin();
	fake_quirks.deny = WAITS "/";
	report(50);
	report(50);
	is_str(fake_trace(A->client), "c", "a refused report is attempted once");
	fake_quirks.deny = NULL;
	report(50);
	is_int(reported_by(A), 0, "the wait is not reported");
	give_up_all(A);
	fake_run_all();
	lock_now(A, "a", X);
	report(50);
	is_int(reported_by(A), 1, "the next wait is reported");
	scene_end(NULL);
}

/* The parent of the reports does not exist, and may not be created. */
static void
test_parent_refused(void)
{
	begin();
	give_up_all(A);
	fake_run_all();
	fake_tree_delete(WAITS);
	fake_quirks.deny = WAITS;
	for (int i = 0; i < 5; i++)
	{
		lock_now(A, "a", X);
		report(50);
		report(50);
		is_int(reported_by(A), 0, "a wait cannot be reported");
		give_up_all(A);
		fake_run_all();
	}
	fake_quirks.deny = NULL;
	lock_now(A, "a", X);
	report(50);
	is_int(reported_by(A), 1, "the next wait is reported when its parent may be created");
	scene_end(NULL);
}

/* Another client repeatedly deletes the parent. */
static void
test_parent_removed(void)
{
	begin();
	fake_tree_delete(WAITS);
	(void) is_victim_now(A);
	for (int i = 0; i < 300 && fake_step(A->client); i++)
		fake_tree_delete(WAITS);
	ok(fake_n_traced(A->client, 'c') < 20, "a parent that does not stay is created only some times: %s",
	   fake_trace(A->client));
	scene_end(NULL);
}

/* The answer to the create is lost, and the list that replaces it is refused. */
static void
test_list_refused(void)
{
	static const FakeFault faults[] = {FAULT_NO_AUTH, FAULT_OTHER};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
	{
		const char *name = fake_fault_name(faults[i]);

		begin();
		fake_fault(A->client, 1, FAULT_APPLY_DROP);
		report(50);
		fake_count(A->client);
		fake_fault(A->client, 3, faults[i]);
		fake_connect(A->client);
		fake_run_all();
		ok(strncmp(fake_trace(A->client), "lsl", 3) == 0 && fake_n_traced(A->client, 'w') == 1,
		   "the list behind a sync is refused, so it shows nothing: %s", fake_trace(A->client));
		for (int n = 0; n < 5; n++)
			report(50);
		is_int(fake_n_traced(A->client, 's'), 1, "the list is not repeated at once");
		fake_advance(5000);
		is_int(reported_by(A), 1, "the session searches again for a report whose create had no answer (%s)", name);
		ok(fake_n_traced(A->client, 'w') == 2, "the found report is watched: %s", fake_trace(A->client));
		give_up_all(A);
		fake_run_all();
		is_int(reported_by(A), 0, "the report is removed when the wait ends");
		scene_end(NULL);
	}
}

static void
test_remove_refused(void)
{
	begin();
	report(50);
	fake_quirks.deny = WAITS "/";
	fake_count(A->client);
	give_up_all(A);
	fake_run_all();
	is_int(reported_by(A), 1, "a report cannot be removed");
	fake_advance(10000);
	ok(fake_n_traced(A->client, 'd') > 2 && fake_n_traced(A->client, 'd') < 100, "the removal is repeated from time to time: %d times", fake_n_traced(A->client, 'd'));
	fake_quirks.deny = NULL;
	fake_advance(10000);
	is_int(reported_by(A), 0, "the report is removed when the ACL allows it");
	scene_end(NULL);
}

static void
test_watch_refused(void)
{
	begin();
	fake_fault(A->client, 2, FAULT_NO_AUTH);
	for (int i = 0; i < 10; i++)
		report(50);
	is_int(fake_n_traced(A->client, 'w'), 1, "a report that cannot be watched is not read repeatedly: %s",
		   fake_trace(A->client));
	is_int(reported_by(A), 1, "a report that cannot be watched stays");
	scene_end(NULL);
}

/* Watches may end with the connection: the report is watched again. */
static void
test_reconnect(void)
{
	begin();
	report(50);
	fake_disconnect(A->client);
	fake_run_all();
	fake_count(A->client);
	fake_connect(A->client);
	fake_run_all();
	is_int(fake_n_traced(A->client, 'w'), 2, "the predecessor and the report are watched again: %s",
		   fake_trace(A->client));
	scene_end(NULL);
}

/* The wait has ended, but its owner still reports it. */
static void
test_wait_over(void)
{
	Ask		   *ask;
	ZklWaitReport report = {0};

	begin();
	ask = pending_of(A);
	release_all(B);
	fake_run_all();
	is_int(ask->status, ZKL_OK, "a wait has ended");
	fake_count(A->client);
	ok(zkl_request_publish(ask->request, &report) == NULL, "a wait that has ended is no deadlock");
	fake_run_all();
	is_int(reported_by(A), 0, "a wait that has ended is not reported");
	is_str(fake_trace(A->client), "", "a wait that has ended costs no request");
	forget(ask);
	scene_end(NULL);
}

/* Creates a report in the name of A that looks newer than A's own; returns its path. */
static const char *
forge(void)
{
	static char path[128];
	char	   *made;
	int64_t		unused;

	snprintf(path, sizeof(path), WAITS "/%" PRIx64 ".9.9.w.7..0900000000",
			 (uint64_t) fake_session_id(A->client));
	fake_tree_create(path, "", 0, ZKL_CREATE_PERSISTENT, 0, &made, &unused);
	free(made);
	return path;
}

/* A's owner publishes every tenth of a second, for ten seconds. */
static void
publish_for_ten_seconds(void)
{
	for (int i = 0; i < 100; i++)
	{
		report(50);
		fake_advance(100);
	}
}

static void
test_forged(void)
{
	const char *forged;

	begin();
	forged = forge();
	publish_for_ten_seconds();
	is_int(reported_by(A), 1, "the session's report stays beside a forged report");
	is_int(fake_n_traced(A->client, 'c'), 1, "the session's report is not created repeatedly: %s", fake_trace(A->client));
	ok(fake_tree_find(forged) == NULL, "the forged report is removed");
	scene_end(NULL);

	begin();
	forged = forge();
	fake_quirks.deny = forged;
	publish_for_ten_seconds();
	is_int(fake_n_traced(A->client, 'c'), 1, "a forged report that cannot be removed causes no new report");
	ok(strlen(fake_trace(A->client)) < 150, "a forged report that cannot be removed causes few requests: %s", fake_trace(A->client));
	give_up_all(A);
	fake_run_all();
	fake_advance(10000);
	is_int(reported_by(A), 0, "the session's own report is removed when the wait ends");
	fake_quirks.deny = NULL;
	fake_advance(10000);
	ok(fake_tree_find(forged) == NULL, "the forged report is removed when the ACL allows it");
	scene_end(NULL);
}

/* Forged reports that cannot be removed, and one before or behind them that can be removed. */
static void
test_some_protected(void)
{
	for (int k = 0; k <= 12; k += 12)
	{
		char		path[128];
		char		protected[64];
		int			n = 0;

		begin();
		report(50);
		for (int i = 0; i <= 12; i++)
		{
			char	   *made;
			int64_t		unused;

			snprintf(path, sizeof(path), WAITS "/%" PRIx64 ".%d.%x.w.7..0900000000",
					 (uint64_t) fake_session_id(A->client), i == k ? 8 : 9, i);
			fake_tree_create(path, "", 0, ZKL_CREATE_PERSISTENT, 0, &made, &unused);
			free(made);
		}
		snprintf(protected, sizeof(protected), WAITS "/%" PRIx64 ".9.",
				 (uint64_t) fake_session_id(A->client));
		fake_quirks.deny = protected;
		for (int i = 0; i < 10; i++)
			publish_for_ten_seconds();
		for (FakeNode *node = fake_tree_first(); node; node = node->next)
			n += strncmp(node->path, WAITS "/", strlen(WAITS "/")) == 0;
		is_int(n, 13, "only the protected forged reports and the session's own report stay");
		fake_quirks.deny = NULL;
		scene_end(NULL);
	}
}

/* A node that was given up, and that an ACL protects, stays until the session ends. */
static void
test_undeletable(void)
{
	char		path[256];

	begin();
	give_up_all(A);
	fake_run_all();
	forget(lock_now(A, "c", X));
	snprintf(path, sizeof(path), "%s", node_of(A, "c"));
	fake_quirks.deny = path;
	reduce(A, "c", ZKL_MODE_NONE);
	fake_run_all();
	lock_now(A, "a", X);
	report(50);
	is_int(reported_by(A), 1, "a wait is reported beside a node that cannot be deleted");
	fake_quirks.deny = NULL;
	scene_end(NULL);
}

int
main(void)
{
	test_create_refused();
	test_parent_refused();
	test_parent_removed();
	test_list_refused();
	test_remove_refused();
	test_watch_refused();
	test_reconnect();
	test_wait_over();
	test_forged();
	test_some_protected();
	test_undeletable();
	return done();
}
