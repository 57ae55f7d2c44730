/*-------------------------------------------------------------------------
 *
 * test_permits.c
 *		Promises about semaphores, without network faults.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/queue/node.h"
#include "scene.h"

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];
static Party *const D = &parties[3];

static void
begin(int n_parties)
{
	scene_begin(n_parties);
}

static void
end(const char *promise)
{
	scene_end(promise);
}

/* The parents of the permits and of the queue for them. */
static const char *
permits(void)
{
	return pool_of("s", "/leases");
}

static const char *
queue(void)
{
	return pool_of("s", "/locks");
}

/* Returns the party's node below a path, or NULL. */
static FakeNode *
find_node(const Party *party, const char *parent)
{
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (fake_tree_child(node->path, parent) && node->owner != 0 &&
			(party == NULL || node->owner == fake_session_id(party->client)))
			return node;
	return NULL;
}

static int
count_nodes(const char *parent)
{
	int			n = 0;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		n += fake_tree_child(node->path, parent) && node->owner != 0;
	return n;
}

static void
remove_node(const FakeNode *node)
{
	char		path[256];

	snprintf(path, sizeof(path), "%s", node ? node->path : "");
	fake_tree_delete(path);
	fake_run_all();
}

static void
create_plain(const char *path, const char *data, ZklCreateKind kind)
{
	char	   *made;
	int64_t		czxid;

	fake_tree_create(path, data, (int) strlen(data), kind, 0, &made, &czxid);
	free(made);
}

static const char *
data_of(const char *path)
{
	static char data[64];
	FakeNode   *node = fake_tree_find(path);

	snprintf(data, sizeof(data), "%.*s", node ? node->data_len : 0, node ? node->data : "");
	return data;
}

/* Requests one more permit; returns the status after everything has run. */
static ZklStatus
status_of_another(Party *party, int size)
{
	Ask		   *ask = permit_now(party, "s", size);
	ZklStatus	status = ask->status;

	forget(ask);
	fake_run_all();
	return status;
}

static ZklStatus
status_of_attempt(Party *party, int size)
{
	Ask		   *ask = try_permit(party, "s", size);
	ZklStatus	status;

	fake_run_all();
	status = ask->status;
	forget(ask);
	fake_run_all();
	return status;
}


static void
test_nodes(void)
{
	const char *name;

	begin(1);
	permit_now(A, "s", 7);
	is_int(permits_of(A, "s"), 1, "a permit is granted");
	is_int(count_nodes(queue()), 0, "the mutex of the queue is released");
	is_str(data_of(pool_of("s", "")), "7", "the capacity is in the data of the semaphore's znode");
	ok(fake_tree_find(pool_of("s", ""))->container, "the semaphore's znode is a container");
	name = find_node(A, permits())->path + strlen(permits()) + 1;
	ok(strncmp(name, "_c_", 3) == 0 && strncmp(name + 39, "-lease-", 7) == 0 &&
	   strlen(name) == 56, "the name is Curator's: %s", name);
	is_str(data_of(find_node(A, permits())->path), "party 0", "the node's data name the session");
	release_all(A);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "a release leaves no node");
	is_int(fake_watches(A->client) <= 1, true, "the session has at most one watch, which a child fires");
	end("one permit");
}

static void
test_count(void)
{
	begin(4);
	for (int i = 0; i < 3; i++)
		is_int(status_of_another(&parties[i], 3), ZKL_OK, "permit %d of 3", i + 1);
	is_int(status_of_another(A, 3), ZKL_PENDING, "a request waits if no permit is left, even if its session has a permit");
	is_int(status_of_attempt(D, 3), ZKL_BUSY, "a non-blocking attempt fails if no permit is left");
	is_int(count_nodes(permits()), 3, "sessions without a permit leave no permit node");
	is_int(count_nodes(queue()), 0, "sessions that failed leave no node in the queue");
	release_permit(B, "s");
	fake_run_all();
	is_int(status_of_attempt(D, 3), ZKL_OK, "a released permit is available");
	is_int(status_of_attempt(B, 3), ZKL_BUSY, "a released permit is available once");
	end("never more permits than the capacity");
}

static void
test_hand_over(void)
{
	Ask		   *c;
	Ask		   *d;
	ZklRequestInfo info;

	begin(4);
	is_int(status_of_another(A, 2), ZKL_OK, "first");
	is_int(status_of_another(B, 2), ZKL_OK, "second");
	c = permit_now(C, "s", 2);
	d = permit_now(D, "s", 2);
	zkl_request_info(c->request, &info);
	ok(info.blocked && info.was_blocked, "the next session waits, and reports its wait");
	ok(strcmp(info.blocker, "party 0") == 0 || strcmp(info.blocker, "party 1") == 0,
	   "it waits for a session that has a permit: %s", info.blocker);
	zkl_request_info(d->request, &info);
	is_str(info.blocker, "party 2", "the session behind it waits for it");
	is_int(count_nodes(queue()), 2, "both waiters have a node in the queue");
	is_int(count_nodes(permits()), 3, "the first waiter has a permit node");
	is_int(status_of_attempt(A, 2), ZKL_BUSY, "a non-blocking attempt does not pass waiters");

	release_permit(A, "s");
	fake_run_all();
	is_int(c->status, ZKL_OK, "the first waiter gets the permit");
	is_int(d->status, ZKL_PENDING, "the second waiter still waits");
	release_permit(C, "s");
	fake_run_all();
	is_int(d->status, ZKL_OK, "the second waiter gets the next permit");
	end("hand-over");
}

/* A waiter gives up: the next one waits in its place. */
static void
test_give_up(void)
{
	Ask		   *b;
	Ask		   *c;

	begin(3);
	status_of_another(A, 1);
	b = permit_now(B, "s", 1);
	c = permit_now(C, "s", 1);
	forget(b);
	fake_run_all();
	is_int(count_nodes(queue()), 1, "a session that gives up leaves the queue");
	is_int(c->status, ZKL_PENDING, "the next session still waits");
	release_all(A);
	fake_run_all();
	is_int(c->status, ZKL_OK, "the next session gets a permit after a release");
	end("giving up");
}

static void
test_sizes(void)
{
	Ask		   *a;
	Ask		   *b;
	ZklRequestInfo info;

	begin(2);
	a = ask_permit(A, "s", 3);
	b = ask_permit(B, "s", 4);
	fake_run_all();
	ok((a->status == ZKL_OK) != (b->status == ZKL_OK), "of two sessions with different capacities one gets a permit");
	zkl_request_info(a->status == ZKL_OK ? b->request : a->request, &info);
	is_int(info.capacity, a->status == ZKL_OK ? 3 : 4, "the other session gets the actual capacity");
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 1, "the other session leaves no node");
	end("capacities of a new semaphore");

	begin(2);
	create_plain("/zklock", "", ZKL_CREATE_PERSISTENT);
	create_plain(SCENE_SEMAPHORES, "", ZKL_CREATE_PERSISTENT);
	create_plain(pool_of("s", ""), "", ZKL_CREATE_PERSISTENT);
	a = ask_permit(A, "s", 3);
	b = ask_permit(B, "s", 4);
	fake_run_all();
	ok((a->status == ZKL_OK) != (b->status == ZKL_OK), "the same if another program created the semaphore");
	is_str(data_of(pool_of("s", "")), a->status == ZKL_OK ? "3" : "4", "the semaphore has the capacity of the session that got a permit");
	end("capacities of another program's semaphore");

	begin(2);
	status_of_another(A, 1);
	permit_now(A, "s", 1);
	is_int(status_of_another(B, 2), ZKL_OTHER_CAPACITY, "a request with another capacity is refused");
	is_int(status_of_attempt(B, 2), ZKL_OTHER_CAPACITY, "a non-blocking attempt with another capacity is refused");
	end("capacities with waiters");

	begin(1);
	create_plain("/zklock", "", ZKL_CREATE_PERSISTENT);
	create_plain(SCENE_SEMAPHORES, "", ZKL_CREATE_PERSISTENT);
	create_plain(pool_of("s", ""), "192.0.2.1", ZKL_CREATE_PERSISTENT);
	is_int(status_of_another(A, 2), ZKL_OK, "data that are no number do not matter");
	is_str(data_of(pool_of("s", "")), "192.0.2.1", "data that are no number are kept");
	end("foreign data");
}

/* Between the read of its capacity and the permit, the semaphore is recreated. */
static void
test_semaphore_removed(void)
{
	Ask		   *a;
	Ask		   *b;

	begin(2);
	status_of_another(A, 3);
	release_all(A);
	fake_run_all();
	a = ask_permit(A, "s", 3);
	fake_tree_reap();
	fake_tree_reap();
	b = ask_permit(B, "s", 4);
	fake_run_all();
	ok((a->status == ZKL_OK) != (b->status == ZKL_OK), "of two sessions with different capacities one gets a permit");
	end("capacities of a semaphore that is removed");

	begin(1);
	status_of_another(A, 3);
	release_all(A);
	fake_run_all();
	for (int i = 0; i < 3; i++)
		fake_tree_reap();
	ok(fake_tree_find(pool_of("s", "")) == NULL, "an unused semaphore is deleted");
	is_int(status_of_another(A, 4), ZKL_OK, "a deleted semaphore can get another capacity");
	end("another capacity later");
}

static void
test_removed_nodes(void)
{
	Party	   *holder;
	Ask		   *b;
	Ask		   *c;

	begin(3);
	status_of_another(A, 1);
	b = permit_now(B, "s", 1);
	c = permit_now(C, "s", 1);
	remove_node(find_node(B, permits()));
	is_int(b->status, ZKL_PENDING, "a waiter whose permit node is removed still waits");
	is_int(count_nodes(permits()), 2, "the waiter creates another permit node");
	remove_node(find_node(C, queue()));
	fake_advance(1500);
	is_int(count_nodes(queue()), 2, "a waiter whose queue node is removed creates another one");
	release_all(A);
	fake_run_all();
	is_int((b->status == ZKL_OK) + (c->status == ZKL_OK), 1, "one of the waiters gets the permit");
	is_int(objections(), 0, "only one of the waiters gets the permit");
	fake_advance(1500);
	holder = b->status == ZKL_OK ? B : C;
	remove_node(find_node(holder, permits()));
	is_int(lost_of(holder), 1, "a permit whose node is removed is lost");
	is_int((b->status == ZKL_OK) + (c->status == ZKL_OK), 2, "the other waiter gets the lost permit");
	scene_end(NULL);			/* it is random which session detects this first */
}

/* A request that queues again, because its node was deleted, reads the capacity again. */
static void
test_another_size(void)
{
	Ask		   *b;

	begin(2);
	status_of_another(A, 1);
	b = permit_now(B, "s", 1);
	fake_tree_set(pool_of("s", ""), "3");
	is_int(b->status, ZKL_PENDING, "a waiter keeps to the capacity that it has read");
	fake_advance(1500);
	remove_node(find_node(B, queue()));
	is_int(b->status, ZKL_OTHER_CAPACITY, "a waiter that queues again reads the capacity again");
	end("another capacity while a queue node is removed");
}

/*
 * The owner of a refused attempt gets the sessions of the others' permits, to find those
 * that its server has released: here A's, whose delete is not answered yet.
 */
static void
test_refused(void)
{
	ZklRequestInfo info;
	Ask		   *c;

	begin(3);
	status_of_another(A, 2);
	status_of_another(B, 2);
	fake_count(A->client);
	fake_fault(A->client, 1, FAULT_THROTTLE);
	release_permit(A, "s");
	fake_run_all();
	is_int(count_nodes(permits()), 2, "the node of a released permit still exists");
	fake_count(C->client);
	c = try_permit(C, "s", 2);
	fake_run_all();
	is_int(c->status, ZKL_BUSY, "an attempt that finds no room fails");
	ok(strstr(fake_trace(C->client), "sL") != NULL, "... after a list behind a sync: %s", fake_trace(C->client));
	zkl_request_info(c->request, &info);
	is_int(info.n_excess, 1, "its owner gets the number of permits that must go");
	is_int(info.n_others, 2, "... and the number of permits of others");
	ok(info.others[0] == (uint64_t) fake_session_id(A->client) &&
	   info.others[1] == (uint64_t) fake_session_id(B->client), "... and their sessions");
	forget(c);
	fake_advance(10000);
	is_int(status_of_attempt(C, 2), ZKL_OK, "the next attempt succeeds after the delete");
	end("refused attempts");
}

/* A non-blocking attempt counts permits while it queues, even before the first one. */
static void
test_no_permits_yet(void)
{
	char		first[96];
	Ask		   *a;

	begin(1);
	create_plain("/zklock", "", ZKL_CREATE_PERSISTENT);
	create_plain(SCENE_SEMAPHORES, "", ZKL_CREATE_PERSISTENT);
	create_plain(pool_of("s", ""), "2", ZKL_CREATE_PERSISTENT);
	create_plain(queue(), "", ZKL_CREATE_PERSISTENT);
	snprintf(first, sizeof(first), "%s/_c_00112233-4455-6677-8899-aabbccddeeff-lock-", queue());
	create_plain(first, "", ZKL_CREATE_EPHEMERAL_SEQUENTIAL);
	strcat(first, "0000000000");
	a = try_permit(A, "s", 2);
	fake_run_all();
	is_int(a->status, ZKL_PENDING, "a non-blocking attempt waits for the mutex of the queue");
	fake_tree_delete(first);
	fake_run_all();
	is_int(a->status, ZKL_OK, "the attempt gets a permit");
	end("a non-blocking attempt before the first permit");
}

/* Releases while the connection is down are detected after the reconnect. */
static void
test_missed(void)
{
	Ask		   *b;

	begin(2);
	status_of_another(A, 1);
	b = permit_now(B, "s", 1);
	fake_disconnect(B->client);
	fake_run_all();
	release_permit(A, "s");
	fake_run_all();
	is_int(b->status, ZKL_PENDING, "a disconnected waiter does not see a release");
	fake_connect(B->client);
	fake_run_all();
	is_int(b->status, ZKL_OK, "the waiter gets the permit after the reconnect");
	end("a permit released during an outage");
}

static void
test_foreign_permits(void)
{
	Ask		   *a;

	begin(1);
	status_of_another(A, 2);
	create_plain(pool_of("s", "/leases/stranger"), "",
				 ZKL_CREATE_PERSISTENT);
	a = permit_now(A, "s", 2);
	is_int(a->status, ZKL_PENDING, "every child counts as a permit, whatever its name");
	fake_tree_delete(pool_of("s", "/leases/stranger"));
	fake_run_all();
	is_int(a->status, ZKL_OK, "the permit is granted when that child is deleted");
	end("permits of other programs");
}

static void
test_expiry(void)
{
	Ask		   *b;

	begin(2);
	status_of_another(A, 1);
	b = permit_now(B, "s", 1);
	fake_disconnect(B->client);
	fake_advance(2 * SCENE_TIMEOUT_MS);
	is_int(b->status, ZKL_PENDING, "a waiter survives an outage");
	fake_connect(B->client);
	fake_run_all();
	is_int(b->status, ZKL_PENDING, "the waiter still waits after the outage");
	fake_expire(A->client);
	fake_run_all();
	is_int(b->status, ZKL_OK, "the permits of an expired session are released");
	end("expiry");
}

/* The node names of locks do not matter for semaphores. */
static void
test_node_names(void)
{
	begin(1);
	scene_config.node_names = ZKL_NODE_NAMES_KAZOO;
	scene_join(B);
	scene_config.node_names = ZKL_NODE_NAMES_CURATOR_MUTEX;
	scene_join(C);
	is_int(status_of_another(A, 2), ZKL_OK, "a session with Curator's node names gets a permit");
	is_int(status_of_another(B, 2), ZKL_OK, "a session with kazoo's node names gets a permit of the same semaphore");
	is_int(status_of_attempt(C, 2), ZKL_BUSY, "their permits count each other");
	is_int(count_nodes(permits()), 2, "all permits are in one place");
	end("a semaphore under several node names");
}

/* Curator's testRelease1AtATime and testReleaseInChunks. */
static void
test_crowd(void)
{
	Ask		   *asks[12];
	int			most = 0;
	int			granted = 0;

	begin(6);
	for (int i = 0; i < 12; i++)
		asks[i] = ask_permit(&parties[i % 6], "s", 4);
	for (int round = 0; round < 12; round++)
	{
		int			out = 0;

		fake_run_all();
		for (int i = 0; i < 6; i++)
			out += permits_of(&parties[i], "s");
		most = out > most ? out : most;
		for (int i = 0; i < 6; i++)
			if (permits_of(&parties[i], "s") > 0)
			{
				release_permit(&parties[i], "s");
				break;
			}
	}
	fake_run_all();
	for (int i = 0; i < 12; i++)
		granted += asks[i]->status == ZKL_OK;
	is_int(granted, 12, "all sessions of a crowd get a permit");
	is_int(most, 4, "at most as many permits as the capacity are in use");
	end("a crowd");
}

/* Non-blocking attempts are refused only if no permit is free. */
static void
test_crowd_of_attempts(void)
{
	Ask		   *asks[6];
	int			granted = 0;

	begin(6);
	status_of_another(A, 4);
	release_all(A);
	fake_run_all();
	for (int i = 0; i < 6; i++)
		asks[i] = try_permit(&parties[i], "s", 4);
	fake_run_all();
	for (int i = 0; i < 6; i++)
	{
		granted += asks[i]->status == ZKL_OK;
		ok(asks[i]->status != ZKL_PENDING, "an attempt ends");
	}
	is_int(granted, 4, "four of six simultaneous attempts get the four permits");
	end("a crowd of attempts");
}

static void
test_limits(void)
{
	begin(0);
	scene_config.max_nodes = 1;
	scene_join(A);
	is_int(status_of_another(A, 5), ZKL_OK, "a permit needs one node");
	is_int(status_of_another(A, 5), ZKL_TOO_MANY, "another permit exceeds the limit of nodes");
	release_all(A);
	is_int(status_of_another(A, 5), ZKL_OK, "another permit is granted after the release of the first");
	end("limits");
}

static void
test_refusals(void)
{
	begin(1);
	fake_quirks.deny = SCENE_SEMAPHORES;
	is_int(status_of_another(A, 5), ZKL_NO_AUTH, "an ACL refuses the parents");
	end("refusals");

	begin(1);
	status_of_another(A, 5);
	release_all(A);
	fake_run_all();
	fake_quirks.deny = permits();
	is_int(status_of_another(A, 5), ZKL_NO_AUTH, "an ACL refuses the permit");
	fake_quirks.deny = NULL;
	fake_advance(10000);
	is_int(nodes_of(A, NULL), 0, "a refused permit leaves no node");
	end("refusals of the permit");

	for (int i = 0; i < 2; i++)
	{
		Ask		   *a;
		int			steps = 0;

		begin(1);
		status_of_another(A, 5);
		release_all(A);
		fake_run_all();
		fake_tree_delete(queue());
		fake_quirks.deny_exactly = queue();
		a = i ? try_permit(A, "s", 5) : ask_permit(A, "s", 5);
		while (steps < 200 && fake_step(A->client))
			steps++;
		is_int(a->status, ZKL_NO_AUTH, "an ACL refuses the queue of an existing semaphore");
		fake_quirks.deny_exactly = NULL;
		forget(a);
		fake_run_all();
		end("refusals of the queue");
	}
}

static void
test_pure(void)
{
	int			size = -1;

	ok(zkl_parse_capacity("10000", 5, &size), "a number is accepted");
	is_int(size, 10000, "a number is read");
	ok(!zkl_parse_capacity("", 0, &size), "no data are refused");
	ok(!zkl_parse_capacity("1 ", 2, &size), "a blank is refused");
	ok(!zkl_parse_capacity("-1", 2, &size), "a sign is refused");
	ok(!zkl_parse_capacity("1234567890", 10, &size), "a number that is too large is refused");
}

int
main(void)
{
	static void (*const tests[]) (void) = {
		test_nodes, test_count, test_hand_over, test_give_up, test_sizes,
		test_semaphore_removed, test_removed_nodes, test_another_size, test_refused,
		test_no_permits_yet, test_missed, test_foreign_permits, test_expiry,
		test_node_names, test_crowd, test_crowd_of_attempts, test_limits,
		test_refusals,
	};

	test_pure();
	for (size_t t = 0; t < sizeof(tests) / sizeof(tests[0]); t++)
		tests[t] ();
	return done();
}
