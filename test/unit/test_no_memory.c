/*-------------------------------------------------------------------------
 *
 * test_no_memory.c
 *		A request or a batch whose memory is exhausted fails at once, and a search for a
 *		deadlock begins again.  A long wait leaves nothing behind.
 *
 * The linker calls the functions here in place of malloc() and calloc() (unit.mk).
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "letters.h"
#include "play.h"
#include "recipe/batch.h"
#include "recipe/session/internal.h"
#include "victims.h"

extern void *__real_malloc(size_t size);
extern void *__real_calloc(size_t n, size_t size);
extern void *__wrap_malloc(size_t size);
extern void *__wrap_calloc(size_t n, size_t size);

static int	fail_at;			/* the next allocation to fail: 1 is the next one; 0: none */
static bool only_owners;		/* count only those on the threads of owners */
static pthread_t test_thread;

static bool
fails(void)
{
	if (only_owners && pthread_equal(pthread_self(), test_thread))
		return false;
	return fail_at > 0 && --fail_at == 0;
}

void *
__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

static void
exhaust(const Step *step)
{
	fail_at = atoi(step->argument);
}

static void
find_attempt(const Step *step, char *found)
{
	(void) step;
	strcpy(found, fail_at == 0 ? "yes" : "no");
}

/* "exhaust 2", "failed yes", of all: the second allocation from now on fails; has it failed? */
static const PlayVerb memory_verbs[] = {
	{"exhaust", .act = exhaust},
	{"failed", .find = find_attempt},
	{.word = NULL}
};

#define KEPT "A keep, A lock, A release, "

/* The first allocation is that of the node's position; then a question is itself and a call. */
#define ASKS(k) KEPT "B lock!, B apply!, B deliver!, B apply!, all exhaust! " k ", B deliver!, all failed yes, all pass 0," \
	" B has 0, all pass 500, B has X"

static const Play plays[] = {
	{HERE, "a kept lock is not taken again before its node was read on a new connection, which is repeated after a second",
	KEPT "A disconnect, A connect!, all exhaust! 1, A deliver!, all failed yes, A lock, A has 0, all pass 1000, A has X"},
	{HERE, "the delete of a kept node whose watch fires is repeated, and the session that asked gets the lock",
		KEPT "B lock!, B until! u, all exhaust! 1, A deliver!, all failed yes, all pass 0, A nodes 1, all pass 1000, A nodes 0,"
	" B has X"},
	{HERE, "a session that could not ask waits until the keeper looks at the queue", ASKS("2")},
	{HERE, "a session whose call had no memory to ask waits until the keeper looks at the queue", ASKS("3")},
};

/* Of the request's n locks the failure names one, or none; it has no code of the server. */
static void
is_memory_failure(ZklRequest *request, int n)
{
	ZklRequestInfo info;

	zkl_request_info(request, &info);
	ok(info.culprit >= -1 && info.culprit < n, "the failure names a lock of the request, or none");
	is_int(info.raw_code, 0, "exhausted memory is no code of the server");
}

/* The last one of a request for two locks is that of the creates. */
#define N_ALLOCATIONS 8

static void
test_locks(void)
{
	static const ZklLockItem items[] = {{.name = "a", .mode = X}, {.name = "b", .mode = X}};

	for (int k = 1; k <= N_ALLOCATIONS; k++)
	{
		ZklRequest *request;

		scene_begin(1);
		fail_at = k;
		request = zkl_lock_request(A->session, items, 2, false, "", 0);
		is_int(fail_at, 0, "allocation %d is one of the request's", k);
		is_int(request ? zkl_request_status(request) : ZKL_NO_MEMORY, ZKL_NO_MEMORY,
			   "the request fails at once if this allocation fails");
		is_int(fake_counted(A->client), 0, "the request sends nothing");
		if (request)
		{
			is_memory_failure(request, 2);
			zkl_request_end(request);
		}
		is_int(lock_now(A, "a", X)->status, ZKL_OK, "the next request is granted");
		scene_end(NULL);
	}
}

/* One allocation is the path, one the request, one the lock. */
static void
test_kept(void)
{
	for (int k = 1; k <= 3; k++)
	{
		ZklRequest *request;

		scene_begin(1);
		A->keep_ms = PLAY_KEEP_MS;
		(void) lock_now(A, "a", X);
		reduce(A, "a", NONE);
		fail_at = k;
		request = zkl_kept_request(A->session, "a", X, false);
		is_int(fail_at, 0, "allocation %d is one of taking a kept lock again", k);
		is_int(request != NULL, k == 3, "only a request without a lock exists");
		if (request)
		{
			is_int(zkl_request_status(request), ZKL_NO_MEMORY, "taking a kept lock again fails at once");
			is_memory_failure(request, 1);
			zkl_request_end(request);
		}
		is_int(lock_now(A, "a", X)->status, ZKL_OK, "the next request is granted");
		scene_end(NULL);
	}
}

/* One allocation is the batch's, and one the first call's; answers need one each. */
static void
test_batches(void)
{
	static const ZklOp ops[] = {
		{.kind = ZKL_OP_LIST,.path = "/zklock/locks"},
		{.kind = ZKL_OP_GET,.path = "/zklock"},
		{.kind = ZKL_OP_GET,.path = "/zklock/locks"},
	};

	for (int k = 1; k <= 5; k++)
	{
		ZklBatch   *batch;

		scene_begin(1);
		forget(lock_now(A, "a", X));
		fail_at = k <= 2 ? k : 0;
		batch = zkl_batch(A->session, ZKL_BATCH_PIPELINED, ops, 3);
		for (int answer = 3; answer <= 5; answer++)
		{
			fake_apply(A->client);
			fail_at = answer == k ? 1 : fail_at;
			fake_deliver(A->client);
		}
		is_int(fail_at, 0, "allocation %d is one of the batch's", k);
		is_int(batch ? zkl_batch_info(batch).status : ZKL_NO_MEMORY, ZKL_NO_MEMORY,
			   "the batch fails if this allocation fails");
		if (batch)
			zkl_batch_end(batch);
		is_int(lock_now(A, "b", X)->status, ZKL_OK, "the session works");
		scene_end(NULL);
	}
}

/* Lets the owners of A and B go on; returns how many of them are victims after two seconds. */
static int
victims_after(void)
{
	int			n = 0;

	for (int ms = 0; ms < 2000; ms += 50)
	{
		n += is_victim_now(A);
		n += is_victim_now(B);
		fake_run_all();
		fake_advance(50);
	}
	return n;
}

/* Each allocation of a step may fail: the next steps find the deadlock. */
static void
test_deadlock(void)
{
	int			n_allocations = 0;
	int			n_wrong = 0;
	bool		has_failed = true;

	only_owners = true;
	for (int k = 1; has_failed; k++)
	{
		begin_waiters("ab", "A lock a, B lock b, A lock b, B lock a");
		fail_at = k;
		n_wrong += victims_after() != 1;
		has_failed = fail_at == 0;
		n_allocations += has_failed;
		fail_at = 0;
		scene_end(NULL);
	}
	only_owners = false;
	ok(n_allocations > 50, "%d allocations of a search can fail", n_allocations);
	is_int(n_wrong, 0, "one session is the victim, whatever allocation of a search fails");
}

/* What a long wait leaves behind. */
static void
test_wait(void)
{
	begin_waiters("ab", "A lock a, B lock b, B lock a");
	publish_all();
	is_int(B->session->batches != NULL, 1, "a waiter keeps the read of its bell");
	play_act("B giveup", true);
	is_int(B->session->batches != NULL, 0, "a waiter keeps the read of its bell only until its wait ends");
	scene_end(NULL);
}

int
main(void)
{
	test_thread = pthread_self();
	play_verbs = memory_verbs;
	play_all(plays, sizeof(plays) / sizeof(plays[0]));
	test_locks();
	test_kept();
	test_batches();
	test_deadlock();
	test_wait();
	return done();
}
