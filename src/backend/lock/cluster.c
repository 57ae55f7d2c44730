/*-------------------------------------------------------------------------
 *
 * cluster.c
 *		Reads znodes of the ensemble in batches, and begins again after a lost connection.
 *
 * The recipe layer sends the batches.  Here the backend waits for the answers, and reports
 * why there are none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/base/holds.h"
#include "backend/base/settings.h"
#include "backend/lock/cluster.h"
#include "backend/session/backend_session.h"
#include "backend/session/errors.h"
#include "backend/session/wait.h"

struct ZklockReader
{
	const ZklockAction *action;
	ZklockTimeout timeout;
	ZklSession *session;
	ZklBatch   *batch;			/* the last one, or NULL */
	uint64		progress;		/* of the batches before it, in this attempt */
	bool		is_synced;		/* in this attempt */
};

static _Noreturn void
fail(const ZklockReader *reader, ZklStatus status, int raw_code)
{
	zklock_fail(reader->action, zklock_problem_of(status, raw_code));
}

/* The session is not connected, or its server does not answer. */
static _Noreturn void
fail_without_answer(const ZklockReader *reader)
{
	zklock_fail(reader->action, zklock_no_answer(reader->session, zklock_connect_timeout));
}

/* Waits for the connection; opens a session if there is none.  Throws if that fails. */
static void
reach_ensemble(ZklockReader *reader)
{
	reader->session = zklock_session_by(NULL, zklock_answer_by(&reader->timeout, 0));
	if (reader->session == NULL)
		reader->session = zklock_session_current();
	if (reader->session == NULL)
		fail(reader, ZKL_AUTH_FAILED, 0);
	switch (zkl_session_state(reader->session))
	{
		case ZKL_SESSION_CONNECTED:
			return;
		case ZKL_SESSION_SUSPENDED:
			fail_without_answer(reader);
		case ZKL_SESSION_EXPIRED:
			zklock_fail(reader->action, zklock_session_expired);
		case ZKL_SESSION_AUTH_FAILED:
			fail(reader, ZKL_AUTH_FAILED, 0);
		case ZKL_SESSION_CONNECTING:
			/* A new session may succeed where this one did not; it holds nothing yet. */
			zklock_session_close(ZKLOCK_CLOSE_MS);
			zklock_fail(reader->action, zklock_no_session(zklock_session_failed_at_tls(),
														  zklock_connect_timeout));
	}
}


/*
 * Batches
 */

static void
end_batch(ZklockReader *reader)
{
	if (reader->batch)
		zkl_batch_end(reader->batch);
	reader->batch = NULL;
}

static bool
is_answered(void *arg, int64 *check_again)
{
	ZklockReader *reader = arg;
	ZklBatchInfo info = zkl_batch_info(reader->batch);

	if (info.status != ZKL_PENDING)
		return true;
	*check_again = zklock_answer_by(&reader->timeout, reader->progress + info.progress + 1);
	return zkl_now_ms() >= *check_again;
}

/* Waits for the answers.  Returns false if the attempt has failed; throws if the read has. */
static bool
await_answers(ZklockReader *reader)
{
	ZklBatchInfo info;

	zklock_wait(reader->session, is_answered, reader);
	info = zkl_batch_info(reader->batch);
	switch (info.status)
	{
		case ZKL_OK:
			reader->progress += info.progress;
			return true;
		case ZKL_PENDING:
			fail_without_answer(reader);
		case ZKL_CONNECTION_LOST:
			return false;
		case ZKL_SESSION_LOST:
			if (zklock_holds_any())
				zklock_fail(reader->action, zklock_session_expired);
			return false;
		case ZKL_TOO_MANY:
			zklock_fail(reader->action, zklock_too_many_znodes);
		default:
			fail(reader, info.status, info.raw_code);
	}
}

/* Returns the results of a batch, valid until the next one; NULL if the attempt has failed. */
static const ZklBatchResult *
run_batch(ZklockReader *reader, const ZklOp *ops, int n_ops)
{
	end_batch(reader);
	reader->batch = zkl_batch(reader->session, ZKL_BATCH_PIPELINED, ops, n_ops);
	if (reader->batch == NULL)
		fail(reader, ZKL_NO_MEMORY, 0);
	return await_answers(reader) ? zkl_batch_results(reader->batch) : NULL;
}

/* The same with a sync before the operations. */
static const ZklBatchResult *
run_first_batch(ZklockReader *reader, const ZklOp *ops, int n_ops)
{
	ZklOp	   *all = palloc((n_ops + 1) * sizeof(ZklOp));
	const ZklBatchResult *results;

	all[0] = (ZklOp)
	{
		.kind = ZKL_OP_SYNC,.path = zkl_session_root(reader->session)
	};
	memcpy(all + 1, ops, n_ops * sizeof(ZklOp));
	results = run_batch(reader, all, n_ops + 1);
	pfree(all);
	if (results == NULL)
		return NULL;
	if (results[0].code != ZKL_RC_OK)
		fail(reader, ZKL_SERVER_ERROR, 0);
	reader->is_synced = true;
	return results + 1;
}

const ZklBatchResult *
zklock_read_batch(ZklockReader *reader, const ZklOp *ops, int n_ops)
{
	return reader->is_synced ? run_batch(reader, ops, n_ops)
		: run_first_batch(reader, ops, n_ops);
}

bool
zklock_read_found(ZklockReader *reader, ZklResultCode code, int *n_denied)
{
	switch (code)
	{
		case ZKL_RC_OK:
			return true;
		case ZKL_RC_NO_NODE:
			return false;
		case ZKL_RC_NO_AUTH:
			(*n_denied)++;
			return false;
		default:
			fail(reader, ZKL_SERVER_ERROR, 0);
	}
}

const char *
zklock_read_root(const ZklockReader *reader)
{
	return zkl_session_root(reader->session);
}

void
zklock_read_too_many(const ZklockReader *reader)
{
	zklock_fail(reader->action, zklock_too_many_znodes);
}


/*
 * Attempts
 */

/* Returns whether the attempt was successful. */
static bool
attempt_in_session(ZklockReader *reader, ZklockReadAttempt attempt, void *arg)
{
	bool		done;

	reach_ensemble(reader);
	reader->progress = 0;
	reader->is_synced = false;
	done = attempt(reader, arg);
	end_batch(reader);
	if (!done && zkl_now_ms() >= zklock_answer_by(&reader->timeout, 0))
		fail_without_answer(reader);
	return done;
}

void
zklock_read_ensemble(const ZklockAction *action, ZklockReadAttempt attempt, void *arg)
{
	ZklockReader *reader = palloc0(sizeof(ZklockReader));

	reader->action = action;
	reader->timeout.timeout_ms = ZKLOCK_NO_TIMEOUT;
	PG_TRY();
	{
		while (!attempt_in_session(reader, attempt, arg))
			;
	}
	PG_FINALLY();
	{
		end_batch(reader);
	}
	PG_END_TRY();
	pfree(reader);
}
