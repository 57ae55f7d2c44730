/*-------------------------------------------------------------------------
 *
 * io_thread.c
 *		The I/O thread of a client.
 *
 * Connecting and closing can take any time, and the owner of a session must not wait for
 * them, or only for a given time.  Besides, a thread must read what
 * the server sends while the owner runs SQL or idles.
 *
 * The owner polls the connection while it sleeps; the I/O thread takes over GRACE_MS
 * after the owner last woke.  An owner that sleeps again sooner never wakes the I/O
 * thread, which then only looks at the clock every GRACE_MS.  If the I/O thread found
 * the owner asleep and sleeps for longer, the owner wakes it after its own sleep, so
 * that it takes over in time.  Every pass reads, no matter which thread polls the
 * connection: so the timed work of a pass does not depend on the owner.
 * test/model/handover.pml checks this.
 *
 * A timer detects the loss of a lock, so timers must not wait for a TLS handshake.  During
 * such a call a second thread, the substitute, calls timer_io and aborts a call that takes
 * too long.
 *
 * Calls nothing of ZooKeeper.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "io_thread.h"

#define OPEN_RETRY_MS 500
#define GRACE_MS 20

struct ZklIoThread
{
	pthread_mutex_t mutex;
	pthread_cond_t changed;		/* wait_stopped() and the substitute wait for it */
	pthread_t	thread;
	int			kick_fd;		/* readable: wakes the thread */
	ZklIoThreadCallbacks duties;
	void	   *arg;
	bool		stopping;		/* the owner has requested the end */
	bool		stopped;		/* closed; only free_io is still called */
	bool		abandoned;		/* the owner did not wait: the thread frees everything */
	bool		pass_wanted;
	int64_t		timer_ms;		/* 0: none */
	bool		owner_sleeps;
	int64_t		owner_woke_ms;
	bool		on_duty;		/* the thread polls the connection in its sleep */
	bool		blocks;			/* the thread is in a call that may block, and ... */
	int64_t		blocks_until_ms;	/* ... must be aborted at this time */
	pthread_t	substitute;		/* the substitute thread, while "blocks" */
	int64_t		sleeps_until_ms;	/* 0: it is awake and will read all of this */
};

int64_t
zkl_io_thread_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void
kick(ZklIoThread *io_thread)
{
	uint64_t	one = 1;

	while (write(io_thread->kick_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Mutex held. */
static void
open_until_stopped(ZklIoThread *io_thread)
{
	bool		open = false;

	while (!open && !io_thread->stopping)
	{
		pthread_mutex_unlock(&io_thread->mutex);
		open = io_thread->duties.open_io(io_thread->arg);
		if (!open)
		{
			struct pollfd kicked = {io_thread->kick_fd, POLLIN, 0};
			uint64_t	count;

			if (poll(&kicked, 1, OPEN_RETRY_MS) > 0 &&
				read(io_thread->kick_fd, &count, sizeof(count)) < 0)
				open = false;
		}
		pthread_mutex_lock(&io_thread->mutex);
	}
}

static int64_t
earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Decides which thread polls the connection and how long this one sleeps.  Mutex held. */
static void
prepare_sleep(ZklIoThread *io_thread, const ZklIoThreadWatch *watch, int64_t now)
{
	int64_t		handover_ms = io_thread->owner_sleeps ? ZKL_IO_THREAD_NEVER
		: io_thread->owner_woke_ms + GRACE_MS;

	io_thread->on_duty = watch->fd >= 0 && (!watch->shared || now >= handover_ms);
	io_thread->sleeps_until_ms = watch->until_ms;
	if (io_thread->timer_ms != 0)
		io_thread->sleeps_until_ms = earlier(io_thread->sleeps_until_ms, io_thread->timer_ms);
	if (watch->fd >= 0 && !io_thread->on_duty)
		io_thread->sleeps_until_ms = earlier(io_thread->sleeps_until_ms, handover_ms);
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

/* Sleeps; returns whether the descriptor makes a pass due.  Mutex held on entry. */
static bool
sleep_once(ZklIoThread *io_thread, const ZklIoThreadWatch *watch)
{
	struct pollfd fds[2] = {{io_thread->kick_fd, POLLIN, 0}, {-1, watch->events, 0}};
	int64_t		now = zkl_io_thread_now();
	uint64_t	count;
	int			timeout;
	bool		ready;

	prepare_sleep(io_thread, watch, now);
	if (io_thread->on_duty)
		fds[1].fd = watch->fd;
	timeout = poll_timeout(io_thread->sleeps_until_ms, now);
	pthread_mutex_unlock(&io_thread->mutex);

	ready = poll(fds, 2, timeout) > 0 && fds[1].revents != 0;
	if (fds[0].revents != 0 && read(io_thread->kick_fd, &count, sizeof(count)) < 0)
		ready = true;

	pthread_mutex_lock(&io_thread->mutex);
	io_thread->on_duty = false;
	io_thread->sleeps_until_ms = 0;

	/* An owner that sleeps, or has just woken, sees the descriptor as well and reads. */
	return ready && (!watch->shared || (!io_thread->owner_sleeps &&
										zkl_io_thread_now() >= io_thread->owner_woke_ms + GRACE_MS));
}

static bool
is_timer_due(const ZklIoThread *io_thread, int64_t now)
{
	return io_thread->timer_ms != 0 && now >= io_thread->timer_ms;
}

/* Mutex held; released during the callback. */
static void
run_timer(ZklIoThread *io_thread)
{
	io_thread->timer_ms = 0;
	pthread_mutex_unlock(&io_thread->mutex);
	io_thread->duties.timer_io(io_thread->arg);
	pthread_mutex_lock(&io_thread->mutex);
}

/* Mutex held. */
static void
work_until_stopped(ZklIoThread *io_thread)
{
	ZklIoThreadWatch watch = {.fd = -1};

	io_thread->pass_wanted = true;
	while (!io_thread->stopping)
	{
		int64_t		now = zkl_io_thread_now();

		if (is_timer_due(io_thread, now))
			run_timer(io_thread);
		else if (io_thread->pass_wanted || now >= watch.until_ms)
		{
			io_thread->pass_wanted = false;
			pthread_mutex_unlock(&io_thread->mutex);
			io_thread->duties.pass_io(io_thread->arg, &watch);
			pthread_mutex_lock(&io_thread->mutex);
		}
		else
			io_thread->pass_wanted |= sleep_once(io_thread, &watch);
	}
}

static void
io_thread_destroy(ZklIoThread *io_thread)
{
	close(io_thread->kick_fd);
	pthread_cond_destroy(&io_thread->changed);
	pthread_mutex_destroy(&io_thread->mutex);
	free(io_thread);
}

static void
io_thread_free(ZklIoThread *io_thread)
{
	io_thread->duties.free_io(io_thread->arg, io_thread->abandoned);
	io_thread_destroy(io_thread);
}

static void *
io_thread_main_io(void *arg)
{
	ZklIoThread *io_thread = arg;
	bool		abandoned;

	pthread_mutex_lock(&io_thread->mutex);
	open_until_stopped(io_thread);
	work_until_stopped(io_thread);
	pthread_mutex_unlock(&io_thread->mutex);

	io_thread->duties.close_io(io_thread->arg);

	pthread_mutex_lock(&io_thread->mutex);
	io_thread->stopped = true;
	abandoned = io_thread->abandoned;
	pthread_cond_broadcast(&io_thread->changed);
	pthread_mutex_unlock(&io_thread->mutex);
	if (abandoned)
		io_thread_free(io_thread);
	return NULL;
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
zkl_io_thread_start(ZklIoThread **out, const ZklIoThreadCallbacks *duties, void *arg)
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
	pthread_cond_init(&io_thread->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	io_thread->duties = *duties;
	io_thread->arg = arg;

	if (io_thread->kick_fd < 0 || !zkl_io_thread_begin(&io_thread->thread, io_thread_main_io, io_thread))
	{
		io_thread_destroy(io_thread);
		*out = NULL;
	}
}

/* Waits until something has changed, or for this time.  Mutex held. */
static void
wait_changed(ZklIoThread *io_thread, int64_t timeout_ms)
{
	struct timespec ts;
	int64_t		ms;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	ms = (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000 + timeout_ms;
	ts.tv_sec = (time_t) (ms / 1000);
	ts.tv_nsec = (long) (ms % 1000) * 1000000;
	(void) pthread_cond_timedwait(&io_thread->changed, &io_thread->mutex, &ts);
}

/* Waits until the thread has closed, or for this time.  Mutex held. */
static void
wait_stopped(ZklIoThread *io_thread, int timeout_ms)
{
	int64_t		until_ms = zkl_io_thread_now() + timeout_ms;
	int64_t		now;

	while (!io_thread->stopped && (now = zkl_io_thread_now()) < until_ms)
		wait_changed(io_thread, until_ms - now);
}

void
zkl_io_thread_end(ZklIoThread *io_thread)
{
	pthread_mutex_lock(&io_thread->mutex);
	io_thread->stopping = true;
	pthread_cond_broadcast(&io_thread->changed);
	kick(io_thread);
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
		io_thread_free(io_thread);
	}
	return stopped;
}

void
zkl_io_thread_owner_sleeps(ZklIoThread *io_thread)
{
	pthread_mutex_lock(&io_thread->mutex);
	io_thread->owner_sleeps = true;
	pthread_mutex_unlock(&io_thread->mutex);
}

void
zkl_io_thread_owner_woke(ZklIoThread *io_thread)
{
	int64_t		now = zkl_io_thread_now();
	bool		oversleeps;

	pthread_mutex_lock(&io_thread->mutex);
	io_thread->owner_sleeps = false;
	io_thread->owner_woke_ms = now;
	oversleeps = !io_thread->on_duty && io_thread->sleeps_until_ms > now + 2 * GRACE_MS;
	pthread_mutex_unlock(&io_thread->mutex);
	if (oversleeps)
		kick(io_thread);
}

void
zkl_io_thread_want_pass(ZklIoThread *io_thread)
{
	pthread_mutex_lock(&io_thread->mutex);
	io_thread->pass_wanted = true;
	pthread_mutex_unlock(&io_thread->mutex);
	kick(io_thread);
}

void
zkl_io_thread_set_timer(ZklIoThread *io_thread, int64_t at_ms)
{
	bool		oversleeps;

	pthread_mutex_lock(&io_thread->mutex);
	io_thread->timer_ms = at_ms;
	if (io_thread->blocks)
		pthread_cond_broadcast(&io_thread->changed);
	oversleeps = at_ms != 0 && at_ms < io_thread->sleeps_until_ms;
	pthread_mutex_unlock(&io_thread->mutex);
	if (oversleeps)
		kick(io_thread);
}


/*
 * Calls that block
 */

#define LONG_MS 3600000

static void *
substitute_main_io(void *arg)
{
	ZklIoThread *io_thread = arg;

	pthread_mutex_lock(&io_thread->mutex);
	while (io_thread->blocks)
	{
		int64_t		now = zkl_io_thread_now();
		int64_t		due = io_thread->blocks_until_ms;

		if (is_timer_due(io_thread, now))
			run_timer(io_thread);
		else if (due != ZKL_IO_THREAD_NEVER && (now >= due || io_thread->stopping))
		{
			io_thread->blocks_until_ms = ZKL_IO_THREAD_NEVER;
			pthread_mutex_unlock(&io_thread->mutex);
			io_thread->duties.overdue_io(io_thread->arg);
			pthread_mutex_lock(&io_thread->mutex);
		}
		else
		{
			if (io_thread->timer_ms != 0)
				due = earlier(due, io_thread->timer_ms);
			wait_changed(io_thread, earlier(due - now, LONG_MS));
		}
	}
	pthread_mutex_unlock(&io_thread->mutex);
	return NULL;
}

bool
zkl_io_thread_begin_blocking(ZklIoThread *io_thread, int64_t until_ms)
{
	bool		started;

	pthread_mutex_lock(&io_thread->mutex);
	io_thread->blocks = true;
	io_thread->blocks_until_ms = until_ms;
	pthread_mutex_unlock(&io_thread->mutex);
	started = zkl_io_thread_begin(&io_thread->substitute, substitute_main_io, io_thread);
	if (!started)
	{
		pthread_mutex_lock(&io_thread->mutex);
		io_thread->blocks = false;
		pthread_mutex_unlock(&io_thread->mutex);
	}
	return started;
}

void
zkl_io_thread_end_blocking(ZklIoThread *io_thread)
{
	pthread_mutex_lock(&io_thread->mutex);
	io_thread->blocks = false;
	pthread_cond_broadcast(&io_thread->changed);
	pthread_mutex_unlock(&io_thread->mutex);
	pthread_join(io_thread->substitute, NULL);
}
