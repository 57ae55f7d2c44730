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
#include "recipe/deadlock/find_deadlock.h"
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


static ZklScratch scratch;

/* The name of a node of session i, from 1, in the queue in which all of them wait. */
static const char *
child_of(int i, char child[64])
{
	snprintf(child, 64, "_c_%08x-%04x-%04x-0000-%012x-__WRIT__%010d", 0, 0, i, 1, i);
	return child;
}

static void
add_report(ZklSnapshot *snapshot, int i)
{
	char		child[64];
	ZklWaitNode node = {ZKL_PLACE_LOCK, "a", child_of(i, child), 0};
	ZklReport	report = {.server = "s", .nodes = &node, .n_nodes = 1};
	int			length;
	char	   *data = zkl_report_encode(&scratch, &report, &length);

	zkl_snapshot_add_report(snapshot, (uint64_t) i, (uint64_t) i, i, 0, data, length);
}

static void
add_queue(ZklSnapshot *snapshot, int n)
{
	static char children[MANY][64];
	const char *pointers[MANY];

	for (int i = 0; i < n; i++)
		pointers[i] = child_of(i + 1, children[i]);
	zkl_snapshot_add_queue(snapshot, ZKL_PLACE_LOCK, "a", 1, pointers, n);
}

/* The last session of a queue searches; all of them have reports, and the first can proceed. */
static bool
queue(ZklSession *session, int n)
{
	static char waiting[MANY][ZKL_WAITING_NAME_SIZE];
	const char *pointers[MANY];
	ZklSnapshot *snapshot = zkl_snapshot_new(&scratch, (uint64_t) n);
	ZklWant		want;
	int			n_reports = 0;
	ZklFound	found;

	(void) session;
	for (int i = 0; i < n; i++)
	{
		zkl_waiting_name((uint64_t) i + 1, 0, waiting[i]);
		pointers[i] = waiting[i];
	}
	zkl_snapshot_add_waiting(snapshot, pointers, n);
	while ((want = zkl_snapshot_next(snapshot)).kind != ZKL_WANT_NOTHING)
		if (want.kind == ZKL_WANT_QUEUE)
			add_queue(snapshot, n);
		else
		{
			add_report(snapshot, (int) want.session);
			n_reports++;
		}
	found = zkl_snapshot_find_deadlock(snapshot).kind;
	zkl__scratch_free(&scratch);
	return n_reports == n && found == ZKL_FOUND_NOTHING;
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
	test(queue, "the reports of a queue");
	test(confirmed, "an array that is confirmed, released one by one");
	return done();
}
