/*-------------------------------------------------------------------------
 *
 * test_exam.c
 *		Promise 7.2, no false alarm: a deadlock that the names of the waits show
 *		is believed only when what the participants say besides, and the queues,
 *		show it as well; what can't be read is no deadlock.
 *
 * A waits behind a stranger whose wait is told by a name that leads back to A,
 * anew whenever A asks for that, with data that are the test's to choose.
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

static Party *const A = &parties[0];
static char needs[64];			/* in the name: A, by its session */

static int64_t
id_of_a(void)
{
	return fake_session_id(A->client);
}

/* How a session of ours names its nodes; static memory. */
static const char *
name_of(int64_t session, const char *kind)
{
	static int	n = 0;
	static char name[128];

	snprintf(name, sizeof(name), "_c_%08x-%04x-%04x-0000-%012d-%s", (unsigned) (session >> 32),
			 (unsigned) (session >> 16 & 0xffff), (unsigned) (session & 0xffff), ++n, kind);
	return name;
}

/* A node of a session's in a queue; its name, static memory. */
static const char *
node_in(const char *lock, int64_t session, const char *kind)
{
	return strrchr(foreign_node(lock, name_of(session, kind), session), '/') + 1;
}

/* A session's numbered node, or a container (0). */
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

/* A holds "a" and waits for "b", which the stranger has. */
static void
begin(void)
{
	scene_begin(1);
	waiters_begin("a");
	forget(lock_now(A, "a", X));
	node_in("b", STRANGER, "__WRIT__");
	lock_now(A, "b", X);
	make(WAITS, "", 0);
	snprintf(needs, sizeof(needs), "%" PRIx64, (uint64_t) id_of_a());
}

/* A session's node that tells its wait, or NULL. */
static const char *
told(int64_t session)
{
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (node->owner == session && fake_tree_child(node->path, WAITS))
			return node->path;
	return NULL;
}

static void
stranger_tells(const char *data)
{
	char		path[256];

	if (told(STRANGER))
		return;
	snprintf(path, sizeof(path), WAITS "/%x.1.1.w.%s..", STRANGER, needs);
	make(path, data, STRANGER);
}

/* Does A give way within so many tenths of a second, while the stranger says this? */
static bool
gives_way(const char *data, int tenths)
{
	for (int i = 0; i < tenths; i++)
	{
		stranger_tells(data);
		if (tell(A))
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

/* The stranger queues, and says so, as a lock or an upgrade; static memory. */
static const char *
queues(char kind, const char *lock)
{
	static char data[256];

	snprintf(data, sizeof(data), WHO "\n%c\tlocks/%s\t%s\texclusive lock\t%s",
			 kind, lock, node_in(lock, STRANGER, "__WRIT__"), lock);
	return data;
}

/* As who asks a session to tell anew does. */
static void
ask(int64_t session)
{
	if (told(session))
		fake_tree_delete(told(session));
}

/* And what is true at last is believed.  A, asked last, is the one to give way. */
static void
is_doubted(const char *data, const char *name)
{
	const char *truth;

	ok(!gives_way(data, 60), "%s: no deadlock", name);
	truth = queues('w', "a");
	ask(STRANGER);
	stranger_tells(truth);
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
	is_doubted(WHO "\nw\tlocks/a\tgone\tx\ta\nw\tlocks/b\tgone\tx\tb\nw\tlocks/b\tgone\tx\tb",
			   "in no queue any more");

	begin();
	node_in("c", ANOTHER, "__WRIT__");
	is_doubted(queues('w', "c"), "behind somebody else by now");

	begin();
	is_doubted(WHO "\nw\tlocks/none\tx\texclusive lock\tnone", "a queue that is not there");

	/* The other sharer has left, and the upgrade has not heard of it. */
	begin();
	node_in("c", STRANGER, "__READ__");
	is_doubted(queues('u', "c"), "an upgrade that only its own node is before");

	/* A waits there as well, for the shared lock that is to be upgraded. */
	begin();
	node_in("c", STRANGER, "__READ__");
	node_in("c", id_of_a(), "__WRIT__");
	is_doubted(queues('u', "c"), "an upgrade before A");

	begin();
	is_doubted(WHO "\nd\t5\t7\ta row", "others of its server that wait for it");
}

/* A pool with nodes of these sessions. */
static void
pool(const char *name, const int64_t *owners, int n)
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
	pool("p", (int64_t[]) {id_of_a(), STRANGER}, 2);
	is_believed(WHO "\np\tsemaphores/p\t1\t1\ta permit of semaphore\tp", "a permit that A has");

	begin();
	pool("p", (int64_t[]) {id_of_a(), STRANGER}, 2);
	is_doubted(WHO "\np\tsemaphores/p\t2\t1\ta permit of semaphore\tp",
			   "no more nodes than permits");

	begin();
	pool("p", (int64_t[]) {id_of_a(), STRANGER, STRANGER}, 3);
	is_doubted(WHO "\np\tsemaphores/p\t1\t1\ta permit of semaphore\tp",
			   "it has got another one meanwhile");

	begin();
	pool("p", (int64_t[]) {id_of_a(), ANOTHER, STRANGER}, 3);
	is_doubted(WHO "\np\tsemaphores/p\t2\t1\ta permit of semaphore\tp",
			   "another one's permit would do");
}

/* Data that nobody of ours writes. */
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
		is_doubted(data[i], name);
	}

	begin();
	snprintf(text, sizeof(text), "%s\nd\t%s\t7", queues('w', "a"), needs);
	is_doubted(text, "a wait behind it without words");
}

/* What could not be examined is examined again, soon and without being asked. */
static void
test_again(void)
{
	static const char *const data[] = {"62", WHO "\nw\tlocks/none\tx\texclusive lock\tnone"};

	for (int i = 0; i < 2; i++)
	{
		begin();
		ok(!gives_way(data[i], 60), "examined in vain (%d)", i);
		fake_tree_set(told(STRANGER), queues('w', "a"));
		ok(gives_way("", 10), "... and again within a second");
		scene_end(NULL);
	}
}

int
main(void)
{
	test_queues();
	test_permits();
	test_spoilt();
	test_again();
	return done();
}
