/*-------------------------------------------------------------------------
 *
 * errors.c
 *		From a status of the recipe layer to an error of PostgreSQL's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "errors.h"
#include "session.h"
#include "settings.h"

typedef struct ErrorEntry
{
	int			sqlstate;
	const char *message;		/* %s is the lock */
	const char *hint;
} ErrorEntry;

static const ErrorEntry entries[] = {
	[ZKL_DEADLOCK] = {ERRCODE_T_R_DEADLOCK_DETECTED,
		"deadlock detected while upgrading lock \"%s\"",
	"Another session that shares the lock waits to upgrade it as well. Let one of them release its shared lock first."},
	[ZKL_AUTH_FAILED] = {ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION,
		"could not lock \"%s\": the ZooKeeper ensemble refused the credentials",
	"Check the credentials in the file that zklock.auth_file names."},
	[ZKL_NO_AUTH] = {ERRCODE_INSUFFICIENT_PRIVILEGE,
		"could not lock \"%s\": the ZooKeeper ensemble refused access",
	"Check the ACLs of the znodes below zklock.root, zklock.acl, and zklock.auth_file."},
	[ZKL_NO_CHROOT] = {ERRCODE_CONFIG_FILE_ERROR,
		"could not lock \"%s\": the chroot path of zklock.connect_string does not exist",
	"Create the znode that follows the hosts in zklock.connect_string, or remove it there."},
	[ZKL_TOO_MANY] = {ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
		"could not lock \"%s\": too many locks in one session",
	"Release locks, use shorter names, or raise zklock.max_locks."},
	[ZKL_NOT_DRAINING] = {ERRCODE_PROGRAM_LIMIT_EXCEEDED,
		"could not lock \"%s\": its sequence numbers are used up",
	"Remove the znodes below the lock's that are not locks, so that it can start anew."},
	[ZKL_NOT_SUPPORTED] = {ERRCODE_FEATURE_NOT_SUPPORTED,
		"could not lock \"%s\": it cannot be shared",
	"Shared locks need zklock.node_names to be curator or kazoo."},
	[ZKL_OTHER_LAYOUT] = {ERRCODE_FEATURE_NOT_SUPPORTED,
		"could not acquire a permit of semaphore \"%s\": it is in use with other node names",
	"Use zklock.node_names = kazoo in all sessions that use the semaphore, or in none; znodes that are not in use any more go after some minutes, or can be removed."},
	[ZKL_NO_MEMORY] = {ERRCODE_OUT_OF_MEMORY,
		"could not lock \"%s\": out of memory",
	"Reduce the memory use of this server."},
	[ZKL_SERVER_ERROR] = {ERRCODE_SYSTEM_ERROR,
		"could not lock \"%s\": unexpected answer of the ZooKeeper ensemble",
	"See the logs of the ZooKeeper servers."},
};

void
zklock_raise(ZklStatus status, const char *display, int raw_code)
{
	const ErrorEntry *entry = &entries[status];

	ereport(ERROR,
			(errcode(entry->sqlstate),
			 errmsg(entry->message, display),
			 raw_code != 0
			 ? errdetail("The ZooKeeper client library reports code %d.", raw_code)
			 : 0,
			 errhint("%s", entry->hint)));
}

const char *
zklock_no_session_hint(void)
{
	if (zklock_tls_ca_file[0] == '\0')
		return "Check zklock.connect_string and that the ensemble has a quorum; zklock.connect_timeout says how long to wait.";
	return "Check that zklock.connect_string has the ensemble's ports for TLS, that it has a quorum, and the certificates in the files of zklock.tls_ca_file, zklock.tls_cert_file and zklock.tls_key_file; the server log has what the ZooKeeper client says.";
}

void
zklock_raise_no_session(const char *display)
{
	ereport(ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("could not lock \"%s\": no connection to the ZooKeeper ensemble",
					display),
			 zklock_session_failed_at_tls()
			 ? errdetail("No session could be had within %d ms, because TLS could not be set up with a server.",
						 zklock_connect_timeout)
			 : errdetail("No session could be had within %d ms.", zklock_connect_timeout),
			 errhint("%s", zklock_no_session_hint())));
}

void
zklock_raise_connection_lost(const char *display)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("could not lock \"%s\": lost the connection to the ZooKeeper ensemble",
					display),
			 errdetail("It did not come back within %d ms.", zklock_connect_timeout),
			 errhint("Retry when the ensemble is back; zklock.connect_timeout says how long to wait.")));
}
