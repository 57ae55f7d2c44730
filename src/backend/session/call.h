/*-------------------------------------------------------------------------
 *
 * call.h
 *		The state of one call, and when it gives up.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CALL_H
#define ZKLOCK_CALL_H

#include "backend/base/holds.h"
#include "backend/base/names.h"
#include "recipe/recipe.h"

/* A time that is never reached. */
#define ZKLOCK_NEVER PG_INT64_MAX

/* No timeout of its own. */
#define ZKLOCK_NO_TIMEOUT (-1)

/*
 * A wait in a queue of the ensemble, for one request; zeroed when it begins.  The second half is
 * the search for deadlocks (deadlock.c), which begins when the wait has become long.
 */
typedef struct ZklockQueueWait
{
	ZklSession *session;
	ZklRequest *request;
	ZklockHold **holds;			/* what it requests, in the order of its items */
	int64		started;
	int64		attempt_ms;		/* how long a non-blocking attempt may be blocked now */
	const char *logged;			/* what it waits for, in the server log; or NULL */

	ZklDetector *detector;		/* NULL: the wait is not long yet */
	ZklBatch   *awaited;		/* by the current step; NULL: it pauses */
	int64		pause_until;	/* ... until then, or, 0, until it is woken */
	MemoryContext scan_context; /* of the local waiters */
	uint64		long_waits;		/* at the last scan of the server; 0: none */
	ZklLocalWaiter *local_waiters;
	int			n_local_waiters;
	bool		warned;			/* ... that a deadlock may stay hidden */
} ZklockQueueWait;

/* Starts zeroed.  A call that only reads has nothing but a timeout and its progress. */
typedef struct ZklockCall
{
	/* what it is to do */
	ZklockNames *names;			/* NULL: a permit */
	ZklMode		mode;
	ZklockScope scope;
	int64		timeout_ms;		/* 0: a non-blocking attempt; or ZKLOCK_NO_TIMEOUT */
	ZklockHold **holds;			/* distinct, pinned, in the order of the local locks */
	int			n;

	/* how it has gone so far; times are those of zkl_now_ms() */
	int64		started;
	const char *waited_for;		/* the last lock that another held, locally or in the ensemble; or NULL */
	int64		waits_since;	/* for the first one: lock_timeout counts from then on */
	bool		queued;			/* has waited in a queue of the ensemble */
	bool		may_requeue;	/* can leave its place and queue again */
	bool		must_requeue;	/* ... and must: the wait ended for this */
	bool		requeued;		/* ... and has: once is enough */

	/* the answer that is due */
	uint64		progress;		/* how far the call has got with the ensemble */
	int64		progress_at;	/* 0: no answer is due */
	int64		due_since;

	ZklockQueueWait wait;
} ZklockCall;

/* What the call waits for.  See the table in call.c. */
typedef enum ZklockSituation
{
	ZKLOCK_ASKING,				/* for the ensemble: nobody is known to block the call, so far */
	ZKLOCK_BLOCKED,				/* for another session, here or in the ensemble */
	ZKLOCK_ASKING_AGAIN,		/* for the ensemble: the other session is gone */
	ZKLOCK_CUT_OFF,				/* for the connection, after it was blocked */
	ZKLOCK_N_SITUATIONS
} ZklockSituation;

/* What ends a wait. */
typedef enum ZklockEndReason
{
	ZKLOCK_END_TIMEOUT,			/* the call returns false */
	ZKLOCK_END_LOCK_TIMEOUT,	/* the call raises 55P03: zklock_raise_lock_timeout() */
	ZKLOCK_END_NO_ANSWER		/* the call fails, because of the ensemble */
} ZklockEndReason;

typedef struct ZklockEnd
{
	int64		at;				/* zkl_now_ms(); or ZKLOCK_NEVER */
	ZklockEndReason reason;
} ZklockEnd;

/*
 * Returns what ends the wait first, and when.  "progress" grows with each answer that brings the call
 * further; 0: without a session.
 */
extern ZklockEnd zklock_call_end(ZklockCall *call, ZklockSituation situation, uint64 progress);

/* The call waits for this lock, which another session holds. */
extern void zklock_call_waits_for(ZklockCall *call, const char *display);

extern _Noreturn void zklock_raise_lock_timeout(void);

/* Count the end of a call for zk_stat.  None of them throws, waits or allocates. */

/* It acquired "n" locks or permits. */
extern void zklock_count_acquired(const ZklockCall *call, int n);

/* It reached its timeout. */
extern void zklock_count_gave_up(const ZklockCall *call);

/* It failed; called in PG_CATCH, before the error is flushed. */
extern void zklock_count_failed(const ZklockCall *call);

#endif							/* ZKLOCK_CALL_H */
