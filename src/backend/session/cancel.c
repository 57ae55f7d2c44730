/*-------------------------------------------------------------------------
 *
 * cancel.c
 *		Cancels of the running statement that zklock itself requests.
 *
 * The problem
 * -----------
 * A lock can be lost at any moment, and then the statement that relies on it must end soon.  The I/O
 * thread notices the loss; or nobody does, because this thread is late itself.  PostgreSQL ends
 * a statement when the backend's own thread finds QueryCancelPending set.  But:
 *
 * 1. There is one flag for all cancels.  One of ours must be withdrawn when its reason is gone,
 *    because it would hit another statement; one by pg_cancel_backend(), a timeout or a recovery
 *    conflict must stay.  SIGINT cannot tell them apart: two of them that come shortly after
 *    each other are delivered as one.
 * 2. PostgreSQL drops a cancel that comes while the session waits for its client, and one
 *    whose statement fails for another reason.  The loss stays.
 * 3. A cancel does harm at some moments: between a client's message and its statement it would fail
 *    BEGIN, COMMIT and ROLLBACK; behind the commit record it would end the wait for a synchronous
 *    standby; and it would end a command that cannot be undone, such as VACUUM, half done.
 * 4. PostgreSQL's own timeouts cannot watch a lease.  They end with each error, they must not
 *    be set in a handler or in another thread, and their clock stops while the machine is suspended.
 *
 * The way it is done
 * ------------------
 * A request is a word that any thread may set, one for each reason: a loss, and the end of
 * a timed attempt.  Then a signal of our own goes to the backend's thread, whose handler decides
 * what the request may do now; and a timer sends the same signal when the lease ends, so the
 * I/O thread need not be alive.  The handler decides by the phase, in this order:
 *
 *	MUTED		a command that cannot be undone has committed, and may commit again: no loss
 *				cancels anything.  The same holds while PostgreSQL's mark of such a command is set.
 *	waits		the backend waits for a heavyweight lock: cancelled in every other phase,
 *				because such a wait checks for cancels, and fails no command behind its back.  It may be
 *				that of parse analysis, of a deferred trigger, or of NOTIFY's queue at commit.
 *	RESTRICTED	from the check at commit to the end of the transaction: nothing else is cancelled.
 *	RUNNING		a statement runs that may be cancelled: so it is.
 *	IDLE		outside of statements: nothing.  If the backend waits for its client, it runs an
 *				empty transaction once, to release the local locks of what is lost.
 *
 * The timeout of an attempt is requested only during the attempt's wait, and is no loss: it
 * cancels in every phase.
 *
 * Invariants
 * ----------
 * - A request is set by any thread, and cleared by the backend's own thread alone, in
 *   zklock_cancel_settle(), before it looks at the reason: what comes later stays.
 * - QueryCancelPending is set for us only in our handler, with SIGINT blocked, and cleared for us only
 *   in zklock_cancel_settle(), with all signals blocked; both in the backend's thread.  It is cleared only
 *   if "is_own": our handler has set it, and no SIGINT came since, whatever came and was raised before.
 * - "source" is ZKLOCK only if every cancel since QueryCancelPending was clear came from the handler, and
 *   none from elsewhere since a statement, also a nested one, or a timed attempt began, or a lock was granted.
 *   PostgreSQL clears QueryCancelPending when it raises the error of a cancel; one of ours that comes while
 *   the error of another is on its way to the hooks does not make it ours: a statement that a handler
 *   executes before it raises that error again forgets where it came from, and "is_unraised" says that ours
 *   is still to be raised.  So a cancel that is withdrawn, or taken for a loss or a timeout, is nobody else's.
 *   What remains is a handler of a user's cancel in which one of ours ends an expression, and is caught: if
 *   no statement follows before the handler raises the user's cancel again, that counts as ours.
 * - While a loss is requested, a next signal is on its way: within RETRY_MS, or four times that while
 *   the session idles.
 * - A statement inside another one leaves the phase alone, or raises it from IDLE to RUNNING; and
 *   each restores what it has found, also after an error.
 *
 * The functions with the suffix _io run on any thread, zklock_cancel_request_io() also in
 * handlers of signals and timeouts.  Everything else runs on the backend's own thread.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/sinval.h"
#include "utils/wait_event.h"

#include "backend/session/interrupt.h"
#include "recipe/recipe.h"
#include "compat.h"

/* How long after a signal the next one is sent, in ms, while a loss is requested. */
#define RETRY_MS 500
#define MAX_DOUBLINGS 2			/* while the session idles: 2 s */

/* Not defined by all versions of glibc that have SIGEV_THREAD_ID. */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static int	own_signal = 0;
static timer_t timer;			/* sends it */
static pthread_t own_thread;
static struct sigaction sigint_before;

/* Where the cancel came from that is pending, or was raised last. */
typedef enum CancelSource
{
	UNKNOWN,
	ZKLOCK,						/* from zklock alone */
	ELSEWHERE
} CancelSource;

static volatile struct
{
	sig_atomic_t requested[ZKLOCK_N_CANCEL_REASONS];
	sig_atomic_t is_new;		/* a loss was requested since the last signal */
	sig_atomic_t phase;			/* ZklockPhase */
	sig_atomic_t source;		/* CancelSource */
	sig_atomic_t is_own;		/* the cancel that is pending is from ZKLOCK alone; valid while one is pending */
	sig_atomic_t is_unraised;	/* no error of one from ZKLOCK has been raised; valid while one is pending */
	sig_atomic_t n_idle;		/* signals in a row that found the session idle */
	sig_atomic_t is_deadline_set;	/* the timer will fire at the end of the lease, or earlier */
}			state;

/* The session whose lease ends. */
static ZklSession *volatile watched = NULL;

/* Replaces PostgreSQL's handler, which it calls; notes a cancel from elsewhere. */
static void
on_sigint(int signo, siginfo_t *info, void *context)
{
	if (sigint_before.sa_flags & SA_SIGINFO)
		sigint_before.sa_sigaction(signo, info, context);
	else
		sigint_before.sa_handler(signo);
	state.source = ELSEWHERE;
	state.is_own = false;
}

/* A wait for a heavyweight lock checks for a cancel before it ends. */
static bool
is_waiting_for_lock(void)
{
	return MyProc && (MyProc->wait_event_info & 0xFF000000) == PG_WAIT_LOCK;
}

/* Returns whether a program that the backend has started is running.  One that has ended does not count. */
static bool
has_children(void)
{
	siginfo_t	info;

	return waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0;
}

/* Outside of statements: returns whether the backend waits for the next one. */
static bool
is_idle(void)
{
	return MyProc && MyProc->wait_event_info == WAIT_EVENT_CLIENT_READ;
}

/*
 * An idle session reports a loss with its next statement, which may never come.  Until
 * then the local lock of a lost lock would block the sessions of this server.  So the
 * backend runs one empty transaction, as PostgreSQL lets it do to read invalidations, and
 * the end of a transaction releases these local locks.  Inside a transaction block nothing
 * runs before the next statement.
 */
static void
wake_idle(void)
{
	if (IsTransactionOrTransactionBlock())
		return;
	HandleCatchupInterrupt();
	SetLatch(MyLatch);			/* 19: done by its caller, PostgreSQL's handler of SIGUSR1 */
}

ZklockPhase
zklock_phase(void)
{
	return (ZklockPhase) state.phase;
}

void
zklock_set_phase(ZklockPhase phase)
{
	state.phase = phase;
}

/* A SIGINT that is pending is handled later, and counts. */
void
zklock_cancel_begin(void)
{
	sigset_t	all;
	sigset_t	before;

	if (state.source == UNKNOWN)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (!QueryCancelPending)
	{
		state.source = UNKNOWN;
		state.is_own = false;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* No hook runs between PostgreSQL's mark and the first commit of the command. */
bool
zklock_is_irreversible(void)
{
	return state.phase == ZKLOCK_MUTED ||
		(*(volatile int *) &MyXactFlags & XACT_FLAGS_NEEDIMMEDIATECOMMIT) != 0;
}

static bool
can_cancel_for_loss(void)
{
	return !zklock_is_irreversible() &&
		(is_waiting_for_lock() || state.phase == ZKLOCK_RUNNING);
}

static void
cancel(void)
{
	if (!QueryCancelPending)
	{
		state.is_own = true;
		if (state.source != ELSEWHERE)
		{
			state.is_unraised = state.source == UNKNOWN;
			state.source = ZKLOCK;
		}
	}
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

/*
 * Programs that the backend has started get the signal that pg_cancel_backend() would
 * send.  The backend gets it too, and counts it as a cancel from elsewhere.
 */
static void
cancel_children(void)
{
	if (has_children() && kill(-getpid(), SIGINT) != 0)
		(void) kill(getpid(), SIGINT);	/* single-user mode: the process may lead no group */
}

/*
 * A loss is requested until a statement reports it.  PostgreSQL drops the cancel if this
 * statement fails for another reason; and the next one may first wait for a table lock,
 * before any hook is called.  So a loss is always tried again; while the session idles, more
 * rarely: the first signal lets it release its local locks, and the others find nothing
 * to do until the next statement.  Returns when to try again; 0: not.
 */
static int64
serve_requests(void)
{
	if (proc_exit_inprogress)
		return 0;
	if (state.requested[ZKLOCK_CANCEL_TIMEOUT])
		cancel();
	if (!state.requested[ZKLOCK_CANCEL_LOSS])
		return 0;
	if (state.is_new)
	{
		state.is_new = false;
		state.n_idle = 0;
	}
	if (can_cancel_for_loss())
	{
		state.n_idle = 0;
		cancel();
		cancel_children();
	}
	else if (is_idle())
	{
		if (state.n_idle == 0)
			wake_idle();
		state.n_idle = Min(state.n_idle + 1, MAX_DOUBLINGS);
	}
	else
		state.n_idle = 0;
	return zkl_now_ms() + ((int64) RETRY_MS << state.n_idle);
}

/*
 * Returns when the lease of what this session holds ends; 0: not.  Then requests a cancel.
 *
 * The I/O thread may notice late that the lease has expired: it waits for names, for
 * handshakes and for the library's mutex.  So the backend has a timer of its own, whose
 * signal interrupts whatever it does.  PostgreSQL's timeouts do not suffice: they end with
 * an error, and their clock does not count the time for which the machine is suspended.
 *
 * Each confirmed write moves the deadline, but not the timer, which looks at the deadline
 * when it fires.  So a grant costs no system call while the timer is set.
 */
static int64
check_deadline(void)
{
	int64		deadline = watched ? zkl_session_deadline_io(watched) : 0;

	if (deadline < 0)
	{
		watched = NULL;
		state.requested[ZKLOCK_CANCEL_LOSS] = true;
		state.is_new = true;
	}
	state.is_deadline_set = deadline > 0;
	return Max(deadline, 0);
}

/* Handles zklock's signal; SIGINT is blocked meanwhile. */
static void
on_own_signal(int signo)
{
	int			save_errno = errno;
	int64		deadline = check_deadline();
	int64		retry_at = serve_requests();
	int64		next = deadline == 0 || (retry_at != 0 && retry_at < deadline) ? retry_at : deadline;
	struct itimerspec at = {
		.it_value.tv_sec = next / 1000,
		.it_value.tv_nsec = next % 1000 * 1000000L,
	};

	/* A time of 0 stops the timer. */
	timer_settime(timer, TIMER_ABSTIME, &at, NULL);
	errno = save_errno;
}

/* Returns the highest real-time signal that is not in use, or 0. */
static int
free_signal(void)
{
	struct sigaction action;

	for (int signo = SIGRTMAX; signo >= SIGRTMIN; signo--)
		if (sigaction(signo, NULL, &action) == 0 && action.sa_handler == SIG_DFL)
			return signo;
	errno = EAGAIN;
	return 0;
}

/*
 * Reserves a signal, whose handler runs with SIGINT blocked, and a timer that sends it to this
 * thread: another library may have threads that do not block signals.
 */
static void
reserve_signal(void)
{
	struct sigaction action = {.sa_handler = on_own_signal, .sa_flags = SA_RESTART};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID};
	int			signo = free_signal();

	event.sigev_signo = signo;
	event.sigev_notify_thread_id = (pid_t) syscall(SYS_gettid);
	if (signo == 0 || timer_create(CLOCK_BOOTTIME, &event, &timer) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not reserve a signal and a timer to cancel statements"),
				 errdetail("%m."),
				 errhint("Raise the limit of pending signals of the user that runs the server (ulimit -i).")));
	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGINT);
	sigaction(signo, &action, NULL);
	own_thread = pthread_self();
	own_signal = signo;
}

/* Background workers may have their own handler, or ignore the signal. */
static void
wrap_sigint(void)
{
	struct sigaction action;

	sigaction(SIGINT, NULL, &sigint_before);
	if (sigint_before.sa_handler == SIG_IGN || sigint_before.sa_handler == SIG_DFL)
		return;
	action = sigint_before;
	action.sa_flags |= SA_SIGINFO;
	action.sa_sigaction = on_sigint;
	sigaction(SIGINT, &action, NULL);
}

void
zklock_cancel_init(void)
{
	if (own_signal != 0)
		return;
	reserve_signal();
	wrap_sigint();
}

/*
 * A real-time signal to a thread is refused when the user has used up RLIMIT_SIGPENDING; one
 * to the process never is.  The timer's signal is allocated with the timer.
 */
static void
signal_backend(void)
{
	if (pthread_kill(own_thread, own_signal) == EAGAIN)
		(void) kill(getpid(), own_signal);
}

void
zklock_cancel_request_io(ZklockCancelReason reason)
{
	state.requested[reason] = true;
	state.is_new = true;
	signal_backend();
}

void
zklock_on_loss_io(void)
{
	zklock_cancel_request_io(ZKLOCK_CANCEL_LOSS);
}

bool
zklock_cancel_is_requested(ZklockCancelReason reason)
{
	return state.requested[reason];
}

/* Returns whether a cancel of ours is pending, and no other of ours has been raised before. */
static bool
is_to_be_raised(void)
{
	return QueryCancelPending && state.is_unraised;
}

bool
zklock_cancel_is_ours(void)
{
	return state.source == ZKLOCK && !is_to_be_raised();
}

bool
zklock_is_timeout(void)
{
	return state.requested[ZKLOCK_CANCEL_TIMEOUT] && state.source == ZKLOCK;
}

/* "is_unseen": our hooks may still have to see the error of a cancel of ours. */
static void
settle(ZklockCancelReason reason, bool is_unseen)
{
	sigset_t	all;
	sigset_t	before;

	if (!state.requested[reason])
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	state.requested[reason] = false;
	if (!state.requested[ZKLOCK_CANCEL_TIMEOUT])
	{
		if (state.source == ZKLOCK &&
			(is_to_be_raised() || !(is_unseen || state.requested[ZKLOCK_CANCEL_LOSS])))
			state.source = UNKNOWN;
		if (state.is_own && !zklock_recovery_conflict_cancels())
			QueryCancelPending = state.is_own = false;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void
zklock_cancel_settle(ZklockCancelReason reason)
{
	settle(reason, false);
}

void
zklock_cancel_withdraw_loss(void)
{
	settle(ZKLOCK_CANCEL_LOSS, true);
}

void
zklock_cancel_retry(void)
{
	if (!state.requested[ZKLOCK_CANCEL_LOSS])
		return;
	state.is_new = true;
	signal_backend();
}

/* The deadline is published before the grant: a timer that is set will see the deadline. */
void
zklock_lease_watch(ZklSession *session)
{
	watched = session;
	if (session == NULL)
	{
		state.is_deadline_set = false;
		return;
	}
	zklock_cancel_begin();
	if (!state.is_deadline_set)
		signal_backend();
}
