/*-------------------------------------------------------------------------
 *
 * test_find_deadlock_bounds.c
 *		The cost of a search, its bounds, and data of reports that other programs forge.
 *
 * The limits of processor time are a hundred times what a search takes, and far below what
 * one takes that is quadratic in what other programs create.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "recipe/deadlock/find_deadlock.h"
#include "recipe/queue/node_names.h"
#include "tap.h"

#define MAX_NAMES 120000

static char names[MAX_NAMES][ZKL_CHILD_NAME_SIZE];
static const char *children[MAX_NAMES];
static int	n_names;

static ZklScratch scratch;		/* of the search */
static bool is_too_much;

/* Does something for the search, unless the search is beyond its bounds. */
#define attempt(...) \
	do { \
		if (is_too_much || setjmp(scratch.left) != 0) \
			is_too_much = true; \
		else \
			__VA_ARGS__; \
	} while (0)

static char *
add_name(void)
{
	children[n_names] = names[n_names];
	return names[n_names++];
}

/* Writes the name of the session's node with this number. */
static void
node_name(uint64_t session, ZklMode mode, int number, char *name)
{
	zkl_child_name(ZKL_NODE_NAMES_CURATOR, mode, (int64_t) session, (uint64_t) number, number, name);
}

/* Starts the search of session 1, beside reports of sessions 2 to n. */
static ZklSnapshot *
begin_search(int n)
{
	ZklSnapshot *s = zkl_snapshot_new(&scratch, 1);

	is_too_much = false;
	n_names = 0;
	for (int i = 1; i <= n; i++)
		zkl_waiting_name((uint64_t) i, 0, add_name());
	zkl_snapshot_add_waiting(s, children, n_names);
	n_names = 0;
	return s;
}

static void
add_report(ZklSnapshot *s, uint64_t session, const ZklWaitNode *nodes, int n_nodes)
{
	ZklReport	report = {.server = "", .nodes = nodes, .n_nodes = n_nodes};
	int			length;
	char	   *data = zkl_report_encode(&scratch, &report, &length);

	attempt(zkl_snapshot_add_report(s, session, session, (int64_t) session, 0, data, length));
}

/* Adds the report of a session that waits with this node of a lock. */
static void
add_wait(ZklSnapshot *s, uint64_t session, const char *name, const char *child)
{
	ZklWaitNode node = {ZKL_PLACE_LOCK, name, child, 0};

	add_report(s, session, &node, 1);
}

/* Takes all wants; returns how many.  A search beyond its bounds reads nothing more. */
static int
n_wanted(ZklSnapshot *s)
{
	int			n = 0;

	while (!is_too_much && zkl_snapshot_next(s).kind != ZKL_WANT_NOTHING)
		n++;
	return n;
}

/* Adds the queue that the names form, and forgets them. */
static void
add_queue(ZklSnapshot *s, ZklWaitPlace place, const char *name)
{
	attempt(zkl_snapshot_add_queue(s, place, name, 0, children, n_names));
	n_names = 0;
}

#define TOO_MUCH (-1)

/* Searches; frees the snapshot.  Stores the milliseconds of processor time. */
static int
found(ZklSnapshot *s, int *ms)
{
	clock_t		start = clock();
	static int	result;

	attempt(result = (int) zkl_snapshot_find_deadlock(s).kind);
	*ms = (int) ((clock() - start) * 1000 / CLOCKS_PER_SEC);
	zkl__scratch_free(&scratch);
	return is_too_much ? TOO_MUCH : result;
}


/*
 * Crowds
 */

/*
 * Session 2 has x, and waits for y, which session 1 has.  The other sessions wait for x, session
 * 1 as the last of n; those up to "reporting" have reports.
 */
static ZklSnapshot *
crowd(int n, int reporting, int *n_reads)
{
	ZklSnapshot *s = begin_search(reporting);
	char		own[ZKL_CHILD_NAME_SIZE];
	char		other[ZKL_CHILD_NAME_SIZE];

	*n_reads = n_wanted(s);
	node_name(1, ZKL_MODE_EXCLUSIVE, n, own);
	node_name(2, ZKL_MODE_EXCLUSIVE, 2, other);
	add_wait(s, 1, "x", own);
	*n_reads += n_wanted(s);
	for (int i = 2; i <= n; i++)
		node_name(i == n ? 1 : (uint64_t) i, ZKL_MODE_EXCLUSIVE, i, add_name());
	add_queue(s, ZKL_PLACE_LOCK, "x");
	*n_reads += n_wanted(s);
	add_wait(s, 2, "y", other);
	for (int i = 3; i <= reporting && i < n; i++)
	{
		char		name[ZKL_CHILD_NAME_SIZE];

		node_name((uint64_t) i, ZKL_MODE_EXCLUSIVE, i, name);
		add_wait(s, (uint64_t) i, "x", name);
	}
	*n_reads += n_wanted(s);
	node_name(1, ZKL_MODE_EXCLUSIVE, 1, add_name());
	strcpy(add_name(), other);
	add_queue(s, ZKL_PLACE_LOCK, "y");
	return s;
}

static void
test_crowds(void)
{
	int			n_reads;
	int			ms;
	ZklSnapshot *s = crowd(501, 2, &n_reads);

	is_int(n_reads, 4, "500 waiters that hold nothing: two reports and two queues are read");
	is_int(found(s, &ms), ZKL_FOUND_VICTIM, "500 waiters that hold nothing: the deadlock is found");
	s = crowd(501, 500, &n_reads);
	is_int(n_reads, 502, "500 waiters that hold something: each report is read once");
	is_int(found(s, &ms), ZKL_FOUND_VICTIM, "500 waiters that hold something: the deadlock is found");
	printf("# ... in %d ms\n", ms);
	s = crowd(10000, 2, &n_reads);
	is_int(found(s, &ms), ZKL_FOUND_VICTIM, "a queue of 10,000 nodes");
	printf("# ... in %d ms\n", ms);
	s = crowd(2000, 1500, &n_reads);
	is_int(found(s, &ms), TOO_MUCH, "more reports than a search may read");
	is_int(n_reads, 2, "of more reports than a search may read none is read");
}

/* Adds the report of a session that waits with a node of this number for n locks. */
static void
add_waits(ZklSnapshot *s, uint64_t session, int number, int n)
{
	static ZklWaitNode nodes[500];
	static char lock_names[500][16];
	char		child[ZKL_CHILD_NAME_SIZE];

	node_name(session, ZKL_MODE_EXCLUSIVE, number, child);
	for (int i = 0; i < n; i++)
	{
		snprintf(lock_names[i], sizeof(lock_names[i]), "l%d", i);
		nodes[i] = (ZklWaitNode)
		{
			ZKL_PLACE_LOCK, lock_names[i], child, 0
		};
	}
	add_report(s, session, nodes, n);
}

/* Adds the first n queues: readers, and behind them writers, of which session 1 is the last. */
static void
add_queues(ZklSnapshot *s, int readers, int writers, int n)
{
	n_wanted(s);
	for (int i = 0; i < n; i++)
	{
		char		name[16];

		snprintf(name, sizeof(name), "l%d", i);
		for (int k = 1; k <= readers; k++)
			node_name((uint64_t) (writers + k), ZKL_MODE_SHARED, k, add_name());
		for (int k = 1; k <= writers; k++)
			node_name((uint64_t) (writers + 1 - k), ZKL_MODE_EXCLUSIVE, readers + k, add_name());
		add_queue(s, ZKL_PLACE_LOCK, name);
	}
}

static void
test_many_edges(void)
{
	ZklSnapshot *s = begin_search(100);
	int			ms;

	for (int session = 100; session >= 1; session--)
		add_waits(s, (uint64_t) session, 101 - session, 500);
	add_queues(s, 0, 100, 500);
	is_int(found(s, &ms), ZKL_FOUND_NOTHING, "100 sessions, each behind the others in 500 queues");
	printf("# ... in %d ms\n", ms);

	s = begin_search(990);
	for (int session = 390; session >= 1; session--)
		add_waits(s, (uint64_t) session, 600 + 391 - session, 3);
	for (int session = 391; session <= 990; session++)
		add_wait(s, (uint64_t) session, "y", "none");
	add_queues(s, 600, 390, 3);
	is_int(found(s, &ms), TOO_MUCH, "390 sessions that wait for 600 in three queues: too many edges");
	printf("# ... in %d ms\n", ms);
}

/* 900 sessions read a queue of 100,000 nodes that belong to none of them. */
static void
test_many_steps(void)
{
	ZklSnapshot *s = begin_search(900);
	char		name[ZKL_CHILD_NAME_SIZE];
	int			ms;

	for (int i = 1; i <= 900; i++)
	{
		node_name((uint64_t) i, ZKL_MODE_SHARED, 200000 + i, name);
		add_wait(s, (uint64_t) i, "x", name);
	}
	n_wanted(s);
	for (int i = 1; i <= 100000; i++)
		node_name(UINT64_C(0xf000000000000000), ZKL_MODE_EXCLUSIVE, i, add_name());
	for (int i = 1; i <= 900; i++)
		node_name((uint64_t) i, ZKL_MODE_SHARED, 200000 + i, add_name());
	add_queue(s, ZKL_PLACE_LOCK, "x");
	is_int(found(s, &ms), TOO_MUCH, "more steps than a search takes");
	printf("# ... in %d ms\n", ms);
}

/* 250 sessions upgrade behind each other and 100,000 readers that belong to none of them. */
static void
test_many_readers(void)
{
	ZklSnapshot *s = begin_search(250);
	char		name[ZKL_CHILD_NAME_SIZE];
	int			ms;

	for (int i = 1; i <= 250; i++)
	{
		node_name((uint64_t) i, ZKL_MODE_EXCLUSIVE, 300000 + i, name);
		add_wait(s, (uint64_t) i, "x", name);
	}
	n_wanted(s);
	for (int i = 1; i <= 100000; i++)
		node_name(UINT64_C(0xf000000000000000), ZKL_MODE_SHARED, i, add_name());
	for (int i = 1; i <= 250; i++)
		node_name((uint64_t) i, ZKL_MODE_SHARED, 200000 + i, add_name());
	for (int i = 1; i <= 250; i++)
		node_name((uint64_t) i, ZKL_MODE_EXCLUSIVE, 300000 + i, add_name());
	add_queue(s, ZKL_PLACE_LOCK, "x");
	is_int(found(s, &ms), TOO_MUCH, "the same for upgrades, which wait for all readers");
	printf("# ... in %d ms\n", ms);
}

/* Another program shows session 2 as a local waiter of 998 servers' sessions, and 100,000 nodes. */
static void
test_many_places(void)
{
	ZklSnapshot *s = zkl_snapshot_new(&scratch, 1);
	char		own[ZKL_CHILD_NAME_SIZE];
	int			ms;

	is_too_much = false;
	n_names = 0;
	zkl_waiting_name(1, 0, add_name());
	for (int i = 3; i <= 1000; i++)
		zkl_waiting_name((uint64_t) i, 2, add_name());
	zkl_snapshot_add_waiting(s, children, n_names);
	n_names = 0;
	n_wanted(s);
	node_name(1, ZKL_MODE_EXCLUSIVE, 100001, own);
	add_wait(s, 1, "x", own);
	n_wanted(s);
	for (int i = 1; i <= 100000; i++)
		node_name(2, ZKL_MODE_EXCLUSIVE, i, add_name());
	strcpy(add_name(), own);
	add_queue(s, ZKL_PLACE_LOCK, "x");
	is_int(found(s, &ms), TOO_MUCH, "the same for a session that waits in many places");
	printf("# ... in %d ms\n", ms);
}

/* Session 1 waits for one of n permits, which session 2 has; session 2 waits for x. */
static int
permits(int n, int *ms)
{
	ZklSnapshot *s = begin_search(2);
	char		mutex[ZKL_CHILD_NAME_SIZE];
	char		own[ZKL_CHILD_NAME_SIZE];
	char		other[ZKL_CHILD_NAME_SIZE];
	ZklWaitNode nodes[2] = {
		{ZKL_PLACE_MUTEX, "s", mutex, 0},
		{ZKL_PLACE_PERMITS, "s", own, n}
	};

	node_name(1, ZKL_MODE_EXCLUSIVE, 1, mutex);
	zkl_permit_prefix(1, 1, own);
	strcat(own, "0000000000");
	node_name(2, ZKL_MODE_EXCLUSIVE, 2, other);
	add_report(s, 1, nodes, 2);
	n_wanted(s);
	strcpy(add_name(), mutex);
	add_queue(s, ZKL_PLACE_MUTEX, "s");
	strcpy(add_name(), own);
	for (int i = 0; i < n; i++)
	{
		char	   *name = add_name();

		zkl_permit_prefix(2, (uint64_t) i, name);
		sprintf(name + strlen(name), "%010d", i + 1);
	}
	add_queue(s, ZKL_PLACE_PERMITS, "s");
	n_wanted(s);
	add_wait(s, 2, "x", other);
	n_wanted(s);
	node_name(1, ZKL_MODE_EXCLUSIVE, 1, add_name());
	strcpy(add_name(), other);
	add_queue(s, ZKL_PLACE_LOCK, "x");
	return found(s, ms);
}

static void
test_permits(void)
{
	int			ms;

	is_int(permits(400, &ms), ZKL_FOUND_VICTIM, "a semaphore with 400 permits");
	is_int(permits(3000, &ms), TOO_MUCH, "one with 3,000: more than a verdict can check");
	printf("# ... in %d ms\n", ms);
}

static void
test_bytes(void)
{
	ZklSnapshot *s = begin_search(2);
	int			ms;

	add_wait(s, 1, "x", "c");
	n_wanted(s);
	for (int i = 0; i < 100; i++)
		children[i] = names[0];
	memset(names, 'a', 100000);
	((char *) names)[100000] = '\0';
	attempt(zkl_snapshot_add_queue(s, ZKL_PLACE_LOCK, "x", 0, children, 100));
	is_int(found(s, &ms), TOO_MUCH, "more bytes than a search may read");
}


/*
 * Data of reports
 */

static bool
is_report(const char *data)
{
	bool		result = zkl_report_decode(&scratch, data, (int) strlen(data)) != NULL;

	zkl__scratch_free(&scratch);
	return result;
}

static void
test_data(void)
{
	static const char *const bad[] = {
		"", "2", "1 0 0 1 0 server", "2 0 0 1 0", "l 0 0 0 0 x/c", "2 0 0 1 0 a\n2 0 0 1 0 b",
		"2 0 0 1 0 server\nl 0 0 0 0 x", "2 0 0 1 0 server\nl 0 0 0 0 /c",
		"2 0 0 1 0 server\nl 0 0 0 0 x/", "2 0 0 1 0 server\nl 0 0 0 0 a/b/c",
		"2 0 0 1 0 server\nl 0 0 0 0 ../../c", "2 0 0 1 0 server\nl 0 0 0 x/c",
		"2 0 0 1 0 server\nq 0 0 0 0 x/c", "2 0 0 1 0 server\nw 1 2 3",
	};
	ZklHeld		held[3] = {{1, ZKL_HELD_SHARED}, {UINT32_MAX, ZKL_HELD_PERMIT}, {0, ZKL_HELD_EXCLUSIVE}};
	ZklLocalWaiter waiters[2] = {
		{.session_id = -1, .pid = 7, .identity = 5, .only_for_place = true, .held = held,
		.n_held = 3, .waits_for = "a\tb\nc"},
		{.session_id = 2, .pid = 8, .identity = 6, .waits_for = ""}
	};
	ZklWaitNode nodes[2] = {{ZKL_PLACE_MUTEX, "s", "m", 0}, {ZKL_PLACE_PERMITS, "s", "p", 3}};
	ZklReport	report = {42, INT32_MAX, 9, "a\nserver", nodes, 2, waiters, 2};
	ZklReport  *copy;
	char	   *large;
	int			length;
	char	   *data = zkl_report_encode(&scratch, &report, &length);
	int			n = 0;

	copy = zkl_report_decode(&scratch, data, length);
	ok(copy && copy->pid == 42 && copy->bell == INT32_MAX &&
	   copy->identity == 9 && strcmp(copy->server, "a?server") == 0, "a report as it was written");
	ok(copy && copy->n_nodes == 2 && copy->nodes[1].capacity == 3 &&
	   copy->nodes[0].place == ZKL_PLACE_MUTEX && strcmp(copy->nodes[1].child, "p") == 0, "a report is read as it was written: its nodes");
	ok(copy && copy->n_waiters == 2 && copy->waiters[0].session_id == -1 &&
	   copy->waiters[0].only_for_place && copy->waiters[0].n_held == 3 &&
	   copy->waiters[0].held[1].key == UINT32_MAX && copy->waiters[0].held[1].kind == ZKL_HELD_PERMIT &&
	   strcmp(copy->waiters[0].waits_for, "a?b?c") == 0 && copy->waiters[1].n_held == 0,
	   "a report is read as it was written: its local waiters, and texts in one line");
	ok(zkl_report_is_unchanged(&report, copy, NULL) && zkl_report_is_unchanged(&report, copy, &waiters[1]),
	   "the same waits");
	waiters[1].identity = 7;
	ok(!zkl_report_is_unchanged(&report, copy, &waiters[1]), "another wait of a local waiter");
	waiters[1].session_id = 3;
	ok(!zkl_report_is_unchanged(&report, copy, &waiters[1]), "another local waiter");
	report.identity = 8;
	ok(!zkl_report_is_unchanged(&report, copy, NULL), "another wait of the session");
	for (int i = 0; i < length; i++)
		(void) zkl_report_decode(&scratch, data, i);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		n += is_report(bad[i]);
	is_int(n, 0, "malformed data, and names that would lead elsewhere");
	large = calloc(1, ZKL_REPORT_MAX + 2);
	memset(large, 'a', ZKL_REPORT_MAX + 1);
	report.server = large;
	is_too_much = false;
	attempt((void) zkl_report_encode(&scratch, &report, &length));
	ok(is_too_much, "no report is longer than allowed");
	zkl__scratch_free(&scratch);
	memcpy(large, "2 0 0 1 0 ", 10);
	ok(!is_report(large), "no report that is longer than allowed is read");
	free(large);
}

static void
test_names(void)
{
	char		name[ZKL_WAITING_NAME_SIZE];
	uint64_t	session;
	uint64_t	local;

	zkl_waiting_name(UINT64_MAX, UINT64_MAX - 1, name);
	ok(zkl_parse_waiting(name, &session, &local) && session == UINT64_MAX &&
	   local == UINT64_MAX - 1, "the name of a local waiter's znode");
	zkl_waiting_name(5, 0, name);
	ok(zkl_parse_waiting(name, &session, &local) && session == 5 && local == 0, "the name of a report's znode");
	ok(!zkl_parse_waiting("", &session, &local) && !zkl_parse_waiting("x", &session, &local) &&
	   !zkl_parse_waiting("5@", &session, &local) && !zkl_parse_waiting("@5", &session, &local) &&
	   !zkl_parse_waiting("00000000000000000000000000000000005", &session, &local),
	   "names of other programs");
}

int
main(void)
{
	test_crowds();
	test_many_edges();
	test_many_steps();
	test_many_readers();
	test_many_places();
	test_permits();
	test_bytes();
	test_data();
	test_names();
	return done();
}
