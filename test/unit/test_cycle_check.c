/*-------------------------------------------------------------------------
 *
 * test_cycle_check.c
 *		No false alarm: a deadlock is accepted only if each member has
 *		reported the same wait twice, in a node of its own, with data that fit the
 *		name.  Data that cannot be parsed are no deadlock.
 *
 * A waits behind a stranger, which reports a wait that leads back to A, and reports
 * again whenever A probes it, with data that the test chooses.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_tree.h"
#include "waiters.h"

#define X ZKL_MODE_EXCLUSIVE

#define STRANGER 0x4d
#define ANOTHER 0x4e
#define WHO "62\t9\telsewhere"
#define TRUTH WHO "\nx\t1\t7\texclusive lock \"a\""

static Party *const A = &parties[0];
static char node_sets[64];		/* in the name: A, by its session */

static int64_t
id_of_a(void)
{
	return fake_session_id(A->client);
}

/* The name that our recipe gives a session's node; static memory. */
static const char *
name_of(int64_t session, const char *kind)
{
	static int	n = 0;
	static char name[128];

	snprintf(name, sizeof(name), "_c_%08x-%04x-%04x-0000-%012d-%s", (unsigned) (session >> 32),
			 (unsigned) (session >> 16 & 0xffff), (unsigned) (session & 0xffff), ++n, kind);
	return name;
}

/* Creates a node of a session in a queue; returns its name, static memory. */
static const char *
node_in(const char *lock, int64_t session, const char *kind)
{
	return strrchr(foreign_node(lock, name_of(session, kind), session), '/') + 1;
}

/* Creates a session's sequential node, or a container (session 0). */
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

/* A holds "a" and waits for "b", which the stranger holds. */
static void
begin(void)
{
	scene_begin(1);
	waiters_begin("a");
	forget(lock_now(A, "a", X));
	node_in("b", STRANGER, "__WRIT__");
	lock_now(A, "b", X);
	make(WAITS, "", 0);
	snprintf(node_sets, sizeof(node_sets), "%" PRIx64, (uint64_t) id_of_a());
}

/* Returns the path of a session's wait report, or NULL. */
static const char *
reported(int64_t session)
{
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (node->owner == session && fake_tree_child(node->path, WAITS))
			return node->path;
	return NULL;
}

/*
 * Creates the report, unless there is one; "edges" are the node sets and local waiters,
 * and "owner" is the session that creates it.
 */
static void
report_as(int64_t session, int wait, const char *edges, const char *data, int64_t owner)
{
	char		path[256];

	if (reported(owner))
		return;
	snprintf(path, sizeof(path), WAITS "/%" PRIx64 ".%x.1.w.%s.", (uint64_t) session, wait, edges);
	make(path, data, owner);
}

static void
stranger_reports(const char *data)
{
	char		edges[128];

	snprintf(edges, sizeof(edges), "%s.", node_sets);
	report_as(STRANGER, 1, edges, data, STRANGER);
}

/* Is A the victim within so many tenths of a second, if the stranger reports this? */
static bool
becomes_victim(const char *data, int tenths)
{
	for (int i = 0; i < tenths; i++)
	{
		stranger_reports(data);
		if (is_victim_now(A))
			return true;
		fake_run_all();
		fake_advance(100);
	}
	return false;
}

static void
is_confirmed(const char *data, const char *name)
{
	ok(becomes_victim(data, 60), "%s: a deadlock", name);
	scene_end(NULL);
}

/* Probes a session, as a victim does. */
static void
ask(int64_t session)
{
	if (reported(session))
		fake_tree_delete(reported(session));
}

/* No deadlock; but a true one is found afterwards, and A, probed last, is the victim. */
static void
is_unconfirmed(const char *data, const char *name)
{
	ok(!becomes_victim(data, 60), "%s: no deadlock", name);
	ask(STRANGER);
	stranger_reports(TRUTH);
	ask(id_of_a());
	ok(becomes_victim(TRUTH, 60), "%s: a true deadlock is found later", name);
	scene_end(NULL);
}

static void
test_data(void)
{
	begin();
	is_confirmed(TRUTH, "a wait for a lock");

	begin();
	is_confirmed(WHO "\np\t1\t7\ta permit of semaphore \"p\"", "a wait for a permit");

	begin();
	is_confirmed(TRUTH "\nlater\tversion\nwx\ty\n", "lines that a later version may add");
}

/* Reports with these edges and data, from "wait" on; is A the victim within six seconds? */
static bool
becomes_victim_of(int wait, int step, const char *edges, const char *data, int64_t owner)
{
	bool		becomes_victim = false;

	for (int i = 0; i < 60 && !becomes_victim; i++)
	{
		if (reported(owner) == NULL)
			wait += step;
		report_as(STRANGER, wait, edges, data, owner);
		becomes_victim = is_victim_now(A);
		fake_run_all();
		fake_advance(100);
	}
	scene_end(NULL);
	return becomes_victim;
}

static void
test_reports(void)
{
	char		edges[128];

	begin();
	snprintf(edges, sizeof(edges), "%s.", node_sets);
	ok(becomes_victim_of(1, 0, edges, TRUTH, STRANGER), "the same wait reported twice is a deadlock");
	begin();
	snprintf(edges, sizeof(edges), "%s.", node_sets);
	ok(!becomes_victim_of(1, 1, edges, TRUTH, STRANGER), "another wait in each report is no deadlock");
	begin();
	snprintf(edges, sizeof(edges), "%s.", node_sets);
	ok(!becomes_victim_of(1, 0, edges, TRUTH, ANOTHER), "a report in the name of another session is no deadlock");
}

/* The stranger needs what A holds; reporting again, it needs only A's place, and is the victim. */
static void
test_rank(void)
{
	char		edges[128];

	begin();
	stranger_reports(TRUTH);
	for (int i = 0; i < 10 && reported(STRANGER); i++)
	{
		(void) is_victim_now(A);
		fake_run_all();
	}
	ok(!reported(STRANGER), "A claims to be the victim, and probes the other member");
	snprintf(edges, sizeof(edges), "p%s.", node_sets);
	ok(!becomes_victim_of(1, 0, edges, TRUTH, STRANGER), "another member is the better victim now, and A goes on waiting");
}

/* A waits for the stranger, which waits for another session on its server. */
static void
test_local_waiters(void)
{
	static const char *const held[] = {"", "\tx7", "\t", "\tx07", "\tx0x7", "\tx 7", "\tx+7", "\tx", "\t7"};

	for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++)
	{
		bool		becomes_victim = false;
		bool		is_deadlock = i == 0;
		char		edges[128];
		char		data[256];

		begin();
		snprintf(edges, sizeof(edges), "%s.%x", node_sets, STRANGER);
		snprintf(data, sizeof(data), TRUTH "\nd\t%x\t7\ta row%s", STRANGER, held[i]);
		for (int k = 0; k < 60 && !becomes_victim; k++)
		{
			report_as(ANOTHER, 1, edges, data, ANOTHER);
			becomes_victim = is_victim_now(A);
			fake_run_all();
			fake_advance(100);
		}
		ok(becomes_victim == is_deadlock, "a local waiter with the holds '%s': %s deadlock", held[i],
		   is_deadlock ? "a" : "no");
		scene_end(NULL);
	}
}

/* Data that no session of zklock writes. */
static void
test_corrupt(void)
{
	static const char *const data[] = {
		"", "\n", "62", "62\t9", "62\t9\n" "x", "062\t9\ts\nx\t1\t7\ta", "g\t9\ts\nx\t1\t7\ta",
		WHO, WHO "\nx", WHO "\nx\t", WHO "\nx\t1", WHO "\nx\t1\t7", WHO "\nx\t0\t7\ta",
		WHO "\nx\t2\t7\ta", WHO "\nx\tffffffffffffffff\t7\ta", WHO "\nx\t-1\t7\ta",
		WHO "\nx\t1\t\ta", WHO "\nx\t01\t7\ta", WHO "\nxx\t1\t7\ta", WHO "\np\t1\t7",
		WHO "\nd", WHO "\nd\t4d", WHO "\nd\t4d\t7", TRUTH "\nd\t5\t7\ta row", TRUTH "\nx\t1\t7\ta"
	};

	for (size_t i = 0; i < sizeof(data) / sizeof(data[0]); i++)
	{
		char		name[64];

		begin();
		snprintf(name, sizeof(name), "corrupt data %zu", i);
		is_unconfirmed(data[i], name);
	}
}

/* A failed cycle check is repeated, with growing pauses. */
static void
test_again(void)
{
	int			reads;

	begin();
	ok(!becomes_victim("62", 10), "a cycle check fails");
	if (reported(STRANGER))
		fake_tree_set(reported(STRANGER), TRUTH);
	ok(becomes_victim(TRUTH, 20), "the cycle check is repeated soon");
	scene_end(NULL);

	begin();
	fake_count(A->client);
	ok(!becomes_victim("62", 300), "cycle checks fail for half a minute");
	reads = fake_n_traced(A->client, 'g');
	ok(reads > 0 && reads <= 2 * 10, "only some checks were made: %d reads", reads);
	scene_end(NULL);
}

/* After a search without a deadlock the pauses start again from the shortest. */
static void
test_next(void)
{
	begin();
	ok(!becomes_victim("62", 300), "cycle checks fail for half a minute");
	ask(STRANGER);
	ask(id_of_a());
	for (int i = 0; i < 10; i++)
	{
		(void) is_victim_now(A);
		fake_run_all();
		fake_advance(100);
	}
	stranger_reports(TRUTH);
	ask(id_of_a());
	ok(becomes_victim(TRUTH, 20), "the next deadlock is found within two seconds");
	scene_end(NULL);
}

int
main(void)
{
	test_data();
	test_reports();
	test_rank();
	test_local_waiters();
	test_corrupt();
	test_again();
	test_next();
	return done();
}
