/*-------------------------------------------------------------------------
 *
 * backend_session.c
 *		Opens and closes the ZooKeeper session of this backend.
 *
 * The first call that needs the session opens it.  It stays open until the backend
 * exits, it is lost, or it has never been connected in time.  It must never be opened in
 * the postmaster: threads do not survive fork.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "common/hashfn.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "backend/base/credentials.h"
#include "backend/base/holds.h"
#include "backend/base/names.h"
#include "backend/base/settings.h"
#include "backend/session/call.h"
#include "backend/session/crash.h"
#include "backend/session/errors.h"
#include "backend/session/interrupt.h"
#include "backend/session/session.h"
#include "backend/session/shared_memory.h"
#include "backend/session/wait.h"
#include "recipe/recipe.h"

/*
 * Two of the connection, the client library's and a duplicate, two eventfds, the epoll; with TLS
 * a third eventfd.  PostgreSQL itself reserves the descriptor of a wait event set.
 */
#define SESSION_FDS 6

static ZklSession *session = NULL;

/* Number of sessions for which SESSION_FDS are reserved. */
static int	sessions_reserved = 0;

/* The session has been connected at some time. */
static bool has_connected = false;

/* The ACLs of its parent znodes have been checked. */
static bool acls_checked = false;

static uint64 namespace_hash = 0;

void		(*zklock_after_grant) (void);

/* Failed handshakes of earlier sessions. */
static unsigned handshakes_failed_before = 0;


ZklSession *
zklock_session_current(void)
{
	return session;
}

uint64
zklock_session_namespace(void)
{
	return namespace_hash;
}

bool
zklock_session_is_lost(ZklSession *session)
{
	ZklSessionState state = zkl_session_state(session);

	return state == ZKL_SESSION_EXPIRED || state == ZKL_SESSION_AUTH_FAILED;
}

/* A session that closes in the background keeps its descriptors until then. */
static void
release_fds(void)
{
	for (; sessions_reserved > zkl_sessions_open(); sessions_reserved--)
		for (int i = 0; i < SESSION_FDS; i++)
			ReleaseExternalFD();
}

void
zklock_session_close(int timeout_ms)
{
	if (session == NULL)
		return;
	if (has_connected && zklock_session_is_lost(session))
		zklock_count(ZKLOCK_STAT_SESSIONS_LOST, 1);
	has_connected = false;
	zklock_drop_wait_set();
	zklock_lease_watch(NULL);
	zkl_session_close(session, timeout_ms);
	zklock_withdraw_session();	/* now: attempts look there for what it has released */
	zklock_erase_session_note();
	session = NULL;
	release_fds();
}

static int	exit_code;

static void
end_process(void)
{
	_exit(exit_code);
}

/* Functions are called in the reverse order of their registration. */
void
zklock_skip_exit_cleanup(int code)
{
	exit_code = code;
	if (zkl_threads_are_running())
		atexit(end_process);
}

static void
close_at_exit(int code, Datum arg)
{
	dlist_iter	iter;

	zklock_session_close(ZKLOCK_CLOSE_MS);
	dlist_foreach(iter, &zklock_holds)
		zklock_hold_ended(dlist_container(ZklockHold, link, iter.cur));
	zklock_skip_exit_cleanup(code);
}

/* Not in _PG_init(): a callback registered in the postmaster is lost at fork. */
static void
register_exit(void)
{
	static bool is_registered = false;

	if (!is_registered)
		before_shmem_exit(close_at_exit, (Datum) 0);
	is_registered = true;
}

static uint64
hash_string(const char *string, uint64 seed)
{
	return hash_bytes_extended((const unsigned char *) string, strlen(string), seed);
}

static void
reserve_fds(void)
{
	release_fds();
	for (int i = 0; i < SESSION_FDS; i++)
	{
		if (AcquireExternalFD())
			continue;
		while (i-- > 0)
			ReleaseExternalFD();
		ereport(ERROR,
				(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
				 errmsg("could not open a ZooKeeper session"),
				 errdetail("There are too many open files in this backend."),
				 errhint("Raise the server's max_files_per_process and/or \"ulimit -n\" limits.")));
	}
	sessions_reserved++;
}

/* No default: zklock only contacts an ensemble that is configured. */
static void
require_ensemble(void)
{
	if (zklock_connect_string[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("could not open a ZooKeeper session"),
				 errdetail("zklock.connect_string is empty."),
				 errhint("Set zklock.connect_string to the servers of the ensemble, for example zk1:2181,zk2:2181,zk3:2181.")));
}

/*
 * Returns the tag of the sessions of this server, since its start or last crash, for this
 * ensemble and root: they share the local locks.
 */
static uint32
server_tag(void)
{
	uint64		key[] = {GetSystemIdentifier(), (uint64) zklock_memory_made_at,
	hash_string(zklock_server_name(), namespace_hash)};
	uint64		hash = hash_bytes_extended((unsigned char *) key, sizeof(key), 0);

	return Max((uint32) hash & ZKL_MAX_SERVER_TAG, 1);
}

static void
open_session(void)
{
	ZklockCredentials credentials;
	ZklSessionConfig config = {
		.connect_string = zklock_connect_string,
		.root = zklock_root,
		.session_timeout_ms = zklock_session_timeout,
		.creator_acl = zklock_acl == ZKLOCK_ACL_CREATOR,
		.on_loss_io = zklock_on_loss_io,
		.on_revoke_io = zklock_on_revoke_io,
		.node_names = (ZklNodeNames) zklock_node_names,
		.max_nodes = zklock_max_locks,
	};

	require_ensemble();
	register_exit();
	zklock_cancel_init();
	namespace_hash = hash_string(zklock_root, hash_string(zklock_connect_string, 0));
	reserve_fds();
	zklock_credentials_read(&credentials);	/* from here to the wipe nothing throws */
	config.server_tag = server_tag();
	config.pending_deletes = zklock_publish_pending_deletes();
	config.digest = credentials.digest;
	config.tls = credentials.tls;
	handshakes_failed_before = zkl_tls_failures();
	acls_checked = false;
	session = zkl_session_open(&config);
	zklock_credentials_wipe(&credentials);
	if (session == NULL)
	{
		release_fds();
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not open a ZooKeeper session"),
				 errdetail("Memory, a file descriptor or a thread could not be allocated."),
				 errhint("Check the limits of the user that runs the server (ulimit -a).")));
	}
}

static bool
is_decided(void *arg, int64 *check_again)
{
	ZklSessionState state = zkl_session_state(session);

	*check_again = *(int64 *) arg;
	zklock_wait_is_for(ZKLOCK_WAIT_CONNECT);
	return (state != ZKL_SESSION_CONNECTING && state != ZKL_SESSION_SUSPENDED) ||
		zkl_now_ms() >= *check_again;
}

/* Opens the session, if there is none, and waits until it is connected or lost. */
static void
reach_ensemble(const ZklockAction *action, int64 *deadline)
{
	ErrorContextCallback context = {error_context_stack, zklock_name_action,
	unconstify(ZklockAction *, action)};

	error_context_stack = &context;
	if (session == NULL)
		open_session();
	if (zkl_session_state(session) != ZKL_SESSION_CONNECTED)
		zklock_wait(session, is_decided, deadline);
	error_context_stack = context.previous;
}

/*
 * Returns the session when it is connected; NULL if it is not by then.  One that holds nothing is
 * replaced when it is lost; of one with locks loss.c reports the loss.
 */
static ZklSession *
session_by(const ZklockAction *action, int64 deadline)
{
	for (;;)
	{
		ZklSessionState state = session ? zkl_session_state(session) : ZKL_SESSION_CONNECTING;

		if (state != ZKL_SESSION_CONNECTED)
		{
			reach_ensemble(action, &deadline);
			state = zkl_session_state(session);
		}
		if (state == ZKL_SESSION_CONNECTED && !has_connected)
			zklock_count(ZKLOCK_STAT_SESSIONS_OPENED, 1);
		has_connected |= state == ZKL_SESSION_CONNECTED;
		if (state == ZKL_SESSION_CONNECTING || state == ZKL_SESSION_SUSPENDED)
			return NULL;
		if (state == ZKL_SESSION_CONNECTED || zklock_holds_any())
			return session;
		zklock_session_close(ZKLOCK_CLOSE_MS);
		if (state == ZKL_SESSION_AUTH_FAILED)
			zklock_raise(ZKL_AUTH_FAILED, action, 0);
	}
}

static _Noreturn void
fail_unconnected(const ZklockAction *action, int64 waited_ms)
{
	bool		failed_at_tls;

	if (zkl_session_state(session) == ZKL_SESSION_SUSPENDED || zklock_holds_any())
		zklock_fail(action, zklock_no_answer(session, waited_ms));

	/* The problem of this session need not affect a new one. */
	failed_at_tls = zkl_tls_failures() != handshakes_failed_before;
	zklock_session_close(ZKLOCK_CLOSE_MS);
	zklock_fail(action, zklock_no_session(failed_at_tls, waited_ms));
}

ZklSession *
zklock_session_ready(const ZklockAction *action, ZklockCall *call)
{
	ZklockEnd	end = zklock_call_end(call, call->queued ? ZKLOCK_CUT_OFF : ZKLOCK_ASKING, 0);
	ZklSession *reached = session_by(action, end.at);

	if (reached)
		return reached;
	if (end.reason == ZKLOCK_END_LOCK_TIMEOUT)
		zklock_raise_lock_timeout();
	if (end.reason == ZKLOCK_END_NO_ANSWER)
		fail_unconnected(action, end.at - call->progress_at);
	return NULL;
}

void
zklock_warn_open_parents(void)
{
	if (session == NULL || acls_checked)
		return;
	acls_checked = true;
	if (zkl_session_info(session).has_open_parents)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("znodes of zklock.root can be changed by others, although zklock.acl is \"creator\""),
				 errdetail("Their ACLs cannot be read, or allow programs without the credentials to create and delete znodes below them."),
				 errhint("Run in zkCli.sh, with the credentials of zklock.auth_file and the path in zklock.root: setAcl -R PATH auth::cdrwa,world:anyone:r")));
}
