/*-------------------------------------------------------------------------
 *
 * io_thread.h
 *		The I/O thread of a client: it makes the calls that may block, runs the
 *		timer, and reads from the connection while the owner does not.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_IO_THREAD_H
#define ZKL_IO_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ZklIoThread ZklIoThread;

#define ZKL_IO_THREAD_NEVER INT64_MAX

/* The events and the time that the thread waits for before its next pass. */
typedef struct ZklIoThreadWatch
{
	int			fd;				/* -1: none */
	short		events;			/* as for poll() */
	bool		shared;			/* the owner may poll the descriptor as well, and reads first */
	int64_t		until_ms;		/* a pass is due at this time in any case */
} ZklIoThreadWatch;

/* What the thread has to do next. */
typedef enum ZklIoThreadStep
{
	ZKL_IO_THREAD_SLEEP,
	ZKL_IO_THREAD_PASS,			/* connect, read, send heartbeats; sets what to wait for then */
	ZKL_IO_THREAD_TIMER,		/* the timer has fired */
	ZKL_IO_THREAD_STOP			/* close the client, and then call zkl_io_thread_stopped() */
} ZklIoThreadStep;

/*
 * Starts the thread, with all signals blocked in it.  *io_thread is set before the
 * thread runs.  It is NULL when threads, descriptors or memory are exhausted.
 */
extern void zkl_io_thread_start(ZklIoThread **io_thread, void *(*main_io) (void *), void *arg);

/*
 * Sleeps until there is something to do; never returns SLEEP.  Only that thread, without any
 * mutex.  Before the first pass, until_ms is 0.
 */
extern ZklIoThreadStep zkl_io_thread_next(ZklIoThread *io_thread, const ZklIoThreadWatch *watch);

/*
 * The client is closed.  Returns whether nobody waits for that: then that thread frees
 * the client, and *io_thread must not be used afterwards.
 */
extern bool zkl_io_thread_stopped(ZklIoThread *io_thread);

/* Starts another thread, with all signals blocked in it; false: none could be created. */
extern bool zkl_io_thread_begin(pthread_t *thread, void *(*main_io) (void *), void *arg);

/* Starts closing the client; zkl_io_thread_stop() must follow.  Any thread, never blocks. */
extern void zkl_io_thread_end(ZklIoThread *io_thread);

/*
 * Has the client closed on the I/O thread, and waits for that for at most timeout_ms.  Returns
 * true if it is closed, and to be freed; false if the thread continues alone, and frees it.
 * *io_thread must not be used afterwards.
 */
extern bool zkl_io_thread_stop(ZklIoThread *io_thread, int timeout_ms);

/* The owner begins or ends to poll the connection: it reads first, until some time later. */
extern void zkl_io_thread_owner_waits(ZklIoThread *io_thread, bool waits);

/* Requests a pass as soon as possible.  Any thread, never blocks. */
extern void zkl_io_thread_want_pass(ZklIoThread *io_thread);

/* Replaces the time of the next timer event; 0: none.  Any thread, never blocks. */
extern void zkl_io_thread_set_timer(ZklIoThread *io_thread, int64_t at_ms);

/* Returns milliseconds of a monotonic clock that counts suspended time. */
extern int64_t zkl_io_thread_now(void);

#endif							/* ZKL_IO_THREAD_H */
