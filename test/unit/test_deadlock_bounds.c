/*-------------------------------------------------------------------------
 *
 * test_deadlock_bounds.c
 *		Promise 10.3 for the deadlock search: every size that other programs
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

#define ME UINT64_C(0x1001)
#define OTHER UINT64_C(0x2002)

static Party *const A = &parties[0];

static uint32_t
same_key(const char *name, size_t length)
{
	return name != NULL && length > 0;
}

/* The name that our recipe gives a session's node in a queue, ending with the number. */
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
	   "a list of as many names and bytes as are allowed is kept");
	free(copy);
	ok(zkl_names_copy(names, 3, 2, 14, &too_many) == NULL && too_many,
	   "one name more is too many");
	ok(zkl_names_copy(names, 3, 3, 13, &too_many) == NULL && too_many,
	   "one byte more is too many");
}


/*
 * A cycle check built by hand: "me" waits in a queue of sharers, the first of which
 * is "other"; "other" waits for a row of "me".
 */

static ZklCycleCheck *
make_check(int n_queue_entries, int n_readers)
{
	ZklCycleCheck *check = calloc(1, sizeof(ZklCycleCheck));
	char		own[ZKL_CHILD_NAME_SIZE];
	ZklText		data = {NULL, 0, 0, false};

	child_name(own, sizeof(own), ME, "__WRIT__", n_readers);
	zkl_text_add(&data, "1\t1\tserver\nd\t%" PRIx64 "\t7\ta row", OTHER);
	for (int i = 0; i < n_queue_entries; i++)
		zkl_text_add(&data, "\nw\tlocks/x\t%s\texclusive lock\tx", own);
	check->participants = calloc(1, sizeof(ZklParticipant));
	check->participants[0].session = ME;
	check->participants[0].data = data.text;
	check->n_participants = 1;
	return check;
}

static ZklNames *
make_queue(int n_readers)
{
	char	   *text = calloc((size_t) n_readers + 1, ZKL_CHILD_NAME_SIZE);
	const char **names = calloc((size_t) n_readers + 1, sizeof(char *));
	ZklNames   *copy;
	bool		too_many;

	for (int i = 0; i <= n_readers; i++)
	{
		names[i] = text + (size_t) i * ZKL_CHILD_NAME_SIZE;
		child_name(text + (size_t) i * ZKL_CHILD_NAME_SIZE, ZKL_CHILD_NAME_SIZE,
				   i == n_readers ? ME : OTHER + (uint64_t) i,
				   i == n_readers ? "__WRIT__" : "__READ__", i);
	}
	copy = zkl_names_copy(names, n_readers + 1, n_readers + 1, SIZE_MAX, &too_many);
	free(names);
	free(text);
	return copy;
}

/* Is the deadlock of the two found? */
static bool
is_found(int n_queue_entries, int n_readers)
{
	ZklCycleCheck *check = make_check(n_queue_entries, n_readers);
	ZklDeadlock *deadlock = NULL;
	bool		found;

	if (zkl_check_parse(check))
	{
		check->lists[0].names = make_queue(n_readers);
		deadlock = zkl_check_result(check, ME, (ZklCircle) {NULL, 0}, same_key);
	}
	found = deadlock != NULL && deadlock->n == 2;
	zkl_deadlock_free(deadlock);
	zkl__check_free(check);
	return found;
}

static void
test_work(void)
{
	ok(is_found(ZKL_CHECK_MAX_ENTRIES, 1), "as many waits as are allowed");
	ok(!is_found(ZKL_CHECK_MAX_ENTRIES + 1, 1), "one wait more: no verdict");
	ok(is_found(20, ZKL_CHECK_MAX_READS / 20 - 1), "as many nodes to look at as are allowed");
	ok(!is_found(20, ZKL_CHECK_MAX_READS / 20), "more nodes to look at: no verdict");
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

	is_int(deadlocked(ZKL_GRAPH_MAX_ROUNDS - 2, 1), 2, "as many rounds as are allowed");
	is_int(deadlocked(ZKL_GRAPH_MAX_ROUNDS + 1, 1), ZKL_GRAPH_UNSEARCHED,
		   "more rounds: not searched");
	is_int(deadlocked(10, most), 2, "as much work as is allowed");
	is_int(deadlocked(10, 2 * most), ZKL_GRAPH_UNSEARCHED, "more work: not searched");
	is_int(deadlocked(1, ZKL_GRAPH_MAX_WORK), ZKL_GRAPH_UNSEARCHED,
		   "more work in one round: not searched");
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
		length = snprintf(data[i], (size_t) size + 1, "62\t9\tserver\nw\tlocks/a\t%s\texclusive lock\ta\n",
						  queue_as("a", session, "__WRIT__"));
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

	ok(fails_among(1, ZKL_CHECK_MAX_DATA), "a node_path with as much data as is allowed");
	ok(!fails_among(1, ZKL_CHECK_MAX_DATA + 1), "one byte more: no verdict");
	ok(fails_among(all - 1, ZKL_CHECK_MAX_DATA), "all data together");
	ok(!fails_among(all + 1, ZKL_CHECK_MAX_DATA), "more data together: no verdict");
}

/* Names that no session of ours creates, of more bytes than are searched. */
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
	ok(info.is_unsearched, "more bytes of names than are searched: the owner is to warn");
	scene_end(NULL);
}


/*
 * The own report
 */

#define N_READERS 4500
#define N_WAITERS 3000
#define N_HELD 7000

/* A waits for thousands of sessions, and thousands wait for it. */
static void
test_own_report(void)
{
	static ZklLocalWaiter local_waiters[N_WAITERS];
	static ZklHeld held[N_HELD];
	const char *lock = "b";
	ZklWaitReport report = {.pid = 1, .server = "server", .locks = &lock,
	.local_waiters = local_waiters, .n_local_waiters = N_WAITERS, .key_of = same_key};
	ZklRequestInfo info;
	FakeNode   *node;
	const char *node_path;

	scene_begin(1);
	waiters_begin("a");
	forget(lock_now(A, "a", X));
	for (int i = 0; i < N_READERS; i++)
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
	node = node_path ? fake_tree_find(node_path) : NULL;
	ok(node != NULL, "a wait behind %d and before %d is reported", N_READERS, N_WAITERS);
	ok(node && strlen(node_path) > ZKL_WAIT_NAME_MAX - 100 &&
	   strlen(node_path) < ZKL_WAIT_NAME_MAX + 100, "... by a name of bounded length");
	ok(node && node->data_len > ZKL_WAIT_NAME_MAX - 100 &&
	   node->data_len < ZKL_WAIT_NAME_MAX + 100, "... with data of bounded length");
	ok(node && strstr(node->data, "\nd\t1\t0\tShareLock on transaction 4711\t*\nd\t2\t"),
	   "... which do not list more than there is room for");
	scene_end(NULL);
}

int
main(void)
{
	test_lists();
	test_work();
	test_narrowing();
	test_reports();
	test_names();
	test_own_report();
	return done();
}
