/*-------------------------------------------------------------------------
 *
 * crash_release.c
 *		A background worker closes the sessions that a crash has left.
 *
 * The worker runs at the start of the server, and again after a crash.  It closes the
 * sessions of former processes (session_file.c), when all these processes have gone, so that
 * their locks are free at once.
 *
 * To close a session it resumes it, which needs the session's password.  A session is closed
 * when the ensemble answers that it does not exist.  Until then the worker repeats all of this,
 * but not longer than a session can live without its client.  Resuming a session lets it
 * live for another timeout, so an ensemble that does not close it is asked a few times only.
 *
 * The worker has no credentials.  The address in a note leads to the ensemble of some database
 * or role, or to the server's former one: the password of the present settings is not for it.
 * ZooKeeper asks for none to end a session.  With TLS a client usually has to show a certificate:
 * the worker shows the one that the session showed to the same address.
 *
 * Then the worker sleeps until the server stops.  PostgreSQL forgets a worker that ends with 0,
 * and at a crash also one that is never to be started again; one that ends with 1 writes a
 * line into the log that looks like a failure.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#include "backend/base/credentials.h"
#include "backend/session/crash.h"
#include "backend/session/session.h"
#include "recipe/recipe.h"

/* Sessions at a time: each has a thread and some descriptors. */
#define BATCH 64

/* In seconds, after an error of the worker itself, for which there is no known cause. */
#define RESTART 3600

/*
 * How long a batch may take, and the pause before the next attempt.  A client needs up to three
 * seconds to give up a silent server, before it tries the next one.
 */
#define BATCH_MS 10000
#define PAUSE_MS 200

/* How often a session is resumed to close it. */
#define MAX_RESUMED 3

/* How often the worker looks at the state of a batch. */
#define POLL_MS 5

/* The time of the last answers, when threads are to end (LAST_ANSWER_MS in zk_client.c). */
#define LAST_ANSWERS_MS 2000

typedef struct Batch
{
	int			n;
	ZklockSessionNote *notes;
	ZklSession *sessions[BATCH];	/* or NULL */
} Batch;

typedef struct CrashRelease
{
	int64		busy_ms;		/* when former processes existed last, or the worker started */
	int			n_closed;
	bool		is_repeated;	/* all files have been looked at */
} CrashRelease;

PGDLLEXPORT void zklock_release_after_crash(Datum arg);


#define FOR_EVER (-1)

/* Returns false if the worker is to end. */
static bool
sleep_ms(long ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | (ms == FOR_EVER ? 0 : WL_TIMEOUT) | WL_EXIT_ON_PM_DEATH,
					 ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	return !ShutdownRequestPending;
}

/* Returns NULL if it cannot be opened now. */
static ZklSession *
open_noted_session(const ZklockSessionNote *note)
{
	ZklSessionConfig config = {
		.connect_string = note->connect_string,
		.root = "/",
		.session_timeout_ms = note->timeout_ms,
		.tls = note->tls[0] ? note->tls : NULL,
		.max_nodes = 1,
		.resumed = note->key,
	};

	return zklock_tls_files_are_readable(note->tls) ? zkl_session_open(&config) : NULL;
}

/*
 * Is it decided what becomes of the batch?  Closes the sessions that are resumed, and removes
 * the keys of those that do not exist.
 */
static bool
check_sessions(CrashRelease *release, Batch *batch)
{
	bool		all_decided = true;

	for (int i = 0; i < batch->n; i++)
	{
		ZklSession *session = batch->sessions[i];
		ZklockSessionNote *note = &batch->notes[i];
		ZklSessionState state;

		if (session == NULL)
			continue;
		state = zkl_session_state(session);
		if (state == ZKL_SESSION_CONNECTING || state == ZKL_SESSION_SUSPENDED)
		{
			all_decided = false;
			continue;
		}
		if (state == ZKL_SESSION_EXPIRED)
		{
			release->n_closed += note->n_resumed > 0;
			note->key.id = 0;
		}
		else
			note->n_resumed++;
		zkl_session_close(session, 0);
		batch->sessions[i] = NULL;
	}
	return all_decided;
}

static void
wait_for_threads(void)
{
	for (int ms = 0; zkl_threads_are_running() && ms < LAST_ANSWERS_MS && sleep_ms(POLL_MS); ms += POLL_MS)
		;
}

/* Tries to close these sessions. */
static void
close_batch(CrashRelease *release, ZklockSessionNote *notes, int n)
{
	Batch		batch = {.n = n,.notes = notes};
	int64		until = zkl_now_ms() + BATCH_MS;

	for (int i = 0; i < n; i++)
		batch.sessions[i] = open_noted_session(&notes[i]);
	while (!check_sessions(release, &batch) && zkl_now_ms() < until && sleep_ms(POLL_MS))
		;
	for (int i = 0; i < n; i++)
		if (batch.sessions[i])
			zkl_session_close(batch.sessions[i], 0);
	wait_for_threads();
}

/* Returns when the sessions have ended without us. */
static int64
lifetime_ms(const ZklockSessionNote *notes, int n)
{
	int64		longest = 0;

	for (int i = 0; i < n; i++)
		if (notes[i].key.id != 0)
			longest = Max(longest, notes[i].timeout_ms);
	return longest * 2;
}

/* Gives up sessions that cannot be closed.  Returns how many are left to be tried again. */
static int
give_up(const CrashRelease *release, ZklockSessionNote *notes, int n)
{
	bool		is_late = zkl_now_ms() - release->busy_ms > lifetime_ms(notes, n);
	int			n_left = 0;
	int			n_given_up = 0;

	for (int i = 0; i < n; i++)
		if (notes[i].key.id == 0)
			continue;
		else if (is_late || notes[i].n_resumed >= MAX_RESUMED)
			n_given_up++;
		else
			notes[n_left++] = notes[i];
	if (n_given_up > 0)
		ereport(LOG,
				(errmsg("could not close %d ZooKeeper sessions of former processes", n_given_up),
				 errdetail("Their locks are free when they expire.")));
	return n_left;
}

/* Closes the sessions that are noted in a file which all its processes have left. */
static ZklockFormerResult
close_noted(CrashRelease *release, const char *path, ZklockSessionNote *notes, int n)
{
	int			n_left;

	for (int i = 0; i < n && !ShutdownRequestPending; i += BATCH)
		close_batch(release, &notes[i], Min(n - i, BATCH));
	n_left = give_up(release, notes, n);
	if (n_left > 0)
		zklock_write_former_file(path, notes, n_left);
	pfree(notes);
	return n_left > 0 ? ZKLOCK_FORMER_AGAIN : ZKLOCK_FORMER_DONE;
}

static ZklockFormerResult
process_file(const char *path, void *arg)
{
	CrashRelease *release = arg;
	ZklockSessionNote *notes;
	int			n;

	if (ShutdownRequestPending)
		return ZKLOCK_FORMER_LEAVE;
	switch (zklock_read_former_file(path, &notes, &n))
	{
		case ZKLOCK_FORMER_FREE:
			return close_noted(release, path, notes, n);
		case ZKLOCK_FORMER_IN_USE:
			release->busy_ms = zkl_now_ms();
			return ZKLOCK_FORMER_AGAIN;
		case ZKLOCK_FORMER_FOREIGN:
			return ZKLOCK_FORMER_DONE;
		case ZKLOCK_FORMER_UNREADABLE:
			break;
	}
	ereport(release->is_repeated ? DEBUG1 : LOG,
			(errcode_for_file_access(),
			 errmsg("could not read file \"%s\": %m", path),
			 errdetail("The locks of the server's former processes that are noted in it end with their session timeout."),
			 errhint("The server must own the file.")));
	return ZKLOCK_FORMER_LEAVE;
}

void
zklock_release_after_crash(Datum arg)
{
	CrashRelease release = {.busy_ms = zkl_now_ms()};

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	while (zklock_former_files(process_file, &release) && sleep_ms(PAUSE_MS))
		release.is_repeated = true;
	if (release.n_closed > 0)
		ereport(LOG,
				(errmsg("closed %d ZooKeeper sessions of processes that have crashed", release.n_closed)));
	while (!ShutdownRequestPending)
		(void) sleep_ms(FOR_EVER);
	zklock_skip_exit_cleanup(1);
	proc_exit(1);
}

void
zklock_register_crash_release(void)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS,
		.bgw_start_time = BgWorkerStart_PostmasterStart,
		.bgw_restart_time = RESTART,
		.bgw_name = "zklock crash release",
		.bgw_type = "zklock crash release",
		.bgw_library_name = "zklock",
		.bgw_function_name = "zklock_release_after_crash",
	};

	RegisterBackgroundWorker(&worker);
}
