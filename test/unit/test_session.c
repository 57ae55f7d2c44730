/*-------------------------------------------------------------------------
 *
 * test_session.c
 *		Promises about a session: its lease, its end, and the commit check.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <string.h>

#include "scene.h"

#define X ZKL_MODE_EXCLUSIVE
#define S ZKL_MODE_SHARED
#define NONE ZKL_MODE_NONE
#define T SCENE_TIMEOUT_MS

static Party *const A = &parties[0];
static Party *const B = &parties[1];

static ZklSessionInfo info;

static int64_t
lease(void)
{
	zkl_session_info(A->session, &info);
	return info.lease_ms;
}

static bool
readable(void)
{
	struct pollfd fd = {zkl_session_fd(A->session), POLLIN, 0};

	return poll(&fd, 1, 0) == 1;
}

static void
test_info(void)
{
	scene_begin(0);
	scene_open(A);
	zkl_session_info(A->session, &info);
	ok(info.state == ZKL_SESSION_CONNECTING && info.session_id == 0 &&
	   info.session_timeout_ms == 0 && info.server[0] == '\0' && info.lease_ms == 0,
	   "a session that is not connected knows nothing yet");
	ok(!readable(), "nothing has changed yet");
	fake_connect(A->client);
	fake_run_all();
	ok(readable(), "connecting wakes the owner");
	zkl_session_receive(A->session);
	ok(!readable(), "... once");
	fake_advance(700);
	lock_now(A, "a", X);
	ok(readable(), "so does a grant");
	zkl_session_info(A->session, &info);
	is_int(info.state, ZKL_SESSION_CONNECTED, "connected");
	is_int(info.session_id, fake_session_id(A->client), "the session's id is known");
	is_int(info.session_timeout_ms, T, "... and the timeout as negotiated");
	is_str(info.server, "192.0.2.1:2181", "... and the server");
	is_int(info.connected_ms, 700, "... and since when");
	is_int(info.n_locks, 1, "... and how many locks it holds");
	reduce(A, "a", NONE);
	zkl_session_info(A->session, &info);
	is_int(info.n_locks, 0, "a released lock counts no more");
	zkl_session_receive(A->session);
	fake_disconnect(A->client);
	fake_run_all();
	zkl_session_info(A->session, &info);
	ok(info.state == ZKL_SESSION_SUSPENDED && readable(), "a lost connection wakes the owner");
	scene_end(NULL);
}

static void
test_lease(void)
{
	scene_begin(1);
	is_int(lease(), 0, "connecting proves nothing");
	forget(lock_now(A, "a", X));
	fake_advance(50);
	is_int(lease(), T / 3 - 50, "a create starts a lease of a third of the timeout");
	fake_advance(T / 3 - 51);
	is_int(lease(), 1, "it counts down");
	fake_advance(1);
	is_int(lease(), 0, "... and ends");

	forget(lock_now(A, "b", X));
	reduce(A, "b", NONE);
	fake_run_all();
	fake_advance(T / 2);
	fake_fault(A->client, fake_counted(A->client) + 1, FAULT_DELAY);
	ask_for(A, "b", X);
	fake_run_all();
	fake_advance(80);
	fake_release(A->client);
	fake_run_all();
	is_int(lease(), T / 3 - 80, "it starts when the request was sent, not when it was answered");
	fake_advance(T);
	reduce(A, "b", NONE);
	fake_run_all();
	lock_now(A, "b", X);
	fake_advance(T);
	fake_fault(A->client, fake_counted(A->client) + 1, FAULT_NO_AUTH);
	lock_now(A, "c", X);
	is_int(lease(), 0, "a refused create proves nothing");
	zkl_session_confirm(A->session, false);
	fake_run_all();
	is_int(lease(), T / 3, "confirming renews it");
	fake_expire(A->client);
	fake_connect(A->client);
	fake_run_all();
	is_int(lease(), 0, "a session that is over has none");
	scene_end(NULL);
}

static void
test_confirm(void)
{
	char		path[256];

	scene_begin(2);
	zkl_session_confirm(A->session, false);
	is_int(zkl_session_confirmed(A->session), ZKL_PENDING, "who holds nothing can ask, too");
	fake_run_all();
	is_int(zkl_session_confirmed(A->session), ZKL_OK,
		   "... and the session is confirmed, with the root there or not");
	forget(lock_now(A, "a", X));
	forget(lock_now(A, "b", S));
	forget(lock_now(A, "b", X));
	forget(lock_now(A, "c", X));
	fake_count(A->client);
	zkl_session_confirm(A->session, false);
	zkl_session_confirm(A->session, false);
	is_str(fake_trace(A->client), "m", "confirming costs one multi, asked twice or not");
	is_int(zkl_session_confirmed(A->session), ZKL_PENDING, "... and a round trip");
	fake_run_all();
	is_int(zkl_session_confirmed(A->session), ZKL_OK, "it is confirmed");

	zkl_session_confirm(A->session, false);
	fake_disconnect(A->client);
	fake_run_all();
	is_int(zkl_session_confirmed(A->session), ZKL_PENDING, "a lost connection leaves it open");
	fake_connect(A->client);
	fake_run_all();
	is_int(zkl_session_confirmed(A->session), ZKL_OK, "... and it goes on when that is back");

	/* Two of the three are gone, one of them only by its reader node. */
	strcpy(path, node_of(A, "a"));
	fake_tree_delete(path);
	fake_tree_delete(node_of(A, "b"));
	zkl_session_confirm(A->session, false);
	fake_run_all();
	is_int(zkl_session_confirmed(A->session), ZKL_OK, "a session may live although nodes are gone");
	ok(zkl_lock_is_lost(hold_of(A, "a")->lock), "a lock whose node was deleted is lost");
	ok(zkl_lock_is_lost(hold_of(A, "b")->lock), "... also when it is not the only one");
	ok(!zkl_lock_is_lost(hold_of(A, "c")->lock), "the others are not");
	ok(lease() > 0, "... and the session's lease is renewed");
	reduce(A, "a", NONE);
	reduce(A, "b", NONE);
	fake_run_all();
	is_int(nodes_of(A, NULL), 1, "lost locks can be released");

	fake_fault(A->client, fake_counted(A->client) + 1, FAULT_OTHER);
	zkl_session_confirm(A->session, false);
	fake_run_all();
	is_int(zkl_session_confirmed(A->session), ZKL_SERVER_ERROR, "an error is reported");
	fake_expire(A->client);
	fake_connect(A->client);
	fake_run_all();
	is_int(zkl_session_confirmed(A->session), ZKL_SESSION_LOST, "so is the end of the session");
	scene_end("exclusion, confirming");

	scene_begin(1);
	fake_count(A->client);
	fake_fault(A->client, 1, FAULT_AUTH);
	zkl_session_confirm(A->session, false);
	fake_run_all();
	is_int(zkl_session_confirmed(A->session), ZKL_AUTH_FAILED,
		   "a session ends because its credentials are refused");
	scene_end("exclusion, credentials");
}

/* An answer that arrives after half of the lease leaves no time to commit. */
static void
test_confirm_late(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_count(A->client);
	zkl_session_confirm(A->session, false);
	fake_apply(A->client);
	fake_advance(T / 6);
	fake_deliver(A->client);
	is_int(zkl_session_confirmed(A->session), ZKL_OK,
		   "a confirmation counts with half of its lease left");
	fake_advance(1);
	is_int(zkl_session_confirmed(A->session), ZKL_PENDING, "... and with less it does not");
	fake_run_all();
	is_int(zkl_session_confirmed(A->session), ZKL_OK, "... but the answer to a second question");
	is_int(zkl_session_lease(A->session).left_ms, T / 3,
		   "... which is a new one: it renews the lease, a third of the session timeout");
	is_int(zkl_session_lease(A->session).reserve_ms, T / 6, "half of a lease is its reserve");

	/* A grant renews the lease, but shows nothing about the other nodes. */
	zkl_session_confirm(A->session, false);
	fake_run_all();
	fake_advance(T / 6 + 1);
	forget(lock_now(A, "b", X));
	is_int(zkl_session_confirmed(A->session), ZKL_PENDING,
		   "the lease that counts is the confirmation's own");
	scene_end("exclusion, late confirmations");
}

/* A commit that needs a fresh check must not accept the answer to an earlier one. */
static void
test_confirm_fresh(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_count(A->client);
	zkl_session_confirm(A->session, true);
	fake_apply(A->client);
	fake_tree_delete(node_of(A, "a"));
	zkl_session_confirm(A->session, true);
	is_str(fake_trace(A->client), "mm", "a fresh confirmation is a request of its own");
	fake_deliver(A->client);
	is_int(zkl_session_confirmed(A->session), ZKL_PENDING,
		   "... and an answer to an earlier one is not its own");
	fake_run_all();
	is_int(zkl_session_confirmed(A->session), ZKL_OK, "... which is");
	ok(zkl_lock_is_lost(hold_of(A, "a")->lock), "... and shows what has happened between");

	zkl_session_confirm(A->session, true);
	fake_disconnect(A->client);
	zkl_session_confirm(A->session, true);
	fake_connect(A->client);
	fake_run_all();
	is_int(zkl_session_confirmed(A->session), ZKL_OK, "it outlives the connection");
	scene_end(NULL);
}

/* A session whose owner has given it up does not leave its nodes behind. */
static void
test_left_behind(void)
{
	ZklClient  *client;

	scene_begin(2);
	forget(lock_now(A, "a", X));
	fake_disconnect(A->client);
	fake_run_all();
	fake_advance(T);
	is_int(zkl_session_state(A->session), ZKL_SESSION_EXPIRED, "a session ends by its clock");
	is_int(nodes_of(NULL, "a"), 1, "... which the ensemble does not know");
	fake_connect(A->client);
	fake_run_all();
	is_int(nodes_of(NULL, "a"), 0, "it is closed when the connection is back, whatever its owner does");
	scene_leave(A);
	is_int(fake_n_clients(), 1, "... and freed when its owner closes it");

	scene_join(A);
	forget(lock_now(A, "a", X));
	client = A->client;
	fake_disconnect(client);
	fake_run_all();
	scene_leave(A);
	is_int(fake_n_clients(), 2, "the client of a session that its owner closes while disconnected goes on");
	ask_for(B, "a", X);
	fake_connect(client);
	fake_run_all();
	is_int(fake_n_clients(), 1, "... until it is connected");
	is_int(mode_of(B, "a"), X, "... and the next one has the lock");

	scene_join(A);
	client = A->client;
	fake_disconnect(client);
	fake_run_all();
	scene_leave(A);
	fake_expire(client);
	fake_connect(client);
	fake_run_all();
	is_int(fake_n_clients(), 1, "... or until the session has expired");

	scene_open(A);
	scene_leave(A);
	is_int(fake_n_clients(), 1, "a session that never was has nothing to close");

	/* An answer that is missing for too long ends a connected session. */
	scene_join(A);
	lock_now(A, "b", X);
	fake_count(A->client);
	fake_fault(A->client, 1, FAULT_DELAY);
	reduce(A, "b", ZKL_MODE_NONE);
	ask_for(A, "c", X);
	fake_run_all();
	fake_advance(2 * T);
	is_int(zkl_session_state(A->session), ZKL_SESSION_EXPIRED, "a forgotten answer ends a session");
	is_int(nodes_of(A, NULL), 0, "... also at the ensemble");
	scene_end("exclusion, sessions left behind");
}

/* An unfinished downgrade is no loss. */
static void
test_confirm_downgrade(bool at_once)
{
	for (FakeFault fault = FAULT_NONE; fault < N_FAULTS; fault++)
	{
		if (fault == FAULT_NO_AUTH || fault == FAULT_OTHER ||
			fault == FAULT_APPLY_OTHER)
			continue;
		scene_begin(1);
		forget(lock_now(A, "a", X));
		fake_count(A->client);
		fake_fault(A->client, 1, fault);
		reduce(A, "a", S);
		if (!at_once)
			fake_run_all();
		zkl_session_confirm(A->session, false);
		fake_run_all();
		heal();
		if (fake_is_expired(A->client))
			is_int(zkl_session_confirmed(A->session),
				   fault == FAULT_AUTH ? ZKL_AUTH_FAILED : ZKL_SESSION_LOST,
				   "confirming a downgrade tells the end of the session");
		else
			ok(zkl_session_confirmed(A->session) == ZKL_OK &&
			   !zkl_lock_is_lost(hold_of(A, "a")->lock),
			   "a downgrade under way is no loss (%s%s)", fake_fault_name(fault),
			   at_once ? ", confirmed right behind" : "");
		scene_end(NULL);
	}
}

static void
test_expiry(void)
{
	scene_begin(2);
	forget(lock_now(A, "a", X));
	forget(lock_now(B, "b", X));
	Ask		   *waiting = lock_now(A, "b", X);

	fake_expire(A->client);
	fake_run_all();
	is_int(zkl_session_state(A->session), ZKL_SESSION_SUSPENDED, "an expiry is not known at once");
	ok(!zkl_lock_is_lost(hold_of(A, "a")->lock), "... so the lock is only suspect");
	fake_connect(A->client);
	fake_run_all();
	is_int(zkl_session_state(A->session), ZKL_SESSION_EXPIRED, "it is on the next connection");
	ok(zkl_lock_is_lost(hold_of(A, "a")->lock), "then the lock is lost");
	is_int(waiting->status, ZKL_SESSION_LOST, "... and a wait ends");
	is_int(ask_for(A, "c", X)->status, ZKL_SESSION_LOST, "a later request fails at once");
	reduce(A, "a", NONE);
	give_up_all(A);
	ok(true, "lost locks and requests can be released");
	scene_end("exclusion, expiry");
}

static void
test_suspended(void)
{
	scene_begin(2);
	forget(lock_now(A, "a", X));
	fake_disconnect(A->client);
	fake_run_all();
	fake_advance(T - 1);
	is_int(zkl_session_state(A->session), ZKL_SESSION_SUSPENDED, "a holder trusts its session for the timeout");
	fake_advance(1);
	is_int(zkl_session_state(A->session), ZKL_SESSION_EXPIRED, "... and not for longer");
	ok(zkl_lock_is_lost(hold_of(A, "a")->lock), "then its lock is lost");
	fake_connect(A->client);
	fake_run_all();
	is_int(zkl_session_state(A->session), ZKL_SESSION_EXPIRED, "... for good");
	scene_end(NULL);

	scene_begin(2);
	forget(lock_now(B, "a", X));
	Ask		   *waiting = lock_now(A, "a", X);

	fake_disconnect(A->client);
	fake_run_all();
	fake_advance(5 * T);
	is_int(zkl_session_state(A->session), ZKL_SESSION_SUSPENDED, "who holds nothing waits on however long");
	reduce(B, "a", NONE);
	fake_run_all();
	is_int(waiting->status, ZKL_PENDING, "... hearing nothing");
	fake_connect(A->client);
	fake_run_all();
	is_int(waiting->status, ZKL_OK, "... and is granted when the connection is back");
	scene_end("exclusion, suspended");

	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_disconnect(A->client);
	fake_run_all();
	reduce(A, "a", NONE);
	fake_advance(3 * T);
	fake_connect(A->client);
	fake_run_all();
	is_int(nodes_of(A, NULL), 0, "a release while disconnected is carried out later");
	scene_end(NULL);
}

/* The owner closes in any state; memory that a hanging close uses stays valid. */
static void
test_close(void)
{
	static ZklSession *abandoned;	/* not freed, by contract */
	ZklClient  *client;

	scene_begin(2);
	forget(lock_now(A, "a", X));
	lock_now(B, "a", X);
	scene_leave(A);
	fake_run_all();
	is_int(mode_of(B, "a"), X, "closing a session lets others in at once");
	scene_end(NULL);

	scene_begin(2);
	lock_now(A, "a", X);
	ask_for(A, "b", X);
	fake_apply(A->client);
	reduce(A, "a", NONE);
	scene_leave(A);
	ok(true, "a session may be closed with requests in flight");

	forget(lock_now(B, "a", X));
	ask_for(B, "b", X);
	client = B->client;
	abandoned = B->session;
	fake_close_hangs(client);
	scene_leave(B);
	fake_run_all();
	fake_disconnect(client);
	fake_run_all();
	fake_connect(client);
	fake_run_all();
	ok(zkl_session_state(abandoned) == ZKL_SESSION_EXPIRED, "events after a close that hung find what they need, and change nothing");
	fake_close_late(client);
	scene_end(NULL);
}

static void
test_failed_attempts(void)
{
	scene_begin(1);
	fake_disconnect(A->client);
	Ask		   *ask = ask_for(A, "a", X);	/* before the event is delivered */

	fake_run_all();
	fake_fail_attempt(A->client);
	fake_run_all();
	is_int(ask->status, ZKL_PENDING, "a request sent into a lost connection goes on");
	fake_connect(A->client);
	fake_run_all();
	is_int(ask->status, ZKL_OK, "... when it is back");
	is_int(nodes_of(A, NULL), 1, "... with one node");
	scene_end(NULL);
}

int
main(void)
{
	test_info();
	test_lease();
	test_confirm();
	test_confirm_late();
	test_left_behind();
	test_confirm_fresh();
	test_confirm_downgrade(false);
	test_confirm_downgrade(true);
	test_expiry();
	test_suspended();
	test_close();
	test_failed_attempts();
	return done();
}
