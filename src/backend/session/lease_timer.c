/*-------------------------------------------------------------------------
 *
 * lease_timer.c
 *		Cancels the running statement when the session is not proven in time.
 *
 * The I/O thread may notice late that time is over: it waits for names, for handshakes and
 * for the library's mutex.  So the backend has a timer of its own, whose signal interrupts
 * whatever it does.  PostgreSQL's timeouts do not suffice: they end with an error, and
 * their clock does not count the time for which the machine is suspended.
 *
 * Each confirmed write moves the deadline, but not the timer, which looks at the deadline
 * when it rings.  So a grant costs no system call while the timer is set.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <time.h>

#include "backend/session/cancel.h"
#include "backend/session/lease_timer.h"

static int	timer_signal = 0;
static timer_t lease_timer;
static ZklSession *volatile watched = NULL;
static volatile sig_atomic_t is_set = false;

static void
set(int64 at_ms)
{
	struct itimerspec at = {
		.it_value.tv_sec = at_ms / 1000,
		.it_value.tv_nsec = at_ms % 1000 * 1000000,
	};

	is_set = true;
	timer_settime(lease_timer, TIMER_ABSTIME, &at, NULL);
}

static void
look(void)
{
	int64		deadline = zkl_session_deadline_io(watched);

	if (deadline < 0)
		zklock_cancel_request_io(ZKLOCK_CANCEL_LOSS);
	else if (deadline > 0)
		set(deadline);
}

static void
on_lease_timer(int signo)
{
	int			save_errno = errno;

	is_set = false;
	if (watched)
		look();
	errno = save_errno;
}

void
zklock_lease_timer_init(void)
{
	if (timer_signal == 0)
		timer_signal = zklock_timer_create(CLOCK_BOOTTIME, on_lease_timer, &lease_timer);
}

/* The deadline is published before the grant: a timer that is set will see the deadline. */
void
zklock_lease_timer_start(ZklSession *session)
{
	watched = session;
	if (!is_set)
		look();
}

/* The timer may be set for a time behind the deadlines of the next session. */
void
zklock_lease_timer_stop(void)
{
	watched = NULL;
	is_set = false;
}
