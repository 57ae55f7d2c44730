/*-------------------------------------------------------------------------
 *
 * test_deadlock_cost.c
 *		The cost of deadlock detection for one of very many waiters.
 *
 * Prints the longest processor time of the delivery of one answer, all of it with
 * the session's mutex held, and of one call by the owner, mostly without the mutex.  The
 * tests check only that the session reports its wait and finds no deadlock; no test
 * depends on a time.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_tree.h"
#include "waiters.h"

#define X ZKL_MODE_EXCLUSIVE
#define FIRST INT64_C(0x1000000000000001)

static Party *const A = &parties[0];

static double
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double) now.tv_sec * 1e3 + (double) now.tv_nsec / 1e6;
}

static void
make(const char *path, int64_t session)
{
	char	   *made;
	int64_t		unused;

	fake_tree_create(path, "", 0, session ? ZKL_CREATE_EPHEMERAL_SEQUENTIAL
					 : ZKL_CREATE_CONTAINER, session, &made, &unused);
	free(made);
}

/* Creates a node of a session in a queue. */
static void
queue_as(const char *queue, int64_t session, const char *kind)
{
	char		path[256];

	snprintf(path, sizeof(path), "%s/_c_%08x-%04x-%04x-0000-%012d-%s", queue,
			 (unsigned) ((uint64_t) session >> 32), (unsigned) (session >> 16 & 0xffff),
			 (unsigned) (session & 0xffff), 1, kind);
	make(path, session);
}

/* Creates a session's report: it waits for the sessions before it in the queue. */
static void
report(int i)
{
	char		path[256];
	int			length = snprintf(path, sizeof(path), WAITS "/%" PRIx64 ".1.1.w.",
								  (uint64_t) FIRST + (uint64_t) i);

	for (int k = 1; k <= 8 && k <= i; k++)
		length += snprintf(path + length, sizeof(path) - (size_t) length, "%sp%" PRIx64,
						   k > 1 ? "," : "", (uint64_t) FIRST + (uint64_t) (i - k));
	snprintf(path + length, sizeof(path) - (size_t) length, "..");
	make(path, FIRST + i);
}

static double
max_of(double a, double b)
{
	return a > b ? a : b;
}

/* A waits; it reports its wait and searches for deadlocks. */
static void
measure(const char *name)
{
	double		answer = 0;
	double		call = 0;
	bool		any = false;

	for (int round = 0; round < 5; round++)
	{
		double		start = now_ms();

		any = is_victim_now(A) || any;
		call = max_of(call, now_ms() - start);
		for (bool moved = true; moved;)
		{
			moved = fake_apply(A->client);
			start = now_ms();
			while (fake_deliver(A->client))
			{
				answer = max_of(answer, now_ms() - start);
				moved = true;
				start = now_ms();
			}
		}
		fake_advance(100);
	}
	ok(!any && reported_by(A) == 1, "%s: the wait is reported, and no deadlock is found", name);
	diag("%s: one answer up to %.2f ms, one call up to %.2f ms", name, answer, call);
	scene_end(NULL);
}

static void
test_sharers(int n)
{
	char		name[64];

	scene_begin(1);
	waiters_begin("a");
	forget(lock_now(A, "a", X));
	make(path_of("b"), 0);
	for (int i = 0; i < n; i++)
		queue_as(path_of("b"), FIRST + i, "__READ__");
	ask_for(A, "b", X);
	make(WAITS, 0);
	for (int i = 0; i < n; i++)
		report(i);
	snprintf(name, sizeof(name), "behind %d sharers", n);
	measure(name);
}

/* All sessions except the first wait in the queue; the first has the only permit. */
static void
test_permits(int n)
{
	char		name[64];
	char		queue[256];

	scene_begin(2);
	waiters_begin("ab");
	forget(permit_now(&parties[1], "p", 1));
	snprintf(queue, sizeof(queue), "%s", pool_of("p", "/locks"));
	for (int i = 0; i < n; i++)
		queue_as(queue, FIRST + i, "lock-");
	ask_permit(A, "p", 1);
	make(WAITS, 0);
	for (int i = 0; i < n; i++)
		report(i);
	snprintf(name, sizeof(name), "behind %d waiters for a permit", n);
	measure(name);
}

int
main(void)
{
	test_sharers(500);
	test_sharers(1000);
	test_sharers(2000);
	test_permits(400);
	test_permits(800);
	test_permits(1600);
	return done();
}
