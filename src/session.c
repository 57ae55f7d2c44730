/*-------------------------------------------------------------------------
 *
 * session.c
 *		The ZooKeeper session of this backend: when it opens and closes.
 *
 * Opened by the first call that needs it, kept until the backend ends, is told
 * that the session is over, or needs other settings.  Must never be opened in
 * the postmaster: threads do not survive fork.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "credentials.h"
#include "errors.h"
#include "holds.h"
#include "lifecycle.h"
#include "lock_table.h"
#include "loss.h"
#include "revoke.h"
#include "session.h"
#include "settings.h"
#include "stats.h"
#include "wait.h"

/* The client's socket, its pipe, a second socket while changing servers, the eventfd. */
#define SESSION_FDS 5

static ZklSession *session = NULL;

/* It was connected, at some time. */
static bool has_connected = false;

/* What the session was opened with, as one string. */
static char *opened_with = NULL;

/* As of when that is known to be what is set. */
static unsigned settings_seen = 0;

/* Of the credentials that it was opened with; and PgReloadTime when they were last looked at. */
static uint64 credentials_hash = 0;
static TimestampTz credentials_seen = 0;

static uint64 place = 0;

/* Of earlier sessions. */
static unsigned handshakes_failed_before = 0;


ZklSession *
zklock_session_current(void)
{
	return session;
}

uint64
zklock_session_place(void)
{
	return place;
}

bool
zklock_session_failed_at_tls(void)
{
	return zkl_tls_failures() != handshakes_failed_before;
}

bool
zklock_session_is_over(ZklSession *session)
{
	ZklSessionState state = zkl_session_state(session);

	return state == ZKL_SESSION_EXPIRED || state == ZKL_SESSION_AUTH_FAILED;
}

static void
note_connected(void)
{
	if (!has_connected)
		zklock_count(ZKLOCK_STAT_SESSIONS_OPENED, 1);
	has_connected = true;
}

void
zklock_session_close(int timeout_ms)
{
	if (session == NULL)
		return;
	zklock_count_round_trips();
	zklock_forget_round_trips();
	if (!proc_exit_inprogress)	/* which releases all locks by itself */
		zklock_hide_session();
	if (has_connected && zklock_session_is_over(session))
		zklock_count(ZKLOCK_STAT_SESSIONS_LOST, 1);
	has_connected = false;
	zklock_drop_wait_set();
	zkl_session_close(session, timeout_ms);
	session = NULL;
	for (int i = 0; i < SESSION_FDS; i++)
		ReleaseExternalFD();
}

/* Everything that makes another session necessary when it changes. */
static char *
settings_now(void)
{
	return psprintf("%s|%s|%d|%d|%d|%d|%s|%s|%s|%s", zklock_connect_string,
					zklock_root, zklock_session_timeout, zklock_node_names,
					zklock_max_locks, zklock_acl, zklock_auth_file,
					zklock_tls_ca_file, zklock_tls_cert_file, zklock_tls_key_file);
}

static uint64
hash_string(const char *string, uint64 seed)
{
	return string ? hash_bytes_extended((const unsigned char *) string,
										strlen(string), seed) : seed;
}

/*
 * Has the file of credentials other ones than those the session was opened
 * with?  It is read again when the configuration was reloaded.
 */
static bool
have_credentials_changed(void)
{
	ZklockCredentials credentials;
	bool		changed;

	if (credentials_seen == PgReloadTime)
		return false;
	zklock_credentials_read(&credentials);
	changed = credentials.hash != credentials_hash;
	zklock_credentials_wipe(&credentials);
	credentials_seen = PgReloadTime;
	return changed;
}

/* To set something to what it was is no change. */
static bool
have_settings_changed(void)
{
	unsigned	set = zklock_session_settings_set;
	char	   *settings;

	if (settings_seen == set)
		return false;
	settings = settings_now();
	if (strcmp(settings, opened_with) == 0)
		settings_seen = set;
	pfree(settings);
	return settings_seen != set;
}

/* Was the session opened with other settings than those of now? */
static bool
is_outdated(void)
{
	return have_settings_changed() || have_credentials_changed();
}

static void
reserve_fds(void)
{
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
}

static void
open_session(void)
{
	char	   *settings = MemoryContextStrdup(TopMemoryContext, settings_now());
	ZklockCredentials credentials;
	ZklSessionConfig config = {
		.connect_string = zklock_connect_string,
		.root = zklock_root,
		.session_timeout_ms = zklock_session_timeout,
		.creator_acl = zklock_acl != 0,
		.on_loss_io = zklock_on_loss_io,
		.on_revoke_io = zklock_on_revoke_io,
		.dialect = (ZklDialect) zklock_node_names,
		.max_nodes = zklock_max_locks,
	};

	zklock_register_exit();
	if (opened_with)
		pfree(opened_with);
	opened_with = settings;
	settings_seen = zklock_session_settings_set;
	place = hash_string(zklock_root, hash_string(zklock_connect_string, 0));
	zklock_credentials_read(&credentials);
	config.digest = credentials.digest;
	config.tls = credentials.tls;
	credentials_hash = credentials.hash;
	credentials_seen = PgReloadTime;
	reserve_fds();
	handshakes_failed_before = zkl_tls_failures();
	session = zkl_session_open(&config);
	zklock_credentials_wipe(&credentials);
	if (session == NULL)
	{
		for (int i = 0; i < SESSION_FDS; i++)
			ReleaseExternalFD();
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not open a ZooKeeper session"),
				 errdetail("No memory, file descriptor or thread could be had."),
				 errhint("Check the limits of the user that runs the server (ulimit -a).")));
	}
}

static bool
is_decided(void *arg, int64 *look_again)
{
	int64		deadline = *(int64 *) arg;

	*look_again = deadline;
	switch (zkl_session_state(session))
	{
		case ZKL_SESSION_CONNECTING:
		case ZKL_SESSION_SUSPENDED:
			return zklock_now() >= deadline;
		case ZKL_SESSION_CONNECTED:
		case ZKL_SESSION_EXPIRED:
		case ZKL_SESSION_AUTH_FAILED:
			break;
	}
	return true;
}

/* A view waits under no lock_timeout. */
static void
wait_for_session(const ZklockPurpose *purpose, int64 *deadline)
{
	if (purpose)
		zklock_wait_for_lock(session, is_decided, deadline, 0);
	else
		zklock_wait(session, is_decided, deadline);
}

ZklSession *
zklock_session_by(const ZklockPurpose *purpose, int64 deadline)
{
	bool		refused;

	if (session && !zklock_holds_any() && is_outdated())
		zklock_session_close(ZKLOCK_CLOSE_MS);
	for (;;)
	{
		if (session == NULL)
			open_session();
		if (zkl_session_state(session) != ZKL_SESSION_CONNECTED)
			wait_for_session(purpose, &deadline);
		switch (zkl_session_state(session))
		{
			case ZKL_SESSION_CONNECTED:
				note_connected();
				return session;
			case ZKL_SESSION_AUTH_FAILED:
			case ZKL_SESSION_EXPIRED:
				/* With something held, this is for loss.c to tell. */
				if (zklock_holds_any())
					return session;
				refused = zkl_session_state(session) == ZKL_SESSION_AUTH_FAILED;
				zklock_session_close(ZKLOCK_CLOSE_MS);
				if (refused && purpose == NULL)
					return NULL;
				if (refused)
					zklock_raise(ZKL_AUTH_FAILED, purpose, 0);
				break;
			case ZKL_SESSION_CONNECTING:
			case ZKL_SESSION_SUSPENDED:
				return NULL;
		}
	}
}

ZklSession *
zklock_session_ready(const ZklockPurpose *purpose)
{
	ZklSession *reached = zklock_session_by(purpose,
											zklock_now() + zklock_connect_timeout);

	if (reached)
		return reached;
	switch (zkl_session_state(session))
	{
		case ZKL_SESSION_CONNECTED:
			note_connected();
			return session;		/* just in time */
		case ZKL_SESSION_SUSPENDED:
			zklock_fail(purpose, zklock_connection_lost());
		default:
			break;
	}

	/* What stood in the way of this one may not stand in the next one's. */
	zklock_session_close(ZKLOCK_CLOSE_MS);
	zklock_fail(purpose, zklock_no_session());
}
