/*-------------------------------------------------------------------------
 *
 * errors.c
 *		Translates a status of the recipe layer into an error of PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/base/settings.h"
#include "backend/base/syntax.h"
#include "backend/session/errors.h"
#include "recipe/recipe.h"

static const ZklockProblem problems[] = {
	[ZKL_AUTH_FAILED] = {ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION,
		"the ZooKeeper ensemble refused the credentials",
	"Check the credentials in the file that zklock.auth_file names.", NULL},
	[ZKL_NO_AUTH] = {ERRCODE_INSUFFICIENT_PRIVILEGE,
		"the ZooKeeper ensemble refused access",
	"Check the ACLs of the znodes below zklock.root, zklock.acl, and zklock.auth_file.", NULL},
	[ZKL_NO_CHROOT] = {ERRCODE_CONFIG_FILE_ERROR,
		"the chroot path of zklock.connect_string does not exist",
	"Create the znode that follows the hosts in zklock.connect_string, or remove its path from the setting.", NULL},
	[ZKL_LOCAL_SESSION] = {ERRCODE_CONFIG_FILE_ERROR,
		"the ZooKeeper servers give their clients local sessions, which cannot hold locks",
	"Set localSessionsUpgradingEnabled=true on all ZooKeeper servers, or localSessionsEnabled=false.", NULL},
	[ZKL_TOO_MANY] = {ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
		"too many locks in one session",
	"Release locks, use shorter names, or raise zklock.max_locks.", NULL},
	[ZKL_SEQUENCE_USED_UP] = {ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
		"its sequence numbers are used up",
	"Retry when no session holds the lock or waits for it: the numbers then begin at 0 again. Remove children of the lock's znode that are not lock nodes.", NULL},
	[ZKL_NOT_SUPPORTED] = {ERRCODE_FEATURE_NOT_SUPPORTED,
		"it cannot be shared",
	"Set zklock.node_names to curator or kazoo for shared locks.", NULL},
	[ZKL_NO_MEMORY] = {ERRCODE_OUT_OF_MEMORY,
		"out of memory",
	"Reduce the memory use of this server.", NULL},
	[ZKL_SERVER_ERROR] = {ERRCODE_SYSTEM_ERROR,
		"unexpected answer of the ZooKeeper ensemble",
	"See the logs of the ZooKeeper servers.", NULL},
};

const ZklockProblem zklock_session_expired = {ERRCODE_CONNECTION_FAILURE,
	"the ZooKeeper session expired",
"Retry. If this session held locks, they are lost, and the next statement reports the loss.", NULL};
const ZklockProblem zklock_too_many_znodes = {ERRCODE_PROGRAM_LIMIT_EXCEEDED,
	"there are too many znodes",
"Remove the znodes that other programs left below zklock.root.", NULL};

static char *
action_text(const ZklockAction *action)
{
	return psprintf(action->format, action->display);
}

void
zklock_name_action(void *action)
{
	errcontext("while trying to %s", action_text(action));
}

ZklockProblem
zklock_problem_of(ZklStatus status, int raw_code)
{
	ZklockProblem problem = problems[status];

	if (raw_code != 0)
		problem.detail = psprintf("The ZooKeeper client library reports code %d.", raw_code);
	return problem;
}

/* With TLS there is more to check. */
static const char *
no_session_hint(void)
{
	if (zklock_tls_ca_file[0] == '\0')
		return "Check zklock.connect_string and that the ensemble has a quorum; zklock.ensemble_timeout limits the wait.";
	return "Check that zklock.connect_string has the ensemble's ports for TLS, that the ensemble has a quorum, and that the certificates in the files of zklock.tls_ca_file, zklock.tls_cert_file and zklock.tls_key_file are valid; the server log has the messages of the ZooKeeper client.";
}

/* Returns what the client library complained of since it was connected last; maybe nothing. */
static const char *
last_complaint(void)
{
	char		line[512];

	zkl_log_last_problem(line, sizeof(line));
	if (line[0] == '\0')
		return "";
	zklock_make_plain(line);
	return psprintf(" The ZooKeeper client reports: %s", line);
}

ZklockProblem
zklock_no_session(bool failed_at_tls, int64 waited_ms)
{
	ZklockProblem problem = {ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
		"no connection to the ZooKeeper ensemble",
	no_session_hint(), NULL};

	/* The messages about TLS name files, and are for the administrator. */
	if (failed_at_tls)
		problem.detail = psprintf("No session was established within %lld ms, because TLS could not be set up with a server.",
								  (long long) waited_ms);
	else
		problem.detail = psprintf("No session was established within %lld ms.%s",
								  (long long) waited_ms, last_complaint());
	return problem;
}

ZklockProblem
zklock_no_answer(ZklSession *session, int64 waited_ms)
{
	ZklockProblem problem = {ERRCODE_CONNECTION_FAILURE,
		"the ZooKeeper ensemble does not answer",
	"Retry when the ensemble is reachable again; zklock.ensemble_timeout limits the wait.", NULL};
	ZklSessionInfo info = zkl_session_info(session);

	if (info.state == ZKL_SESSION_CONNECTED)
	{
		problem.detail = psprintf("The server at %s did not answer within %lld ms.",
								  info.server, (long long) waited_ms);
		return problem;
	}
	problem.reason = "lost the connection to the ZooKeeper ensemble";
	problem.detail = psprintf("The connection to the server at %s was lost, and no answer came within %lld ms.%s",
							  info.server, (long long) waited_ms, last_complaint());
	return problem;
}

void
zklock_fail(const ZklockAction *action, ZklockProblem problem)
{
	ereport(ERROR,
			(errcode(problem.sqlstate),
			 errmsg("could not %s: %s", action_text(action), problem.reason),
			 problem.detail ? errdetail_internal("%s", problem.detail) : 0,
			 errhint("%s", problem.hint)));
}

void
zklock_raise_upgrade_deadlock(const ZklockAction *action, const char *rival)
{
	char	   *data = pstrdup(rival);

	zklock_make_plain(data);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected while upgrading lock \"%s\"", action->display),
			 data[0] ? errdetail_internal("The other session, by the data of its znode: %s", data) : 0,
			 errhint("Release the shared lock and retry: another session that shares the lock waits to upgrade it as well.")));
}

void
zklock_raise(ZklStatus status, const ZklockAction *action, int raw_code)
{
	zklock_fail(action, zklock_problem_of(status, raw_code));
}
