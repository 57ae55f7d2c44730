/*-------------------------------------------------------------------------
 *
 * test_no_memory.c
 *		A request or a batch whose memory is exhausted fails at once.
 *
 * The linker calls the functions here in place of malloc() and calloc() (unit.mk).
 *
 *-------------------------------------------------------------------------
 */
#include "recipe/batch.h"
#include "letters.h"

extern void *__real_malloc(size_t size);
extern void *__real_calloc(size_t n, size_t size);
extern void *__wrap_malloc(size_t size);
extern void *__wrap_calloc(size_t n, size_t size);

static int	fail_at;			/* the next allocation to fail: 1 is the next one; 0: none */

static bool
fails(void)
{
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
			zkl_request_end(request);
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

/* A keeps "a". */
static void
begin_kept(void)
{
	scene_begin(2);
	A->keep_ms = 60000;
	forget(lock_now(A, "a", X));
	reduce(A, "a", NONE);
	fake_run_all();
}

/* A read of a kept node on a new connection needs memory for a call. */
static void
test_kept_read(void)
{
	begin_kept();
	fake_disconnect(A->client);
	fake_run_all();
	fake_connect(A->client);
	fail_at = 1;
	fake_deliver(A->client);
	is_int(fail_at, 0, "the read needs memory");
	lock_now(A, "a", X);
	is_int(mode_of(A, "a"), NONE, "a kept lock is not taken again before its node was read");
	fake_advance(1000);
	is_int(mode_of(A, "a"), X, "... which is repeated after a second");
	scene_end(NULL);
}

/* So does the delete of a kept node whose watch fires. */
static void
test_kept_asked(void)
{
	begin_kept();
	fake_count(B->client);
	ask_for(B, "a", X);
	while (fake_n_traced(B->client, 'u') == 0 && fake_step(B->client))
		;
	while (fake_apply(B->client))
		;
	fail_at = 1;
	fake_deliver(A->client);
	is_int(fail_at, 0, "the delete needs memory");
	fake_run_all();
	is_int(nodes_of(A, "a"), 1, "... and is not sent without");
	fake_advance(1000);
	is_int(nodes_of(A, "a"), 0, "... but repeated");
	is_int(mode_of(B, "a"), X, "... and the session that asked gets the lock");
	scene_end(NULL);
}

/* The first allocation is that of the node's position; then a question is itself and a call. */
static void
test_questions(void)
{
	for (int k = 2; k <= 3; k++)
	{
		begin_kept();
		ask_for(B, "a", X);
		fake_step(B->client);
		fake_apply(B->client);
		fail_at = k;
		fake_deliver(B->client);
		is_int(fail_at, 0, "allocation %d is one of the questions'", k);
		fake_run_all();
		is_int(mode_of(B, "a"), NONE, "a session that could not ask waits");
		fake_advance(SCENE_TIMEOUT_MS / 12);
		is_int(mode_of(B, "a"), X, "... until the keeper looks at the queue");
		scene_end(NULL);
	}
}

int
main(void)
{
	test_kept_read();
	test_kept_asked();
	test_questions();
	test_locks();
	test_batches();
	return done();
}
