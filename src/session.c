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

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "errors.h"
#include "holds.h"
#include "lifecycle.h"
#include "loss.h"
#include "revoke.h"
#include "session.h"
#include "settings.h"
#include "stats.h"
#include "syntax.h"
#include "wait.h"

/* The client's socket, its pipe, a second socket while changing servers, the eventfd. */
#define SESSION_FDS 5

#define MAX_AUTH_FILE 1024

static ZklSession *session = NULL;

/* It was connected, at some time. */
static bool has_connected = false;

/* What the session was opened with, as one string. */
static char *opened_with = NULL;

/* Of the credentials that it was opened with; and PgReloadTime when they were last looked at. */
static uint64 credentials_hash = 0;
static TimestampTz credentials_seen = 0;

static uint64 place = 0;


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
	return psprintf("%s|%s|%d|%d|%d|%d|%s", zklock_connect_string, zklock_root,
					zklock_session_timeout, zklock_node_names, zklock_max_locks,
					zklock_acl, zklock_auth_file);
}

static void
auth_file_error(const char *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg("could not use the file that zklock.auth_file names: %s", problem),
			 errhint("It belongs to the user that runs the server, is not accessible for group or others, and holds one line: digest user:password")));
}

/* The credentials, "user:password", palloc'd; NULL when there are none. */
static char *
read_credentials(void)
{
	char		text[MAX_AUTH_FILE + 1];
	struct stat st;
	ssize_t		length;
	int			fd;
	char	   *credentials;

	if (zklock_auth_file[0] == '\0')
		return NULL;
	/* Opening a pipe would wait for somebody who writes. */
	fd = OpenTransientFile(zklock_auth_file, O_RDONLY | O_NONBLOCK | PG_BINARY);
	if (fd < 0)
		auth_file_error("it cannot be read");
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		auth_file_error("it is not a plain file");
	if (st.st_mode & (S_IRWXG | S_IRWXO))
		auth_file_error("group or others may access it");
	if (st.st_size > MAX_AUTH_FILE)
		auth_file_error("it is too long");
	length = read(fd, text, MAX_AUTH_FILE);
	CloseTransientFile(fd);
	if (length < 0)
		auth_file_error("it cannot be read");

	credentials = zklock_credentials_in(text, (size_t) length);
	if (credentials)
		credentials = pstrdup(credentials);
	explicit_bzero(text, sizeof(text));
	if (credentials == NULL)
		auth_file_error("it does not hold credentials");
	return credentials;
}

static void
wipe_credentials(char *credentials)
{
	if (credentials == NULL)
		return;
	explicit_bzero(credentials, strlen(credentials));
	pfree(credentials);
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
	char	   *credentials;
	uint64		hash;

	if (credentials_seen == PgReloadTime)
		return false;
	credentials = read_credentials();
	hash = hash_string(credentials, 0);
	wipe_credentials(credentials);
	credentials_seen = PgReloadTime;
	return hash != credentials_hash;
}

/* Was the session opened with other settings than those of now? */
static bool
is_outdated(void)
{
	char	   *settings = settings_now();
	bool		outdated = strcmp(settings, opened_with) != 0;

	pfree(settings);
	return outdated || have_credentials_changed();
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
	char	   *credentials;
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
	place = hash_string(zklock_root, hash_string(zklock_connect_string, 0));
	config.digest = credentials = read_credentials();
	credentials_hash = hash_string(credentials, 0);
	credentials_seen = PgReloadTime;
	reserve_fds();
	session = zkl_session_open(&config);
	wipe_credentials(credentials);
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
wait_for_session(const char *display, int64 *deadline)
{
	if (display)
		zklock_wait_for_lock(session, is_decided, deadline, 0);
	else
		zklock_wait(session, is_decided, deadline);
}

ZklSession *
zklock_session_by(const char *display, int64 deadline)
{
	bool		refused;

	if (session && !zklock_holds_any() && is_outdated())
		zklock_session_close(ZKLOCK_CLOSE_MS);
	for (;;)
	{
		if (session == NULL)
			open_session();
		if (zkl_session_state(session) != ZKL_SESSION_CONNECTED)
			wait_for_session(display, &deadline);
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
				if (refused && display == NULL)
					return NULL;
				if (refused)
					zklock_raise(ZKL_AUTH_FAILED, display, 0);
				break;
			case ZKL_SESSION_CONNECTING:
			case ZKL_SESSION_SUSPENDED:
				return NULL;
		}
	}
}

ZklSession *
zklock_session_ready(const char *display)
{
	ZklSession *reached = zklock_session_by(display,
											zklock_now() + zklock_connect_timeout);

	if (reached)
		return reached;
	switch (zkl_session_state(session))
	{
		case ZKL_SESSION_CONNECTED:
			note_connected();
			return session;		/* just in time */
		case ZKL_SESSION_SUSPENDED:
			zklock_raise_connection_lost(display);
			break;
		default:
			break;
	}

	/* What stood in the way of this one may not stand in the next one's. */
	zklock_session_close(ZKLOCK_CLOSE_MS);
	zklock_raise_no_session(display);
}
