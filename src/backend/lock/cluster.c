/*-------------------------------------------------------------------------
 *
 * cluster.c
 *		Reads the queues of the ensemble, with the nodes of all programs.
 *
 * The recipe layer does the reading.  Here the backend waits for the answer, and
 * reports why there is none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "backend/base/holds.h"
#include "backend/base/settings.h"
#include "backend/lock/cluster.h"
#include "backend/lock/remote_wait.h"
#include "backend/session/backend_session.h"
#include "backend/session/errors.h"
#include "backend/session/wait.h"

/* Returns the session, connected; or NULL, with the problem. */
static ZklSession *
reach(int64 deadline, ZklockProblem *problem)
{
	ZklSession *session = zklock_session_by(NULL, deadline);

	if (session == NULL)
		session = zklock_session_current();
	if (session == NULL)
	{
		*problem = zklock_problem_of(ZKL_AUTH_FAILED, 0);
		return NULL;
	}
	switch (zkl_session_state(session))
	{
		case ZKL_SESSION_CONNECTED:
			return session;
		case ZKL_SESSION_SUSPENDED:
			*problem = zklock_no_answer(session, zklock_connect_timeout);
			break;
		case ZKL_SESSION_EXPIRED:
			*problem = zklock_session_expired;
			break;
		case ZKL_SESSION_AUTH_FAILED:
			*problem = zklock_problem_of(ZKL_AUTH_FAILED, 0);
			break;
		case ZKL_SESSION_CONNECTING:
			/* A new session may succeed where this one did not; it holds nothing yet. */
			zklock_session_close(ZKLOCK_CLOSE_MS);
			*problem = zklock_no_session(zklock_session_failed_at_tls(),
										 zklock_connect_timeout);
			break;
	}
	return NULL;
}

typedef struct Reading
{
	ZklSession *session;
	ZklScan    *scan;
	ZklockTimeout *timeout;
} Reading;

static bool
is_read(void *arg, int64 *check_again)
{
	Reading    *reading = arg;
	ZklScanInfo info;

	if (zkl_scan_status(reading->scan) != ZKL_PENDING)
		return true;
	zkl_scan_info(reading->scan, &info);
	*check_again = zklock_answer_by(reading->timeout, info.progress + 1);
	return zkl_now_ms() >= *check_again;
}

/* Waits for the answer.  Returns false if the scan is to be retried in a new session. */
static bool
await_answer(Reading *reading, ZklScanInfo *info, ZklockProblem *problem)
{
	ZklStatus	status;

	zklock_wait(reading->session, is_read, reading);
	status = zkl_scan_status(reading->scan);
	if (status != ZKL_PENDING)
		zkl_scan_info(reading->scan, info);
	switch (status)
	{
		case ZKL_OK:
			break;
		case ZKL_PENDING:
			*problem = zklock_no_answer(reading->session, zklock_connect_timeout);
			break;
		case ZKL_SESSION_LOST:
			*problem = zklock_session_expired;
			return zklock_holds_any();
		case ZKL_TOO_MANY:
			*problem = zklock_too_many_znodes;
			break;
		case ZKL_AUTH_FAILED:
		case ZKL_NO_MEMORY:
			*problem = zklock_problem_of(status, 0);
			break;
		default:
			*problem = zklock_problem_of(ZKL_SERVER_ERROR, info->raw_code);
	}
	return true;
}

/* The parameters of a scan, and the function that uses the answer. */
typedef struct ScanRequest
{
	ZklScanKind kind;
	const char *name;
	ZklockScanUse use;
	void	   *arg;
	ZklockTimeout *timeout;
} ScanRequest;

/* Scans in one session.  Returns false if the scan is to be retried in a new session. */
static bool
scan_in(const ScanRequest *request, ZklSession *session, ZklockProblem *problem)
{
	Reading		reading = {
		.session = session,
		.scan = zkl_scan(session, request->kind, request->name),
		.timeout = request->timeout
	};
	volatile bool decided = true;

	if (reading.scan == NULL)
	{
		*problem = zklock_problem_of(ZKL_NO_MEMORY, 0);
		return true;
	}
	PG_TRY();
	{
		ZklScanInfo info = {0};

		decided = await_answer(&reading, &info, problem);
		if (problem->sqlstate == 0)
			request->use(&info, request->arg);
	}
	PG_CATCH();
	{
		zkl_scan_end(reading.scan);
		PG_RE_THROW();
	}
	PG_END_TRY();
	zkl_scan_end(reading.scan);
	return decided;
}

void
zklock_scan(ZklScanKind kind, const char *name,
			const ZklockAction *action, ZklockScanUse use, void *arg)
{
	ZklockTimeout timeout = {.timeout_ms = ZKLOCK_NO_TIMEOUT};
	const ScanRequest request = {kind, name, use, arg, &timeout};
	ZklockProblem problem;
	ZklSession *session;

	do
	{
		problem.sqlstate = 0;
		session = reach(zklock_answer_by(&timeout, 0), &problem);
	} while (session && !scan_in(&request, session, &problem) &&
			 zkl_now_ms() < zklock_answer_by(&timeout, 0));
	if (problem.sqlstate != 0)
		zklock_fail(action, problem);
}


/*
 * Revocation
 */

static void
take_requested(const ZklScanInfo *info, void *arg)
{
	*(ZklScanInfo *) arg = *info;
}

int
zklock_revoke(const ZklockName *name)
{
	const ZklockAction action = {
		.format = "ask the holders of lock \"%s\" to release it",.display = name->display
	};
	ZklScanInfo info = {0};

	zklock_scan(superuser() ? ZKL_REVOKE : ZKL_REVOKE_ORDINARY, name->encoded,
				&action, take_requested, &info);
	if (info.n_spared > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to request release of lock \"%s\" from a superuser's session",
						name->display),
				 errdetail("Number of other holders that received the request: %d.", info.n_requested),
				 errhint("Let a superuser call zk_revoke(%s).",
						 quote_literal_cstr(name->display))));
	if (info.n_denied > 0)
	{
		ZklockProblem problem = zklock_problem_of(ZKL_NO_AUTH, 0);

		problem.detail = psprintf("Holders that received the request: %d; znodes that could not be read or changed: %d.",
								  info.n_requested, info.n_denied);
		zklock_fail(&action, problem);
	}
	return info.n_requested;
}
