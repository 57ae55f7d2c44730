/*-------------------------------------------------------------------------
 *
 * session.h
 *		The ZooKeeper session of this backend, the wait loop, cancels and errors; what all
 *		backends share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_H
#define ZKLOCK_SESSION_H

#include "backend/base/base.h"
#include "backend/session/call.h"


/*
 * The one loop in which a backend sleeps (wait.c)
 */

/* Wait events, shown in pg_stat_activity since PostgreSQL 17. */
typedef enum ZklockWaitEvent
{
	ZKLOCK_WAIT_ANSWER,
	ZKLOCK_WAIT_CONNECT,
	ZKLOCK_WAIT_LOCK,
	ZKLOCK_WAIT_COMMIT_CHECK
} ZklockWaitEvent;

/* Sets the wait event; called by a ZklockWaitIsDone.  The default is ZKLOCK_WAIT_ANSWER. */
extern void zklock_wait_is_for(ZklockWaitEvent event);

/*
 * Returns whether the wait is over.  If not, *check_again is the latest time for the next
 * call (zkl_now_ms()); a change of the session causes an earlier call.
 */
typedef bool (*ZklockWaitIsDone) (void *arg, int64 *check_again);

/*
 * Sleeps until the wait is over.  Throws when interrupted (cancel, termination, timeouts,
 * loss of the client); the caller cleans up.  Exits the process if the postmaster has
 * died.
 */
extern void zklock_wait(ZklSession *session, ZklockWaitIsDone is_done, void *arg);

/* Called before the session is closed. */
extern void zklock_drop_wait_set(void);

/* Called while a statement runs: notes when statement_timeout will end it. */
extern void zklock_note_statement_timeout(void);

/*
 * Returns when the statement_timeout of the statement would have ended it (zkl_now_ms()), or
 * ZKLOCK_NEVER.  For waits at commit: PostgreSQL disables the timeout just before.
 */
extern int64 zklock_statement_deadline(void);


/*
 * Translates a status of the recipe layer into an error of PostgreSQL (errors.c)
 */

/* The error context of a call: messages say "could not <action>". */
typedef struct ZklockAction
{
	const char *format;			/* for psprintf(); may use "display" */
	const char *display;		/* name of the lock or semaphore */
} ZklockAction;

#define ZKLOCK_ACTION_LOCK(name) \
	((ZklockAction) {.format = "lock \"%s\"", .display = (name)})
#define ZKLOCK_ACTION_PERMIT(name) \
	((ZklockAction) {.format = "acquire a permit of semaphore \"%s\"", .display = (name)})

/*
 * An ErrorContextCallback.  The errors of PostgreSQL that end a wait do not name the lock;
 * their context does.
 */
extern void zklock_name_action(void *action);

/* Why an action failed. */
typedef struct ZklockProblem
{
	int			sqlstate;		/* 0: no problem */
	const char *reason;
	const char *hint;
	const char *detail;			/* or NULL */
} ZklockProblem;

/* Returns the problem for a status; "raw_code" is the client library's code, or 0. */
extern ZklockProblem zklock_problem_of(ZklStatus status, int raw_code);

/* No session within this time, perhaps because of TLS: 08001. */
extern ZklockProblem zklock_no_session(bool failed_at_tls, int64 waited_ms);

/* No answer in the session within this time: 08006. */
extern ZklockProblem zklock_no_answer(ZklSession *session, int64 waited_ms);

/* Only for calls that read the queues (cluster.c). */
extern const ZklockProblem zklock_session_expired;
extern const ZklockProblem zklock_too_many_znodes;

extern _Noreturn void zklock_fail(const ZklockAction *action, ZklockProblem problem);

/* For ZKL_DEADLOCK.  "rival" is the data of the other session's node, or "". */
extern _Noreturn void zklock_raise_upgrade_deadlock(const ZklockAction *action,
													const char *rival);

/* Raises an ERROR for the status of a failed request. */
extern _Noreturn void zklock_raise(ZklStatus status, const ZklockAction *action,
								   int raw_code);


/*
 * The ZooKeeper session of this backend (backend_session.c)
 */

/* Returns the session, in any state, or NULL.  Never throws or connects. */
extern ZklSession *zklock_session_current(void);

/*
 * Returns the session, connected.  Opens it if there is none.  Waits, interruptibly, until
 * zklock_call_end(): then returns NULL if the call's timeout has passed, otherwise throws; also
 * 08001, 08006, 28000, F0000.  If the session is lost and locks are held, returns it as it is,
 * for zklock_check_loss().
 */
extern ZklSession *zklock_session_ready(const ZklockAction *action, ZklockCall *call);

/* Returns whether the session is in a final state: expired, or credentials refused. */
extern bool zklock_session_is_lost(ZklSession *session);

/*
 * Returns a hash of ensemble and root.  Locks of one name in different namespaces are
 * different locks.
 */
extern uint64 zklock_session_namespace(void);

/*
 * Closes the session.  Blocks uninterruptibly for at most timeout_ms.  Its locks are
 * released; the caller removes them from the hold table.  Never throws.
 */
extern void zklock_session_close(int timeout_ms);

/*
 * Called after a grant.  Warns once per session if zklock.acl is "creator" and others can
 * change a znode above the locks.
 */
extern void zklock_warn_open_parents(void);

/*
 * Called at exit, after the sessions are closed: if a thread still runs, ends the process with this
 * code before any cleanup by exit().  The thread, of a session in an outage for example, may be
 * inside a library that exit() cleans up, such as OpenSSL.
 */
extern void zklock_exit_with_threads(int code);

/* Called after the ensemble granted a lock or permit; set by lifecycle.c.  Does not throw. */
extern void (*zklock_after_grant) (void);

/* Enough for the I/O thread to end and for a connected server to answer. */
#define ZKLOCK_CLOSE_MS 2000


/*
 * Cancels of the running statement that zklock itself requests (cancel.c)
 */

typedef enum ZklockCancelReason
{
	ZKLOCK_CANCEL_LOSS,			/* a lock may be lost */
	ZKLOCK_CANCEL_TIMEOUT,		/* a timed attempt has reached its timeout */
	ZKLOCK_N_CANCEL_REASONS
} ZklockCancelReason;

/* What a loss may end now; cancel.c explains it. */
typedef enum ZklockPhase
{
	ZKLOCK_IDLE,				/* no statement runs that may be cancelled */
	ZKLOCK_RUNNING,				/* one does */
	ZKLOCK_RESTRICTED,			/* the transaction is being committed */
	ZKLOCK_MUTED				/* a command that cannot be undone has committed */
} ZklockPhase;

/* Prepares this backend for requests; does nothing when called again.  Throws 53000. */
extern void zklock_cancel_init(void);

/*
 * Cancels the running statement and the programs that it has started.  Called in any
 * thread, and by handlers of signals and timeouts.  The request stays until it is
 * settled, even if PostgreSQL drops the cancel because the session is idle.
 */
extern void zklock_cancel_request_io(ZklockCancelReason reason);

/* The same for a loss, for ZklSessionConfig. */
extern void zklock_on_loss_io(void);

extern bool zklock_cancel_is_requested(ZklockCancelReason reason);

/* Returns whether a timeout is the only reason, and no cancel came from anywhere else. */
extern bool zklock_is_timeout_alone(void);

/*
 * Settles a request: its reason is being handled.  If no other reason is left, withdraws
 * the pending cancel, unless a cancel also came from elsewhere.  Call this before examining
 * the reason, so that a later request stays.  Never throws.
 */
extern void zklock_cancel_settle(ZklockCancelReason reason);

/* A loss is still requested although a statement has ended: tries again at once. */
extern void zklock_cancel_retry(void);

/* Set by the hooks of lifecycle.c alone. */
extern ZklockPhase zklock_phase(void);
extern void zklock_set_phase(ZklockPhase phase);

/* Does a command run or commit that cannot be undone?  Async-signal-safe. */
extern bool zklock_is_irreversible(void);

/*
 * Called after each grant: watches the deadline of what this session holds, and requests a
 * cancel for the loss when it has passed.  NULL: called before the session is closed.
 */
extern void zklock_lease_watch(ZklSession *session);


/*
 * Requests by others to release a lock, and what the holder does (revoke.c)
 */

/* For ZklSessionConfig; called in any thread. */
extern void zklock_on_revoke_io(void);

/* Raises a NOTICE for requests for release since the last call. */
extern void zklock_report_revocation(void);

/* Returns whether release of this session's lock was requested.  No network. */
extern bool zklock_is_revoked(const ZklockName *name);


/*
 * The sessions and permits that backends show each other; counters for the view zk_stat
 * (shared_memory.c)
 */

/* Called once, from _PG_init(), in the postmaster. */
extern void zklock_install_shared_memory(void);

/*
 * Shows this backend's ZooKeeper session, with zklock_session_namespace().  Throws 58000 if
 * another backend has the same session.
 */
extern void zklock_show_session(ZklSession *session, uint64 namespace_hash);

/* When this memory was made: the start of the server, or its last crash. */
extern TimestampTz zklock_memory_made_at;

/*
 * Hides the session and its permits, if they are shown.  Others may wait for the nodes of a
 * closed session until the ensemble removes them, but not for this backend.  Never throws.
 */
extern void zklock_hide_session(void);

/* Does this process of the server show this ZooKeeper session? */
extern bool zklock_has_session(int pid, int64 session_id);

/*
 * Shows that this backend has or requests the permit; called after zklock_show_session() and
 * before the node is created.  May throw 53400; hiding a permit neither throws nor waits.
 */
extern void zklock_show_permit(ZklockHold *hold);
extern void zklock_hide_permit(ZklockHold *hold);

/*
 * Where this backend's session shows the number of its pending deletes, for others; set to 0.
 */
extern uint32 *zklock_show_pending_deletes(void);

/*
 * Returns whether a node of this session, for the lock or semaphore that this backend waits for, can be a pending
 * delete: the session has some, or it has ended.  0 is no session.  The namespace is that of this backend.
 */
extern bool zklock_may_have_released(int64 session_id, uint64 namespace_hash);

typedef struct ZklockShownSession
{
	int			pid;
	int64		session_id;
	uint64		namespace_hash; /* of ensemble and root */
} ZklockShownSession;

typedef struct ZklockShownPermit
{
	int			pid;
	uint64		semaphore;		/* zklock_name_hash() */
	int			count;
} ZklockShownPermit;

typedef struct ZklockShown
{
	ZklockShownSession *sessions;
	int			n_sessions;
	ZklockShownPermit *permits;
	int			n_permits;
} ZklockShown;

/* Copies all that the backends of this server show; palloc'd. */
extern void zklock_copy_shown(ZklockShown *copy);

/* Counters */

typedef enum ZklockStat
{
	ZKLOCK_STAT_ACQUISITIONS,
	ZKLOCK_STAT_WAITS,
	ZKLOCK_STAT_WAIT_MS,
	ZKLOCK_STAT_TIMEOUTS,
	ZKLOCK_STAT_CANCELS,
	ZKLOCK_STAT_DEADLOCKS,
	ZKLOCK_STAT_SESSIONS_OPENED,
	ZKLOCK_STAT_SESSIONS_LOST,
	ZKLOCK_STAT_LOCKS_LOST,
	ZKLOCK_STAT_COMMITS_REFUSED,
	ZKLOCK_STAT_REVOCATIONS,
	ZKLOCK_N_STATS
} ZklockStat;

/* Neither throws nor waits nor allocates. */
extern void zklock_count(ZklockStat stat, int64 n);


/*
 * The file with the ZooKeeper sessions of this server's backends (session_file.c)
 *
 * Each backend notes its session before it creates nodes, and removes the note after it has
 * closed the session.  After a crash, crash_release.c closes the sessions that are still
 * noted.  A role that can read the file can end these sessions: doc/security.md.
 */

/* With longer texts a session is not noted: after a crash it lasts for its timeout. */
#define ZKLOCK_NOTE_TEXT 496

/* Has no secret but the session's own key, and no name of a file with a password. */
typedef struct ZklockSessionNote
{
	int32		n_resumed;		/* how often it was resumed to close it */
	int32		timeout_ms;		/* of the session */
	ZklSessionKey key;			/* the ensemble refuses one that is damaged */
	char		connect_string[ZKLOCK_NOTE_TEXT];
	char		tls[ZKLOCK_NOTE_TEXT];	/* zklock_tls_files(), or empty */
} ZklockSessionNote;

/*
 * In the postmaster, while no process of this server uses shared memory: sets the former file
 * aside, and creates a new one.  A failure is logged, and then nothing is noted.
 */
extern void zklock_init_session_file(void);

/* Notes this backend's session; any number of times.  Does not throw. */
extern void zklock_note_session(ZklSession *session);
extern void zklock_forget_session(void);

typedef enum ZklockFormerFile
{
	ZKLOCK_FORMER_FREE,			/* all processes that had the file open are gone */
	ZKLOCK_FORMER_IN_USE,
	ZKLOCK_FORMER_FOREIGN,		/* not written by processes of this server since the machine's boot */
	ZKLOCK_FORMER_UNREADABLE	/* errno has the reason */
} ZklockFormerFile;

typedef enum ZklockFormerResult
{
	ZKLOCK_FORMER_DONE,			/* remove the file */
	ZKLOCK_FORMER_AGAIN,		/* look at it again, soon */
	ZKLOCK_FORMER_LEAVE			/* to the next start of the server */
} ZklockFormerResult;

/*
 * Calls back for each file that was set aside.  Returns whether one of them needs another
 * look.  Does not throw.
 */
extern bool zklock_former_files(ZklockFormerResult (*process) (const char *path, void *arg), void *arg);

/* Reads a file that was set aside.  If it is free, *notes has what is left, palloc'd. */
extern ZklockFormerFile zklock_read_former_file(const char *path, ZklockSessionNote **notes, int *n);

/* Replaces the notes of a free file by those that are left.  Does not throw. */
extern void zklock_write_former_file(const char *path, const ZklockSessionNote *notes, int n);


/*
 * A background worker closes the sessions that a crash has left (crash_release.c)
 */

/* In _PG_init(). */
extern void zklock_register_crash_release(void);

#endif							/* ZKLOCK_SESSION_H */
