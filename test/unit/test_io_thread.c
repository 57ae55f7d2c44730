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

/* The object that the I/O thread serves and frees. */
typedef struct Charge
{
	ZklIoThreadWatch watch;		/* what its passes request */
	int			opens_to_fail;
	int			opened;
	bool		close_blocks;
	bool		pass_blocks;
	int			timeout_ms;		/* of a pass that blocks; 0: none */
	bool		all_blocked;
	int			until_in_ms;
	int64_t		timer_ms;
	int			timers;
	sem_t		let_close;
} Charge;

static sem_t opened;
static sem_t fired;
static sem_t passed;
static sem_t freed;
static sem_t blocking;
static sem_t unblock;
static ZklIoThread *blocked_io_thread;
static int	overdue;
static bool freed_abandoned;
static Charge *charge;
static int	closed;
static int64_t last_timer_ms;
static int64_t last_pass_ms;

static bool
open_io(void *arg)
{
	Charge	   *c = arg;
	sigset_t	mask;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	c->all_blocked = sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM) &&
		sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGALRM);
	c->opened++;
	sem_post(&opened);
	return c->opened > c->opens_to_fail;
}

/* Reads whatever is there, as a real pass does. */
static void
pass_io(void *arg, ZklIoThreadWatch *watch)
{
	Charge	   *c = arg;
	uint64_t	count;

	*watch = c->watch;
	if (c->until_in_ms != 0)
		watch->until_ms = zkl_io_thread_now() + c->until_in_ms;
	last_pass_ms = zkl_io_thread_now();
	while (watch->fd >= 0 && read(watch->fd, &count, sizeof(count)) > 0)
		;
	if (c->pass_blocks)
	{
		if (!zkl_io_thread_begin_blocking(blocked_io_thread, c->timeout_ms == 0 ? ZKL_IO_THREAD_NEVER
										  : last_pass_ms + c->timeout_ms))
			abort();
		sem_post(&blocking);
		sem_wait(&unblock);
		zkl_io_thread_end_blocking(blocked_io_thread);
	}
	sem_post(&passed);
}

static void
overdue_io(void *arg)
{
	(void) arg;
	overdue++;
	sem_post(&unblock);
}

static void
timer_io(void *arg)
{
	Charge	   *c = arg;

	c->timer_ms = zkl_io_thread_now();
	c->timers++;
	last_timer_ms = c->timer_ms;
	sem_post(&fired);
}

static void
close_io(void *arg)
{
	Charge	   *c = arg;

	if (c->close_blocks)
		sem_wait(&c->let_close);
	closed++;
}

static void
free_io(void *arg, bool abandoned)
{
	Charge	   *c = arg;

	freed_abandoned = abandoned;

	sem_destroy(&c->let_close);
	free(c);
	sem_post(&freed);
}

static ZklIoThread *
start(int opens_to_fail)
{
	static const ZklIoThreadCallbacks duties = {open_io, pass_io, timer_io, overdue_io, close_io, free_io};
	ZklIoThread *io_thread;

	charge = calloc(1, sizeof(Charge));
	charge->opens_to_fail = opens_to_fail;
	charge->watch.fd = -1;
	charge->watch.until_ms = ZKL_IO_THREAD_NEVER;
	sem_init(&charge->let_close, 0, 0);
	closed = 0;
	zkl_io_thread_start(&io_thread, &duties, charge);
	return io_thread;
}

static void
test_open(void)
{
	sigset_t	before;
	sigset_t	after;
	int64_t		began;
	ZklIoThread *io_thread;

	pthread_sigmask(SIG_SETMASK, NULL, &before);
	began = zkl_io_thread_now();
	io_thread = start(1);
	sem_wait(&passed);
	ok(true, "a failed open is repeated");
	ok(zkl_io_thread_now() - began >= 400, "the open is repeated after a pause");
	is_int(charge->opened, 2, "the open is repeated once");
	ok(charge->all_blocked, "signals are blocked in the thread");
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	ok(sigismember(&before, SIGTERM) == sigismember(&after, SIGTERM) &&
	   sigismember(&before, SIGINT) == sigismember(&after, SIGINT),
	   "the caller's signal mask is unchanged");
	ok(zkl_io_thread_stop(io_thread, 5000), "the thread stops");
	is_int(closed, 1, "the thread has closed once");
	is_int(sem_trywait(&freed), 0, "the thread has freed the object");
	ok(!freed_abandoned, "the object is freed, not abandoned");
	while (sem_trywait(&opened) == 0)
		;
}

static void
test_stop_while_opening(void)
{
	ZklIoThread *io_thread = start(1000000);

	sem_wait(&opened);
	ok(zkl_io_thread_stop(io_thread, 5000), "a thread whose open fails stops");
	sem_wait(&freed);
}

static void
test_timer(void)
{
	ZklIoThread *io_thread = start(0);
	int64_t		now;

	sem_wait(&opened);
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
	ok(zkl_io_thread_stop(io_thread, 5000), "a thread without a timer stops");
	sem_wait(&freed);
	is_int(sem_trywait(&fired), -1, "each timer fires once");
}

static void
test_blocked_close(void)
{
	ZklIoThread *io_thread = start(0);
	sem_t	   *let_close = &charge->let_close;
	int64_t		began;

	sem_wait(&opened);
	charge->close_blocks = true;
	began = zkl_io_thread_now();
	ok(!zkl_io_thread_stop(io_thread, 100), "stopping reports that closing takes too long");
	ok(zkl_io_thread_now() - began >= 100, "stopping waits for the given timeout");
	is_int(sem_trywait(&freed), -1, "the object is not freed meanwhile");
	sem_post(let_close);
	sem_wait(&freed);
	ok(freed_abandoned, "the thread itself frees the object after closing");
}

/* Starts an I/O thread that shares a descriptor with the owner since its first pass. */
static ZklIoThread *
start_sharing(int *fd)
{
	ZklIoThread *io_thread;

	*fd = eventfd(0, EFD_NONBLOCK);
	while (sem_trywait(&passed) == 0)
		;
	io_thread = start(0);
	sem_wait(&passed);
	charge->watch.fd = *fd;
	charge->watch.events = POLLIN;
	charge->watch.shared = true;
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

static void
test_duty(void)
{
	int			fd;
	ZklIoThread *io_thread = start_sharing(&fd);
	int64_t		began;

	put(fd);
	ok(is_read_within(10000), "the thread reads for an owner that is busy");

	zkl_io_thread_owner_sleeps(io_thread);
	zkl_io_thread_owner_woke(io_thread);
	zkl_io_thread_owner_sleeps(io_thread);
	put(fd);
	ok(!is_read_within(200), "the thread does not read for an owner that sleeps");
	ok(take(fd), "an owner that sleeps finds the data");

	put(fd);
	began = zkl_io_thread_now();
	zkl_io_thread_owner_woke(io_thread);
	ok(is_read_within(10000), "the thread reads for an owner that woke up and does not read");
	ok(last_pass_ms - began >= 19, "the thread does not read at once");
	ok(zkl_io_thread_stop(io_thread, 5000), "the thread stops");
	sem_wait(&freed);
	close(fd);
}

/* While the thread is in a call, timers fire, and a call that takes too long ends. */
static void
test_blocking(void)
{
	ZklIoThread *io_thread = start(0);
	int64_t		began;

	sem_wait(&passed);
	blocked_io_thread = io_thread;
	charge->pass_blocks = true;
	zkl_io_thread_want_pass(io_thread);
	sem_wait(&blocking);
	zkl_io_thread_set_timer(io_thread, zkl_io_thread_now() + 30);
	sem_wait(&fired);
	ok(true, "a timer fires while the thread is in a call that blocks");
	zkl_io_thread_set_timer(io_thread, zkl_io_thread_now() - 1);
	sem_wait(&fired);
	ok(true, "a timer that is already due fires during the call");
	is_int(overdue, 0, "a call without a timeout continues");
	charge->pass_blocks = false;
	sem_post(&unblock);
	sem_wait(&passed);
	zkl_io_thread_set_timer(io_thread, zkl_io_thread_now() + 30);
	sem_wait(&fired);
	ok(true, "a timer fires after the call");

	charge->pass_blocks = true;
	charge->timeout_ms = 50;
	began = zkl_io_thread_now();
	zkl_io_thread_want_pass(io_thread);
	sem_wait(&passed);
	is_int(overdue, 1, "a call with a timeout is ended");
	ok(zkl_io_thread_now() - began >= 50, "the call is not ended before its timeout");
	(void) sem_trywait(&blocking);

	charge->timeout_ms = 3600000;
	zkl_io_thread_want_pass(io_thread);
	sem_wait(&blocking);
	ok(zkl_io_thread_stop(io_thread, 5000), "a call that blocks is ended when the thread is stopped");
	is_int(overdue, 2, "the call is ended once");
	sem_wait(&freed);
	while (sem_trywait(&passed) == 0)
		;
}

/* The thread does not take over from an owner that sleeps and wakes frequently. */
static void
test_busy_owner(void)
{
	int			fd;
	ZklIoThread *io_thread = start_sharing(&fd);
	int64_t		began = zkl_io_thread_now();
	int64_t		now = began;
	int64_t		last = now;
	bool		slow;

	while (now < last + 15 && now < began + 500)
	{
		last = now;
		zkl_io_thread_owner_sleeps(io_thread);
		put(fd);
		zkl_io_thread_owner_woke(io_thread);
		(void) take(fd);
		now = zkl_io_thread_now();
	}
	slow = now >= last + 15;	/* then the machine is too slow for the test */
	ok(slow || sem_trywait(&passed) != 0, "a busy owner reads alone");
	ok(zkl_io_thread_stop(io_thread, 5000), "the thread stops");
	sem_wait(&freed);
	close(fd);
}

/* Timed passes, and passes for a descriptor that is not shared, ignore the owner. */
static void
test_passes(void)
{
	int			fd;
	ZklIoThread *io_thread = start_sharing(&fd);

	zkl_io_thread_owner_sleeps(io_thread);
	charge->until_in_ms = 30;
	zkl_io_thread_want_pass(io_thread);
	sem_wait(&passed);
	ok(is_read_within(10000) && is_read_within(10000), "timed passes run while the owner sleeps");
	ok(zkl_io_thread_stop(io_thread, 5000), "the thread stops");
	sem_wait(&freed);
	close(fd);

	io_thread = start_sharing(&fd);
	charge->watch.shared = false;
	zkl_io_thread_owner_sleeps(io_thread);
	zkl_io_thread_want_pass(io_thread);
	sem_wait(&passed);
	put(fd);
	ok(is_read_within(10000), "the thread reads a descriptor that is not shared, whatever the owner does");
	ok(zkl_io_thread_stop(io_thread, 5000), "the thread stops");
	sem_wait(&freed);
	close(fd);
}

int
main(void)
{
	sem_init(&opened, 0, 0);
	sem_init(&fired, 0, 0);
	sem_init(&freed, 0, 0);
	sem_init(&blocking, 0, 0);
	sem_init(&unblock, 0, 0);
	sem_init(&passed, 0, 0);
	test_open();
	test_stop_while_opening();
	while (sem_trywait(&opened) == 0)
		;
	test_timer();
	test_blocked_close();
	test_duty();
	test_blocking();
	test_busy_owner();
	test_passes();
	return done();
}
