/*-------------------------------------------------------------------------
 *
 * test_keepalive.c
 *		Promises about a server that forgets to answer.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "letters.h"

/* Requests a lock; the server forgets to answer the k-th submission. */
static Ask *
ask_forgotten(int k)
{
	Ask		   *ask;

	scene_begin(1);
	forget(lock_now(A, "a", X));
	reduce(A, "a", NONE);
	fake_run_all();
	fake_advance(1000);
	fake_count(A->client);
	fake_fault(A->client, k, FAULT_FORGET);
	ask = lock_now(A, "a", X);
	is_int(ask->status, ZKL_PENDING, "an answer is forgotten");
	return ask;
}

static void
test_keepalive_read(void)
{
	for (int k = 1; k <= 2; k++)
	{
		Ask		   *ask = ask_forgotten(k);

		fake_advance(99);
		is_str(fake_trace(A->client), "cl", "the server has a tenth of a second to answer");
		is_int(ask->status, ZKL_PENDING, "the request is pending meanwhile");
		fake_advance(1);
		is_str(fake_trace(A->client), "clg", "one keepalive read is sent then");
		is_int(ask->status, ZKL_OK, "the keepalive read frees the answer");
		fake_advance(2 * SCENE_TIMEOUT_MS);
		is_str(fake_trace(A->client), "clgwd",
			   "answered requests get no keepalive read; held nodes are watched, and the parent, which the session created, is still in use");
		reduce(A, "a", ZKL_MODE_NONE);
		fake_advance(2 * SCENE_TIMEOUT_MS);
		is_int(fake_timer(A->client), 0, "no timer is left when nothing is held");
		scene_end(NULL);
	}
}

static void
test_never(void)
{
	scene_begin(1);
	fake_fault(A->client, 1, FAULT_DELAY);
	Ask		   *ask = lock_now(A, "a", X);

	fake_advance(SCENE_TIMEOUT_MS * 4 / 3 - 1);
	is_int(ask->status, ZKL_PENDING, "a call without an answer is pending for a bounded time");
	is_str(fake_trace(A->client), "clggggggggg",
		   "keepalive reads are sent with growing pauses, of at most a quarter of the session timeout");
	fake_advance(1);
	is_int(zkl_session_state(A->session), ZKL_SESSION_EXPIRED, "the session is given up at the end");
	is_int(ask->status, ZKL_SESSION_LOST, "the request ends with the session");
	fake_release(A->client);
	fake_run_all();
	is_int(ask->status, ZKL_SESSION_LOST, "a late answer changes nothing");
	scene_end(NULL);
}

/*
 * After each keepalive read the server answers one of several requests and forgets the
 * others again.  What it has answered in between shows that it is not slow.
 */
static void
test_forgotten_again(void)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
	static const ZklMode modes[] = {X, X, X, X, X, X};
	int64_t		begun_ms;
	int			n_reads = 0;
	Ask		   *ask;

	scene_begin(1);
	for (int i = 0; i < 6; i++)
		forget(lock_now(A, names[i], X));
	release_all(A);
	fake_run_all();
	fake_count(A->client);
	begun_ms = fake_now();
	ask = ask_all(A, 6, names, modes, false);
	while (ask->status == ZKL_PENDING && fake_now() < begun_ms + SCENE_TIMEOUT_MS)
	{
		fake_stall(10);
		fake_ring(A->client);
		if (fake_n_traced(A->client, 'g') > n_reads)
			fake_step(A->client);
		n_reads = fake_n_traced(A->client, 'g');
	}
	is_int(ask->status, ZKL_OK, "a server that forgets again after each answer answers all");
	/* One of the reads is that of the czxid. */
	is_int(fake_now() - begun_ms, (n_reads - 1) * 100, "it is reminded each tenth of a second");
	scene_end(NULL);
}

/*
 * A server was slow for so long that the next keepalive read is seconds away.  Then it
 * answers, and forgets the next request, or one that it had already.
 */
static void
test_forgotten_after_slowness(void)
{
	Ask		   *ask;
	int			n_reads;

	scene_begin(1);
	fake_fault(A->client, 1, FAULT_DELAY);
	ask = lock_now(A, "a", X);
	fake_advance(3300);
	fake_release(A->client);
	fake_run_all();
	is_int(ask->status, ZKL_OK, "a slow server answers");
	fake_count(A->client);
	fake_fault(A->client, 1, FAULT_FORGET);
	ask = lock_now(A, "b", X);
	is_int(ask->status, ZKL_PENDING, "then it forgets the answer to a new request");
	fake_advance(100);
	is_int(ask->status, ZKL_OK, "a keepalive read frees that answer after a tenth of a second");
	scene_end(NULL);

	scene_begin(1);
	fake_fault(A->client, 1, FAULT_DELAY);
	ask = lock_now(A, "a", X);
	fake_advance(3300);
	fake_release(A->client);
	n_reads = fake_n_traced(A->client, 'g');
	ok(fake_deliver(A->client), "a slow server answers the first of two requests");
	is_int(ask->status, ZKL_PENDING, "the other one is pending");
	fake_stall(99);
	fake_ring(A->client);
	is_int(fake_n_traced(A->client, 'g'), n_reads, "no keepalive read is sent at once");
	fake_stall(1);
	fake_ring(A->client);
	is_int(fake_n_traced(A->client, 'g'), n_reads + 1,
		   "a keepalive read is sent a tenth of a second after the answer");
	fake_run_all();
	is_int(ask->status, ZKL_OK, "the other request is answered");
	scene_end(NULL);
}

static void
test_quick(void)
{
	scene_begin(1);
	for (int i = 0; i < 20; i++)
	{
		forget(lock_now(A, "a", X));
		reduce(A, "a", NONE);
		fake_run_all();
		fake_advance(30);
	}
	ok(strchr(fake_trace(A->client), 'g') == NULL, "a server that answers gets no keepalive read");
	scene_end(NULL);
}

/* Each request is answered 200 ms after it was sent. */
static void
run_slowly(int64_t ms)
{
	int64_t		end = fake_now() + ms;

	while (fake_now() < end)
	{
		fake_stall(1);
		fake_ring(A->client);
		while (fake_oldest_ms(A->client) != 0 && fake_now() - fake_oldest_ms(A->client) >= 200 &&
			   fake_step(A->client))
			;
	}
}

static void
test_slow(void)
{
	Ask		   *ask;
	int			n_reads;

	scene_begin(1);
	ask = ask_for(A, "a", X);
	run_slowly(3000);
	is_int(ask->status, ZKL_OK, "a server that is always slow answers");
	forget(ask);
	reduce(A, "a", NONE);
	run_slowly(20000);
	n_reads = fake_n_traced(A->client, 'g');
	run_slowly(60000);
	is_int(fake_n_traced(A->client, 'g'), n_reads, "keepalive reads end with what they are for");
	scene_end(NULL);
}

int
main(void)
{
	test_keepalive_read();
	test_never();
	test_forgotten_again();
	test_forgotten_after_slowness();
	test_quick();
	test_slow();
	return done();
}
