/*-------------------------------------------------------------------------
 *
 * test_proof.c
 *		Promises about proofs: when what is held counts as lost.
 *
 * Promises: 5.1, 5.11
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "fake_internal.h"
#include "letters.h"
#include "play.h"
#include "recipe/batch.h"

#define T SCENE_TIMEOUT_MS

static const Play plays[] = {
	{HERE, "a holder sends a proof every sixth of the session timeout; who holds nothing sends none, and has no deadline",
		"all pass 18000, A proofs 0, A lock, B lock!, all pass 12000, A proofs 12, B proofs 0, A release, all pass 6000,"
	" A proofs 12, A trust none"},
	{HERE, "the first proof is sent as soon as it is good for two thirds; deadlines count from submissions",
	"all pass 18000, A lock, A trust 2000, all pass 750, A trust 4000, all pass 999, A trust 3001, all pass 1, A trust 4000"},
	/* The leader may not know the create yet when it confirms the proof. */
	{HERE, "a write right after a pause proves no more than the first one",
	"A lock, A release, all pass 18000, A lock, all pass 375, A lock b, A trust 2000"},
	/* A write that was answered late was perhaps received late. */
	{HERE, "a proof behind an answered one is good for two thirds; one behind a slow answer relies on the write before",
		"A lock, all pass 6750, all stall! 1000, A ring!, all stall 500, A trust 3500, all stall! 500, A ring!, A proofs 9,"
	" all stall 0, A trust 3500"},
	{HERE, "a server has a sixth of the timeout to answer a proof, then the session connects again, first with a proof",
		"A lock, all pass 6000, A proofs 6, all stall! 1000, A ring!, A proofs 7, all stall! 999, A ring!, A drops 0,"
		" all stall! 1, A ring!, A drops 1, A deliverall!, A connect!, A deliverall!, A proofs 8, A apply!, A wrote 0,"
	" all stall 0, A trust 3250, all losses 0"},
	/* Nothing else than the owner's thread runs. */
	{HERE, "the owner finds the deadline passed, without the timer, and the lock lost; the loss is reported once",
	"A lock, all stall! 1999, A has X, A intact yes, all stall! 1, A intact no, A has x, all losses 1"},
	{HERE, "a commit check ends at the deadline", "A lock, A confirm!, all stall! 2000, A confirmed lost"},
	{HERE, "the answer to a proof after the deadline keeps no lock",
	"A lock, all stall! 1000, A ring!, A apply!, all stall! 1000, A deliverall!, all losses 1, A has x"},
	{HERE, "a signal handler finds the deadline passed, and no later answer contradicts it",
	"A lock, all stall! 1999, A ring!, A apply!, all stall! 1, A trust passed, A deliverall!, A trust none, all losses 1"},
	/* A leader that is cut off answers a sync. */
	{HERE, "a node whose create was not answered is looked for behind a proof", "A lock, A release, A fault apply-and-drop, A lock, A connect, A proofs 1, A sends llg, A has X"},
	{HERE, "several nodes whose creates were not answered are looked for behind one proof", "A lock abcdefgh, A release, A fault apply-and-drop, A lock abcdefgh, A connect, A has XXXXXXXX abcdefgh, A proofs 1"},
	/* The first proof after the lock is too late to be backed; its answer sends the next one, without a timer. */
	{HERE, "late timers do not lose a lock",
		"A lock, A release, all pass 18000, A lock, A trust 2000, all stall! 1450, A ring!, all stall! 50, A apply!, A deliverall!,"
	" all stall! 50, A apply!, A apply!, A apply!, A deliverall!, all stall! 450, A has X, all losses 0"},
	{HERE, "a node whose create was not answered is not found if the proof fails", "A lock, A release, A fault apply-and-drop, A lock, A fault throttle@0, A connect, A sends l, A has 0"},
	{HERE, "a permit node is counted behind a proof after an outage", "A permit s1, B permit s1, B disconnect, A giveback s, B connect, B sends wLd, B proofs 1"},
	{HERE, "a waiter for a permit does not count while proofs fail", "A permit s1, B permit s1, all pass 18000, B fault throttle@0, B confirm!, A giveback s, B is pending"},
	{HERE, "an answer that took more than a sixth of the timeout renews no lease",
	"A lock, all stall! 100, A confirm!, all stall! 1001, A apply!, A apply!, A deliverall!, A lease 899"},
	/* Only the leader's answer to an earlier request shows that its pings arrive. */
	{HERE, "the first write after a pause renews no lease, the next one behind its answer does",
	"A lock, A release, all pass 1250, A lock, A sends cl, A lease 2000, A release, all pass 1251, A lock, A sends clm, A lease 2000"},
	{HERE, "the lease that the next write renews is counted from the submission of the earlier one", "A lock, all stall! 100, A confirm!, all stall! 900, A apply!, A apply!, A deliverall!, A release, all pass 351, A lock, A sends clm"},
	{HERE, "the first write after a pause renews no lease, a permit's node, the next one, does", "A permit s3, A release s, all pass 1251, A permit s3, A sends clgcLd, A lease 2000"},
	{HERE, "after a new connection the first write renews the lease", "A lock, A release, all pass 1251, A disconnect, A connect, A lock, A sends cl, A lease 2000"},
	{HERE, "a waiter that comes first sends a proof before it lists the queue, and is granted without another list",
		"A lock, B lock, all pass 18000, A release!, A apply!, B deliver!, B proofs 1, B sends l, B apply!, B wrote 0,"
	" all stall 0, B is ok, B sends m, B trust 2000, all pass 12000, all losses 0"},
	{HERE, "a waiter that comes first is granted the lock by another proof if the first one is answered too late",
	"A lock, B lock, all pass 18000, A release!, A apply!, B deliver!, B apply!, all stall 1001, B is ok, B trust 2000"},
};

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
test_reads(void)
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
	is_int(zkl_session_deadline_io(A->session), before, "the answers to a sync and a list prove nothing");
	zkl_batch_end(batch);
	scene_end("exclusion, reads");
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
	is_int(zkl_session_confirmed(A->session), ZKL_OK, "a slow ensemble confirms a commit");
	answer_slowly(T / 6 - 10, 3 * T);
	is_int(losses_reported, 0, "no lock is lost with a slow ensemble");
	is_int(fake_drops(A->client), 0, "a slow ensemble keeps its connection");
	scene_end(NULL);
}

/* A waiter's answers take so long; the permit becomes free. */
static void
test_slow_permit(int latency)
{
	Ask		   *asked;

	scene_begin(2);
	forget(permit_now(A, "s", 1));
	asked = ask_permit(B, "s", 1);
	fake_run_all();
	fake_advance(3 * T);
	release_permit(A, "s");
	while (fake_apply(A->client))
		deliver_all(A);
	for (int ms = 0; ms < 2 * T && zkl_request_status(asked->request) == ZKL_PENDING; ms++)
	{
		deliver_all(B);
		fake_ring(B->client);
		while (fake_oldest_ms(B->client) && fake_now() >= fake_oldest_ms(B->client) + latency &&
			   fake_apply(B->client))
			deliver_all(B);
		fake_stall(1);
	}
	is_int(zkl_request_status(asked->request), ZKL_OK, "a waiter of a slow ensemble gets the permit");
	scene_end(NULL);
}

/* Connections come and go, and none of them confirms a proof. */
static void
test_short_connections(void)
{
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
	is_int(losses_reported, 1, "connections that come and go do not keep a lock longer");
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
	ok(trust(A) > 0 && trust(A) <= T / 3, "after such a connection trust is not longer with a proof");
	fake_stall(T / 3);
	fake_ring(A->client);
	is_int(losses_reported, 1, "after such a connection trust ends in time");
	scene_end("exclusion, a shorter session timeout");
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
	is_int(zkl_session_state(A->session), ZKL_SESSION_CONNECTED, "a session whose proof finds no root goes on");
	scene_end(NULL);
}

/* The clock counts from the start of the machine. */
static void
test_after_boot(void)
{
	scene_begin(0);
	fake_now_ms = 100;
	scene_join(A);
	forget(lock_now(A, "a", X));
	ok(trust(A) > 0 && trust(A) <= T / 3, "right after the start of the machine a session is trusted no longer than later: %d ms", (int) trust(A));
	scene_end(NULL);
}

int
main(void)
{
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_reads();
	test_slow_ensemble();
	test_slow_permit(T / 12 - 10);
	test_slow_permit(T / 8);
	test_slow_permit(T / 6 - 10);
	test_short_connections();
	test_shorter_timeout();
	test_root();
	test_after_boot();
	return done();
}
