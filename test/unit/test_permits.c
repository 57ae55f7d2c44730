/*-------------------------------------------------------------------------
 *
 * test_permits.c
 *		Promises about semaphores, without network faults.
 *
 * Promise: 3.7
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/queue/node_names.h"
#include "letters.h"
#include "play.h"

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

static int
count_nodes(const char *parent)
{
	int			n = 0;

	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		n += fake_tree_child(node->path, parent) && node->owner != 0;
	return n;
}

/* Another program's semaphore, with these data. */
static void
make_semaphore(const char *data)
{
	make_node("/zklock", "", ZKL_CREATE_PERSISTENT, 0);
	make_node(SCENE_SEMAPHORES, "", ZKL_CREATE_PERSISTENT, 0);
	make_node(pool_of("s", ""), data, ZKL_CREATE_PERSISTENT, 0);
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


/*
 * Scenes; of the semaphore "s" they have a few verbs more:
 *
 *		semaphore 2			(of all) another program creates it with these data, or sets them
 *		wipe locks			another client deletes the party's node in the queue; "wipe leases": its permit node
 *		capacity 2			(of all) the data of the semaphore's znode
 *		leases 2, queue 2	(of all) how many permit nodes, or nodes in the queue
 */

static void
act_make(const Step *step)
{
	make_semaphore(step->argument);
	fake_tree_set(pool_of("s", ""), step->argument);
}

static void
act_wipe(const Step *step)
{
	delete_by_hand(node_below(step->party, step->argument[1] == 'o' ? queue() : permits()));
}

static void
find_capacity(const Step *step, char *found)
{
	(void) step;
	strcpy(found, fake_tree_find(pool_of("s", "")) ? data_of(pool_of("s", "")) : "-");
}

static void
find_leases(const Step *step, char *found)
{
	(void) step;
	sprintf(found, "%d", count_nodes(permits()));
}

static void
find_queue(const Step *step, char *found)
{
	(void) step;
	sprintf(found, "%d", count_nodes(queue()));
}

static const PlayVerb permit_verbs[] = {
	{"semaphore", .act = act_make},
	{"wipe", .act = act_wipe},
	{"capacity", .find = find_capacity},
	{"leases", .find = find_leases},
	{"queue", .find = find_queue},
	{.word = NULL}
};

static const Play plays[] = {
	{HERE, "never more permits than the capacity; sessions that wait no more or failed leave no node",
		"A permit s3, A is ok, B permit s3, B is ok, C permit s3, C is ok, A permit s3, A is pending, A giveup,"
		" D trypermit s3, D is busy, all leases 3, all queue 0, B giveback s, D trypermit s3, D is ok,"
	" B trypermit s3, B is busy"},
	{HERE, "waiters get permits in their order, and a non-blocking attempt does not pass them",
		"A permit s, B permit s, C permit s, D permit s, all queue 2, all leases 3, A trypermit s, A is busy,"
	" A giveback s, C is ok, D is pending, C giveback s, D is ok"},
	{HERE, "a session that gives up leaves the queue, and the next one waits in its place",
	"A permit s1, B permit s1, C permit s1, B giveup, all queue 1, C is pending, A release, C is ok"},
	{HERE, "a request or an attempt with another capacity is refused",
	"A permit s1, A permit s1, B permit s2, B is other-capacity, B trypermit s2, B is other-capacity"},
	{HERE, "data that are no number do not matter, and are kept",
	"all semaphore 192.0.2.1, A permit s, A is ok, all capacity 192.0.2.1"},
	{HERE, "a semaphore that is removed before the permit: of two sessions with different capacities one gets it",
	"A permit s3, A release, A permit! s3, all reap!, all reap!, B permit s4, all permits 1 s"},
	{HERE, "an unused semaphore is deleted, and can get another capacity",
	"A permit s3, A release, all reap, all reap, all reap, all capacity -, A permit s4, A is ok"},
	{HERE, "a waiter keeps to the capacity that it has read, until it queues again",
		"A permit s1, B permit s1, all semaphore 3, B is pending, all pass 1500, B wipe locks,"
	" B is other-capacity"},
	{HERE, "an ACL refuses the parents", "all deny /zklock/semaphores, A permit s, A is no-auth"},
	{HERE, "an ACL refuses the permit, which leaves no node",
		"A permit s, A release, all deny /zklock/semaphores/s/leases, A permit s, A is no-auth, A giveup, all deny,"
	" all pass 10000, A nodes 0"},
	{HERE, "the node names of locks do not matter for semaphores",
		"B join names=kazoo, C join names=mutex, A permit s, A is ok, B permit s, B is ok, C trypermit s, C is busy,"
	" all leases 2"},
	{HERE, "a permit needs one node; another one exceeds the limit, until the first one is released",
	"A join nodes=1, A permit s, A is ok, A permit s, A is too-many, A release, A permit s, A is ok"},
	{HERE, "a permit released during an outage of the waiter",
	"A permit s1, B permit s1, B disconnect, A giveback s, B is pending, B connect, B is ok"},
	{HERE, "a count that was sent before the request began again, because its queue node was removed, does not matter",
		"A permit s1, B permit s1, all stall! 1000, B ring!, A giveback! s, A apply!, B deliver!, B wipe! locks,"
	" all pass 0, B is ok"},
	{HERE, "a waiter survives an outage, and gets the permit of a session that expires",
	"A permit s1, B permit s1, B disconnect, all pass 12000, B is pending, B connect, B is pending, A expire, B is ok"},
};


static void
test_nodes(void)
{
	const char *name;

	scene_begin(1);
	permit_now(A, "s", 7);
	is_int(permits_of(A, "s"), 1, "a permit is granted");
	is_int(count_nodes(queue()), 0, "the mutex of the queue is released");
	is_str(data_of(pool_of("s", "")), "7", "the capacity is in the data of the semaphore's znode");
	ok(fake_tree_find(pool_of("s", ""))->container, "the semaphore's znode is a container");
	name = node_below(A, permits()) + strlen(permits()) + 1;
	ok(strncmp(name, "_c_", 3) == 0 && strncmp(name + 39, "-lease-", 7) == 0 &&
	   strlen(name) == 56, "the name is Curator's: %s", name);
	is_str(data_of(node_below(A, permits())), "party 0", "the node's data name the session");
	release_all(A);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "a release leaves no node");
	is_int(fake_watches(A->client) <= 1, true, "the session has at most one watch, which a child fires");
	scene_end("one permit");
}

static void
test_hand_over(void)
{
	Ask		   *c;
	Ask		   *d;
	ZklRequestInfo info;

	scene_begin(4);
	is_int(status_of_another(A, 2), ZKL_OK, "first");
	is_int(status_of_another(B, 2), ZKL_OK, "second");
	c = permit_now(C, "s", 2);
	d = permit_now(D, "s", 2);
	zkl_request_info(c->request, &info);
	ok(info.blocked && info.was_blocked, "the next session waits, and reports its wait");
	is_str(info.blocker, "", "it waits for any of the permits, not for one session");
	ok(info.released_by == 0, "it waits for no delete of its own session");
	zkl_request_info(d->request, &info);
	is_str(info.blocker, "party 2", "the session behind it waits for it");
	scene_end("hand-over");
}

/* A waiter that has been silent for long proves its session while it reads the permits. */
static void
test_after_silence(void)
{
	Ask		   *a;

	scene_begin(2);
	permit_now(B, "s", 1);
	a = permit_now(A, "s", 1);
	fake_advance(5 * SCENE_TIMEOUT_MS);
	release_permit(B, "s");
	while (fake_step(B->client))
		;
	is_int(a->status, ZKL_PENDING, "A waits");
	for (int round_trips = 0; round_trips <= 2; round_trips++)
	{
		while (fake_deliver(A->client))
			;
		while (round_trips < 2 && fake_apply(A->client))
			;
	}
	is_int(a->status, ZKL_OK, "a permit is granted two round trips after its release");
	scene_end("one permit after another");
}

static void
test_sizes(void)
{
	Ask		   *a;
	Ask		   *b;
	ZklRequestInfo info;

	scene_begin(2);
	a = ask_permit(A, "s", 3);
	b = ask_permit(B, "s", 4);
	fake_run_all();
	ok((a->status == ZKL_OK) != (b->status == ZKL_OK), "of two sessions with different capacities one gets a permit");
	zkl_request_info(a->status == ZKL_OK ? b->request : a->request, &info);
	is_int(info.capacity, a->status == ZKL_OK ? 3 : 4, "the other session gets the actual capacity");
	is_str(data_of(pool_of("s", "")), a->status == ZKL_OK ? "3" : "4", "the semaphore's data have the actual capacity");
	is_int(nodes_of(NULL, NULL), 1, "the other session leaves no node");
	scene_end("capacities of a new semaphore");
}

static void
test_size_of_others(void)
{
	Ask		   *a;
	Ask		   *b;

	scene_begin(2);
	make_semaphore("");
	a = ask_permit(A, "s", 2);
	fake_run_all();
	is_int(a->status, ZKL_OK, "a semaphore of another program, without data, has no capacity that could differ");
	b = ask_permit(B, "s", 3);
	fake_run_all();
	is_int(b->status, ZKL_OK, "a session counts to its own capacity");
	is_int(status_of_another(A, 2), ZKL_PENDING, "beyond it, it waits");
	is_str(data_of(pool_of("s", "")), "", "the data stay as the other program left them");
	scene_end("capacity of a semaphore of another program");
}

static void
test_removed_nodes(void)
{
	Party	   *holder;
	Ask		   *b;
	Ask		   *c;

	scene_begin(3);
	status_of_another(A, 1);
	b = permit_now(B, "s", 1);
	c = permit_now(C, "s", 1);
	delete_by_hand(node_below(B, permits()));
	fake_run_all();
	is_int(b->status, ZKL_PENDING, "a waiter whose permit node is removed still waits");
	is_int(count_nodes(permits()), 2, "the waiter creates another permit node");
	delete_by_hand(node_below(C, queue()));
	fake_run_all();
	fake_advance(1500);
	is_int(count_nodes(queue()), 2, "a waiter whose queue node is removed creates another one");
	release_all(A);
	fake_run_all();
	is_int((b->status == ZKL_OK) + (c->status == ZKL_OK), 1, "one of the waiters gets the permit");
	is_int(objections(), 0, "only one of the waiters gets the permit");
	fake_advance(1500);
	holder = b->status == ZKL_OK ? B : C;
	delete_by_hand(node_below(holder, permits()));
	fake_run_all();
	is_int(lost_of(holder), 1, "a permit whose node is removed is lost");
	is_int((b->status == ZKL_OK) + (c->status == ZKL_OK), 2, "the other waiter gets the lost permit");
	scene_end(NULL);			/* it is random which session detects this first */
}

/*
 * The delete of a permit is not answered yet: an attempt of another session looks a second time
 * and is refused; one of the session itself waits.
 */
static void
test_refused(void)
{
	ZklRequestInfo info;
	Ask		   *c;

	scene_begin(3);
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
	ok(strstr(fake_trace(C->client), "sL") != NULL, "an attempt that finds no room fails after a list behind a sync: %s", fake_trace(C->client));
	forget(c);
	c = try_permit(A, "s", 2);
	fake_run_all();
	is_int(c->status, ZKL_PENDING, "an attempt of the session that has released waits for the delete");
	zkl_request_info(c->request, &info);
	ok(info.blocked && info.released_by == (uint64_t) fake_session_id(A->client), "the owner of an attempt can see that it waits for the delete of its session");
	fake_advance(10000);
	is_int(c->status, ZKL_OK, "an attempt of the session that has released succeeds after the delete");
	forget(c);
	release_permit(A, "s");
	is_int(status_of_attempt(C, 2), ZKL_OK, "the next attempt succeeds after the delete");
	scene_end("refused attempts");
}

/* A non-blocking attempt counts permits while it queues, even before the first one. */
static void
test_no_permits_yet(void)
{
	char		first[96];
	Ask		   *a;
	ZklRequestInfo info;

	scene_begin(1);
	make_semaphore("2");
	make_node(queue(), "", ZKL_CREATE_PERSISTENT, 0);
	snprintf(first, sizeof(first), "%s/_c_00112233-4455-6677-8899-aabbccddeeff-lock-", queue());
	make_node(first, "", ZKL_CREATE_EPHEMERAL_SEQUENTIAL, 0);
	strcat(first, "0000000000");
	a = try_permit(A, "s", 2);
	fake_run_all();
	is_int(a->status, ZKL_PENDING, "a non-blocking attempt waits for the mutex of the queue");
	zkl_request_info(a->request, &info);
	ok(info.released_by == 0, "the owner of an attempt can see that it waits for the mutex, and for no delete of its session");
	fake_count(A->client);
	make_node(pool_of("s", "/leases/stranger"), "", ZKL_CREATE_PERSISTENT, 0);
	fake_run_all();
	is_str(fake_trace(A->client), "L", "the attempt, which has created the permits' parent, only counts when that changes");
	fake_count(A->client);
	fake_tree_delete(first);
	fake_run_all();
	is_str(fake_trace(A->client), "lcLd", "with the mutex the attempt creates its permit node, and no parent again");
	is_int(a->status, ZKL_OK, "the attempt gets a permit");
	scene_end("a non-blocking attempt before the first permit");
}

static void
test_foreign_permits(void)
{
	Ask		   *a;

	scene_begin(1);
	status_of_another(A, 2);
	make_node(pool_of("s", "/leases/stranger"), "", ZKL_CREATE_PERSISTENT, 0);
	a = permit_now(A, "s", 2);
	is_int(a->status, ZKL_PENDING, "every child counts as a permit, whatever its name");
	fake_tree_delete(pool_of("s", "/leases/stranger"));
	fake_run_all();
	is_int(a->status, ZKL_OK, "the permit is granted when that child is deleted");
	scene_end("permits of other programs");
}

/* Curator's testRelease1AtATime and testReleaseInChunks. */
static void
test_crowd(void)
{
	Ask		   *asks[12];
	int			most = 0;
	int			granted = 0;

	scene_begin(6);
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
	scene_end("a crowd");
}

/* Non-blocking attempts are refused only if no permit is free. */
static void
test_crowd_of_attempts(void)
{
	Ask		   *asks[6];
	int			granted = 0;

	scene_begin(6);
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
	scene_end("a crowd of attempts");
}

static void
test_refusals(void)
{
	for (int i = 0; i < 2; i++)
	{
		Ask		   *a;
		int			steps = 0;

		scene_begin(1);
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
		scene_end("refusals of the queue");
	}
}

static void
test_pure(void)
{
	int			size = -1;

	ok(zkl_parse_capacity("10000", 5, &size), "a number is accepted");
	is_int(size, 10000, "a number is read");
	ok(!zkl_parse_capacity("", 0, &size), "no data are refused");
	ok(!zkl_parse_capacity(NULL, -1, &size), "null data, as of a znode that zkCli.sh has created, are refused");
	ok(!zkl_parse_capacity("1 ", 2, &size), "a blank is refused");
	ok(!zkl_parse_capacity("-1", 2, &size), "a sign is refused");
	ok(!zkl_parse_capacity("1234567890", 10, &size), "a number that is too large is refused");
}

int
main(void)
{
	static void (*const tests[]) (void) = {
		test_nodes, test_hand_over, test_after_silence, test_sizes, test_size_of_others, test_removed_nodes,
		test_refused, test_no_permits_yet,
		test_foreign_permits, test_crowd, test_crowd_of_attempts, test_refusals,
	};

	test_pure();
	play_verbs = permit_verbs;
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	for (size_t t = 0; t < sizeof(tests) / sizeof(tests[0]); t++)
		tests[t] ();
	return done();
}
