/*-------------------------------------------------------------------------
 *
 * io_thread.c
 *		The I/O thread of a client.
 *
 * Connecting and closing can take any time, and the owner of a session must not wait for
 * them, or only for a given time.  Besides, a thread must read what
 * the server sends while the owner runs SQL or idles.
 *
 * An owner that waits polls the connection as well, and reads what comes.  So when the
 * connection is readable and the owner waits, or has waited until just now, the I/O thread
 * first waits for GRACE_MS, and then reads what the owner has left.  Nothing depends on what
 * the owner does, and an owner that reads by itself finds the library free.
 * test/model/handover.pml checks this.
 *
 * Calls nothing of ZooKeeper: the thread asks what is to be done next (zk_client.c).
 *
 *-------------------------------------------------------------------------
 */
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "io_thread.h"

#define GRACE_MS 20

struct ZklIoThread
{
	pthread_mutex_t mutex;
	pthread_cond_t has_stopped; /* wait_stopped() waits for it */
	pthread_t	thread;
	int			kick_fd;		/* readable: wakes the thread */
	bool		stopping;		/* the owner has requested the end */
	bool		stopped;		/* the client is closed */
	bool		abandoned;		/* the owner did not wait: the thread frees everything */
	bool		pass_wanted;
	int64_t		timer_ms;		/* 0: none */
	int64_t		owner_reads_until_ms;	/* atomic */
	int64_t		sleeps_until_ms;	/* 0: it is awake and will read all of this */
};

int64_t
zkl_io_thread_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int64_t
earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int
poll_timeout(int64_t until_ms, int64_t now)
{
	if (until_ms == ZKL_IO_THREAD_NEVER)
		return -1;
	if (until_ms <= now)
		return 0;
	return (int) earlier(until_ms - now, INT_MAX);
}

/* Sleeps until something is due.  Mutex held; released meanwhile. */
static void
sleep_once(ZklIoThread *io_thread, const ZklIoThreadWatch *watch)
{
	struct pollfd kicked = {io_thread->kick_fd, POLLIN, 0};
	struct pollfd fds[2] = {kicked, {watch->fd, watch->events, 0}};
	int64_t		until_ms = watch->until_ms;
	eventfd_t	count;
	bool		ready = false;

	if (io_thread->timer_ms != 0)
		until_ms = earlier(until_ms, io_thread->timer_ms);
	io_thread->sleeps_until_ms = until_ms;
	pthread_mutex_unlock(&io_thread->mutex);

	if (poll(fds, 2, poll_timeout(until_ms, zkl_io_thread_now())) > 0 && fds[0].revents == 0)
	{
		if (watch->shared && zkl_io_thread_now() <
			__atomic_load_n(&io_thread->owner_reads_until_ms, __ATOMIC_RELAXED))
			(void) poll(&kicked, 1, GRACE_MS);
		ready = poll(&fds[1], 1, 0) > 0;
	}
	if ((fds[0].revents != 0 || kicked.revents != 0) &&
		eventfd_read(io_thread->kick_fd, &count) < 0)
		ready = true;

	pthread_mutex_lock(&io_thread->mutex);
	io_thread->sleeps_until_ms = 0;
	if (ready)
		io_thread->pass_wanted = true;
}

/* Returns what is due now, and that it is taken.  Mutex held. */
static ZklIoThreadStep
take_due(ZklIoThread *io_thread, const ZklIoThreadWatch *watch)
{
	int64_t		now = zkl_io_thread_now();

	if (io_thread->stopping)
		return ZKL_IO_THREAD_STOP;
	if (io_thread->timer_ms != 0 && now >= io_thread->timer_ms)
	{
		io_thread->timer_ms = 0;
		return ZKL_IO_THREAD_TIMER;
	}
	if (!io_thread->pass_wanted && now < watch->until_ms)
		return ZKL_IO_THREAD_SLEEP;
	io_thread->pass_wanted = false;
	return ZKL_IO_THREAD_PASS;
}

ZklIoThreadStep
zkl_io_thread_next(ZklIoThread *io_thread, const ZklIoThreadWatch *watch)
{
	ZklIoThreadStep step;

	pthread_mutex_lock(&io_thread->mutex);
	while ((step = take_due(io_thread, watch)) == ZKL_IO_THREAD_SLEEP)
		sleep_once(io_thread, watch);
	pthread_mutex_unlock(&io_thread->mutex);
	return step;
}

static void
io_thread_destroy(ZklIoThread *io_thread)
{
	close(io_thread->kick_fd);
	pthread_cond_destroy(&io_thread->has_stopped);
	pthread_mutex_destroy(&io_thread->mutex);
	free(io_thread);
}

bool
zkl_io_thread_stopped(ZklIoThread *io_thread)
{
	bool		abandoned;

	pthread_mutex_lock(&io_thread->mutex);
	io_thread->stopped = true;
	abandoned = io_thread->abandoned;
	pthread_cond_signal(&io_thread->has_stopped);
	pthread_mutex_unlock(&io_thread->mutex);
	if (abandoned)
		io_thread_destroy(io_thread);
	return abandoned;
}

bool
zkl_io_thread_begin(pthread_t *thread, void *(*main_io) (void *), void *arg)
{
	sigset_t	all;
	sigset_t	old;
	int			rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, NULL, main_io, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc == 0;
}

void
zkl_io_thread_start(ZklIoThread **out, void *(*main_io) (void *), void *arg)
{
	ZklIoThread *io_thread = calloc(1, sizeof(ZklIoThread));
	pthread_condattr_t monotonic;

	*out = io_thread;
	if (io_thread == NULL)
		return;
	io_thread->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&io_thread->mutex, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&io_thread->has_stopped, &monotonic);
	pthread_condattr_destroy(&monotonic);

	if (io_thread->kick_fd < 0 || !zkl_io_thread_begin(&io_thread->thread, main_io, arg))
	{
		io_thread_destroy(io_thread);
		*out = NULL;
	}
}

/* Waits until the thread has closed, or for this time.  Mutex held. */
static void
wait_stopped(ZklIoThread *io_thread, int timeout_ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (until.tv_nsec >= 1000000000)
	{
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	while (!io_thread->stopped &&
		   pthread_cond_timedwait(&io_thread->has_stopped, &io_thread->mutex, &until) == 0)
		;
}

void
zkl_io_thread_end(ZklIoThread *io_thread)
{
	pthread_mutex_lock(&io_thread->mutex);
	io_thread->stopping = true;
	(void) eventfd_write(io_thread->kick_fd, 1);
	pthread_mutex_unlock(&io_thread->mutex);
}

bool
zkl_io_thread_stop(ZklIoThread *io_thread, int timeout_ms)
{
	bool		stopped;

	zkl_io_thread_end(io_thread);
	pthread_mutex_lock(&io_thread->mutex);
	wait_stopped(io_thread, timeout_ms);
	stopped = io_thread->stopped;
	if (!stopped)
	{
		io_thread->abandoned = true;
		pthread_detach(io_thread->thread);
	}
	pthread_mutex_unlock(&io_thread->mutex);
	if (stopped)
	{
		pthread_join(io_thread->thread, NULL);
		io_thread_destroy(io_thread);
	}
	return stopped;
}

void
zkl_io_thread_owner_waits(ZklIoThread *io_thread, bool waits)
{
	int64_t		until_ms = waits ? ZKL_IO_THREAD_NEVER : zkl_io_thread_now() + GRACE_MS;

	__atomic_store_n(&io_thread->owner_reads_until_ms, until_ms, __ATOMIC_RELAXED);
}

void
zkl_io_thread_want_pass(ZklIoThread *io_thread)
{
	pthread_mutex_lock(&io_thread->mutex);
	io_thread->pass_wanted = true;
	pthread_mutex_unlock(&io_thread->mutex);
	(void) eventfd_write(io_thread->kick_fd, 1);
}

void
zkl_io_thread_set_timer(ZklIoThread *io_thread, int64_t at_ms)
{
	bool		oversleeps;

	pthread_mutex_lock(&io_thread->mutex);
	io_thread->timer_ms = at_ms;
	oversleeps = at_ms != 0 && at_ms < io_thread->sleeps_until_ms;
	pthread_mutex_unlock(&io_thread->mutex);
	if (oversleeps)
		(void) eventfd_write(io_thread->kick_fd, 1);
}
