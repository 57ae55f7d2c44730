/*-------------------------------------------------------------------------
 *
 * other_thread.c
 *		SQL functions for a backend with a thread of somebody else.
 *
 * start_thread() starts a thread that blocks no signal, as a Java virtual machine has them.
 * wait_for_signal() blocks all signals in the backend's own thread until a real-time signal is pending
 * for it, or until another thread has run a handler that cancels the statement; it raises a
 * NOTICE that says which.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(start_thread);
PG_FUNCTION_INFO_V1(wait_for_signal);

static void *
idle(void *arg)
{
	for (;;)
		pause();
	return arg;
}

Datum
start_thread(PG_FUNCTION_ARGS)
{
	pthread_t	thread;

	if (pthread_create(&thread, NULL, idle, NULL) != 0)
		elog(ERROR, "no thread");
	PG_RETURN_VOID();
}

static bool
is_signal_pending(void)
{
	sigset_t	pending;

	sigpending(&pending);
	for (int signo = SIGRTMIN; signo <= SIGRTMAX; signo++)
		if (sigismember(&pending, signo))
			return true;
	return false;
}

Datum
wait_for_signal(PG_FUNCTION_ARGS)
{
	sigset_t	all;
	sigset_t	before;
	bool		is_cancelled;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (!QueryCancelPending && !is_signal_pending())
		usleep(1000);
	is_cancelled = QueryCancelPending;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	elog(NOTICE, "handler ran in %s thread", is_cancelled ? "another" : "no other");
	CHECK_FOR_INTERRUPTS();
	PG_RETURN_VOID();
}
