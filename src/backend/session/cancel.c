/*-------------------------------------------------------------------------
 *
 * cancel.c
 *		Cancels of the running statement that zklock itself requests.
 *
 * PostgreSQL has one flag for all cancels.  A cancel by zklock must be withdrawn
 * when its reason is gone, because it would hit another statement; a cancel by
 * pg_cancel_backend(), statement_timeout or a recovery conflict must stay.  Two
 * SIGINTs that come shortly after each other are delivered as one.  So zklock uses a signal of its
 * own, and wraps the SIGINT handler to detect other cancels.
 *
 * The functions with the suffix _io run on any thread, zklock_cancel_request_io() also in
 * handlers of signals and timeouts.  Everything else runs on the backend's own thread,
 * to which they only send the signal.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
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

#include "backend/session/session.h"
#include "compat.h"

/* How long after a signal the next one is sent, in ms, while the request is pending. */
#define RETRY_MS 500
#define MAX_RETRY_MS 3600000

static int	own_signal = 0;
static timer_t timer;			/* sends it */
static volatile sig_atomic_t retry_ms = RETRY_MS;
static struct sigaction sigint_before;

/* The session whose lease ends, and whether the timer will fire then or earlier. */
static ZklSession *volatile watched = NULL;
static volatile sig_atomic_t is_deadline_set = false;

/* Also set by the I/O thread. */
static volatile sig_atomic_t requested[ZKLOCK_N_CANCEL_REASONS];

/* The pending cancel was requested only by zklock. */
static volatile sig_atomic_t ours_alone = false;

static volatile sig_atomic_t restricted = false;

/* Number of nested statements that a cancel may end. */
static volatile sig_atomic_t n_running = 0;

/* A command that cannot be undone has committed, and may commit again. */
static volatile sig_atomic_t muted = false;

/* Is a cancel requested for this reason?  A revocation is one under "cancel" alone. */
static bool
is_reason(int reason)
{
	return requested[reason] &&
		(reason != ZKLOCK_CANCEL_REVOCATION || zklock_on_revoke == ZKLOCK_ON_REVOKE_CANCEL);
}

static bool
is_any_requested(void)
{
	for (int i = 0; i < ZKLOCK_N_CANCEL_REASONS; i++)
		if (is_reason(i))
			return true;
	return false;
}

/* Replaces PostgreSQL's handler, which it calls; notes a cancel from elsewhere. */
static void
on_sigint(int signo, siginfo_t *info, void *context)
{
	if (sigint_before.sa_flags & SA_SIGINFO)
		sigint_before.sa_sigaction(signo, info, context);
	else
		sigint_before.sa_handler(signo);
	ours_alone = false;
}

/* A wait for a heavyweight lock checks for a cancel before it ends. */
static bool
is_waiting_for_lock(void)
{
	return MyProc && (MyProc->wait_event_info & 0xFF000000) == PG_WAIT_LOCK;
}

/* Returns whether a program that the backend has started is running. */
static bool
has_children(void)
{
	siginfo_t	info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
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
	if (!requested[ZKLOCK_CANCEL_LOSS] || IsTransactionOrTransactionBlock())
		return;
	HandleCatchupInterrupt();
	SetLatch(MyLatch);			/* 19: done by its caller, PostgreSQL's handler of SIGUSR1 */
}

bool
zklock_is_irreversible(void)
{
	return muted || (*(volatile int *) &MyXactFlags & XACT_FLAGS_NEEDIMMEDIATECOMMIT) != 0;
}

void
zklock_cancel_mute(bool on)
{
	muted = on;
}

/* A loss does not cancel a command that cannot be undone. */
static bool
can_cancel(void)
{
	bool		by_loss_alone = !is_reason(ZKLOCK_CANCEL_REVOCATION) && !is_reason(ZKLOCK_CANCEL_TIMEOUT);

	return !(by_loss_alone && zklock_is_irreversible()) &&
		((n_running > 0 && !restricted) || is_waiting_for_lock());
}

/*
 * Programs that the backend has started get the signal that pg_cancel_backend() would
 * send.  The backend gets it too, and counts it as a cancel from elsewhere.
 */
static void
cancel(void)
{
	if (!QueryCancelPending)
		ours_alone = true;
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
	if ((is_reason(ZKLOCK_CANCEL_LOSS) || is_reason(ZKLOCK_CANCEL_REVOCATION)) &&
		has_children() &&
		kill(-getpid(), SIGINT) != 0)
		(void) kill(getpid(), SIGINT);	/* single-user mode: the process may lead no group */
}

/*
 * A loss is pending until a statement reports it.  PostgreSQL drops the cancel if this
 * statement fails for another reason; and the next one may first wait for a table lock,
 * before any hook is called.  So a loss is always tried again; while the session idles, ever
 * more rarely: the first signal lets it release its local locks, and the others find nothing
 * to do until the next statement.  Returns when to try again; 0: not.
 */
static int64
serve_requests(void)
{
	bool		possible;
	bool		idle;

	if (!is_any_requested() || proc_exit_inprogress)
		return 0;
	possible = can_cancel();
	idle = !possible && is_idle();
	if (possible)
		cancel();
	if (idle && retry_ms == RETRY_MS)
		wake_idle();
	retry_ms = idle ? Min(2 * retry_ms, MAX_RETRY_MS) : RETRY_MS;
	if (requested[ZKLOCK_CANCEL_LOSS] || !(possible || idle))
		return zkl_now_ms() + retry_ms;
	return 0;
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
		requested[ZKLOCK_CANCEL_LOSS] = true;
		retry_ms = RETRY_MS;
	}
	is_deadline_set = deadline > 0;
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
 * Reserves a signal and a timer that sends it to this backend, whose own thread then calls
 * the handler, with SIGINT blocked.
 */
static void
reserve_signal(void)
{
	struct sigaction action = {.sa_handler = on_own_signal, .sa_flags = SA_RESTART};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL};
	int			signo = free_signal();

	event.sigev_signo = signo;
	if (signo == 0 || timer_create(CLOCK_BOOTTIME, &event, &timer) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not reserve a signal and a timer to cancel statements"),
				 errdetail("%m."),
				 errhint("Raise the limit of pending signals of the user that runs the server (ulimit -i).")));
	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGINT);
	sigaction(signo, &action, NULL);
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

void
zklock_cancel_request_io(ZklockCancelReason reason)
{
	requested[reason] = true;
	retry_ms = RETRY_MS;
	(void) kill(getpid(), own_signal);
}

void
zklock_on_loss_io(void)
{
	zklock_cancel_request_io(ZKLOCK_CANCEL_LOSS);
}

void
zklock_on_revoke_io(void)
{
	zklock_cancel_request_io(ZKLOCK_CANCEL_REVOCATION);
}

bool
zklock_cancel_is_requested(ZklockCancelReason reason)
{
	return requested[reason];
}

bool
zklock_cancel_is_only(ZklockCancelReason reason)
{
	for (int i = 0; i < ZKLOCK_N_CANCEL_REASONS; i++)
		if (is_reason(i) != (i == (int) reason))
			return false;
	return ours_alone;
}

bool
zklock_cancel_settle(ZklockCancelReason reason)
{
	sigset_t	all;
	sigset_t	before;
	bool		pending;

	if (!requested[reason])
		return false;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	requested[reason] = false;
	pending = QueryCancelPending;
	if (!is_any_requested())
	{
		if (ours_alone && !zklock_recovery_conflict_cancels())
			QueryCancelPending = false;
		ours_alone = false;
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return pending;
}

int
zklock_cancel_enter(bool may_be_cancelled)
{
	int			outer = n_running;

	n_running = outer + may_be_cancelled;
	return outer;
}

/* A loss that this statement has not reported, as ROLLBACK and BEGIN do not. */
void
zklock_cancel_leave(int outer)
{
	n_running = outer;
	if (outer > 0 || !requested[ZKLOCK_CANCEL_LOSS])
		return;
	retry_ms = RETRY_MS;
	(void) kill(getpid(), own_signal);
}

bool
zklock_cancel_in_statement(void)
{
	return n_running > 0;
}

void
zklock_cancel_restrict(bool on)
{
	restricted = on;
}

/* The deadline is published before the grant: a timer that is set will see the deadline. */
void
zklock_lease_watch(ZklSession *session)
{
	watched = session;
	if (session == NULL)
		is_deadline_set = false;
	else if (!is_deadline_set)
		(void) kill(getpid(), own_signal);
}
