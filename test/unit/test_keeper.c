/*-------------------------------------------------------------------------
 *
 * test_keeper.c
 *		Promises of the keeper thread, on the real clock.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "keeper.h"
#include "tap.h"

/* What the keeper is to look after; freed by it. */
typedef struct Charge
{
	int			opens_to_fail;
	int			opened;
	bool		close_blocks;
	bool		all_blocked;
	int64_t		alarm_ms;
	int			alarms;
	sem_t		let_close;
} Charge;

static sem_t opened;
static sem_t rung;
static sem_t freed;
static bool freed_abandoned;
static Charge *charge;
static int	closed;
static int64_t last_alarm_ms;

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

static void
alarm_io(void *arg)
{
	Charge	   *c = arg;

	c->alarm_ms = zkl_keeper_now();
	c->alarms++;
	last_alarm_ms = c->alarm_ms;
	sem_post(&rung);
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

static ZklKeeper *
start(int opens_to_fail)
{
	static const ZklKeeperDuties duties = {open_io, alarm_io, close_io, free_io};
	ZklKeeper  *keeper;

	charge = calloc(1, sizeof(Charge));
	charge->opens_to_fail = opens_to_fail;
	sem_init(&charge->let_close, 0, 0);
	closed = 0;
	zkl_keeper_start(&keeper, &duties, charge);
	return keeper;
}

static void
test_open(void)
{
	sigset_t	before;
	sigset_t	after;
	int64_t		began;
	ZklKeeper  *keeper;

	pthread_sigmask(SIG_SETMASK, NULL, &before);
	began = zkl_keeper_now();
	keeper = start(1);
	ok(zkl_keeper_wait_open_io(keeper), "opening that fails is tried again");
	ok(zkl_keeper_now() - began >= 400, "... after a pause");
	is_int(charge->opened, 2, "... once more");
	ok(charge->all_blocked, "signals are blocked in the thread");
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	ok(sigismember(&before, SIGTERM) == sigismember(&after, SIGTERM) &&
	   sigismember(&before, SIGINT) == sigismember(&after, SIGINT),
	   "... and as before in the caller");
	ok(zkl_keeper_stop(keeper, 5000), "it stops");
	is_int(closed, 1, "... having closed once");
	is_int(sem_trywait(&freed), 0, "... and freed");
	ok(!freed_abandoned, "... for its owner");
	while (sem_trywait(&opened) == 0)
		;
}

static void *
wait_open(void *keeper)
{
	return zkl_keeper_wait_open_io(keeper) ? keeper : NULL;
}

/* A waiter must be done before the keeper is freed: close_io joins it, as the library does. */
static void
test_stop_while_opening(void)
{
	int64_t		began = zkl_keeper_now();
	ZklKeeper  *keeper = start(1000000);

	sem_wait(&opened);
	ok(zkl_keeper_stop(keeper, 5000), "a keeper that can't open stops");
	ok(zkl_keeper_now() - began < 2000, "... at once");
	sem_wait(&freed);
}

static void
test_alarm(void)
{
	ZklKeeper  *keeper = start(0);
	int64_t		now;

	sem_wait(&opened);
	now = zkl_keeper_now();
	zkl_keeper_set_alarm(keeper, now + 3600000);
	zkl_keeper_set_alarm(keeper, now + 60);
	sem_wait(&rung);
	ok(last_alarm_ms >= now + 60, "an alarm rings, not before its time");
	ok(last_alarm_ms < now + 2000, "... and soon after");
	zkl_keeper_set_alarm(keeper, now - 5);
	sem_wait(&rung);
	ok(true, "one that is due already rings");
	zkl_keeper_set_alarm(keeper, now + 3600000);
	zkl_keeper_set_alarm(keeper, 0);
	ok(zkl_keeper_stop(keeper, 5000), "a keeper with no alarm stops");
	sem_wait(&freed);
	is_int(sem_trywait(&rung), -1, "each alarm rings once");
}

static void
test_blocked_close(void)
{
	ZklKeeper  *keeper = start(0);
	sem_t	   *let_close = &charge->let_close;
	int64_t		began;

	sem_wait(&opened);
	charge->close_blocks = true;
	began = zkl_keeper_now();
	ok(!zkl_keeper_stop(keeper, 100), "stopping tells when closing takes too long");
	ok(zkl_keeper_now() - began >= 100, "... after the time it was given");
	is_int(sem_trywait(&freed), -1, "nothing is freed meanwhile");
	sem_post(let_close);
	sem_wait(&freed);
	ok(freed_abandoned, "... but when closing is through, by the thread itself");
}

static void
test_waiters(void)
{
	ZklKeeper  *keeper = start(0);
	pthread_t	waiter;
	void	   *result;

	pthread_create(&waiter, NULL, wait_open, keeper);
	pthread_join(waiter, &result);
	ok(result != NULL, "who waits for the opening is woken by it");
	zkl_keeper_stop(keeper, 5000);
	sem_wait(&freed);
}

int
main(void)
{
	sem_init(&opened, 0, 0);
	sem_init(&rung, 0, 0);
	sem_init(&freed, 0, 0);
	test_open();
	test_stop_while_opening();
	while (sem_trywait(&opened) == 0)
		;
	test_alarm();
	test_blocked_close();
	test_waiters();
	return done();
}
