/*-------------------------------------------------------------------------
 *
 * test_hold_watch.c
 *		A holder that loses its lock, for example because its node is deleted by hand, or
 *		whose release is requested, is notified at once or within about a second, once for
 *		each event, whatever happens to the connection.
 *
 * Promise: 5.4
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <string.h>

#include "letters.h"
#include "play.h"

#define T SCENE_TIMEOUT_MS
#define REVOKE "__REVOKE__"

/* A holds "a", and watches its node. */
#define HELD "A lock, A pass 6000, "

static const Play plays[] = {
	/* loss */
	{HERE, "each held node is watched once; a removal by hand is a loss of this lock, which is reported at once, and once",
		"A lock a, A share b, A pass 6000, A sends ww, A lock c, A pass 6000, A sends w, A delete a, A has xSX abc,"
	" all losses 1, A pass 6000, all losses 1, A release a, A lock a, A has XSX abc"},
	{HERE, "a removal before the node is watched is detected when the watch is set",
	"A lock, A delete, all losses 0, A pass 6000, A has x, all losses 1"},
	{HERE, "a loss that an upgrade finds is reported, too", "A share, A delete, all losses 0, A lock, A has s, all losses 1"},
	{HERE, "a node is watched when it has been held for a second, and not one that is held for half a second",
	"A lock a, A pass 500, A lock b, A pass 500, A watches 1, A pass 1000, A watches 2"},
	{HERE, "a change of the node's data is no loss, and a removal after it is one",
	HELD "A write x, A pass 6000, A has X, all losses 0, A delete, A has x, all losses 1"},
	{HERE, "a removal during an outage is reported after it",
	HELD "A disconnect, A delete, A connect, A pass 6000, A has x, all losses 1"},
	{HERE, "a removal after an outage is reported if the server has lost the watch",
	HELD "A disconnect, A connect, A pass 6000, A delete, A has x, all losses 1"},
	{HERE, "the new node of a downgrade is watched, and its removal is a loss; that of the old one is none",
	HELD "A downgrade, all pass 6000, A sends mw, A has S, all losses 0, A delete, A has s, all losses 1"},
	{HERE, "a release removes the watch and is no loss, nor is the end of a session that holds nothing",
	HELD "A watches 1, B lock, A release, A watches 0, all losses 0, B has X, A expire, A connect, all losses 0"},
	{HERE, "the expiry of a session that waits is no loss", "B lock, A lock, A expire, A connect, all losses 0"},
	{HERE, "an expiry is reported once for all locks", "A lock a, A share b, A expire, A connect, A has xs ab, all losses 1"},
	{HERE, "an expiry is a loss of what is held, also after a release",
	"A lock a, A release a, A lock b, A expire, A connect, A has x b, all losses 1"},
	{HERE, "an expiry is no loss of what was released or is lost",
	"A lock a, A lock b, A release b, A delete a, A pass 6000, all losses 1, A expire, A connect, all losses 1"},

	{HERE, "a read that a busy server refuses does not end a confirmation, which reads again", "A lock, A fault throttle, A confirm, A confirmed ok, A sends ww, A watches 1"},
	{HERE, "a read that is answered with an error ends a confirmation", "A lock, A fault other-error, A confirm, A confirmed error"},
	{HERE, "a confirmation does not rely on a watch that has fired: it finds the removal behind a change of the data",
		HELD "A confirm!, A write! x, A delete!, A apply!, A deliver!, A deliver!, A confirmed pending, A pass 0,"
	" A has x, all losses 1"},
	{HERE, "a node is watched although its watch was due during a downgrade, which was refused",
	"A lock, A pass 990, all deny /zklock/locks/a, A downgrade!, A stall! 10, A ring, A pass 2000, A watches 1"},

	/* requests to release */
	{HERE, "a request to release is reported at once, and once, with three requests; the data name the holder again",
		"A lock a, A share b, A pass 6000, A revoke a, A revocations 1, all revocations 1, A revocations 0 b,"
	" A has XS ab, A data party-0, all pass 6000, A sends wuw, all revocations 1"},
	{HERE, "a second request is reported, and a lock that is acquired again has no request yet",
		HELD "A revoke, A revoke, A revocations 2, all revocations 2, A release, A lock, A pass 6000,"
	" A revocations 0, all revocations 2"},
	{HERE, "a request before the node is watched is found after a second",
	"A lock, A revoke, A sends , all pass 1000, A revocations 1, all revocations 1, A data party-0"},
	{HERE, "a downgrade does not release, and the release of its new node can be requested",
		HELD "A revoke, A downgrade, A revocations 1, A revoke, A pass 1000, A revocations 2, all revocations 2,"
	" A data party-0"},
	{HERE, "a request during an outage is reported after it, and not again after another outage",
		HELD "A disconnect, A revoke, A connect, A pass 1000, A revocations 1, all revocations 1,"
	" A disconnect, A connect, A pass 6000, all revocations 1"},
	{HERE, "a request to a waiter is reported when it is granted the lock",
		"B lock, A lock, A revoke, A pass 6000, all revocations 0, B release, A pass 1000, A revocations 1,"
	" all revocations 1"},
	{HERE, "a session that has released gets no request", HELD "A revoke!, A release, all revocations 0"},
};

/* One session holds "a", and watches its node. */
static void
begin_watched(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_advance(T);
}

static bool
is_lost(void)
{
	return zkl_lock_is_lost(hold_of(A, "a")->lock);
}

static void
remove_by_hand(void)
{
	delete_by_hand(node_of(A, "a"));
	fake_run_all();
}

/* The read that sets the watch is in flight. */
static void
test_downgraded_loss(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_tree_delete(node_of(A, "a"));
	fake_count(A->client);
	fake_stall(1000);
	fake_ring(A->client);
	reduce(A, "a", S);
	fake_run_all();
	is_str(fake_trace(A->client), "wmdd", "the lock is downgraded while the read that sets the watch is in flight");
	ok(is_lost() && losses_reported == 1, "a removal that this read detects is a loss, reported once");
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(nodes_of(NULL, NULL), 0, "no node is left");
	scene_end("exclusion, downgrade of a removed node");
}

/* Whatever happens to the read that sets the watch, a deletion is detected. */
static void
test_loss_faults(void)
{
	for (FakeFault fault = FAULT_NONE; fault < N_FAULTS; fault++)
	{
		scene_begin(1);
		forget(lock_now(A, "a", X));
		fake_count(A->client);
		fake_fault(A->client, 1, fault);
		fake_advance(1000);
		heal();
		fake_release(A->client);
		if (!fake_is_expired(A->client))
			remove_by_hand();
		for (int i = 0; i < 3; i++)
		{
			fake_advance(T / 3);
			heal();
		}
		ok(is_lost() && losses_reported == 1, "the loss is reported (%s)", fake_fault_name(fault));
		scene_end(NULL);
	}
}

static void
test_no_callbacks(void)
{
	scene_begin(0);
	scene_config.on_loss_io = NULL;
	scene_config.on_revoke_io = NULL;
	scene_join(A);
	play_begin();
	play_act("A lock, A pass 6000, A revoke, A delete", true);
	ok(is_lost(), "a session without callbacks loses a lock, too");
	scene_end(NULL);
}


/*
 * Requests to release
 */

static int
release_requested(void)
{
	return zkl_lock_revocations(hold_of(A, "a")->lock);
}

static void
revoke(void)
{
	fake_tree_set(node_of(A, "a"), REVOKE);
}

static bool
names_holder(const char *path)
{
	const FakeNode *node = fake_tree_find(path);

	return node && node->data_len == (int) strlen(A->data) &&
		memcmp(node->data, A->data, strlen(A->data)) == 0;
}

/* The owner, who may wait for another lock, is woken to report the request. */
static void
test_wakes_owner(void)
{
	struct pollfd fd;

	begin_watched();
	fd = (struct pollfd)
	{
		zkl_session_fd(A->session), POLLIN, 0
	};
	zkl_session_receive(A->session);
	is_int(poll(&fd, 1, 0), 0, "the owner may sleep");
	revoke();
	fake_run_all();
	is_int(poll(&fd, 1, 0), 1, "a request to release wakes the owner");
	scene_end(NULL);
}

/* Only exactly these bytes request a release. */
static void
test_other_data(void)
{
	static const char *const others[] = {
		"", "__REVOKE_", "__REVOKE__ ", "__revoke__", "x__REVOKE__", "__REVOKE__\n", "__REVOKE_x",
	};
	char		path[256];

	begin_watched();
	strcpy(path, node_of(A, "a"));
	fake_count(A->client);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
	{
		fake_tree_set(path, others[i]);
		fake_run_all();
	}
	fake_tree_set_if(path, REVOKE, sizeof(REVOKE), fake_tree_find(path)->version);
	fake_run_all();
	ok(release_requested() == 0 && revocations_reported == 0, "other data request no release");
	is_str(fake_trace(A->client), "wwwwwwww", "other data are not overwritten");
	scene_end("exclusion, other data");
}

/* A second revocation after each step that the first one causes. */
static void
test_race(void)
{
	for (int steps = 0; steps < 8; steps++)
	{
		int			before;

		begin_watched();
		revoke();
		for (int i = 0; i < steps; i++)
			fake_step(A->client);
		before = revocations_reported;
		revoke();
		fake_run_all();
		ok(revocations_reported == before + 1 && release_requested() == revocations_reported &&
		   names_holder(node_of(A, "a")),
		   "a second revocation after %d steps of the first is not overwritten before it is reported", steps);
		scene_end(NULL);
	}
}

/* The writer node of an upgrade, and the reader node beside it. */
static void
test_upgraded(void)
{
	char		paths[2][256];
	int			n = 0;

	scene_begin(1);
	forget(lock_now(A, "a", S));
	forget(lock_now(A, "a", X));
	fake_advance(T);
	for (FakeNode *node = fake_tree_first(); node && n < 2; node = node->next)
		if (fake_tree_child(node->path, path_of("a")))
			strcpy(paths[n++], node->path);
	is_int(n, 2, "an upgraded lock has two nodes");
	for (int i = 0; i < n; i++)
	{
		fake_tree_set(paths[i], REVOKE);
		fake_run_all();
		ok(release_requested() == i + 1 && revocations_reported == i + 1 && names_holder(paths[i]),
		   "each node of an upgraded lock can be used for a request (%d)", i);
	}
	reduce(A, "a", S);
	fake_run_all();
	revoke();
	fake_run_all();
	is_int(release_requested(), 3, "the node that stays after the upgrade can be used");
	scene_end("exclusion, upgraded and revoked");
}

/* A revocation of a grant not yet taken is reported when the owner takes the grant. */
static void
test_not_taken(void)
{
	ZklLockItem item = {.name = "a",.mode = X};
	ZklRequest *request;
	ZklLock    *lock;

	scene_begin(1);
	request = zkl_lock_request(A->session, &item, 1, false, A->data, (int) strlen(A->data));
	fake_run_all();
	revoke();
	fake_advance(T);
	is_int(revocations_reported, 0, "a request to a holder that has not seen its grant is not reported");
	lock = zkl_request_lock(request, 0);
	ok(revocations_reported == 1 && zkl_lock_revocations(lock) == 1, "the request is reported when the holder takes the grant");
	zkl_request_end(request);
	zkl_lock_reduce(lock, NONE);
	fake_run_all();
	scene_end(NULL);
}

/*
 * Whatever happens to each request in turn, the revocation is reported, and the
 * node shows its holder again, unless the ensemble refuses that.
 */
static void
test_faults(void)
{
	for (int k = 1; k <= 3; k++)
		for (FakeFault fault = FAULT_NONE; fault < N_FAULTS; fault++)
		{
			bool		refused = fault == FAULT_NO_AUTH || fault == FAULT_OTHER ||
				fault == FAULT_APPLY_OTHER;
			bool		expected = true;

			begin_watched();
			fake_count(A->client);
			fake_fault(A->client, k, fault);
			revoke();
			fake_run_all();
			heal();
			fake_release(A->client);
			for (int i = 0; i < 6; i++)
			{
				fake_advance(T / 6);
				heal();
			}
			if (!fake_is_expired(A->client))
			{
				if (refused)
					expected = revocations_reported == 1 && names_holder(node_of(A, "a")) ==
						(k != 2 || fault == FAULT_APPLY_OTHER);
				else
					expected = revocations_reported == 1 && names_holder(node_of(A, "a"));
				ok(expected && release_requested() == revocations_reported,
				   "the request is reported once, whatever happens to request %d of the revocation (%s)", k, fake_fault_name(fault));
				if (!refused || k == 2)
				{
					revoke();
					fake_run_all();
					fake_advance(1000);
					is_int(revocations_reported, 2, "a second request is reported once more");
				}
			}
			scene_end(NULL);
		}
}

/* A permit is no lock: its release cannot be requested. */
static void
test_permit(void)
{
	scene_begin(1);
	forget(permit_now(A, "s", 1));
	fake_advance(T);
	fake_tree_set(node_below(A, pool_of("s", "/leases")), REVOKE);
	fake_run_all();
	is_int(fake_n_traced(A->client, 'u'), 0, "the holder of a permit leaves the data of its node as they are");
	is_int(revocations_reported, 0, "a request to release a permit is not reported");
	scene_end(NULL);
}

int
main(void)
{
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_downgraded_loss();
	test_loss_faults();
	test_no_callbacks();
	test_wakes_owner();
	test_other_data();
	test_race();
	test_upgraded();
	test_not_taken();
	test_faults();
	test_permit();
	return done();
}
