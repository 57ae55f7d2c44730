/*-------------------------------------------------------------------------
 *
 * test_session.c
 *		Promises about a session: its lease, its end, and the commit check.
 *
 * Promises: 5.1, 5.2
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "letters.h"
#include "play.h"
#include "play.h"

#define T SCENE_TIMEOUT_MS

static ZklSessionInfo info;

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
	info = zkl_session_info(A->session);
	ok(info.state == ZKL_SESSION_CONNECTING && info.key.id == 0 &&
	   info.session_timeout_ms == 0 && info.server[0] == '\0' && info.lease_ms == 0,
	   "a session that is not connected has no information");
	ok(!readable(), "the owner is not woken before a change");
	fake_connect(A->client);
	fake_run_all();
	ok(readable(), "connecting wakes the owner");
	zkl_session_receive(A->session);
	ok(!readable(), "connecting wakes the owner once");
	fake_advance(700);
	lock_now(A, "a", X);
	ok(readable(), "a grant wakes the owner");
	info = zkl_session_info(A->session);
	is_int(info.state, ZKL_SESSION_CONNECTED, "connected");
	is_int(info.key.id, fake_session_id(A->client), "the session's id is available");
	is_int(info.session_timeout_ms, T, "the negotiated timeout is available");
	is_str(info.server, "192.0.2.1:2181", "the server's address is available");
	is_int(info.connected_ms, 700, "the time of the connection is available");
	is_int(info.n_locks, 1, "the number of held locks is available");
	reduce(A, "a", NONE);
	info = zkl_session_info(A->session);
	is_int(info.n_locks, 0, "a released lock is not counted");
	zkl_session_receive(A->session);
	fake_disconnect(A->client);
	fake_run_all();
	info = zkl_session_info(A->session);
	ok(info.state == ZKL_SESSION_SUSPENDED && readable(), "a lost connection wakes the owner");
	scene_end(NULL);
}

static const Play plays[] = {
	{HERE,
		"a session that holds nothing can be confirmed, with or without the root",
		"A confirm!, A confirmed pending, A pass 0, A confirmed ok"
	},
	{HERE,
		"a confirmation watches the held node, however often it is requested, and takes a round trip",
		"A lock, A confirm!, A sends w, A confirm!, A sends, A confirmed pending, A pass 0, A confirmed ok"
	},
	{HERE,
		"the nodes that are not watched yet are read before one proof; then a proof alone suffices",
		"A lock a, A share b, A lock b, A confirm!, A sends www, A confirm!, A sends , A proofs 1, all pass 0,"
		" A confirmed ok, A confirm fresh, A confirmed ok, A sends , A proofs 2"
	},
	/* A commit that needs a fresh check must not accept the answer to an earlier one. */
	{HERE,
		"a fresh confirmation is a request of its own, and detects a loss in between",
		"A lock, A confirm! fresh, A apply!, A delete!, A confirm! fresh, A proofs 2, A deliver!, A confirmed pending,"
		" all pass 0, A confirmed ok, A has x"
	},
	{HERE,
		"a node that is removed after its read, and before the proof, does not delay it, and is noticed",
		"A lock, A confirm! fresh, A apply!, A delete, A confirmed ok, A has x"
	},
	{HERE,
		"a pending confirmation succeeds after a reconnect, and a finished one is not repeated",
		"A lock, A confirm!, A disconnect, A confirmed pending, A connect, A confirmed ok,"
		" A disconnect, A connect, A sends w"
	},
	{HERE,
		"a node that another client removes during an outage is found lost on the next connection",
		"A lock, A disconnect, A delete, A connect, all losses 1"
	},
	{HERE,
		"a session is confirmed although nodes are missing; their locks are lost and can be released",
		"A lock a, A share b, A lock b, A lock c, A delete! a, A delete! b, A confirm, A confirmed ok,"
		" A lost 2, A release a, A release b, A nodes 1"
	},
	{HERE,
		"a node that cannot be watched is an error of a confirmation",
		"A lock, A fault no-auth, A confirm, A confirmed error"
	},
	{HERE,
		"a confirmation reports the end of the session",
		"A lock, A confirm!, A expire, A connect, A confirmed lost"
	},
	{HERE,
		"a confirmation reports that the credentials are refused",
		"A lock, A fault credentials, A confirm, A confirmed refused"
	},
	{HERE,
		"a fresh confirmation survives a reconnect",
		"A lock, A confirm! fresh, A disconnect!, A confirm! fresh, A connect, A confirmed ok"
	},
	{HERE,
		"an expiry is detected on the next connection; then locks are lost and requests fail",
		"A lock a, B lock b, A lock b, A expire, A state suspended, A lost 0,"
		" A connect, A state expired, A lost 1, A is lost, A lock c, A is lost, A leave"
	},
	{HERE,
		"a session that holds nothing waits for a connection without limit",
		"B lock, A lock, A disconnect, A pass 30000, A state suspended, B release, A is pending,"
		" A connect, A is ok"
	},
	{HERE,
		"connecting starts no lease, and a create one of a third of the timeout, which counts down",
		"A lease 0, A lock, A release!, all pass! 50, A lease 1950, all pass! 1949, A lease 1, all pass! 1, A lease 0"
	},
	{HERE,
		"the lease starts when the request is sent, not when it is answered",
		"A lock, A release, all pass 1000, A fault delay, A lock, all pass 80, A connect, A lease 1920"
	},
	{HERE,
		"a refused create starts no lease, a confirmation renews it, and a lost session has none",
		"A lock, A release, all pass 6000, A fault no-auth, A lock, A lease 0, A confirm, A lease 2000,"
		" A expire, A connect, A lease 0"
	},
	{HERE,
		"a confirmation counts if half of its lease is left; a second one renews the lease",
		"A lock, A confirm!, A apply!, all pass! 1000, A deliver!, A confirmed ok, all pass! 1, A confirmed pending,"
		" A pass 0, A confirmed ok, A lease 2000"
	},
	{HERE,
		"the lease that counts is the confirmation's own: a grant shows nothing about the other nodes",
		"A lock, A confirm, all pass 1001, A lock b, A confirmed pending"
	},
	{HERE,
		"a disconnected holder keeps its session and lock until the deadline, and not longer",
		"A lock, A disconnect, all pass 1999, A state suspended, all losses 0, all pass 1, A state expired, A has x,"
		" all losses 1, A connect, A state expired"
	},
	{HERE,
		"closing a session releases its locks at once",
		"A lock, B lock, A close, B has X"
	},
	{HERE,
		"a release while disconnected is sent later",
		"A lock, A disconnect, A release, A pass 18000, A connect, A nodes 0"
	}
};

/* The reader node of the upgraded lock still exists. */
static void
test_confirm_upgrade(void)
{
	char		path[256] = "";

	scene_begin(1);
	forget(lock_now(A, "a", S));
	forget(lock_now(A, "a", X));
	for (FakeNode *node = fake_tree_first(); node; node = node->next)
		if (strstr(node->path, "__WRIT__"))
			snprintf(path, sizeof(path), "%s", node->path);
	is_int(fake_tree_delete(path), ZKL_RC_OK, "another client deletes the node of an upgrade");
	zkl_session_confirm(A->session, false);
	fake_run_all();
	is_int(lost_of(A), 1, "a confirmation checks both nodes of an upgraded lock");
	scene_end(NULL);
}

/* The lease ends by the clock, whatever the connection does. */
static void
test_rest_of_lease(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_disconnect(A->client);
	fake_advance(T / 6);
	ok(zkl_session_lease_lasts(A->session, true), "half of a lease suffices for a commit");
	fake_advance(1);
	ok(!zkl_session_lease_lasts(A->session, true), "less than half of a lease does not");
	ok(zkl_session_lease_lasts(A->session, false), "less than half of a lease lasts");
	fake_advance(T / 6 - 1);
	ok(!zkl_session_lease_lasts(A->session, false), "a lease lasts until a third of the session timeout has passed");
	scene_end(NULL);
}

/* A session that its owner has given up leaves no nodes. */
static void
test_left_behind(void)
{
	ZklClient  *client;

	scene_begin(2);
	forget(lock_now(A, "a", X));
	fake_disconnect(A->client);
	fake_run_all();
	fake_advance(T);
	is_int(zkl_session_state(A->session), ZKL_SESSION_EXPIRED, "a session expires by its own timer");
	is_int(nodes_of(NULL, "a"), 1, "the ensemble still has the session's node");
	fake_connect(A->client);
	fake_run_all();
	is_int(nodes_of(NULL, "a"), 0, "the session is closed after the reconnect, without its owner");
	scene_leave(A);
	is_int(fake_n_clients(), 1, "the session's memory is freed when its owner closes it");

	scene_join(A);
	forget(lock_now(A, "a", X));
	client = A->client;
	fake_disconnect(client);
	fake_run_all();
	scene_leave(A);
	is_int(fake_n_clients(), 2, "the client of a session that is closed while disconnected continues");
	ask_for(B, "a", X);
	fake_connect(client);
	fake_run_all();
	is_int(fake_n_clients(), 1, "this client ends when it is connected");
	is_int(mode_of(B, "a"), X, "the next session then has the lock");

	scene_join(A);
	client = A->client;
	fake_disconnect(client);
	fake_run_all();
	scene_leave(A);
	fake_expire(client);
	fake_connect(client);
	fake_run_all();
	is_int(fake_n_clients(), 1, "this client also ends when the session has expired");

	scene_open(A);
	scene_leave(A);
	is_int(fake_n_clients(), 1, "a session that never existed is closed at once");

	/* A connected session ends if an answer is missing for too long. */
	scene_join(A);
	lock_now(A, "b", X);
	fake_count(A->client);
	fake_fault(A->client, 1, FAULT_DELAY);
	reduce(A, "b", ZKL_MODE_NONE);
	ask_for(A, "c", X);
	fake_run_all();
	fake_advance(2 * T);
	is_int(zkl_session_state(A->session), ZKL_SESSION_EXPIRED, "a session ends if the server forgets an answer");
	is_int(nodes_of(A, NULL), 0, "this session also ends at the ensemble");
	scene_end("exclusion, sessions left behind");
}

/* The owner closes in any state; memory that a hanging close uses stays valid. */
static void
test_close(void)
{
	static ZklSession *abandoned;	/* not freed, by contract */
	ZklClient  *client;

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
	ok(zkl_session_state(abandoned) == ZKL_SESSION_EXPIRED, "events after a close that timed out access valid memory and change nothing");
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
	is_int(ask->status, ZKL_PENDING, "a request sent into a lost connection is still pending");
	fake_connect(A->client);
	fake_run_all();
	is_int(ask->status, ZKL_OK, "the request is granted after the reconnect");
	is_int(nodes_of(A, NULL), 1, "the request has one node");
	scene_end(NULL);
}

/* Each answer is progress; but not if each connection gets the same answers again. */
static void
test_progress(void)
{
	ZklRequestInfo waiter;
	Ask		   *ask;
	uint64_t	before = 0;
	int			n = 0;

	scene_begin(1);
	ask = ask_for(A, "a", X);
	while (fake_step(A->client) && zkl_request_status(ask->request) == ZKL_PENDING)
		n++;
	zkl_request_info(ask->request, &waiter);
	is_int((int64_t) waiter.progress, n, "each answer before the grant is progress, also about parents");
	scene_end(NULL);

	scene_begin(2);
	forget(lock_now(B, "a", X));
	ask = lock_now(A, "a", X);
	for (int i = 0; i < 6; i++)
	{
		fake_disconnect(A->client);
		fake_run_all();
		fake_connect(A->client);
		fake_run_all();
		zkl_request_info(ask->request, &waiter);
		if (i == 0)
			before = waiter.progress;
	}
	ok(before > 0, "answers are progress of a waiting request");
	is_int((int64_t) waiter.progress, (int64_t) before, "the same answers on further connections are no progress");
	scene_end("exclusion, repeated answers");
}

/* A request that queues again, because another client has deleted a node, keeps its progress. */
static void
test_progress_of_restart(bool is_permit)
{
	ZklRequestInfo info;
	uint64_t	most = 0;
	bool		grows = true;
	Ask		   *ask;

	scene_begin(2);
	play_begin();
	play_act(is_permit ? "B permit s1, A permit s1" : "B lock c, A lock abc", true);
	ask = pending_of(A);
	if (is_permit)
		delete_by_hand(node_below(A, pool_of("s", "/locks")));
	else
		delete_by_hand(node_of(A, "a"));
	fake_count(A->client);
	release_all(B);
	while (zkl_request_status(ask->request) == ZKL_PENDING)
	{
		zkl_request_info(ask->request, &info);
		grows = grows && info.progress >= most;
		most = info.progress;
		if (!fake_step(B->client) && !fake_step(A->client))
			break;
	}
	ok(zkl_request_status(ask->request) == ZKL_OK, "the request is granted: %s", fake_trace(A->client));
	ok(grows, "the progress of a request that queues again never goes back (%s)", is_permit ? "permit" : "locks");
	scene_end("exclusion, restart");
}

/* A session with credentials reads once whether others may change the parents. */
static void
test_parents(void)
{
	scene_begin(0);
	scene_config.creator_acl = true;
	scene_open(A);
	fake_count(A->client);
	fake_connect(A->client);
	fake_run_all();
	is_int(fake_n_traced(A->client, 'a'), 5, "the ACL of each parent is read");
	lock_now(A, "a", X);
	fake_disconnect(A->client);
	fake_run_all();
	fake_connect(A->client);
	fake_run_all();
	is_int(fake_n_traced(A->client, 'a'), 5, "the ACL of a parent is not read again on another connection");
	scene_end(NULL);
}

/* The data of other programs may have any length. */
static void
test_blocker(void)
{
	static const char *const data[] = {"x", "", "a program with a longer name"};
	ZklRequestInfo waiter;

	for (size_t i = 0; i < sizeof(data) / sizeof(data[0]); i++)
	{
		scene_begin(1);
		forget(lock_now(A, "a", X));
		release_all(A);
		fake_run_all();
		make_node(SCENE_LOCKS "/a", "", ZKL_CREATE_PERSISTENT, 0);
		make_node(SCENE_LOCKS "/a/lock-", data[i], ZKL_CREATE_EPHEMERAL_SEQUENTIAL, 99);
		zkl_request_info(lock_now(A, "a", X)->request, &waiter);
		ok(waiter.blocked, "another program has the lock");
		is_str(waiter.blocker, data[i], "the data of another program's node are shown: \"%s\"", data[i]);
		scene_end(NULL);
	}
}

int
main(void)
{
	test_info();
	test_parents();
	test_blocker();
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_confirm_upgrade();
	test_rest_of_lease();
	test_left_behind();
	test_close();
	test_failed_attempts();
	test_progress();
	test_progress_of_restart(false);
	test_progress_of_restart(true);
	return done();
}
