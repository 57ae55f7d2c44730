/*-------------------------------------------------------------------------
 *
 * test_permits.c
 *		Promises about semaphores, without network faults.
 *
 * Each test runs with both layouts of znodes.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/semaphore/semaphore_names.h"
#include "scene.h"

static Party *const A = &parties[0];
static Party *const B = &parties[1];
static Party *const C = &parties[2];
static Party *const D = &parties[3];

static bool kazoo;				/* the layout under test */

static void
begin(int n_parties)
{
	scene_begin(0);
	scene_config.node_names = kazoo ? ZKL_NODE_NAMES_KAZOO : ZKL_NODE_NAMES_CURATOR;
	for (int i = 0; i < n_parties; i++)
		scene_join(&parties[i]);
}

static void
end(const char *promise)
{
	char		text[200];

	snprintf(text, sizeof(text), "%s (%s)", promise, kazoo ? "kazoo" : "Curator");
	scene_end(text);
}

/* The parents of the permits and of the queue for them. */
static const char *
permits(void)
{
	return pool_of("s", kazoo ? "" : "/leases");
}

static const char *
queue(void)
{
	return pool_of("s", kazoo ? "-__lock__" : "/locks");
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
status_of_try(Party *party, int size)
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
	is_int(count_nodes(queue()), 0, "the mutex is released");
	is_str(data_of(pool_of("s", "")), "7", "the size is the pool's data");
	is_int(fake_tree_find(pool_of("s", ""))->container, !kazoo,
		   "a pool in Curator's layout goes with its last user");
	name = find_node(A, permits())->path + strlen(permits()) + 1;
	if (kazoo)
		ok(zkl_is_kazoos(name), "the name is kazoo's: %s", name);
	else
		ok(strncmp(name, "_c_", 3) == 0 && strncmp(name + 39, "-lease-", 7) == 0 &&
		   strlen(name) == 56, "the name is Curator's: %s", name);
	is_str(data_of(find_node(A, permits())->path), "party 0", "the node tells whose it is");
	release_all(A);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "nothing is left of it");
	is_int(fake_watches(A->client) <= 1, true, "no watch but one that a child fires");
	end("one permit");
}

static void
test_count(void)
{
	begin(4);
	for (int i = 0; i < 3; i++)
		is_int(status_of_another(&parties[i], 3), ZKL_OK, "permit %d of 3", i + 1);
	is_int(status_of_another(A, 3), ZKL_PENDING, "no more, also for one who has one");
	is_int(status_of_try(D, 3), ZKL_BUSY, "a try fails");
	is_int(count_nodes(permits()), 3, "those who got none left nothing");
	is_int(count_nodes(queue()), 0, "... nor in the queue");
	release_permit(B, "s");
	fake_run_all();
	is_int(status_of_try(D, 3), ZKL_OK, "what is released is available");
	is_int(status_of_try(B, 3), ZKL_BUSY, "... once");
	end("never more than the size");
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
	ok(info.blocked && info.was_blocked, "the next one waits, and says so");
	ok(strcmp(info.blocker, "party 0") == 0 || strcmp(info.blocker, "party 1") == 0,
	   "... for one who has a permit: %s", info.blocker);
	zkl_request_info(d->request, &info);
	is_str(info.blocker, "party 2", "the one after it waits for it");
	is_int(count_nodes(queue()), 2, "both stand in the queue");
	is_int(count_nodes(permits()), kazoo ? 2 : 3, "and one of them where permits are");
	is_int(status_of_try(A, 2), ZKL_BUSY, "a try does not pass them");

	release_permit(A, "s");
	fake_run_all();
	is_int(c->status, ZKL_OK, "first come, first served");
	is_int(d->status, ZKL_PENDING, "one permit is one permit");
	release_permit(C, "s");
	fake_run_all();
	is_int(d->status, ZKL_OK, "then the next");
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
	is_int(count_nodes(queue()), 1, "who gives up leaves the queue");
	is_int(c->status, ZKL_PENDING, "which does not let in the next");
	release_all(A);
	fake_run_all();
	is_int(c->status, ZKL_OK, "until there is a permit");
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
	ok((a->status == ZKL_OK) != (b->status == ZKL_OK), "of two sizes at once one wins");
	zkl_request_info(a->status == ZKL_OK ? b->request : a->request, &info);
	is_int(info.capacity, a->status == ZKL_OK ? 3 : 4, "the other one learns which");
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 1, "... and leaves nothing");
	end("sizes of a new semaphore");

	begin(2);
	create_plain("/zklock", "", ZKL_CREATE_PERSISTENT);
	create_plain(SCENE_SEMAPHORES, "", ZKL_CREATE_PERSISTENT);
	create_plain(pool_of("s", ""), "", ZKL_CREATE_PERSISTENT);
	a = ask_permit(A, "s", 3);
	b = ask_permit(B, "s", 4);
	fake_run_all();
	ok((a->status == ZKL_OK) != (b->status == ZKL_OK), "the same when another program made it");
	is_str(data_of(pool_of("s", "")), a->status == ZKL_OK ? "3" : "4", "the winner's is kept");
	end("sizes of another program's semaphore");

	begin(2);
	status_of_another(A, 1);
	permit_now(A, "s", 1);
	is_int(status_of_another(B, 2), ZKL_OTHER_CAPACITY, "nobody queues for another size");
	is_int(status_of_try(B, 2), ZKL_OTHER_CAPACITY, "nor tries");
	end("sizes while others wait");

	begin(1);
	create_plain("/zklock", "", ZKL_CREATE_PERSISTENT);
	create_plain(SCENE_SEMAPHORES, "", ZKL_CREATE_PERSISTENT);
	create_plain(pool_of("s", ""), "192.0.2.1", ZKL_CREATE_PERSISTENT);
	is_int(status_of_another(A, 2), ZKL_OK, "data that are no number do not matter");
	is_str(data_of(pool_of("s", "")), "192.0.2.1", "... and stay");
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
	ok((a->status == ZKL_OK) != (b->status == ZKL_OK), "one size at a time");
	end("sizes of a pool that is removed");

	begin(1);
	status_of_another(A, 3);
	release_all(A);
	fake_run_all();
	for (int i = 0; i < 3; i++)
		fake_tree_reap();
	is_int(fake_tree_find(pool_of("s", "")) != NULL, kazoo, "out of use it goes, except for kazoo's");
	is_int(status_of_another(A, 4), kazoo ? ZKL_OTHER_CAPACITY : ZKL_OK, "... and its size with it");
	end("another size later");
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
	if (!kazoo)
	{
		remove_node(find_node(B, permits()));
		is_int(b->status, ZKL_PENDING, "a waiter whose node is removed waits on");
		is_int(count_nodes(permits()), 2, "... with another one");
	}
	remove_node(find_node(kazoo ? B : C, queue()));
	is_int(count_nodes(queue()), 2, "the same for its place in the queue");
	release_all(A);
	fake_run_all();
	is_int((b->status == ZKL_OK) + (c->status == ZKL_OK), 1, "one of them gets the permit");
	is_int(objections(), 0, "... and no more than one");
	fake_advance(1500);
	holder = b->status == ZKL_OK ? B : C;
	remove_node(find_node(holder, permits()));
	is_int(lost_of(holder), 1, "a permit whose node is removed is lost");
	is_int((b->status == ZKL_OK) + (c->status == ZKL_OK), 2, "... and goes to the next");
	scene_end(NULL);			/* the session that learns of it first is random */
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
	is_int(b->status, ZKL_PENDING, "who waits keeps to the size that it has seen");
	remove_node(find_node(B, queue()));
	is_int(b->status, ZKL_OTHER_CAPACITY, "... but not when it queues again");
	end("another size while a place in the queue is removed");
}

/* A released permit whose node cannot be deleted at once. */
static void
test_own_pending_deletes(void)
{
	Ask		   *a;

	begin(2);
	status_of_another(A, 1);
	fake_count(A->client);
	fake_fault(A->client, 1, FAULT_THROTTLE);
	release_permit(A, "s");
	fake_run_all();
	is_int(count_nodes(permits()), 1, "the node of a permit is still there");
	is_int(status_of_try(B, 1), ZKL_BUSY, "another session gets that status");
	a = try_permit(A, "s", 1);
	fake_run_all();
	is_int(a->status, ZKL_PENDING, "who released it waits until it has gone");
	fake_advance(10000);
	fake_run_all();
	is_int(a->status, ZKL_OK, "... and has a permit then");
	end("permits released");

	begin(1);
	status_of_another(A, 1);
	fake_quirks.deny = find_node(A, permits())->path;
	release_permit(A, "s");
	fake_run_all();
	is_int(status_of_try(A, 1), ZKL_BUSY,
		   "a non-blocking attempt does not wait for a node that an ACL protects");
	fake_quirks.deny = NULL;
	fake_advance(10000);
	is_int(status_of_try(A, 1), ZKL_OK, "... but has the permit once the node has gone");
	end("permits that cannot be released");

	/* The delete is refused only after the permits were counted. */
	begin(1);
	status_of_another(A, 1);
	fake_quirks.deny = find_node(A, permits())->path;
	fake_count(A->client);
	fake_fault(A->client, 1, FAULT_THROTTLE);
	release_permit(A, "s");
	fake_run_all();
	a = try_permit(A, "s", 1);
	fake_run_all();
	is_int(a->status, ZKL_PENDING, "a try waits for a delete that is not answered");
	fake_advance(10000);
	fake_run_all();
	is_int(a->status, ZKL_BUSY, "... but not for a refused one");
	fake_quirks.deny = NULL;
	fake_advance(10000);
	end("permits whose delete is refused late");
}

/* A permit released by another session of the same server, as the owner knows. */
static void
test_released(void)
{
	Ask		   *b;

	begin(2);
	status_of_another(A, 2);
	status_of_another(A, 2);
	fake_count(A->client);
	fake_fault(A->client, 1, FAULT_THROTTLE);
	release_permit(A, "s");
	fake_run_all();
	scene_neighbour = fake_session_id(A->client);
	b = try_permit(B, "s", 2);
	fake_run_all();
	is_int(b->status, ZKL_PENDING, "a try waits for a released permit's node if its owner says so");
	fake_advance(10000);
	fake_run_all();
	is_int(b->status, ZKL_OK, "... and has the permit when it has gone");
	scene_neighbour = 0;
	is_int(status_of_try(B, 2), ZKL_BUSY, "the next try is refused");
	end("permits released on the same server");
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
	snprintf(first, sizeof(first), "%s/%s", queue(), kazoo
			 ? "00112233445566778899aabbccddeeff__lock__"
			 : "_c_00112233-4455-6677-8899-aabbccddeeff-lock-");
	create_plain(first, "", ZKL_CREATE_EPHEMERAL_SEQUENTIAL);
	strcat(first, "0000000000");
	a = try_permit(A, "s", 2);
	fake_run_all();
	is_int(a->status, ZKL_PENDING, "a try waits for its turn where there are permits");
	fake_tree_delete(first);
	fake_run_all();
	is_int(a->status, ZKL_OK, "... and gets one");
	end("a try before the first permit");
}

/* Releases while the connection is down are noticed after it is back. */
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
	is_int(b->status, ZKL_PENDING, "who is cut off does not see a permit released");
	fake_connect(B->client);
	fake_run_all();
	is_int(b->status, ZKL_OK, "... but gets it on the next connection");
	end("a permit released during an outage");
}

static void
test_foreign_permits(void)
{
	Ask		   *a;

	begin(1);
	status_of_another(A, 2);
	create_plain(pool_of("s", kazoo ? "/stranger" : "/leases/stranger"), "",
				 ZKL_CREATE_PERSISTENT);
	a = permit_now(A, "s", 2);
	is_int(a->status, ZKL_PENDING, "every child counts, whatever its name");
	fake_tree_delete(pool_of("s", kazoo ? "/stranger" : "/leases/stranger"));
	fake_run_all();
	is_int(a->status, ZKL_OK, "until it goes");
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
	is_int(b->status, ZKL_PENDING, "a waiter sits out an outage");
	fake_connect(B->client);
	fake_run_all();
	is_int(b->status, ZKL_PENDING, "... and waits on");
	fake_expire(A->client);
	fake_run_all();
	is_int(b->status, ZKL_OK, "a session that expires releases its permits");
	end("expiry");
}

static void
test_layouts(void)
{
	Ask		   *a;
	Ask		   *b;

	begin(1);
	scene_config.node_names = kazoo ? ZKL_NODE_NAMES_CURATOR_MUTEX : ZKL_NODE_NAMES_KAZOO;
	scene_join(B);
	status_of_another(A, 2);
	is_int(status_of_another(B, 2), ZKL_OTHER_LAYOUT, "the other layout is refused");
	is_int(status_of_try(B, 2), ZKL_OTHER_LAYOUT, "for a try, too");
	is_int(nodes_of(B, NULL), 0, "and leaves nothing");
	end("one layout at a time");

	for (int lead = 0; lead < 12; lead++)
	{
		scene_begin(0);
		scene_config.node_names = kazoo ? ZKL_NODE_NAMES_KAZOO : ZKL_NODE_NAMES_CURATOR;
		scene_join(A);
		scene_config.node_names = kazoo ? ZKL_NODE_NAMES_CURATOR : ZKL_NODE_NAMES_KAZOO;
		scene_join(B);
		a = ask_permit(A, "s", 1);
		for (int i = 0; i < lead; i++)
			fake_step(A->client);
		b = ask_permit(B, "s", 1);
		fake_run_all();
		ok(!(a->status == ZKL_OK && b->status == ZKL_OK) &&
		   a->status != ZKL_PENDING && b->status != ZKL_PENDING,
		   "both at once, one %d steps ahead: never both", lead);
		scene_end(NULL);
	}
}

/* Two semaphores whose znodes kazoo would confuse. */
static void
test_names(void)
{
	begin(2);
	is_int(permit_now(A, "s", 1)->status, ZKL_OK, "a semaphore");
	is_int(permit_now(B, "s-__lock__", 1)->status, ZKL_OK, "one that is called like its queue");
	is_int(try_permit(B, "s", 1)->status, ZKL_PENDING, "...");
	fake_run_all();
	is_int(permits_of(B, "s"), 0, "they are apart");
	release_all(B);
	fake_run_all();
	is_int(status_of_another(A, 1), ZKL_PENDING, "in both directions");
	end("names like kazoo's queues");
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
	is_int(granted, 12, "all of a crowd get a permit");
	is_int(most, 4, "as many as there are are out at a time");
	end("a crowd");
}

/* Non-blocking attempts are refused only if no permit is free. */
static void
test_crowd_of_tries(void)
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
		ok(asks[i]->status != ZKL_PENDING, "a try is decided");
	}
	is_int(granted, 4, "of six tries at once four get the four permits");
	end("a crowd of tries");
}

static void
test_limits(void)
{
	begin(0);
	scene_config.max_nodes = 1;
	scene_join(A);
	is_int(status_of_another(A, 5), ZKL_OK, "a permit is one node");
	is_int(status_of_another(A, 5), ZKL_TOO_MANY, "one more is too many");
	release_all(A);
	is_int(status_of_another(A, 5), ZKL_OK, "but not when the other one is released");
	end("limits");
}

static void
test_refusals(void)
{
	begin(1);
	fake_quirks.deny = SCENE_SEMAPHORES;
	is_int(status_of_another(A, 5), ZKL_NO_AUTH, "an ACL of the parents");
	end("refusals");

	begin(1);
	status_of_another(A, 5);
	release_all(A);
	fake_run_all();
	fake_quirks.deny = permits();
	is_int(status_of_another(A, 5), ZKL_NO_AUTH, "an ACL of the permits");
	fake_quirks.deny = NULL;
	fake_advance(10000);
	is_int(nodes_of(A, NULL), 0, "nothing is left");
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
		is_int(a->status, ZKL_NO_AUTH, "an ACL of a semaphore whose queue is missing");
		fake_quirks.deny_exactly = NULL;
		forget(a);
		fake_run_all();
		end("refusals of the queue");
	}

	begin(1);
	fake_quirks.no_containers = true;
	is_int(status_of_another(A, 5), ZKL_OK, "a server without containers");
	end("old servers");
}

static void
test_pure(void)
{
	char		name[64];
	int			size = -1;

	zkl_semaphore_name("a-__lock__", name);
	is_str(name, "a-__lock_%5F", "a name that is a queue's in kazoo's layout");
	zkl_semaphore_name("-__lock__", name);
	is_str(name, "-__lock__", "no name is before it");
	zkl_semaphore_name("a-__lock__b", name);
	is_str(name, "a-__lock__b", "it does not end so");
	ok(zkl_parse_capacity("10000", 5, &size), "a number");
	is_int(size, 10000, "... is read");
	ok(!zkl_parse_capacity("", 0, &size), "no data");
	ok(!zkl_parse_capacity("1 ", 2, &size), "a blank");
	ok(!zkl_parse_capacity("-1", 2, &size), "a sign");
	ok(!zkl_parse_capacity("1234567890", 10, &size), "too large");
	ok(zkl_is_kazoos("0123456789abcdef0123456789abcdef"), "kazoo's permits");
	ok(!zkl_is_kazoos("0123456789ABCDEF0123456789abcdef"), "... are in lower case");
	ok(!zkl_is_kazoos("0123456789abcdef0123456789abcde"), "... and of one length");
}

int
main(void)
{
	static void (*const tests[]) (void) = {
		test_nodes, test_count, test_hand_over, test_give_up, test_sizes,
		test_semaphore_removed, test_removed_nodes, test_another_size, test_own_pending_deletes, test_released,
		test_no_permits_yet, test_missed, test_foreign_permits, test_expiry,
		test_layouts, test_names, test_crowd, test_crowd_of_tries, test_limits,
		test_refusals,
	};

	test_pure();
	for (int i = 0; i < 2; i++)
	{
		kazoo = i == 1;
		for (size_t t = 0; t < sizeof(tests) / sizeof(tests[0]); t++)
			tests[t] ();
	}
	return done();
}
