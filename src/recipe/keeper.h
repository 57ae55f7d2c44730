/*-------------------------------------------------------------------------
 *
 * keeper.h
 *		A thread that does for a client what may block, and rings its alarm.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_KEEPER_H
#define ZKL_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ZklKeeper ZklKeeper;

/* All are called on the keeper's thread, without its mutex, and may block. */
typedef struct ZklKeeperDuties
{
	bool		(*open_io) (void *arg); /* false: to be tried again in a while */
	void		(*alarm_io) (void *arg);
	void		(*close_io) (void *arg);	/* whether or not open_io succeeded */
	/* The last call: by zkl_keeper_stop(), or, abandoned, by the keeper's thread. */
	void		(*free_io) (void *arg, bool abandoned);
} ZklKeeperDuties;

/*
 * Starts the thread, with all signals blocked in it and in the threads it
 * starts.  *keeper is set before the thread runs, or NULL when threads or
 * memory are exhausted; "arg" is then untouched.
 */
extern void zkl_keeper_start(ZklKeeper **keeper, const ZklKeeperDuties *duties,
							 void *arg);

/*
 * Has "arg" closed and freed, and waits for that at most timeout_ms.  False:
 * the thread goes on with it alone.  The keeper is gone either way.
 */
extern bool zkl_keeper_stop(ZklKeeper *keeper, int timeout_ms);

/* Waits until open_io has succeeded; false when stopping.  Any thread but the owner's. */
extern bool zkl_keeper_wait_open_io(ZklKeeper *keeper);

/* Replaces the time of the next alarm; 0 for none.  Any thread, never blocks. */
extern void zkl_keeper_set_alarm(ZklKeeper *keeper, int64_t at_ms);

/* Milliseconds on a monotonic clock that counts suspended time. */
extern int64_t zkl_keeper_now(void);

#endif							/* ZKL_KEEPER_H */
