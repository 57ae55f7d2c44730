/*-------------------------------------------------------------------------
 *
 * fake_client.h
 *		The client interface on an in-memory ZooKeeper that fails on demand.
 *
 * Two modes.  Deterministic: nothing happens inside a submission; the test
 * executes requests and delivers answers one by one, on its own thread, and
 * controls the clock.  Threaded: every client has a thread that does both, the
 * I/O thread runs the timers, and the clock is the real one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FAKE_CLIENT_H
#define FAKE_CLIENT_H

#include "recipe/zookeeper/client.h"
#include "fake_tree.h"

typedef enum FakeFault
{
	FAULT_NONE,
	FAULT_DROP,					/* connection lost before the server gets the request */
	FAULT_APPLY_DROP,			/* the server executes it; then the connection is lost */
	FAULT_APPLY_ALL_DROP,		/* ... and all pending requests behind it, too */
	FAULT_DELAY,				/* its answer, and all after it, until fake_release() */
	FAULT_NO_AUTH,				/* refused by the server */
	FAULT_OTHER,
	FAULT_AUTH,					/* the server rejects the credentials, ends the session */
	FAULT_REFUSE,				/* the submission returns false */
	FAULT_THROTTLE,				/* not executed, CONNECTION_LOSS, but the connection stays */
	FAULT_EXPIRE,				/* the session expires before the server gets the request */
	FAULT_APPLY_EXPIRE,			/* ... after the server executed it */
	FAULT_FORGET,				/* executed; no answer until the next submission */
	FAULT_APPLY_OTHER,			/* executed, but answered with an unexpected error */
	FAULT_STALE,				/* APPLY_DROP; the next server lags, and its first sync fails */
	N_FAULTS
} FakeFault;

extern const char *fake_fault_name(FakeFault fault);

/* Resets the ensemble, the faults and the clock.  All clients must be closed. */
extern void fake_reset(void);

/* Returns the client that was opened last. */
extern ZklClient *fake_last_client(void);

/* Called after every single event, on the test's thread. */
extern void (*fake_after_step) (void);


/*
 * The network
 */

extern void fake_connect(ZklClient *client);

/* The servers grant this session timeout from the next connection on. */
extern void fake_grant_timeout(ZklClient *client, int timeout_ms);

/* Breaks the connection; no pending request reaches the server any more. */
extern void fake_disconnect(ZklClient *client);

/* A connection attempt failed: calls made meanwhile fail, without an event. */
extern void fake_fail_attempt(ZklClient *client);

/* Expires the session; the client detects this when it connects. */
extern void fake_expire(ZklClient *client);
extern bool fake_is_connected(const ZklClient *client);
extern bool fake_is_expired(const ZklClient *client);
extern int64_t fake_session_id(const ZklClient *client);

/*
 * Expires the session while its connection hangs: undelivered answers arrive after
 * fake_release(), then the connection is lost.
 */
extern void fake_expire_silently(ZklClient *client);


/*
 * Servers that lag
 */

/*
 * From now on the client's servers lag behind the leader.  They catch up with a
 * sync, with a write of this client, or by fake_catch_up().  No server is further
 * behind than the last transaction that the client has seen.
 */
extern void fake_lag(ZklClient *client, bool lags);

/* Catches up by at most so many transactions. */
extern void fake_catch_up(ZklClient *client, int transactions);

/* Makes the next sync fail with this code. */
extern void fake_fail_sync(ZklClient *client, ZklResultCode code);

/* When was the client's last write submitted that became a transaction, even failed? */
extern int64_t fake_last_write_ms(const ZklClient *client);


/*
 * Time passing
 */

/* When was the next request submitted?  0: there is none. */
extern int64_t fake_oldest_ms(const ZklClient *client);

/* Executes the next request; its answer then waits for delivery. */
extern bool fake_apply(ZklClient *client);

/* Delivers the next answer or event. */
extern bool fake_deliver(ZklClient *client);

/* Delivers a waiting answer; else executes the next request and delivers its answer. */
extern bool fake_step(ZklClient *client);

/* Steps all clients in turn until nothing more happens without a timer. */
extern void fake_run_all(void);

extern int64_t fake_now(void);

/* Advances the clock while nothing runs: all threads are stalled. */
extern void fake_stall(int64_t ms);

/* Advances the clock and fires the timers that come due, running all after each. */
extern void fake_advance(int64_t ms);

/* Fires the client's timer if it is due, and runs nothing after it. */
extern bool fake_ring(ZklClient *client);

/* Returns the time of the client's next timer, or 0. */
extern int64_t fake_timer(const ZklClient *client);


/*
 * Faults and records
 */

/* Counts the client's submissions from here, and clears faults and trace. */
extern void fake_count(ZklClient *client);
extern int	fake_counted(const ZklClient *client);

/* The k-th submission since the last fake_count(), from 1, gets this fault. */
extern void fake_fault(ZklClient *client, int k, FakeFault fault);
extern bool fake_fault_happened(const ZklClient *client);

/* Ends FAULT_DELAY. */
extern void fake_release(ZklClient *client);

/* Does what the library does when answers are missing for 2/3 of the timeout. */
extern void fake_receive_timeout(ZklClient *client);

/*
 * Returns one letter for each counted submission: c create, d delete, g get, w get
 * with watch, l list, L list with watch, u set, s sync, m multi.
 */
extern const char *fake_trace(const ZklClient *client);

/* Returns how often this letter is in it. */
extern int	fake_n_traced(const ZklClient *client, char letter);

/* Returns how many proofs it has sent.  They do not count as submissions. */
extern int	fake_proofs(const ZklClient *client);

/* Returns how many connections the session has ended by itself. */
extern int	fake_drops(const ZklClient *client);

/* Returns how many watches the server keeps for the client. */
extern int	fake_watches(const ZklClient *client);

/* Makes zkl_client_close() time out and leave the client alive. */
extern void fake_close_hangs(ZklClient *client);

/* Returns the number of clients. */
extern int	fake_n_clients(void);

/* Frees a client that was left alive by that. */
extern void fake_close_late(ZklClient *client);

/* Threaded mode, until fake_reset(): each request breaks the connection with this chance. */
extern void fake_go_threaded(int breaks_per_1000);

#endif							/* FAKE_CLIENT_H */
