/*-------------------------------------------------------------------------
 *
 * cluster.c
 *		Reading the queues of the ensemble, whoever stands there.
 *
 * The reading itself is the recipe layer's.  Here it is waited for, and told
 * when it can't be had; an ensemble that is away never makes a view fail.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cluster.h"
#include "errors.h"
#include "holds.h"
#include "remote_wait.h"
#include "session.h"
#include "settings.h"
#include "wait.h"

/* The session, connected; or NULL and why not. */
static ZklSession *
reach(int64 deadline, ZklockProblem *problem)
{
	ZklSession *session = zklock_session_by(NULL, deadline);

	if (session && !zklock_session_is_over(session))
		return session;
	session = zklock_session_current();
	if (session == NULL)
		*problem = zklock_problem_of(ZKL_AUTH_FAILED, 0);
	else if (zklock_session_is_over(session))
		*problem = zklock_session_over;
	else if (zkl_session_state(session) == ZKL_SESSION_SUSPENDED)
		*problem = zklock_connection_lost();
	else
	{
		/* What stood in the way of this one may not stand in the next one's. */
		zklock_session_close(ZKLOCK_CLOSE_MS);
		*problem = zklock_no_session();
	}
	return NULL;
}

typedef struct Reading
{
	ZklSession *session;
	ZklSurvey  *survey;
	ZklockContact contact;
} Reading;

static bool
is_read(void *arg, int64 *look_again)
{
	Reading    *reading = arg;
	ZklSessionInfo info;

	if (zkl_survey_status(reading->survey) != ZKL_PENDING)
		return true;
	zkl_session_info(reading->session, &info);
	return zklock_contact_is_lost(&reading->contact, reading->session,
								  info.n_answers, zklock_now(), look_again);
}

/* Waits for the answer.  False: it is worth another try, with a new session. */
static bool
await_answer(Reading *reading, ZklSurveyInfo *info, ZklockProblem *problem)
{
	ZklStatus	status;

	zklock_wait(reading->session, is_read, reading);
	status = zkl_survey_status(reading->survey);
	if (status != ZKL_PENDING)
		zkl_survey_info(reading->survey, info);
	switch (status)
	{
		case ZKL_OK:
			break;
		case ZKL_PENDING:
			*problem = zklock_connection_lost();
			break;
		case ZKL_SESSION_LOST:
			*problem = zklock_session_over;
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

/* What is asked, and what is done with the answer. */
typedef struct Question
{
	ZklockSurveyStart start;
	const char *name;
	ZklockSurveyUse use;
	void	   *arg;
} Question;

/* Asks in one session.  False: it is worth another try, with a new session. */
static bool
ask(const Question *question, ZklSession *session, ZklockProblem *problem)
{
	Reading		reading = {
		.session = session,
		.survey = question->start(session, question->name)
	};
	volatile bool decided = true;

	if (reading.survey == NULL)
	{
		*problem = zklock_problem_of(ZKL_NO_MEMORY, 0);
		return true;
	}
	PG_TRY();
	{
		ZklSurveyInfo info = {0};

		decided = await_answer(&reading, &info, problem);
		if (problem->sqlstate == 0)
			question->use(&info, question->arg);
	}
	PG_CATCH();
	{
		zkl_survey_end(reading.survey);
		PG_RE_THROW();
	}
	PG_END_TRY();
	zkl_survey_end(reading.survey);
	return decided;
}

void
zklock_survey(ZklockSurveyStart start, const char *name, int level,
			  const ZklockPurpose *purpose, ZklockSurveyUse use, void *arg)
{
	const Question question = {start, name, use, arg};
	int64		deadline = zklock_now() + zklock_connect_timeout;
	ZklockProblem problem;
	ZklSession *session;

	do
	{
		problem.sqlstate = 0;
		session = reach(deadline, &problem);
	} while (session && !ask(&question, session, &problem) &&
			 zklock_now() < deadline);
	if (problem.sqlstate != 0)
		zklock_report(level, purpose, &problem);
}


/*
 * Revocation
 */

static void
take_asked(const ZklSurveyInfo *info, void *arg)
{
	*(ZklSurveyInfo *) arg = *info;
}

int
zklock_revoke(const ZklockName *name)
{
	const ZklockPurpose purpose = {
		"ask the holders of lock \"%s\" to release it", name->display
	};
	ZklSurveyInfo info = {0};

	zklock_survey(zkl_revoke, name->encoded, ERROR, &purpose, take_asked, &info);
	if (info.n_denied > 0)
	{
		ZklockProblem problem = zklock_problem_of(ZKL_NO_AUTH, 0);

		problem.detail = psprintf("Holders that were asked: %d; znodes that could not be read or changed: %d.",
								  info.n_asked, info.n_denied);
		zklock_fail(&purpose, problem);
	}
	return info.n_asked;
}
