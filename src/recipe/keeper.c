/*-------------------------------------------------------------------------
 *
 * keeper.c
 *		A thread that does for a client what may block, and rings its alarm.
 *
 * Resolving names, joining threads and saying good-bye to a server can take
 * any time; the owner of a session must not wait for them, or only as long as
 * it likes.  Knows nothing of ZooKeeper.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "keeper.h"

#define OPEN_RETRY_MS 500

struct ZklKeeper
{
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	pthread_t	thread;
	ZklKeeperDuties duties;
	void	   *arg;
	bool		open;
	bool		stopping;		/* the owner wants an end */
	bool		stopped;		/* closed; nothing is called any more but free_io */
	bool		abandoned;		/* the owner did not wait: the thread frees all */
	int64_t		alarm_ms;		/* 0: none */
};

int64_t
zkl_keeper_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Waits for a change, until a time if that is not 0.  Mutex held. */
static void
wait_changed(ZklKeeper *keeper, int64_t until_ms)
{
	struct timespec ts;
	int64_t		ms;

	if (until_ms == 0)
	{
		pthread_cond_wait(&keeper->changed, &keeper->mutex);
		return;
	}
	ms = until_ms - zkl_keeper_now();
	if (ms <= 0)
		return;

	/* A condition can't wait on the clock that counts suspended time. */
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ms += (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000 + 1;
	ts.tv_sec = (time_t) (ms / 1000);
	ts.tv_nsec = (long) (ms % 1000) * 1000000;
	pthread_cond_timedwait(&keeper->changed, &keeper->mutex, &ts);
}

static void
open_until_stopped(ZklKeeper *keeper)
{
	while (!keeper->open && !keeper->stopping)
	{
		bool		open;

		pthread_mutex_unlock(&keeper->mutex);
		open = keeper->duties.open_io(keeper->arg);
		pthread_mutex_lock(&keeper->mutex);
		keeper->open = open;
		if (!open)
		{
			int64_t		again = zkl_keeper_now() + OPEN_RETRY_MS;

			while (!keeper->stopping && zkl_keeper_now() < again)
				wait_changed(keeper, again);
		}
	}
	pthread_cond_broadcast(&keeper->changed);
}

static void
ring_until_stopped(ZklKeeper *keeper)
{
	while (!keeper->stopping)
	{
		if (keeper->alarm_ms == 0 || zkl_keeper_now() < keeper->alarm_ms)
		{
			wait_changed(keeper, keeper->alarm_ms);
			continue;
		}
		keeper->alarm_ms = 0;
		pthread_mutex_unlock(&keeper->mutex);
		keeper->duties.alarm_io(keeper->arg);
		pthread_mutex_lock(&keeper->mutex);
	}
}

static void
keeper_free(ZklKeeper *keeper)
{
	keeper->duties.free_io(keeper->arg, keeper->abandoned);
	pthread_cond_destroy(&keeper->changed);
	pthread_mutex_destroy(&keeper->mutex);
	free(keeper);
}

static void *
keeper_main_io(void *arg)
{
	ZklKeeper  *keeper = arg;
	bool		abandoned;

	pthread_mutex_lock(&keeper->mutex);
	open_until_stopped(keeper);
	ring_until_stopped(keeper);
	pthread_mutex_unlock(&keeper->mutex);

	keeper->duties.close_io(keeper->arg);

	pthread_mutex_lock(&keeper->mutex);
	keeper->stopped = true;
	abandoned = keeper->abandoned;
	pthread_cond_broadcast(&keeper->changed);
	pthread_mutex_unlock(&keeper->mutex);
	if (abandoned)
		keeper_free(keeper);
	return NULL;
}

static bool
start_thread(ZklKeeper *keeper)
{
	sigset_t	all;
	sigset_t	old;
	int			rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&keeper->thread, NULL, keeper_main_io, keeper);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc == 0;
}

void
zkl_keeper_start(ZklKeeper **out, const ZklKeeperDuties *duties, void *arg)
{
	ZklKeeper  *keeper = calloc(1, sizeof(ZklKeeper));
	pthread_condattr_t monotonic;

	*out = keeper;
	if (keeper == NULL)
		return;
	pthread_mutex_init(&keeper->mutex, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&keeper->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	keeper->duties = *duties;
	keeper->arg = arg;

	if (!start_thread(keeper))
	{
		pthread_cond_destroy(&keeper->changed);
		pthread_mutex_destroy(&keeper->mutex);
		free(keeper);
		*out = NULL;
	}
}

bool
zkl_keeper_stop(ZklKeeper *keeper, int timeout_ms)
{
	int64_t		until = zkl_keeper_now() + timeout_ms;
	bool		stopped;

	pthread_mutex_lock(&keeper->mutex);
	keeper->stopping = true;
	pthread_cond_broadcast(&keeper->changed);
	while (!keeper->stopped && zkl_keeper_now() < until)
		wait_changed(keeper, until);
	stopped = keeper->stopped;
	if (!stopped)
	{
		keeper->abandoned = true;
		pthread_detach(keeper->thread);
	}
	pthread_mutex_unlock(&keeper->mutex);
	if (stopped)
	{
		pthread_join(keeper->thread, NULL);
		keeper_free(keeper);
	}
	return stopped;
}

bool
zkl_keeper_wait_open_io(ZklKeeper *keeper)
{
	bool		go_on;

	pthread_mutex_lock(&keeper->mutex);
	while (!keeper->open && !keeper->stopping)
		pthread_cond_wait(&keeper->changed, &keeper->mutex);
	go_on = !keeper->stopping;
	pthread_mutex_unlock(&keeper->mutex);
	return go_on;
}

void
zkl_keeper_set_alarm(ZklKeeper *keeper, int64_t at_ms)
{
	pthread_mutex_lock(&keeper->mutex);
	keeper->alarm_ms = at_ms;
	pthread_cond_broadcast(&keeper->changed);
	pthread_mutex_unlock(&keeper->mutex);
}
