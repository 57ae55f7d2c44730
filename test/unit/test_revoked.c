/*-------------------------------------------------------------------------
 *
 * test_revoked.c
 *		A holder whose release is requested gets the notification within about a
 *		second, once for each request, whatever happens to the connection.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "letters.h"
#include "observed.h"

#define T SCENE_TIMEOUT_MS
#define REVOKE "__REVOKE__"

static int
release_requested(const char *name)
{
	return zkl_lock_revocations(hold_of(A, name)->lock);
}

static void
revoke(const char *name)
{
	char		path[256];

	strcpy(path, node_of(A, name));
	fake_tree_set(path, REVOKE);
}

static bool
names_holder(const char *path)
{
	const FakeNode *node = fake_tree_find(path);

	return node && node->data_len == (int) strlen(A->data) &&
		memcmp(node->data, A->data, strlen(A->data)) == 0;
}

static void
test_revoked(void)
{
	begin_observed(1);
	forget(lock_now(A, "a", X));
	forget(lock_now(A, "b", S));
	fake_advance(T);
	fake_count(A->client);
	revoke("a");
	fake_run_all();
	ok(release_requested("a") == 1 && revocations_reported == 1, "a request to release is reported to the holder at once");
	is_int(release_requested("b"), 0, "the release of the other lock is not requested");
	ok(!zkl_lock_is_lost(hold_of(A, "a")->lock), "the holder still holds the lock");
	ok(names_holder(node_of(A, "a")), "the node's data name the holder again");
	fake_advance(T);
	is_str(fake_trace(A->client), "wuw", "a revocation costs three requests, once");
	is_int(revocations_reported, 1, "the request is reported once");
	revoke("a");
	fake_run_all();
	ok(release_requested("a") == 2 && revocations_reported == 2, "a second request is reported");
	reduce(A, "a", NONE);
	fake_run_all();
	forget(lock_now(A, "a", X));
	fake_advance(T);
	ok(release_requested("a") == 0 && revocations_reported == 2, "a session that acquires the lock again has no request yet");
	scene_end("exclusion, revoked");
}

static void
test_early(void)
{
	begin_observed(1);
	forget(lock_now(A, "a", X));
	fake_count(A->client);
	revoke("a");
	fake_run_all();
	is_str(fake_trace(A->client), "", "a lock that was just granted costs nothing more");
	fake_advance(1000);
	ok(release_requested("a") == 1 && revocations_reported == 1, "a request written before the node is watched is found after a second");
	ok(names_holder(node_of(A, "a")), "the data of this node name the holder again");
	scene_end("exclusion, revoked early");
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
	ok(release_requested("a") == 0 && revocations_reported == 0, "other data request no release");
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
		revoke("a");
		for (int i = 0; i < steps; i++)
			fake_step(A->client);
		before = revocations_reported;
		revoke("a");
		fake_run_all();
		ok(revocations_reported == before + 1 && release_requested("a") == revocations_reported &&
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

	begin_observed(1);
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
		ok(release_requested("a") == i + 1 && revocations_reported == i + 1 && names_holder(paths[i]),
		   "each node of an upgraded lock can be used for a request (%d)", i);
	}
	reduce(A, "a", S);
	fake_run_all();
	revoke("a");
	fake_run_all();
	is_int(release_requested("a"), 3, "the node that stays after the upgrade can be used");
	scene_end("exclusion, upgraded and revoked");
}

static void
test_downgraded(void)
{
	begin_watched();
	revoke("a");
	fake_run_all();
	reduce(A, "a", S);
	fake_run_all();
	is_int(release_requested("a"), 1, "a downgrade does not release");
	revoke("a");
	fake_advance(1000);
	ok(release_requested("a") == 2 && revocations_reported == 2, "the new node of a downgrade is watched");
	ok(names_holder(node_of(A, "a")), "the new node's data name the holder again");
	scene_end("exclusion, downgraded and revoked");
}

static void
test_disconnected(void)
{
	begin_watched();
	fake_disconnect(A->client);
	fake_run_all();
	revoke("a");
	fake_connect(A->client);
	fake_run_all();
	fake_advance(1000);
	ok(release_requested("a") == 1 && revocations_reported == 1, "a request during an outage is reported after it");
	fake_disconnect(A->client);
	fake_run_all();
	fake_connect(A->client);
	fake_run_all();
	fake_advance(T);
	is_int(revocations_reported, 1, "the request is not reported again after another outage");
	scene_end("exclusion, revoked during an outage");
}

/* A waiter holds nothing that could be revoked until it is granted. */
static void
test_waiting(void)
{
	begin_observed(2);
	forget(lock_now(B, "a", X));
	ask_for(A, "a", X);
	fake_run_all();
	revoke("a");
	fake_run_all();
	fake_advance(T);
	is_int(revocations_reported, 0, "a request to a waiter is not reported");
	reduce(B, "a", NONE);
	fake_run_all();
	fake_advance(1000);
	ok(release_requested("a") == 1 && revocations_reported == 1, "the request is reported when the waiter is granted the lock");
	scene_end("exclusion, revoked while waiting");
}

/* A revocation of a grant not yet taken is reported when the owner takes the grant. */
static void
test_not_taken(void)
{
	ZklLockItem item = {.name = "a",.mode = X};
	ZklRequest *request;
	ZklLock    *lock;

	begin_observed(1);
	request = zkl_lock_request(A->session, &item, 1, false, A->data, (int) strlen(A->data));
	fake_run_all();
	revoke("a");
	fake_advance(T);
	is_int(revocations_reported, 0, "a request to a holder that has not seen its grant is not reported");
	lock = zkl_request_lock(request, 0);
	ok(revocations_reported == 1 && zkl_lock_revocations(lock) == 1, "the request is reported when the holder takes the grant");
	zkl_request_end(request);
	zkl_lock_reduce(lock, NONE);
	fake_run_all();
	scene_end(NULL);
}

static void
test_released(void)
{
	begin_watched();
	revoke("a");
	reduce(A, "a", NONE);
	fake_run_all();
	is_int(revocations_reported, 0, "a session that has released gets no request");
	scene_end("exclusion, revoked and released");
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
			revoke("a");
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
				ok(expected && release_requested("a") == revocations_reported,
				   "the request is reported once, whatever happens to request %d of the revocation (%s)", k, fake_fault_name(fault));
				if (!refused || k == 2)
				{
					revoke("a");
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
	begin_observed(1);
	forget(permit_now(A, "s", 1));
	fake_advance(T);
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (fake_tree_child(node->path, pool_of("s", "/leases")))
		{
			fake_tree_set(node->path, REVOKE);
			break;
		}
	fake_run_all();
	is_int(fake_n_traced(A->client, 'u'), 0, "the holder of a permit leaves the data of its node as they are");
	is_int(revocations_reported, 0, "a request to release a permit is not reported");
	scene_end(NULL);
}

int
main(void)
{
	test_revoked();
	test_early();
	test_other_data();
	test_race();
	test_upgraded();
	test_downgraded();
	test_disconnected();
	test_waiting();
	test_not_taken();
	test_released();
	test_faults();
	test_permit();
	return done();
}
