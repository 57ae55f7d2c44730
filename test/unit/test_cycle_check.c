/*-------------------------------------------------------------------------
 *
 * test_cycle_check.c
 *		Promise 7.2, no false alarm: a deadlock that the report names show is
 *		accepted only if the reports' data and the queues show it as well.  Data
 *		that cannot be parsed are no deadlock.
 *
 * A waits behind a stranger, which reports a wait that leads back to A, and reports
 * again whenever A probes it, with data that the test chooses.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_tree.h"
#include "waiters.h"

#define X ZKL_MODE_EXCLUSIVE

#define STRANGER 0x4d
#define ANOTHER 0x4e
#define WHO "62\t9\telsewhere"

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

/* Creates the report, unless there is one; "edges" are the node sets and local waiters. */
static void
report_as(int64_t session, const char *edges, const char *data)
{
	char		path[256];

	if (reported(session))
		return;
	snprintf(path, sizeof(path), WAITS "/%" PRIx64 ".1.1.w.%s.", (uint64_t) session, edges);
	make(path, data, session);
}

static void
stranger_reports(const char *data)
{
	char		edges[128];

	snprintf(edges, sizeof(edges), "%s.", node_sets);
	report_as(STRANGER, edges, data);
}

/* Is A the victim within so many tenths of a second, if the stranger reports this? */
static bool
gives_way(const char *data, int tenths)
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
is_believed(const char *data, const char *name)
{
	ok(gives_way(data, 60), "%s: a deadlock", name);
	scene_end(NULL);
}

/* The stranger queues for a lock or an upgrade; returns its data, static memory. */
static const char *
queues(char kind, const char *lock)
{
	static char data[256];

	snprintf(data, sizeof(data), WHO "\n%c\tlocks/%s\t%s\texclusive lock\t%s",
			 kind, lock, node_in(lock, STRANGER, "__WRIT__"), lock);
	return data;
}

/* Probes a session, as a victim claim does. */
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
	const char *truth;

	ok(!gives_way(data, 60), "%s: no deadlock", name);
	truth = queues('w', "a");
	ask(STRANGER);
	stranger_reports(truth);
	ask(id_of_a());
	ok(gives_way(truth, 60), "%s: found when it is one", name);
	scene_end(NULL);
}

static void
test_queues(void)
{
	char		data[512];

	begin();
	is_believed(queues('w', "a"), "behind A in a queue");

	begin();
	snprintf(data, sizeof(data), "%s\nlater\tversion\nwx\ty", queues('w', "a"));
	is_believed(data, "lines that a later version may add");

	begin();
	is_unconfirmed(WHO "\nw\tlocks/a\tgone\tx\ta\nw\tlocks/b\tgone\tx\tb\nw\tlocks/b\tgone\tx\tb",
				   "in no queue any more");

	begin();
	node_in("c", ANOTHER, "__WRIT__");
	is_unconfirmed(queues('w', "c"), "behind somebody else by now");

	begin();
	is_unconfirmed(WHO "\nw\tlocks/none\tx\texclusive lock\tnone", "a queue that is not there");

	/* The other sharer has left, but the report still shows the upgrade waiting. */
	begin();
	node_in("c", STRANGER, "__READ__");
	is_unconfirmed(queues('u', "c"), "an upgrade that only its own node is before");

	/* A waits there as well, for the shared lock that is to be upgraded. */
	begin();
	node_in("c", STRANGER, "__READ__");
	node_in("c", id_of_a(), "__WRIT__");
	is_unconfirmed(queues('u', "c"), "an upgrade before A");

	begin();
	is_unconfirmed(WHO "\nd\t5\t7\ta row", "others of its server that wait for it");
}

/*
 * Another session, which waits for A, reports that the stranger waits for it in the lock
 * manager of its server.
 */
static bool
gives_way_to_local_waiter(bool stranger_waits_itself)
{
	char		edges[128];
	char		data[256];
	char		own_data[256];
	bool		gives_way = false;

	begin();
	snprintf(edges, sizeof(edges), "%s.%x", node_sets, STRANGER);
	snprintf(data, sizeof(data), WHO "\nw\tlocks/a\t%s\texclusive lock\ta\nd\t%x\t7\ta row",
			 node_in("a", ANOTHER, "__WRIT__"), STRANGER);
	node_in("c", 0x50, "__WRIT__");
	snprintf(own_data, sizeof(own_data), "%s", queues('w', "c"));
	for (int i = 0; i < 60 && !gives_way; i++)
	{
		report_as(ANOTHER, edges, data);
		if (stranger_waits_itself)
			report_as(STRANGER, "50.", own_data);
		gives_way = is_victim_now(A);
		fake_run_all();
		fake_advance(100);
	}
	scene_end(NULL);
	return gives_way;
}

static void
test_local_waiters(void)
{
	ok(gives_way_to_local_waiter(false), "a session that reports nothing itself may wait locally");
	ok(!gives_way_to_local_waiter(true), "a session that waits in the ensemble does not");
}

/* Creates a semaphore with permit nodes of these sessions. */
static void
semaphore(const char *name, const int64_t *owners, int n)
{
	char		path[128];

	make(SCENE_SEMAPHORES, "", 0);
	make(pool_of(name, ""), "1", 0);
	for (int i = 0; i < n; i++)
	{
		snprintf(path, sizeof(path), "%s/%s", pool_of(name, ""), name_of(owners[i], "lease-"));
		make(path, "", owners[i]);
	}
}

static void
test_permits(void)
{
	begin();
	semaphore("p", (int64_t[]) {id_of_a(), STRANGER}, 2);
	is_believed(WHO "\np\tsemaphores/p\t1\t1\ta permit of semaphore\tp", "a permit that A has");

	begin();
	semaphore("p", (int64_t[]) {id_of_a(), STRANGER}, 2);
	is_unconfirmed(WHO "\np\tsemaphores/p\t2\t1\ta permit of semaphore\tp",
				   "no more nodes than permits");

	begin();
	semaphore("p", (int64_t[]) {id_of_a(), STRANGER, STRANGER}, 3);
	is_unconfirmed(WHO "\np\tsemaphores/p\t1\t1\ta permit of semaphore\tp",
				   "it has got another one meanwhile");

	begin();
	semaphore("p", (int64_t[]) {id_of_a(), ANOTHER, STRANGER}, 3);
	is_unconfirmed(WHO "\np\tsemaphores/p\t2\t1\ta permit of semaphore\tp",
				   "another one's permit would do");
}

/* Data that no session of ours writes. */
static void
test_spoilt(void)
{
	static const char *const data[] = {
		"", "\n", "62", "62\t9", "62\t9\n" "x", WHO "\nw", WHO "\nw\t", WHO "\nw\tlocks/a",
		WHO "\nw\tlocks/a\tx", WHO "\nw\tlocks/a\tx\twish", WHO "\nw\t\tx\twish\ta",
		WHO "\nw\t/a\tx\twish\ta", WHO "\nw\tlocks//a\tx\twish\ta", WHO "\np\tsemaphores/p",
		WHO "\np\tsemaphores/p\t1\t1", WHO "\nd", WHO "\nd\t4d\t7", WHO "\nu\tlocks/a\tx"
	};

	char		text[512];

	for (size_t i = 0; i < sizeof(data) / sizeof(data[0]); i++)
	{
		char		name[64];

		begin();
		snprintf(name, sizeof(name), "spoilt data %zu", i);
		is_unconfirmed(data[i], name);
	}

	begin();
	snprintf(text, sizeof(text), "%s\nd\t%s\t7", queues('w', "a"), node_sets);
	is_unconfirmed(text, "a wait behind it without words");
}

/* Is A's owner to warn that it may not find deadlocks? */
static bool
is_unsearched(void)
{
	ZklRequestInfo info;

	zkl_request_info(pending_of(A)->request, &info);
	return info.is_unsearched;
}

/* A cycle check in vain is repeated: soon at first, without a probe, and then rarely. */
static void
test_again(void)
{
	static const char *const data[] = {
		"62", WHO "\nw\tlocks/none\tx\texclusive lock\tnone", WHO "\nw\tlocks/a\tgone\tx\ta"
	};

	for (int i = 0; i < 3; i++)
	{
		const char *truth;
		int			reads;

		begin();
		ok(!gives_way(data[i], 10), "checked in vain (%d)", i);
		ok(!is_unsearched(), "... without a warning at first");
		truth = queues('w', "a");
		if (reported(STRANGER))
			fake_tree_set(reported(STRANGER), truth);
		ok(gives_way(truth, 20), "... and again soon");
		scene_end(NULL);

		begin();
		fake_count(A->client);
		ok(!gives_way(data[i], 300), "checked in vain for half a minute (%d)", i);
		ok(is_unsearched(), "... the owner is to warn");
		reads = fake_n_traced(A->client, 'g');
		ok(reads > 0 && reads <= 2 * 10, "... after some checks: %d reads", reads);
		scene_end(NULL);
	}
}

/* Reports that would make long queues be read many times are not checked. */
static void
test_bounds(void)
{
	static int64_t owners[600];
	static char data[100000];
	char	   *end = data;

	begin();
	for (int i = 0; i < 600; i++)
		owners[i] = 0x1000 + i;
	semaphore("p", owners, 600);
	end += sprintf(end, "%s", queues('w', "a"));
	for (int i = 0; i < 2000; i++)
		end += sprintf(end, "\np\tsemaphores/p\t1\t0\ta permit of semaphore\tp");
	is_unconfirmed(data, "2,000 waits for 600 permits");
}

/* The reports are read, but the list of the only queue cannot be sent. */
static void
test_unsent_list(void)
{
	const char *data = WHO "\nd\t5\t7\ta row";
	bool		is_read = false;
	struct pollfd fd;

	begin();
	for (int i = 0; i < 60 && !is_read; i++)
	{
		fake_advance(100);
		stranger_reports(data);
		fake_count(A->client);
		(void) is_victim_now(A);
		is_read = strcmp(fake_trace(A->client), "gg") == 0;
		fake_run_all();
	}
	zkl_session_receive(A->session);
	fake_count(A->client);
	fake_fault(A->client, 1, FAULT_REFUSE);
	(void) is_victim_now(A);
	fd = (struct pollfd)
	{
		zkl_session_fd(A->session), POLLIN, 0
	};
	ok(fake_fault_happened(A->client) && poll(&fd, 1, 0) == 1,
	   "a list that can't be sent wakes the owner");
	is_unconfirmed(data, "a wait in no queue, after that");
}

int
main(void)
{
	test_queues();
	test_local_waiters();
	test_permits();
	test_spoilt();
	test_again();
	test_bounds();
	test_unsent_list();
	return done();
}
