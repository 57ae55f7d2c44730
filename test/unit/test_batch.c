/*-------------------------------------------------------------------------
 *
 * test_batch.c
 *		Promises about batches: each operation is sent once and answered, or the whole
 *		batch fails, whatever happens to the connection.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "letters.h"
#include "recipe/batch.h"

#define N_OPS(ops) ((int) (sizeof(ops) / sizeof((ops)[0])))

static void
make(const char *path, const char *data)
{
	make_node(path, data, ZKL_CREATE_PERSISTENT, 0);
}

/* The znodes that the tests use. */
static void
begin(void)
{
	scene_begin(2);
	make("/zklock", "root");
	make("/zklock/a", "first");
	make("/zklock/a/x", "");
	make("/zklock/a/y", "");
	make("/zklock/b", "");
	fake_count(A->client);
}

static ZklBatch *
pipelined(const ZklOp *ops, int n)
{
	return zkl_batch(A->session, ZKL_BATCH_PIPELINED, ops, n);
}

static ZklBatch *
atomic(const ZklOp *ops, int n)
{
	return zkl_batch(A->session, ZKL_BATCH_ATOMIC, ops, n);
}

static ZklStatus
status_of(ZklBatch *batch)
{
	return zkl_batch_info(batch).status;
}

/* Is A's descriptor readable?  Resets it. */
static bool
is_woken(void)
{
	struct pollfd fd = {zkl_session_fd(A->session), POLLIN, 0};
	bool		woken = poll(&fd, 1, 0) == 1;

	zkl_session_receive(A->session);
	return woken;
}


/*
 * Operations
 */

static const ZklOp every_kind[] = {
	{.kind = ZKL_OP_SYNC,.path = "/zklock"},
	{.kind = ZKL_OP_LIST,.path = "/zklock/a"},
	{.kind = ZKL_OP_GET,.path = "/zklock/a"},
	{.kind = ZKL_OP_STAT,.path = "/zklock/a"},
	{.kind = ZKL_OP_CREATE,.path = "/zklock/e",.data = "mine",.data_len = 4,.create_kind = ZKL_CREATE_EPHEMERAL},
	{.kind = ZKL_OP_CREATE,.path = "/zklock/b/s-",.create_kind = ZKL_CREATE_EPHEMERAL_SEQUENTIAL},
	{.kind = ZKL_OP_SET,.path = "/zklock/a",.data = "second",.data_len = 6,.version = 0},
	{.kind = ZKL_OP_GET,.path = "/zklock/a"},
	{.kind = ZKL_OP_DELETE,.path = "/zklock/a/x"},
	{.kind = ZKL_OP_LIST,.path = "/zklock/a"},
	{.kind = ZKL_OP_GET,.path = "/zklock/e"},
	{.kind = ZKL_OP_LIST,.path = "/zklock/e"},
};

#define N_KINDS N_OPS(every_kind)

static bool
is_result_right(const ZklResult *r)
{
	return r[0].code == ZKL_RC_OK && r[1].n_children == 2 &&
		strlen(r[1].children[0]) == 1 && strlen(r[1].children[1]) == 1 &&
		strcmp(r[2].data, "first") == 0 && r[2].data_len == 5 && r[2].version == 0 &&
		r[2].czxid == fake_tree_find("/zklock/a")->czxid && r[2].owner == 0 &&
		r[3].data == NULL && r[3].data_len == 5 && r[3].czxid == r[2].czxid &&
		r[4].code == ZKL_RC_OK && r[5].code == ZKL_RC_OK && fake_tree_find("/zklock/b/s-0000000000") &&
		r[6].version == 1 &&
		strcmp(r[7].data, "second") == 0 && r[7].version == 1 &&
		r[8].code == ZKL_RC_OK && r[9].n_children == 1 && strcmp(r[9].children[0], "y") == 0 &&
		r[10].owner == fake_session_id(A->client) && r[10].ctime_ms == r[10].czxid * 1000 &&
		r[11].code == ZKL_RC_OK && r[11].n_children == 0;
}

static void
test_pipelined(void)
{
	static const ZklOp refused[] = {
		{.kind = ZKL_OP_GET,.path = "/zklock/none"},
		{.kind = ZKL_OP_LIST,.path = "/zklock/none"},
		{.kind = ZKL_OP_CREATE,.path = "/zklock/none/x"},
		{.kind = ZKL_OP_CREATE,.path = "/zklock/b"},
		{.kind = ZKL_OP_DELETE,.path = "/zklock/a"},
		{.kind = ZKL_OP_SET,.path = "/zklock/a",.data = "",.version = 7},
		{.kind = ZKL_OP_GET,.path = "/zklock/a"},
	};
	static const ZklResultCode codes[] = {
		ZKL_RC_NO_NODE, ZKL_RC_NO_NODE, ZKL_RC_NO_NODE, ZKL_RC_NODE_EXISTS, ZKL_RC_NOT_EMPTY,
		ZKL_RC_BAD_VERSION, ZKL_RC_OK
	};
	ZklBatch   *batch;

	begin();
	(void) is_woken();
	batch = pipelined(every_kind, N_KINDS);
	is_int(status_of(batch), ZKL_PENDING, "a batch is pending at first");
	is_int(fake_counted(A->client), N_KINDS, "its operations are sent without waiting for answers");
	fake_run_all();
	is_int(status_of(batch), ZKL_OK, "a batch is finished when all operations are answered");
	ok(is_woken(), "the end of a batch wakes the owner");
	ok(is_result_right(zkl_batch_results(batch)), "each operation has its result");
	zkl_batch_end(batch);
	batch = pipelined(refused, N_OPS(refused));
	fake_run_all();
	is_int(status_of(batch), ZKL_OK, "a batch is finished although operations were refused");
	for (int i = 0; i < N_OPS(refused); i++)
		is_int(zkl_batch_results(batch)[i].code, codes[i], "operation %d has a code of its own", i);
	zkl_batch_end(batch);
	batch = pipelined(NULL, 0);
	is_int(status_of(batch), ZKL_OK, "a batch without operations is finished at once");
	zkl_batch_end(batch);
	scene_end(NULL);
}

/* The owner may write over its arguments, and read the results after the answers are freed. */
static void
test_copies(void)
{
	char		path[] = "/zklock/b";
	char		data[] = "data";
	ZklOp		ops[] = {{.kind = ZKL_OP_SET,.path = path,.data = data,.data_len = 4,.version = ZKL_ANY_VERSION}};
	ZklBatch   *batch;

	begin();
	fake_disconnect(A->client);
	fake_run_all();
	batch = pipelined(ops, 1);
	memset(path, 'x', strlen(path));
	memset(data, 'x', strlen(data));
	memset(ops, 0, sizeof(ops));
	heal();
	is_int(status_of(batch), ZKL_OK, "a batch begins after connecting");
	ok(memcmp(fake_tree_find("/zklock/b")->data, "data", 4) == 0, "a batch has copies of its operations");
	zkl_batch_end(batch);
	scene_end(NULL);
}

static const ZklOp multi[] = {
	{.kind = ZKL_OP_CHECK_VERSION,.path = "/zklock/a",.version = 0},
	{.kind = ZKL_OP_CHECK,.path = "/zklock/b"},
	{.kind = ZKL_OP_CREATE,.path = "/zklock/e",.data = "mine",.data_len = 4,.create_kind = ZKL_CREATE_EPHEMERAL},
	{.kind = ZKL_OP_SET,.path = "/zklock/b",.data = "new",.data_len = 3,.version = 0},
	{.kind = ZKL_OP_SET,.path = "/zklock/b",.data = "newer",.data_len = 5,.version = ZKL_ANY_VERSION},
	{.kind = ZKL_OP_DELETE,.path = "/zklock/a/x"},
};

#define N_MULTI N_OPS(multi)

static void
test_atomic(void)
{
	ZklBatch   *batch;
	const ZklResult *r;

	begin();
	fake_tree_set("/zklock/b", "changed since");	/* version 1, wanted is 0 */
	batch = atomic(multi, N_MULTI);
	fake_run_all();
	r = zkl_batch_results(batch);
	is_str(fake_trace(A->client), "m", "an atomic batch is one request");
	is_int(status_of(batch), ZKL_OK, "an atomic batch is finished although an operation failed");
	for (int i = 0; i < N_MULTI; i++)
		is_int(r[i].code, i == 3 ? ZKL_RC_BAD_VERSION : ZKL_RC_ROLLED_BACK,
			   "operation %d is %s", i, i == 3 ? "the one that failed" : "not done");
	ok(fake_tree_find("/zklock/e") == NULL && fake_tree_find("/zklock/a/x"), "nothing is done");
	zkl_batch_end(batch);
	scene_end(NULL);

	begin();
	batch = atomic(multi, N_MULTI);
	fake_run_all();
	r = zkl_batch_results(batch);
	is_int(status_of(batch), ZKL_OK, "an atomic batch is finished");
	for (int i = 0; i < N_MULTI; i++)
		is_int(r[i].code, ZKL_RC_OK, "operation %d is done", i);
	ok(fake_tree_find("/zklock/e") && fake_tree_find("/zklock/a/x") == NULL &&
	   memcmp(fake_tree_find("/zklock/b")->data, "newer", 5) == 0, "everything is done");
	is_int(r[4].version, 2, "a set has the version of its data");
	zkl_batch_end(batch);
	fake_tree_set("/zklock/a", "changed");
	batch = atomic(multi, 1);
	fake_run_all();
	is_int(zkl_batch_results(batch)->code, ZKL_RC_BAD_VERSION, "a check fails for another version");
	zkl_batch_end(batch);
	scene_end(NULL);
}


/*
 * Limits
 */

/* Returns the most operations of this kind that are in flight. */
static int
most_in_flight(ZklOp op, int n)
{
	ZklOp	   *ops = calloc((size_t) n, sizeof(ZklOp));
	ZklBatch   *batch;
	int			most = 0;
	int			answered = 0;

	for (int i = 0; i < n; i++)
		ops[i] = op;
	begin();
	batch = pipelined(ops, n);
	do
	{
		if (fake_counted(A->client) - answered > most)
			most = fake_counted(A->client) - answered;
		answered++;
	} while (fake_step(A->client));
	if (status_of(batch) != ZKL_OK || fake_counted(A->client) != n)
		most = -1;
	zkl_batch_end(batch);
	scene_end(NULL);
	free(ops);
	return most;
}

static void
test_limits(void)
{
	static char big[ZKL_BATCH_MAX_ATOMIC_BYTES];
	ZklOp		set = {.kind = ZKL_OP_SET,.path = "/zklock/b",.data = big,.data_len = sizeof(big),.version = ZKL_ANY_VERSION};
	ZklOp	   *ops = calloc(ZKL_BATCH_MAX_OPS + 1, sizeof(ZklOp));
	ZklBatch   *batch;
	int			most = most_in_flight((ZklOp) {.kind = ZKL_OP_LIST,.path = "/zklock/a"}, 500);

	ok(most >= 50 && most <= 100, "many operations are in flight, but not all (%d)", most);

	begin();
	for (int i = 0; i <= ZKL_BATCH_MAX_OPS; i++)
		ops[i] = (ZklOp) {.kind = ZKL_OP_STAT,.path = "/zklock/a"};
	batch = pipelined(ops, ZKL_BATCH_MAX_OPS);
	fake_run_all();
	is_int(status_of(batch), ZKL_OK, "a batch may have %d operations", ZKL_BATCH_MAX_OPS);
	zkl_batch_end(batch);
	fake_count(A->client);
	batch = pipelined(ops, ZKL_BATCH_MAX_OPS + 1);
	is_int(status_of(batch), ZKL_TOO_MANY, "a batch may have no more operations");
	zkl_batch_end(batch);
	batch = atomic(&set, 1);
	is_int(status_of(batch), ZKL_TOO_MANY, "the bytes of an atomic batch are limited");
	zkl_batch_end(batch);
	is_int(fake_counted(A->client), 0, "nothing of such batches is sent");
	scene_end(NULL);
	free(ops);
}

/* Other programs may have stored anything. */
static void
test_long_answers(void)
{
	static char data[1000001];
	ZklOp		ops[200];
	ZklBatch   *batch;

	begin();
	memset(data, 'd', sizeof(data) - 1);
	fake_tree_set("/zklock/a", data);
	for (int i = 0; i < N_OPS(ops); i++)
		ops[i] = (ZklOp) {.kind = ZKL_OP_GET,.path = "/zklock/a"};
	batch = pipelined(ops, N_OPS(ops));
	fake_run_all();
	is_int(status_of(batch), ZKL_TOO_MANY, "a batch whose answers are too long together fails");
	ok(fake_counted(A->client) < N_OPS(ops), "it does not send the rest (%d)", fake_counted(A->client));
	zkl_batch_end(batch);
	scene_end(NULL);
}


/*
 * Faults
 */

static bool
is_status_right(ZklBatch *batch, FakeFault fault, bool is_atomic, int at)
{
	ZklStatus	status = status_of(batch);
	const ZklResult *r = zkl_batch_results(batch);

	switch (fault)
	{
		case FAULT_NONE:
		case FAULT_DELAY:
		case FAULT_FORGET:
			return status == ZKL_OK && (is_atomic ? r[0].code == ZKL_RC_OK : is_result_right(r));
		case FAULT_NO_AUTH:
			return status == ZKL_OK && r[at].code == ZKL_RC_NO_AUTH;
		case FAULT_OTHER:
		case FAULT_APPLY_OTHER:
			return status == ZKL_SERVER_ERROR && zkl_batch_info(batch).raw_code != 0;
		case FAULT_AUTH:
			return status == ZKL_AUTH_FAILED;
		case FAULT_REFUSE:
			return status == ZKL_NO_MEMORY;
		case FAULT_EXPIRE:
		case FAULT_APPLY_EXPIRE:
			return status == ZKL_SESSION_LOST || status == ZKL_CONNECTION_LOST;
		case FAULT_DROP:
		case FAULT_APPLY_DROP:
		case FAULT_APPLY_ALL_DROP:
		case FAULT_THROTTLE:
		case FAULT_STALE:
			return status == ZKL_CONNECTION_LOST;
		case N_FAULTS:
			break;
	}
	return false;
}

/* Returns whether a new batch works, or the session has ended. */
static bool
works_again(FakeFault fault)
{
	ZklOp		op = {.kind = ZKL_OP_GET,.path = "/zklock/b"};
	ZklBatch   *batch = pipelined(&op, 1);
	ZklStatus	status;

	heal();
	status = status_of(batch);
	zkl_batch_end(batch);
	return fake_is_expired(A->client) || fault == FAULT_AUTH ? status != ZKL_PENDING : status == ZKL_OK;
}

/* Ends the batch after so many steps; with -1, at its end. */
static int
run_fault(bool is_atomic, FakeFault fault, int at, int steps)
{
	ZklBatch   *batch;
	bool		good = true;

	begin();
	fake_fault(A->client, at + 1, fault);
	batch = is_atomic ? atomic(multi, N_MULTI) : pipelined(every_kind, N_KINDS);
	for (int i = 0; i != steps && fake_step(A->client); i++)
		;
	if (steps < 0)
	{
		heal();
		good = is_status_right(batch, fault, is_atomic, at);
	}
	if (!good)
		diag("%s at %d: status %d", fake_fault_name(fault), at, status_of(batch));
	zkl_batch_end(batch);
	heal();
	if (!works_again(fault))
	{
		diag("%s at %d, ended after %d steps: no batch works", fake_fault_name(fault), at, steps);
		good = false;
	}
	scene_end(NULL);
	return !good;
}

static void
test_faults(void)
{
	int			bad = 0;

	for (FakeFault fault = FAULT_NONE; fault < N_FAULTS; fault++)
	{
		bad += run_fault(true, fault, 0, -1);
		for (int at = 0; at < N_KINDS; at++)
			bad += run_fault(false, fault, at, -1);
	}
	is_int(bad, 0, "a batch has the right result after any fault of any request");
	bad = 0;
	for (FakeFault fault = FAULT_NONE; fault < N_FAULTS; fault++)
		for (int steps = 0; steps < 2 * N_KINDS; steps++)
		{
			bad += run_fault(true, fault, 0, steps);
			bad += run_fault(false, fault, steps / 2, steps);
		}
	is_int(bad, 0, "a batch may be ended at any moment");
}

/* Answers of an earlier connection decide nothing. */
static void
test_lost_connection(void)
{
	ZklBatch   *first;
	ZklBatch   *second;

	begin();
	first = pipelined(every_kind, N_KINDS);
	fake_apply(A->client);
	fake_disconnect(A->client);
	is_int(status_of(first), ZKL_PENDING, "the loss of the connection is not known yet");
	fake_run_all();
	is_int(status_of(first), ZKL_CONNECTION_LOST, "a lost connection fails the whole batch");
	ok(is_woken(), "the failure wakes the owner");
	fake_count(A->client);
	second = pipelined(every_kind, N_KINDS);
	fake_run_all();
	ok(status_of(second) == ZKL_PENDING && fake_counted(A->client) == 0,
	   "the next batch waits for the next connection");
	heal();
	is_int(status_of(first), ZKL_CONNECTION_LOST, "a failed batch stays failed");
	is_int(fake_counted(A->client), N_KINDS, "nothing of it is sent again");
	ok(status_of(second) == ZKL_OK && is_result_right(zkl_batch_results(second)),
	   "the next batch is finished on the next connection");
	zkl_batch_end(second);
	zkl_batch_end(first);

	/* Ended before the answer: what comes late is dropped. */
	first = pipelined(every_kind, N_KINDS);
	fake_apply(A->client);
	zkl_batch_end(first);
	fake_run_all();
	ok(works_again(FAULT_NONE), "answers to a batch that was ended do no harm");
	scene_end(NULL);

	begin();
	first = pipelined(every_kind, N_KINDS);
	fake_step(A->client);
	fake_expire(A->client);
	fake_connect(A->client);
	fake_run_all();
	second = pipelined(every_kind, N_KINDS);
	is_int(status_of(second), ZKL_SESSION_LOST, "a batch fails at once in a session that has ended");
	zkl_batch_end(first);
	zkl_batch_end(second);
	scene_end(NULL);

	begin();
	pipelined(every_kind, N_KINDS);
	atomic(multi, N_MULTI);
	fake_step(A->client);
	scene_end(NULL);
	ok(true, "a session may be closed with batches");
}

/* A server that refuses to work, although the connection stays, is not asked in a loop. */
static void
test_pace(void)
{
	begin();
	for (int i = 0; i < 5; i++)
	{
		ZklBatch   *batch;

		fake_count(A->client);
		fake_fault(A->client, 1, FAULT_THROTTLE);
		batch = pipelined(every_kind, 1);
		fake_run_all();
		is_int(fake_counted(A->client), i == 0, "batch %d is %s", i, i == 0 ? "sent" : "not sent at once");
		for (int ms = 0; ms < 5000 && status_of(batch) == ZKL_PENDING; ms++)
			fake_advance(1);
		is_int(status_of(batch), ZKL_CONNECTION_LOST, "it fails when the server refuses it");
		zkl_batch_end(batch);
	}
	fake_advance(5000);
	ok(works_again(FAULT_NONE), "the session works when the server works again");
	scene_end(NULL);
}

static void
test_progress(void)
{
	ZklBatch   *batch;
	uint64_t	before;
	int			bad = 0;

	begin();
	batch = pipelined(every_kind, N_KINDS);
	for (int i = 0; i < N_KINDS; i++)
	{
		before = zkl_batch_info(batch).progress;
		fake_step(A->client);
		bad += zkl_batch_info(batch).progress <= before;
	}
	is_int(bad, 0, "each answer is progress");
	before = zkl_batch_info(batch).progress;
	fake_run_all();
	is_int(zkl_batch_info(batch).progress, before, "without an answer there is no progress");
	zkl_batch_end(batch);
	scene_end(NULL);
}


/*
 * Watches
 */

static bool
is_outdated(ZklBatch *batch)
{
	fake_run_all();
	return zkl_batch_info(batch).is_outdated;
}

static void
test_watches(void)
{
	static const ZklOp get = {.kind = ZKL_OP_GET,.path = "/zklock/a",.watch = true};
	static const ZklOp list = {.kind = ZKL_OP_LIST,.path = "/zklock/b",.watch = true};
	static const ZklOp unwatched = {.kind = ZKL_OP_GET,.path = "/zklock/a"};
	ZklBatch   *batch;
	ZklBatch   *other;

	begin();
	batch = pipelined(&get, 1);
	other = pipelined(&unwatched, 1);
	ok(!is_outdated(batch), "a batch is up to date at first");
	(void) is_woken();
	fake_tree_set("/zklock/b", "changed");
	ok(!is_outdated(batch) && !is_woken(), "a batch stays up to date when another znode changes");
	fake_tree_set("/zklock/a", "changed");
	ok(is_outdated(batch) && is_woken(), "a change of a watched znode outdates the batch and wakes the owner");
	ok(!is_outdated(other), "a change outdates no batch without a watch");
	zkl_batch_end(batch);
	zkl_batch_end(other);

	batch = pipelined(&list, 1);
	fake_run_all();
	make("/zklock/b/child", "");
	ok(is_outdated(batch), "a new child outdates a list with a watch");
	zkl_batch_end(batch);

	batch = pipelined(&get, 1);
	ok(!is_outdated(batch), "a new batch is up to date");
	fake_disconnect(A->client);
	heal();
	ok(is_outdated(batch), "a lost connection outdates the batch: its watches are lost");
	zkl_batch_end(batch);

	batch = pipelined(&get, 1);
	fake_run_all();
	zkl_batch_end(batch);
	fake_tree_set("/zklock/a", "changed again");
	ok(works_again(FAULT_NONE), "a watch may fire after the end of its batch");
	scene_end(NULL);
}


/*
 * Threads
 */

static ZklStatus
await(ZklSession *session, ZklBatch *batch)
{
	while (status_of(batch) == ZKL_PENDING)
	{
		struct pollfd fd = {zkl_session_fd(session), POLLIN, 0};

		if (poll(&fd, 1, 10000) == 0)
			abort();			/* the batch must wake its owner at its end */
		zkl_session_receive(session);
	}
	return status_of(batch);
}

static void
test_threads(void)
{
	ZklSessionConfig config = scene_config;
	ZklSession *session;
	ZklStatus	status = ZKL_PENDING;
	int			bad = 0;
	int			finished = 0;

	fake_reset();
	fake_go_threaded(20);
	make("/zklock", "");
	config.session_timeout_ms = 30000;
	session = zkl_session_open(&config);
	/* The last one has an answer: a session that is closed while disconnected goes on. */
	for (int i = 0; i < 300 || status != ZKL_OK; i++)
	{
		ZklOp		ops[] = {{.kind = ZKL_OP_SYNC,.path = "/zklock"},
		{.kind = ZKL_OP_LIST,.path = "/zklock",.watch = true}, {.kind = ZKL_OP_GET,.path = "/zklock"}};
		ZklBatch   *batch = zkl_batch(session, ZKL_BATCH_PIPELINED, ops, N_OPS(ops));

		status = ZKL_PENDING;
		if (i % 7)
		{
			status = await(session, batch);
			bad += status != ZKL_OK && status != ZKL_CONNECTION_LOST;
			bad += status == ZKL_OK && zkl_batch_results(batch)[2].czxid == 0;
			finished += status == ZKL_OK;
		}
		zkl_batch_end(batch);
	}
	is_int(bad, 0, "batches end without their owner, on breaking connections");
	ok(finished > 50, "and most of them succeed (%d)", finished);
	zkl_session_close(session, 10000);
	fake_reset();
}

int
main(void)
{
	test_pipelined();
	test_copies();
	test_atomic();
	test_limits();
	test_long_answers();
	test_faults();
	test_lost_connection();
	test_pace();
	test_progress();
	test_watches();
	test_threads();
	return done();
}
