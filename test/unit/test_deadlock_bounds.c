/*-------------------------------------------------------------------------
 *
 * test_deadlock_bounds.c
 *		Bounds of the deadlock search: every size that other programs
 *		determine has a bound.  Up to the bound a deadlock is found, beyond it there
 *		is no verdict.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/deadlock/cycle_check.h"
#include "fake_tree.h"
#include "waiters.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED

static Party *const A = &parties[0];

/* The name that zklock gives a session's node in a queue, ending with the number. */
static void
child_name(char *out, size_t size, uint64_t session, const char *kind, int number)
{
	snprintf(out, size, "_c_%08x-%04x-%04x-0000-%012d-%s%010d", (unsigned) (session >> 32),
			 (unsigned) (session >> 16 & 0xffff), (unsigned) (session & 0xffff),
			 number, kind, number);
}


/*
 * Lists
 */

static void
test_lists(void)
{
	static const char *const names[] = {"one", "two", "three"};
	bool		too_many;
	ZklNames   *copy = zkl_names_copy(names, 3, 3, 14, &too_many);

	ok(copy && !too_many && copy->n == 3 && strcmp(copy->names[2], "three") == 0,
	   "a list with the greatest allowed number of names and bytes is kept");
	free(copy);
	ok(zkl_names_copy(names, 3, 2, 14, &too_many) == NULL && too_many,
	   "a list with one name more is not kept");
	ok(zkl_names_copy(names, 3, 3, 13, &too_many) == NULL && too_many,
	   "a list with one byte more is not kept");
}


/*
 * A graph that takes a round of narrowing for each of its layers: 1 and 2 wait for
 * each other, 1 for z of each layer, and z for either 1 or x of its layer.  x and y
 * wait for each other, and x for the layer below, so x leaves the deadlock of 1 when
 * that layer does.
 */

#define MAX_LAYERS (ZKL_GRAPH_MAX_ROUNDS + 1)
#define NODE_SETS_OF_LAYER 5

static void
add_node_set(ZklNodeSet *node_sets, int *n, uint64_t waiter, const uint64_t *any_of, int n_any)
{
	node_sets[(*n)++] = (ZklNodeSet)
	{
		.waiter = waiter, .any_of = any_of, .n = n_any
	};
}

/* How many members has 1's deadlock, with so many layers and a node set of n_named? */
static int
deadlocked(int n_layers, int n_named)
{
	static ZklNodeSet node_sets[NODE_SETS_OF_LAYER * MAX_LAYERS + 3];
	static uint64_t ids[MAX_LAYERS + 1][4];
	uint64_t   *others = calloc((size_t) n_named + 1, sizeof(uint64_t));
	uint64_t   *members;
	int			n = 0;
	int			found;

	ids[0][0] = 1;
	ids[0][1] = 2;
	add_node_set(node_sets, &n, 1, &ids[0][1], 1);
	add_node_set(node_sets, &n, 2, &ids[0][0], 1);
	for (int i = 1; i <= n_layers; i++)
	{
		uint64_t	x = (uint64_t) i * 10;
		uint64_t	y = x + 1;
		uint64_t	z = x + 2;

		ids[i][0] = y;
		ids[i][1] = z;
		ids[i][2] = x;
		ids[i][3] = 1;
		add_node_set(node_sets, &n, x, &ids[i][0], 1);
		add_node_set(node_sets, &n, y, &ids[i][2], 1);
		add_node_set(node_sets, &n, z, &ids[i][2], 2);
		add_node_set(node_sets, &n, 1, &ids[i][1], 1);
		if (i > 1)
			add_node_set(node_sets, &n, x, &ids[i - 1][1], 1);
	}
	for (int i = 0; i < n_named; i++)
		others[i] = 5;
	add_node_set(node_sets, &n, 4, others, n_named);
	found = zkl_find_deadlock(node_sets, n, 1, (ZklCircle) {NULL, 0}, &members);
	free(members);
	free(others);
	return found;
}

static void
test_narrowing(void)
{
	const int	most = ZKL_GRAPH_MAX_WORK / 12 - 100;

	is_int(deadlocked(ZKL_GRAPH_MAX_ROUNDS - 2, 1), 2, "a graph that needs the greatest allowed number of rounds is searched");
	is_int(deadlocked(ZKL_GRAPH_MAX_ROUNDS + 1, 1), ZKL_GRAPH_UNSEARCHED,
		   "a graph that needs more rounds is not searched");
	is_int(deadlocked(10, most), 2, "a graph that needs the greatest allowed work is searched");
	is_int(deadlocked(10, 2 * most), ZKL_GRAPH_UNSEARCHED, "a graph that needs more work is not searched");
	is_int(deadlocked(1, ZKL_GRAPH_MAX_WORK), ZKL_GRAPH_UNSEARCHED,
		   "a graph that needs more work in one round is not searched");
}


/*
 * Reports of strangers: each shares "b", which A waits for, and waits for "a" of A
 */

#define FIRST_STRANGER 0x100
#define MAX_STRANGERS 80

static void
make(const char *path, const char *data, int64_t session)
{
	char	   *made;
	int64_t		unused;

	fake_tree_create(path, data, (int) strlen(data),
					 session ? ZKL_CREATE_EPHEMERAL_SEQUENTIAL : ZKL_CREATE_CONTAINER,
					 session, &made, &unused);
	free(made);
}

static const char *
report_of(int64_t session)
{
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (node->owner == session && fake_tree_child(node->path, WAITS))
			return node->path;
	return NULL;
}

/* Creates a node in a queue; returns its name, static memory. */
static const char *
queue_as(const char *lock, int64_t session, const char *kind)
{
	static char name[ZKL_CHILD_NAME_SIZE];

	child_name(name, sizeof(name), (uint64_t) session, kind, 0);
	name[strlen(name) - 10] = '\0'; /* the server appends the number */
	return strrchr(foreign_node(lock, name, session), '/') + 1;
}

/* Is A a victim, with so many strangers each of which reports data of this size? */
static bool
fails_among(int n, int size)
{
	static char *data[MAX_STRANGERS];
	bool		fails = false;

	scene_begin(1);
	waiters_begin("a");
	forget(lock_now(A, "a", X));
	make(WAITS, "", 0);
	for (int i = 0; i < n; i++)
	{
		int64_t		session = FIRST_STRANGER + i;
		int			length;

		data[i] = malloc((size_t) size + 1);
		length = snprintf(data[i], (size_t) size + 1,
						  "62\t9\tserver\nx\t1\t1\texclusive lock \"a\"\n");
		memset(data[i] + length, '.', (size_t) (size - length));
		data[i][size] = '\0';
		queue_as("b", session, "__READ__");
	}
	lock_now(A, "b", X);
	for (int round = 0; round < 60 && !fails; round++)
	{
		for (int i = 0; i < n; i++)
		{
			char		path[128];

			snprintf(path, sizeof(path), WAITS "/%x.1.1.w.%" PRIx64 "..", FIRST_STRANGER + i,
					 (uint64_t) fake_session_id(A->client));
			if (report_of(FIRST_STRANGER + i) == NULL)
				make(path, data[i], FIRST_STRANGER + i);
		}
		fails = is_victim_now(A);
		fake_run_all();
		fake_advance(100);
	}
	for (int i = 0; i < n; i++)
		free(data[i]);
	scene_end(NULL);
	return fails;
}

static void
test_reports(void)
{
	const int	all = ZKL_CHECK_MAX_BYTES / ZKL_CHECK_MAX_DATA;

	ok(fails_among(1, ZKL_CHECK_MAX_DATA), "a report with the greatest allowed size of data is checked");
	ok(!fails_among(1, ZKL_CHECK_MAX_DATA + 1), "with one byte more there is no verdict");
	ok(fails_among(all - 1, ZKL_CHECK_MAX_DATA), "reports with the greatest allowed total size are checked");
	ok(!fails_among(all + 1, ZKL_CHECK_MAX_DATA), "with a greater total size there is no verdict");
}

/* Names that no session of zklock creates, of more bytes than are searched. */
static void
test_names(void)
{
	static char path[ZKL_WAIT_NAME_MAX + 64];
	ZklRequestInfo info;

	scene_begin(1);
	waiters_begin("a");
	forget(lock_now(A, "a", X));
	queue_as("b", 7, "__WRIT__");
	lock_now(A, "b", X);
	make(WAITS, "", 0);
	memset(path, 'n', sizeof(path) - 1);
	memcpy(path, WAITS "/", strlen(WAITS "/"));
	for (int i = 0; i <= ZKL_WAITS_MAX_BYTES / ZKL_WAIT_NAME_MAX; i++)
		make(path, "", 7);
	publish_all();
	zkl_request_info(pending_of(A)->request, &info);
	ok(info.is_unsearched, "if the names have more bytes than are searched, the owner gets a warning");
	scene_end(NULL);
}


/*
 * The own report
 */

#define N_WAITERS 3000
#define N_HELD 7000

/* Returns the report of A, which waits for thousands of sessions, and thousands wait for it. */
static FakeNode *
report_behind(int n_readers)
{
	static ZklLocalWaiter local_waiters[N_WAITERS];
	static ZklHeld held[N_HELD];
	const char *lock = "b";
	const uint32_t key = 1;
	ZklWaitReport report = {.pid = 1, .server = "server", .locks = &lock, .keys = &key,
	.local_waiters = local_waiters, .n_local_waiters = N_WAITERS};
	ZklRequestInfo info;
	const char *node_path;

	scene_begin(1);
	waiters_begin("a");
	forget(lock_now(A, "a", X));
	for (int i = 0; i < n_readers; i++)
		queue_as("b", INT64_C(0x7000000000000000) + i, "__READ__");
	lock_now(A, "b", X);
	for (int i = 0; i < N_HELD; i++)
		held[i] = (ZklHeld)
	{
		UINT32_C(0x80000000) + (uint32_t) i, ZKL_HELD_SHARED
	};
	for (int i = 0; i < N_WAITERS; i++)
		local_waiters[i] = (ZklLocalWaiter)
	{
		i + 1, i, "ShareLock on transaction 4711", false, held, i == 0 ? N_HELD : 1
	};
	zkl_request_info(pending_of(A)->request, &info);
	report.probe = info.probe;
	zkl_deadlock_free(zkl_request_publish(pending_of(A)->request, &report));
	fake_run_all();
	node_path = report_of(fake_session_id(A->client));
	return node_path ? fake_tree_find(node_path) : NULL;
}

/* How many lines of this kind have the data? */
static int
count_lines(const FakeNode *node, char kind)
{
	int			n = 0;

	for (const char *c = strchr(node->data, '\n'); c; c = strchr(c + 1, '\n'))
		n += c[1] == kind;
	return n;
}

static int
count_chars(const char *text, char c)
{
	int			n = 0;

	for (; *text; text++)
		n += *text == c;
	return n;
}

static void
test_own_report(void)
{
	FakeNode   *node = report_behind(4500);

	ok(node && strlen(node->path) > ZKL_WAIT_NAME_MAX - 100 &&
	   strlen(node->path) < ZKL_WAIT_NAME_MAX + 100,
	   "a wait behind 4,500 sessions is reported, by a name of bounded length");
	scene_end(NULL);

	node = report_behind(100);
	ok(node && node->data_len > ZKL_WAIT_NAME_MAX - 100 &&
	   node->data_len < ZKL_WAIT_NAME_MAX + 100,
	   "a wait before %d sessions is reported, with data of bounded length", N_WAITERS);
	ok(node && strstr(node->data, "\nd\t1\t0\tShareLock on transaction 4711\t*\nd\t2\t"),
	   "these data list no more sessions than fit");
	ok(node && count_lines(node, 'x') == 1 && strstr(node->data, "\nx\t64\t"),
	   "these data have the number of sessions that A waits for");
	is_int(node ? count_lines(node, 'd') : 0, node ? count_chars(node->path, ',') - 98 : -1,
		   "the name and the data have the same local waiters");
	scene_end(NULL);
}

int
main(void)
{
	test_lists();
	test_narrowing();
	test_reports();
	test_names();
	test_own_report();
	return done();
}
