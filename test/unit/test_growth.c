/*-------------------------------------------------------------------------
 *
 * test_growth.c
 *		The work for many locks grows linearly with their number, not quadratically;
 *		so does the search for a deadlock with the number of sessions that wait.
 *
 * The recipe layer is compiled so that each of its basic blocks counts
 * (-fsanitize-coverage=trace-pc, see unit.mk); nothing depends on a time.  Without
 * that option only the results are tested.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_client.h"
#include "recipe/deadlock/victim.h"
#include "recipe/recipe.h"
#include "tap.h"

#define FEW 100
#define MANY (8 * FEW)

/* Eight times the locks: linear work is 8 times as much, quadratic work 64 times. */
#define MAX_GROWTH 12.0

static uint64_t work;

extern void __sanitizer_cov_trace_pc(void);

void
__sanitizer_cov_trace_pc(void)
{
	work++;
}

static const ZklSessionConfig config = {
	.connect_string = "192.0.2.1:2181",
	.root = "/zklock",
	.session_timeout_ms = 60000,
	.node_names = ZKL_NODE_NAMES_CURATOR,
	.max_nodes = 100000,
};

static ZklLock *locks[MANY];
static char names[MANY][16];
static char reports_of[MANY][64];	/* of waiting sessions, numbered from 1 */

static ZklSession *
open_session(ZklClient **client)
{
	ZklSession *session = zkl_session_open(&config);

	*client = fake_last_client();
	fake_connect(*client);
	fake_run_all();
	return session;
}

static bool
finish(ZklRequest *request, int n, int first)
{
	bool		is_granted;

	fake_run_all();
	is_granted = zkl_request_status(request) == ZKL_OK;
	for (int i = 0; is_granted && i < n; i++)
		locks[first + i] = zkl_request_lock(request, i);
	zkl_request_end(request);
	fake_run_all();
	return is_granted;
}

static ZklRequest *
ask(ZklSession *session, int first, int n, ZklMode mode, bool is_held)
{
	static ZklLockItem items[MANY];

	for (int i = 0; i < n; i++)
	{
		snprintf(names[first + i], sizeof(names[0]), "n%d", first + i);
		items[i].name = names[first + i];
		items[i].mode = mode;
		items[i].held = is_held ? locks[first + i] : NULL;
	}
	return zkl_lock_request(session, items, n, false, "x", 1);
}

static void
release_all(ZklSession *session, int n, bool together)
{
	if (together)
		zkl_releases_begin(session);
	for (int i = 0; i < n; i++)
	{
		zkl_lock_reduce(locks[i], ZKL_MODE_NONE);
		if (!together)
			fake_run_all();
	}
	if (together)
		zkl_releases_end(session);
	fake_run_all();
}

/* Locks and releases n names in one of several ways; returns false after a failure. */
typedef bool (*Way) (ZklSession *session, int n);

static bool
one_by_one(ZklSession *session, int n)
{
	bool		all = true;

	for (int i = 0; i < n; i++)
		all = finish(ask(session, i, 1, ZKL_MODE_EXCLUSIVE, false), 1, i) && all;
	release_all(session, n, false);
	return all;
}

/* Each node is watched before its release, so that its delete is an event. */
static bool
watched(ZklSession *session, int n)
{
	bool		all = true;

	for (int i = 0; i < n; i++)
		all = finish(ask(session, i, 1, ZKL_MODE_EXCLUSIVE, false), 1, i) && all;
	fake_advance(2500);
	release_all(session, n, true);
	return all;
}

static bool
array(ZklSession *session, int n)
{
	bool		all = finish(ask(session, 0, n, ZKL_MODE_SHARED, false), n, 0);

	release_all(session, n, true);
	return all;
}

static bool
upgraded_array(ZklSession *session, int n)
{
	bool		all = finish(ask(session, 0, n, ZKL_MODE_SHARED, false), n, 0);

	all = finish(ask(session, 0, n, ZKL_MODE_EXCLUSIVE, true), n, 0) && all;
	release_all(session, n, true);
	return all;
}

static bool
pairs(ZklSession *session, int n)
{
	bool		all = true;

	for (int i = 0; i < n; i += 2)
		all = finish(ask(session, i, 2, ZKL_MODE_EXCLUSIVE, false), 2, i) && all;
	for (int i = 0; i < n; i += 2)
	{
		zkl_releases_begin(session);
		zkl_lock_reduce(locks[i], ZKL_MODE_NONE);
		zkl_lock_reduce(locks[i + 1], ZKL_MODE_NONE);
		zkl_releases_end(session);
		fake_run_all();
	}
	return all;
}

/* Another session holds all the names, and releases them. */
static bool
waiting_array(ZklSession *session, int n)
{
	ZklClient  *client;
	ZklSession *holder = open_session(&client);
	bool		all = finish(ask(holder, 0, n, ZKL_MODE_EXCLUSIVE, false), n, 0);
	ZklRequest *request = ask(session, 0, n, ZKL_MODE_EXCLUSIVE, false);

	fake_run_all();
	release_all(holder, n, false);
	all = finish(request, n, 0) && all;
	release_all(session, n, true);
	zkl_session_close(holder, 0);
	return all;
}

static bool
confirmed(ZklSession *session, int n)
{
	bool		all = finish(ask(session, 0, n, ZKL_MODE_EXCLUSIVE, false), n, 0);

	zkl_session_confirm(session, true);
	fake_run_all();
	all = all && zkl_session_confirmed(session) == ZKL_OK;
	release_all(session, n, false);
	return all;
}


/* Searches the reports for a deadlock of the first session; has it n_members? */
static bool
search(int n, int n_members)
{
	static const char *children[MANY];
	ZklWaitReports reports;
	ZklChoice	v;
	int		   *path = NULL;
	bool		is_found;

	for (int i = 0; i < n; i++)
		children[i] = reports_of[i];
	if (!zkl_reports_read(children, n, &reports))
		return false;
	zkl_choose(&reports, 1, reports_of[0], (ZklCircle) {NULL, 0}, &v);
	is_found = v.n == n_members;
	if (v.n > 0)
		is_found = is_found && zkl_find_cycle(reports.node_sets, reports.n_node_sets, 1,
											  (ZklCircle) {v.members, v.n}, &path) > 1;
	free(path);
	free(v.members);
	zkl_reports_free(&reports);
	return is_found;
}

/* Each session waits for the next one, and for either of two others. */
static bool
circle(ZklSession *session, int n)
{
	(void) session;
	for (int i = 0; i < n; i++)
		snprintf(reports_of[i], sizeof(reports_of[0]), "%x.1.1.w.%x,%x+%x..%010d", i + 1,
				 (i + 1) % n + 1, (i + 2) % n + 1, (i + 5) % n + 1, i);
	return search(n, n);
}

/* Each session waits for the next one, and the last one can proceed. */
static bool
chain(ZklSession *session, int n)
{
	(void) session;
	for (int i = 0; i < n; i++)
		snprintf(reports_of[i], sizeof(reports_of[0]), "%x.1.1.w.%x..%010d", i + 1, i + 2, i);
	return search(n, 0);
}

/* Another program creates reports in the session's name, newer than its own. */
static bool
forged(ZklSession *session, int n)
{
	static const char *const texts[] = {"n0"};
	static const uint32_t keys[] = {1};
	ZklWaitReport report = {.server = "s", .locks = texts, .keys = keys};
	ZklClient  *waiter = fake_last_client();
	ZklClient  *client;
	ZklSession *holder = open_session(&client);
	bool		all = finish(ask(holder, 0, 1, ZKL_MODE_EXCLUSIVE, false), 1, 0);
	ZklRequest *request = ask(session, 0, 1, ZKL_MODE_EXCLUSIVE, false);
	int			n_left = 0;

	fake_run_all();
	zkl_deadlock_free(zkl_request_publish(request, &report));
	fake_run_all();
	for (int i = 0; i < n; i++)
	{
		char		path[96];
		char	   *made;
		int64_t		unused;

		snprintf(path, sizeof(path), "/zklock/waits/%" PRIx64 ".9.9.w.7..%010d",
				 (uint64_t) fake_session_id(waiter), 900000000 + i);
		fake_tree_create(path, "", 0, ZKL_CREATE_PERSISTENT, 0, &made, &unused);
		free(made);
	}
	for (int i = 0; i < 3; i++)
	{
		zkl_deadlock_free(zkl_request_publish(request, &report));
		fake_run_all();
		fake_advance(20000);
	}
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		n_left += strncmp(node->path, "/zklock/waits/", 14) == 0;
	zkl_request_end(request);
	zkl_session_close(holder, 0);
	return all && n_left == 1;
}

static uint64_t
work_of(Way way, int n, bool *is_done)
{
	ZklClient  *client;
	ZklSession *session;

	fake_reset();
	session = open_session(&client);
	work = 0;
	*is_done = way(session, n) && *is_done;
	zkl_session_close(session, 0);
	return work;
}

static void
test(Way way, const char *what)
{
	bool		is_done = true;
	double		few = (double) work_of(way, FEW, &is_done);
	double		many;

	if (few == 0)
	{
		ok(is_done, "%s", what);
		return;
	}
	many = (double) work_of(way, MANY, &is_done);
	if (!ok(is_done && many <= MAX_GROWTH * few, "%s: eight times as many names, %.1f times as much work",
			what, many / few))
		printf("# %.0f and %.0f\n", few, many);
}

int
main(void)
{
	test(one_by_one, "one by one");
	test(watched, "one by one, watched, released together");
	test(array, "an array");
	test(upgraded_array, "an array that is upgraded");
	test(pairs, "pairs");
	test(waiting_array, "an array that waits for another session");
	test(circle, "the reports of a deadlock");
	test(chain, "the reports of a chain of waits");
	test(forged, "reports in the name of a session");
	test(confirmed, "an array that is confirmed, released one by one");
	return done();
}
