/*-------------------------------------------------------------------------
 *
 * fake_client.h
 *		The client seam over a ZooKeeper in memory that fails on demand.
 *
 * Two modes.  In the deterministic one nothing happens inside a submission:
 * the test applies requests and delivers answers one by one, on its own
 * thread, and owns the clock.  In the threaded one every client has a thread
 * that does so, and the keeper's thread for alarms; the clock is the real one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FAKE_CLIENT_H
#define FAKE_CLIENT_H

#include "client.h"
#include "fake_tree.h"

typedef enum FakeFault
{
	FAULT_NONE,
	FAULT_DROP,					/* the connection goes before the server sees it */
	FAULT_APPLY_DROP,			/* the server does it; then the connection goes */
	FAULT_APPLY_ALL_DROP,		/* ... and everything in flight behind it, too */
	FAULT_DELAY,				/* its answer, and all after it, until fake_release() */
	FAULT_NO_AUTH,				/* refused by the server */
	FAULT_OTHER,
	FAULT_AUTH,					/* the server wants other credentials, and ends the session */
	FAULT_REFUSE,				/* the submission returns false */
	FAULT_THROTTLE,				/* not done, CONNECTION_LOSS, and the connection stays */
	FAULT_EXPIRE,				/* the session ends before the server sees it */
	FAULT_APPLY_EXPIRE,			/* ... after the server did it */
	FAULT_FORGET,				/* done; no answer until something more is submitted */
	N_FAULTS
} FakeFault;

extern const char *fake_fault_name(FakeFault fault);

/* Forgets the ensemble and the faults; sets the clock.  All clients are closed. */
extern void fake_reset(void);

/* The client that was opened last. */
extern ZklClient *fake_last_client(void);

/* Called after every single thing that happens, on the test's thread. */
extern void (*fake_after_step) (void);


/*
 * The network
 */

extern void fake_connect(ZklClient *client);

/* Everything in flight is lost; nothing more of it reaches the server. */
extern void fake_disconnect(ZklClient *client);

/* A connection attempt failed: calls made meanwhile fail, without an event. */
extern void fake_fail_attempt(ZklClient *client);

/* The ensemble ends the session; the client learns it when it connects. */
extern void fake_expire(ZklClient *client);
extern bool fake_is_connected(const ZklClient *client);
extern bool fake_is_expired(const ZklClient *client);
extern int64_t fake_session_id(const ZklClient *client);


/*
 * Time passing
 */

/* The next request reaches the server; its answer waits to be delivered. */
extern bool fake_apply(ZklClient *client);

/* The next answer or event is delivered. */
extern bool fake_deliver(ZklClient *client);

/* Delivers what waits; else applies the next request and delivers its answer. */
extern bool fake_step(ZklClient *client);

/* Steps all clients in turn until nothing more happens by itself. */
extern void fake_run_all(void);

/* Lets the clock go on and rings the alarms that come due, running all after each. */
extern void fake_advance(int64_t ms);

/* The time of the client's next alarm, or 0. */
extern int64_t fake_alarm(const ZklClient *client);


/*
 * Faults and records
 */

/* Counts the client's submissions from here, and forgets faults and trace. */
extern void fake_count(ZklClient *client);
extern int	fake_counted(const ZklClient *client);

/* The k-th submission counted from the last fake_count(), from 1, suffers this. */
extern void fake_fault(ZklClient *client, int k, FakeFault fault);
extern bool fake_fault_happened(const ZklClient *client);

/* FAULT_DELAY is over. */
extern void fake_release(ZklClient *client);

/* What the library does when answers stay out for two thirds of the timeout. */
extern void fake_receive_timeout(ZklClient *client);

/*
 * A letter for each submission counted: c create, d delete, g get, w get with
 * watch, l list, L list with watch, u set, s sync, m multi.
 */
extern const char *fake_trace(const ZklClient *client);

/* How many watches does the server keep for the client? */
extern int	fake_watches(const ZklClient *client);

/* zkl_client_close() says it did not happen in time, and leaves the client alive. */
extern void fake_close_hangs(ZklClient *client);

/* Frees a client that was left alive so. */
extern void fake_close_late(ZklClient *client);

/* Threaded mode, until fake_reset(): each request breaks the connection with this chance. */
extern void fake_go_threaded(int breaks_per_1000);

#endif							/* FAKE_CLIENT_H */
