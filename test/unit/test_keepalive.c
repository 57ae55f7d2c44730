/*-------------------------------------------------------------------------
 *
 * test_keepalive.c
 *		Promises about a server that forgets to answer.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "letters.h"
#include "play.h"

/* Held nodes are watched, and the parent, which the session created, is still in use. */
#define FREED "A is pending, all pass 99, A sends cl, A is pending, all pass 1, A sends clg, A is ok, all pass 12000," \
	" A sends clgwd, A release, all pass 12000, A timer 0"

static void
find_timer(const Step *step, char *found)
{
	sprintf(found, "%d", (int) fake_timer(step->party->client));
}

/* "timer 0": when is the session's timer due?  0: there is none. */
static const PlayVerb timer_verbs[] = {
	{"timer", .find = find_timer},
	{.word = NULL}
};

static const Play plays[] = {
	{HERE, "an answer that the server forgets is freed by a keepalive read after a tenth of a second",
	"A lock, A release, all pass 1000, A fault forget, A lock, " FREED},
	{HERE, "the answer to the second request that the server forgets is freed by a keepalive read, too", "A lock, A release, all pass 1000, A fault forget@2, A lock, " FREED},
	{HERE, "a call without an answer is pending for a bounded time, with growing pauses, of at most a quarter of the session timeout; then the session is given up",
		"A fault delay, A lock, all pass 7999, A is pending, A sends clggggggggg, all pass 1, A state expired, A is lost,"
	" A connect, A is lost"},
	{HERE, "a server that was slow, and then forgets the answer to a new request, is reminded after a tenth of a second",
	"A fault delay, A lock, all pass 3300, A connect, A is ok, A fault forget, A lock b, A is pending, all pass 100, A is ok"},
};

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
 * A server was slow for so long that the next keepalive read is due only seconds later.  Then it
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
	play_verbs = timer_verbs;
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_forgotten_again();
	test_forgotten_after_slowness();
	test_quick();
	test_slow();
	return done();
}
