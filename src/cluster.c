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

#include "miscadmin.h"

#include "cluster.h"
#include "errors.h"
#include "holds.h"
#include "remote_wait.h"
#include "session.h"
#include "settings.h"
#include "wait.h"

/* Why something could not be done. */
typedef struct Problem
{
	int			sqlstate;		/* 0: none */
	const char *reason;
	const char *hint;			/* NULL: zklock_no_session_hint() */
	int			raw_code;
} Problem;

static const Problem no_session = {ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
	"no connection to the ZooKeeper ensemble",
NULL, 0};
static const Problem connection_lost = {ERRCODE_CONNECTION_FAILURE,
	"lost the connection to the ZooKeeper ensemble",
"Retry when the ensemble is back; zklock.connect_timeout says how long to wait.", 0};
static const Problem session_over = {ERRCODE_CONNECTION_FAILURE,
	"the ZooKeeper session is over",
"Retry; locks that were held are lost, which the next statement tells.", 0};
static const Problem refused = {ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION,
	"the ZooKeeper ensemble refused the credentials",
"Check the credentials in the file that zklock.auth_file names.", 0};
static const Problem too_many = {ERRCODE_PROGRAM_LIMIT_EXCEEDED,
	"there are too many znodes",
"Look below zklock.root for what other programs left there.", 0};
static const Problem no_memory = {ERRCODE_OUT_OF_MEMORY,
	"out of memory",
"Reduce the memory use of this server.", 0};
static const Problem unexpected = {ERRCODE_SYSTEM_ERROR,
	"unexpected answer of the ZooKeeper ensemble",
"See the logs of the ZooKeeper servers.", 0};

static void
report(int level, const char *purpose, const Problem *problem)
{
	ereport(level,
			(errcode(problem->sqlstate),
			 errmsg("could not %s: %s", purpose, problem->reason),
			 problem->raw_code != 0
			 ? errdetail("The ZooKeeper client library reports code %d.",
						 problem->raw_code)
			 : 0,
			 errhint("%s", problem->hint ? problem->hint : zklock_no_session_hint())));
}

/* The session, connected; or NULL and why not. */
static ZklSession *
reach(int64 deadline, Problem *problem)
{
	ZklSession *session = zklock_session_by(NULL, deadline);

	if (session && !zklock_session_is_over(session))
		return session;
	session = zklock_session_current();
	if (session == NULL)
		*problem = refused;
	else if (zklock_session_is_over(session))
		*problem = session_over;
	else if (zkl_session_state(session) == ZKL_SESSION_SUSPENDED)
		*problem = connection_lost;
	else
	{
		/* What stood in the way of this one may not stand in the next one's. */
		zklock_session_close(ZKLOCK_CLOSE_MS);
		*problem = no_session;
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
await_answer(Reading *reading, ZklSurveyInfo *info, Problem *problem)
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
			*problem = connection_lost;
			break;
		case ZKL_SESSION_LOST:
			*problem = session_over;
			return zklock_holds_any();
		case ZKL_AUTH_FAILED:
			*problem = refused;
			break;
		case ZKL_TOO_MANY:
			*problem = too_many;
			break;
		case ZKL_NO_MEMORY:
			*problem = no_memory;
			break;
		default:
			*problem = unexpected;
			problem->raw_code = info->raw_code;
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
ask(const Question *question, ZklSession *session, Problem *problem)
{
	Reading		reading = {
		.session = session,
		.survey = question->start(session, question->name)
	};
	volatile bool decided = true;

	if (reading.survey == NULL)
	{
		*problem = no_memory;
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
			  const char *purpose, ZklockSurveyUse use, void *arg)
{
	const Question question = {start, name, use, arg};
	int64		deadline = zklock_now() + zklock_connect_timeout;
	Problem		problem;
	ZklSession *session;

	do
	{
		problem.sqlstate = 0;
		session = reach(deadline, &problem);
	} while (session && !ask(&question, session, &problem) &&
			 zklock_now() < deadline);
	if (problem.sqlstate != 0)
		report(level, purpose, &problem);
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
	char	   *purpose = psprintf("ask the holders of lock \"%s\" to release it",
								   name->display);
	ZklSurveyInfo info = {0};

	zklock_survey(zkl_revoke, name->encoded, ERROR, purpose, take_asked, &info);
	if (info.n_denied > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("could not %s: the ZooKeeper ensemble refused access", purpose),
				 errdetail("Holders that were asked: %d; znodes that could not be read or changed: %d.",
						   info.n_asked, info.n_denied),
				 errhint("Check the ACLs of the znodes below zklock.root, zklock.acl, and zklock.auth_file.")));
	return info.n_asked;
}
