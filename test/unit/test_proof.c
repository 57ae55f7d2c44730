/*-------------------------------------------------------------------------
 *
 * test_proof.c
 *		Promises about proofs: when what is held counts as lost.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "letters.h"
#include "recipe/batch.h"

#define T SCENE_TIMEOUT_MS

/* How long what the party holds can be trusted. */
static int64_t
trust(const Party *party)
{
	return zkl_session_deadline_io(party->session) - fake_now();
}

static void
deliver_all(Party *party)
{
	while (fake_deliver(party->client))
		;
}

static void
test_who_proves(void)
{
	scene_begin(2);
	fake_advance(3 * T);
	is_int(fake_proofs(A->client), 0, "a session that holds nothing sends no proof");
	forget(lock_now(A, "a", X));
	ask_for(B, "a", X);
	fake_advance(2 * T);
	is_int(fake_proofs(A->client), 12, "a holder sends a proof every sixth of the session timeout");
	is_int(fake_proofs(B->client), 0, "a waiter that holds nothing sends none");
	reduce(A, "a", NONE);
	fake_run_all();
	fake_advance(T);
	is_int(fake_proofs(A->client), 12, "no proof is sent after the release");
	is_int(zkl_session_deadline_io(A->session), 0, "what holds nothing has no deadline");
	scene_end("exclusion, proofs");
}

static void
test_deadline(void)
{
	static const ZklOp reads[] = {
		{.kind = ZKL_OP_SYNC,.path = "/zklock"}, {.kind = ZKL_OP_LIST,.path = "/zklock"}
	};
	ZklBatch   *batch;
	int64_t		before;

	scene_begin(1);
	fake_advance(3 * T);
	forget(lock_now(A, "a", X));
	is_int(trust(A), T / 3, "the first lock can be trusted for a third of the session timeout");
	batch = zkl_batch(A->session, ZKL_BATCH_PIPELINED, reads, 2);
	before = zkl_session_deadline_io(A->session);
	fake_advance(50);
	fake_run_all();
	is_int(zkl_batch_info(batch).status, ZKL_OK, "a sync and a list are answered");
	is_int(zkl_session_deadline_io(A->session), before, "... and prove nothing");
	zkl_batch_end(batch);

	fake_advance(T / 8 - 50);
	is_int(trust(A), T * 2 / 3, "the first proof is sent as soon as it is good for two thirds");
	fake_advance(T / 6 - 1);
	is_int(trust(A), T / 2 + 1, "the deadline counts from the submission");
	fake_advance(1);
	is_int(trust(A), T * 2 / 3, "... of the newest proof");

	/* The leader may not know the create yet when it confirms the proof. */
	reduce(A, "a", NONE);
	fake_run_all();
	fake_advance(3 * T);
	forget(lock_now(A, "a", X));
	fake_advance(T / 16);
	forget(lock_now(A, "b", X));
	is_int(trust(A), T / 3, "a write right after a pause proves no more than the first one");
	scene_end("exclusion, deadlines");
}

/* A write that was answered late was perhaps received late. */
static void
test_slow(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_advance(T + T / 8);	/* a proof has just been answered */
	fake_stall(T / 6);
	fake_ring(A->client);
	fake_stall(T / 12);
	fake_run_all();
	is_int(trust(A), T * 2 / 3 - T / 12, "a proof behind an answered one is good for two thirds, however slow its answer");
	fake_stall(T / 12);
	fake_ring(A->client);
	is_int(fake_proofs(A->client), 9, "the next proof is sent");
	fake_run_all();
	is_int(trust(A), T * 11 / 12 - T / 3,
		   "a proof right behind a slow answer relies on the write before");
	scene_end("exclusion, slow answers");
}

/* Lets this time pass between each request and its answer. */
static void
answer_slowly(int64_t latency_ms, int64_t ms)
{
	for (int64_t until_ms = fake_now() + ms; fake_now() < until_ms; fake_stall(1))
	{
		fake_ring(A->client);
		while (fake_oldest_ms(A->client) && fake_now() >= fake_oldest_ms(A->client) + latency_ms &&
			   fake_apply(A->client))
			deliver_all(A);
	}
}

/* Documented: quorum writes may take up to a sixth of the session timeout. */
static void
test_slow_ensemble(void)
{
	Ask		   *asked;

	scene_begin(1);
	forget(lock_now(A, "warm", X));
	reduce(A, "warm", NONE);
	fake_run_all();
	fake_advance(3 * T);
	asked = ask_for(A, "a", X);
	answer_slowly(T / 6 - 10, T);
	is_int(asked->status, ZKL_OK, "a slow ensemble grants a lock");
	zkl_session_confirm(A->session, true);
	answer_slowly(T / 6 - 10, T / 6);
	is_int(zkl_session_confirmed(A->session), ZKL_OK, "... confirms a commit");
	answer_slowly(T / 6 - 10, 3 * T);
	is_int(losses_reported, 0, "... and the lock is kept");
	is_int(fake_drops(A->client), 0, "... on one connection");
	scene_end(NULL);
}

static void
test_silence(void)
{
	int			proofs;

	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_advance(T);
	proofs = fake_proofs(A->client);
	fake_stall(T / 6);
	fake_ring(A->client);
	is_int(fake_proofs(A->client), proofs + 1, "a proof is sent to a server that does not answer");
	fake_stall(T / 6 - 1);
	fake_ring(A->client);
	is_int(fake_drops(A->client), 0, "the server has a sixth of the session timeout to answer");
	fake_stall(1);
	fake_ring(A->client);
	is_int(fake_drops(A->client), 1, "... then the session ends the connection");
	deliver_all(A);
	fake_connect(A->client);
	deliver_all(A);
	is_int(fake_proofs(A->client), proofs + 2, "a new connection begins with a proof");
	fake_apply(A->client);
	is_int(fake_last_write_ms(A->client), fake_now(), "... before any other request");
	fake_run_all();
	ok(trust(A) > T / 2 && losses_reported == 0, "this proof keeps the lock");
	scene_end("exclusion, silence");

	/* Connections come and go, and none of them confirms a proof. */
	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_advance(T);
	for (int i = 1; i < 20; i++)
	{
		fake_disconnect(A->client);
		deliver_all(A);
		fake_connect(A->client);
		deliver_all(A);
		if (i == 19)
			is_int(losses_reported, 0, "connections that come and go do not lose a lock early");
		fake_stall(T * 2 / 3 / 20);
		fake_ring(A->client);
	}
	fake_stall(T * 2 / 3 / 20);
	fake_ring(A->client);
	is_int(losses_reported, 1, "... and do not keep it longer");
	is_int(zkl_session_state(A->session), ZKL_SESSION_EXPIRED, "the session is given up");
	scene_end("exclusion, short connections");
}

/* The limit of the servers was lowered, or theirs differ. */
static void
test_shorter_timeout(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_advance(T);
	fake_disconnect(A->client);
	deliver_all(A);
	fake_grant_timeout(A->client, T / 2);
	fake_connect(A->client);
	deliver_all(A);
	ok(trust(A) > 0 && trust(A) <= T / 3, "after a connection with half the session timeout, trust is two thirds of that");
	fake_run_all();
	ok(trust(A) > 0 && trust(A) <= T / 3, "... and is not longer with a proof");
	fake_stall(T / 3);
	fake_ring(A->client);
	is_int(losses_reported, 1, "... and ends in time");
	scene_end("exclusion, a shorter session timeout");
}

/* Nothing else than the owner's thread runs. */
static void
test_owner(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_stall(T / 3 - 1);
	ok(!zkl_lock_is_lost(hold_of(A, "a")->lock), "a lock is not lost before the deadline");
	ok(zkl_session_is_intact(A->session), "... and the session is intact");
	fake_stall(1);
	ok(!zkl_session_is_intact(A->session), "the owner finds the deadline passed, without the timer");
	ok(zkl_lock_is_lost(hold_of(A, "a")->lock), "... and the lock lost");
	is_int(losses_reported, 1, "... and the loss is reported once");
	scene_end(NULL);

	scene_begin(1);
	forget(lock_now(A, "a", X));
	zkl_session_confirm(A->session, false);
	fake_stall(T / 3);
	is_int(zkl_session_confirmed(A->session), ZKL_SESSION_LOST, "a commit check ends at the deadline");
	scene_end(NULL);

	/* An answer that comes after the deadline changes nothing. */
	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_stall(T / 6);
	fake_ring(A->client);
	fake_apply(A->client);
	fake_stall(T / 6);
	deliver_all(A);
	ok(losses_reported == 1 && zkl_lock_is_lost(hold_of(A, "a")->lock), "the answer to a proof after the deadline keeps no lock");
	scene_end(NULL);

	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_stall(T / 3 - 1);
	fake_ring(A->client);
	fake_apply(A->client);
	fake_stall(1);
	ok(zkl_session_deadline_io(A->session) < 0, "a signal handler finds the deadline passed");
	deliver_all(A);
	ok(zkl_session_deadline_io(A->session) == 0 && losses_reported == 1, "... and no later answer contradicts it");
	scene_end(NULL);
}

static void
test_grant(void)
{
	Ask		   *waiting;

	scene_begin(2);
	forget(lock_now(A, "a", X));
	waiting = lock_now(B, "a", X);
	fake_advance(3 * T);
	fake_count(B->client);
	reduce(A, "a", NONE);
	fake_apply(A->client);
	fake_deliver(B->client);
	ok(fake_proofs(B->client) == 1 && strcmp(fake_trace(B->client), "l") == 0,
	   "a waiter that comes first sends a proof and lists the queue");
	fake_apply(B->client);
	is_int(fake_last_write_ms(B->client), fake_now(), "... the proof before the list");
	fake_run_all();
	is_int(waiting->status, ZKL_OK, "the waiter is granted the lock");
	is_int(fake_counted(B->client), 1, "... without another list");
	is_int(trust(B), T / 3, "its first lock can be trusted for a third of the session timeout");
	fake_advance(2 * T);
	is_int(losses_reported, 0, "... and is not lost");
	scene_end("exclusion, grants after a wait");

	/* The proof is answered too late: the grant needs another one. */
	scene_begin(2);
	forget(lock_now(A, "a", X));
	waiting = lock_now(B, "a", X);
	fake_advance(3 * T);
	reduce(A, "a", NONE);
	fake_apply(A->client);
	fake_deliver(B->client);
	fake_apply(B->client);
	fake_stall(T / 6 + 1);
	fake_run_all();
	is_int(waiting->status, ZKL_OK, "a waiter with a slow proof is granted the lock");
	is_int(trust(B) > T / 6, 1, "... by another proof");
	scene_end("exclusion, slow grants");
}

static void
test_root(void)
{
	scene_begin(1);
	forget(lock_now(A, "a", X));
	fake_advance(T);
	fake_tree_delete(node_of(A, "a"));
	fake_tree_delete("/zklock/locks/a");
	fake_tree_delete("/zklock/locks");
	fake_tree_delete("/zklock");
	fake_advance(T / 6);
	is_int(zkl_session_deadline_io(A->session) == 0 || trust(A) > T / 2, 1, "a proof that finds no root proves the session all the same");
	is_int(zkl_session_state(A->session), ZKL_SESSION_CONNECTED, "... which goes on");
	scene_end(NULL);
}

int
main(void)
{
	test_who_proves();
	test_deadline();
	test_slow();
	test_slow_ensemble();
	test_silence();
	test_shorter_timeout();
	test_owner();
	test_grant();
	test_root();
	return done();
}
