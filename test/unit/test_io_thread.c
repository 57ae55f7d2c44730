/*-------------------------------------------------------------------------
 *
 * test_io_thread.c
 *		Promises of the I/O thread, on the real clock.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "recipe/zookeeper/io_thread.h"
#include "tap.h"

/* The object that the I/O thread serves. */
typedef struct Charge
{
	ZklIoThread *io_thread;
	ZklIoThreadWatch watch;		/* what its passes request */
	bool		close_blocks;
	bool		all_blocked;
	int			until_in_ms;
	int64_t		timer_ms;
	int			timers;
	sem_t		let_close;
} Charge;

static sem_t fired;
static sem_t passed;
static sem_t freed;
static bool freed_abandoned;
static Charge *charge;
static int	closed;
static int64_t last_timer_ms;
static int64_t last_pass_ms;	/* atomic */

/* Reads whatever is there, as a real pass does. */
static void
pass(Charge *c, ZklIoThreadWatch *watch)
{
	sigset_t	mask;
	uint64_t	count;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	c->all_blocked = sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM) &&
		sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGALRM);
	*watch = c->watch;
	if (c->until_in_ms != 0)
		watch->until_ms = zkl_io_thread_now() + c->until_in_ms;
	__atomic_store_n(&last_pass_ms, zkl_io_thread_now(), __ATOMIC_RELAXED);
	while (watch->fd >= 0 && read(watch->fd, &count, sizeof(count)) > 0)
		;
	sem_post(&passed);
}

static void
run_timer(Charge *c)
{
	c->timer_ms = zkl_io_thread_now();
	c->timers++;
	last_timer_ms = c->timer_ms;
	sem_post(&fired);
}

static void
free_charge(Charge *c, bool abandoned)
{
	freed_abandoned = abandoned;

	sem_destroy(&c->let_close);
	free(c);
	sem_post(&freed);
}

static void *
thread_main(void *arg)
{
	Charge	   *c = arg;
	ZklIoThreadWatch watch = {.fd = -1};
	ZklIoThreadStep step;

	while ((step = zkl_io_thread_next(c->io_thread, &watch)) != ZKL_IO_THREAD_STOP)
		if (step == ZKL_IO_THREAD_TIMER)
			run_timer(c);
		else
			pass(c, &watch);
	if (c->close_blocks)
		sem_wait(&c->let_close);
	closed++;
	if (zkl_io_thread_stopped(c->io_thread))
		free_charge(c, true);
	return NULL;
}

/* Starts an I/O thread, and waits for its first pass. */
static ZklIoThread *
start(void)
{
	charge = calloc(1, sizeof(Charge));
	charge->watch.fd = -1;
	charge->watch.until_ms = ZKL_IO_THREAD_NEVER;
	sem_init(&charge->let_close, 0, 0);
	closed = 0;
	while (sem_trywait(&passed) == 0)
		;
	zkl_io_thread_start(&charge->io_thread, thread_main, charge);
	sem_wait(&passed);
	return charge->io_thread;
}

/* Stops the thread, and frees the object if the thread has closed in time. */
static bool
stop(ZklIoThread *io_thread, int timeout_ms)
{
	bool		stopped = zkl_io_thread_stop(io_thread, timeout_ms);

	if (stopped)
		free_charge(charge, false);
	return stopped;
}

static void
test_start(void)
{
	sigset_t	before;
	sigset_t	after;
	ZklIoThread *io_thread;

	pthread_sigmask(SIG_SETMASK, NULL, &before);
	io_thread = start();
	ok(true, "the thread begins with a pass");
	ok(charge->all_blocked, "signals are blocked in the thread");
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	ok(sigismember(&before, SIGTERM) == sigismember(&after, SIGTERM) &&
	   sigismember(&before, SIGINT) == sigismember(&after, SIGINT),
	   "the caller's signal mask is unchanged");
	ok(stop(io_thread, 5000), "the thread stops");
	is_int(closed, 1, "the thread has closed once");
	is_int(sem_trywait(&freed), 0, "the object is freed");
	ok(!freed_abandoned, "the thread leaves the object to its owner");
}

static void
test_timer(void)
{
	ZklIoThread *io_thread = start();
	int64_t		now;

	now = zkl_io_thread_now();
	zkl_io_thread_set_timer(io_thread, now + 3600000);
	zkl_io_thread_set_timer(io_thread, now + 60);
	sem_wait(&fired);
	ok(last_timer_ms >= now + 60, "a timer fires, not early");
	zkl_io_thread_set_timer(io_thread, now - 5);
	sem_wait(&fired);
	ok(true, "a timer that is already due fires");
	zkl_io_thread_set_timer(io_thread, now + 3600000);
	zkl_io_thread_set_timer(io_thread, 0);
	ok(stop(io_thread, 5000), "a thread without a timer stops");
	sem_wait(&freed);
	is_int(sem_trywait(&fired), -1, "each timer fires once");
}

static void
test_blocked_close(void)
{
	ZklIoThread *io_thread = start();
	sem_t	   *let_close = &charge->let_close;
	int64_t		began;

	charge->close_blocks = true;
	began = zkl_io_thread_now();
	ok(!stop(io_thread, 100), "stopping reports that closing takes too long");
	ok(zkl_io_thread_now() - began >= 100, "stopping waits for the given timeout");
	is_int(sem_trywait(&freed), -1, "the object is not freed meanwhile");
	sem_post(let_close);
	sem_wait(&freed);
	ok(freed_abandoned, "the thread itself frees the object after closing");
}

/* Starts an I/O thread that polls a descriptor, maybe one that the owner may read first. */
static ZklIoThread *
start_polling(int fd, bool shared)
{
	ZklIoThread *io_thread = start();

	charge->watch.fd = fd;
	charge->watch.events = POLLIN;
	charge->watch.shared = shared;
	zkl_io_thread_want_pass(io_thread);
	sem_wait(&passed);
	return io_thread;
}

static bool
is_read_within(int ms)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += (long) (ms % 1000) * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	return sem_timedwait(&passed, &until) == 0;
}

static void
put(int fd)
{
	uint64_t	one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

static bool
take(int fd)
{
	uint64_t	count;

	return read(fd, &count, sizeof(count)) > 0;
}

/* The grace period. */
#define GRACE_MS 20

/* Does the thread read without the grace period, if the machine is not busy all the time? */
static bool
reads_at_once(int fd)
{
	for (int i = 0; i < 1000; i++)
	{
		int64_t		began = zkl_io_thread_now();

		put(fd);
		if (!is_read_within(10000))
			return false;
		if (__atomic_load_n(&last_pass_ms, __ATOMIC_RELAXED) - began < GRACE_MS - 1)
			return true;
	}
	return false;
}

static void
test_owner_first(void)
{
	int			fd = eventfd(0, EFD_NONBLOCK);
	ZklIoThread *io_thread = start_polling(fd, true);
	int64_t		began = zkl_io_thread_now();
	bool		taken;

	zkl_io_thread_owner_waits(io_thread, true);
	put(fd);
	ok(is_read_within(10000), "the thread reads for an owner that waits and does not read");
	ok(__atomic_load_n(&last_pass_ms, __ATOMIC_RELAXED) - began >= GRACE_MS - 1,
	   "the thread does not read at once");

	began = zkl_io_thread_now();
	put(fd);
	taken = take(fd);
	ok(taken || zkl_io_thread_now() - began >= GRACE_MS - 1, "an owner that reads at once finds the data");

	zkl_io_thread_owner_waits(io_thread, false);
	ok(reads_at_once(fd), "the thread reads at once for an owner that does not wait");
	ok(stop(io_thread, 5000), "the thread stops");
	sem_wait(&freed);
	close(fd);
}

/* Timed passes, and passes for a descriptor that is not shared, do not wait for the owner. */
static void
test_passes(void)
{
	int			fd = eventfd(0, EFD_NONBLOCK);
	ZklIoThread *io_thread = start_polling(fd, true);

	charge->until_in_ms = 30;
	zkl_io_thread_want_pass(io_thread);
	sem_wait(&passed);
	ok(is_read_within(10000) && is_read_within(10000), "a pass is repeated at the time that it requests");
	ok(stop(io_thread, 5000), "the thread stops");
	sem_wait(&freed);

	io_thread = start_polling(fd, false);
	put(fd);
	ok(is_read_within(10000), "the thread reads a descriptor that is not shared");
	ok(stop(io_thread, 5000), "the thread stops");
	sem_wait(&freed);
	close(fd);
}

/* A thread that has nothing to do takes no processor time. */
static void
test_rest(void)
{
	ZklIoThread *io_thread = start();
	clock_t		began = clock();

	is_read_within(200);
	ok(clock() - began < CLOCKS_PER_SEC / 100, "a thread sleeps without anything to do");
	zkl_io_thread_set_timer(io_thread, zkl_io_thread_now() + 3600000);
	began = clock();
	is_read_within(200);
	ok(clock() - began < CLOCKS_PER_SEC / 100, "a thread sleeps with a timer that is not due");
	ok(stop(io_thread, 5000), "the thread stops");
	sem_wait(&freed);
}

int
main(void)
{
	sem_init(&fired, 0, 0);
	sem_init(&freed, 0, 0);
	sem_init(&passed, 0, 0);
	test_start();
	test_timer();
	test_blocked_close();
	test_owner_first();
	test_passes();
	test_rest();
	return done();
}
