/*-------------------------------------------------------------------------
 *
 * znodes.c
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
#include "backend/lock/znodes.h"
#include "backend/session/call.h"
#include "backend/session/errors.h"
#include "backend/session/session.h"
#include "backend/session/wait.h"
#include "recipe/batch.h"
#include "recipe/recipe.h"


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
	*check_again = zklock_call_end(&reader->call, ZKLOCK_ASKING, reader->progress + info.progress + 1).at;
	return zkl_now_ms() >= *check_again;
}

/* Waits for the answers.  Returns false if the attempt has failed; throws if the read has. */
static bool
await_answers(ZklockReader *reader)
{
	ErrorContextCallback context = {error_context_stack, zklock_name_action,
	unconstify(ZklockAction *, reader->action)};
	ZklBatchInfo info;

	error_context_stack = &context;
	zklock_wait(reader->session, is_answered, reader);
	error_context_stack = context.previous;
	info = zkl_batch_info(reader->batch);
	switch (info.status)
	{
		case ZKL_OK:
			reader->progress += info.progress;
			return true;
		case ZKL_PENDING:
		case ZKL_CONNECTION_LOST:
			return false;
		case ZKL_SESSION_LOST:
			if (zklock_holds_any())
				zklock_fail(reader->action, zklock_session_expired);
			return false;
		case ZKL_TOO_MANY:
			zklock_fail(reader->action, zklock_too_many_znodes);
		default:
			zklock_raise(info.status, reader->action, info.raw_code);
	}
}

const ZklResult *
zklock_read_batch(ZklockReader *reader, const ZklOp *ops, int n_ops)
{
	end_batch(reader);
	reader->batch = zkl_batch(reader->session, ZKL_BATCH_PIPELINED, ops, n_ops);
	if (reader->batch == NULL)
		zklock_raise(ZKL_NO_MEMORY, reader->action, 0);
	return await_answers(reader) ? zkl_batch_results(reader->batch) : NULL;
}

/* All reads behind a sync see all writes before. */
static bool
read_sync(ZklockReader *reader)
{
	const ZklOp sync = {.kind = ZKL_OP_SYNC,.path = zkl_session_root(reader->session)};
	const ZklResult *result = zklock_read_batch(reader, &sync, 1);

	if (result && result->code != ZKL_RC_OK)
		zklock_raise(ZKL_SERVER_ERROR, reader->action, 0);
	return result != NULL;
}

bool
zklock_read_found(ZklockReader *reader, ZklResultCode code)
{
	switch (code)
	{
		case ZKL_RC_OK:
			return true;
		case ZKL_RC_NO_NODE:
			return false;
		case ZKL_RC_NO_AUTH:
			reader->n_denied++;
			return false;
		default:
			zklock_raise(ZKL_SERVER_ERROR, reader->action, 0);
	}
}


/*
 * Attempts
 */

/* Returns whether the attempt was successful. */
static bool
attempt_in_session(ZklockReader *reader, ZklockReadAttempt attempt, void *arg)
{
	bool		done;

	reader->session = zklock_session_ready(reader->action, &reader->call);
	reader->progress = 0;
	reader->n_denied = 0;
	done = read_sync(reader) && attempt(reader, arg);
	end_batch(reader);
	if (!done && zkl_now_ms() >= zklock_call_end(&reader->call, ZKLOCK_ASKING, 0).at)
		zklock_fail(reader->action, zklock_no_answer(reader->session, zklock_ensemble_timeout));
	return done;
}

int
zklock_read_ensemble(const ZklockAction *action, ZklockReadAttempt attempt, void *arg)
{
	ZklockReader *reader = palloc0(sizeof(ZklockReader));

	reader->action = action;
	reader->call.timeout_ms = ZKLOCK_NO_TIMEOUT;
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
	return reader->n_denied;
}
