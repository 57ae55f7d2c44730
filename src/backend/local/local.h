/*-------------------------------------------------------------------------
 *
 * local.h
 *		Local locks, the locks of the transaction, and the sessions that wait for this backend.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCAL_H
#define ZKLOCK_LOCAL_H

#include "storage/lock.h"

#include "recipe/recipe.h"



/*
 * The local lock: the part of a lock in PostgreSQL's own lock manager (local_lock.c)
 */

/* Does this session hold it, in any mode?  DISCARD ALL may have released it. */
extern bool zklock_local_is_held(uint64 key);

/*
 * Acquires the lock among the sessions of this server, if that needs no wait for another one.  Waits
 * for a moment if this session holds it in another mode; a deadlock found by that is an
 * error, or with "is_attempt" a false.
 */
extern bool zklock_local_try(uint64 key, ZklMode mode, bool is_attempt);

/*
 * Waits for the lock until the given time (zkl_now_ms()), interruptibly, under deadlock detection, but
 * not under lock_timeout; returns false if that has passed.  Throws the errors of a wait for
 * a heavyweight lock.
 */
extern bool zklock_local_wait(uint64 key, ZklMode mode, int64 until);

/* Returns whether another session waits for it, while this one holds it in the mode. */
extern bool zklock_local_has_waiters(uint64 key, ZklMode mode);

/* Neither throws nor waits; does nothing if the lock is no longer held. */
extern void zklock_local_release(uint64 key, ZklMode mode);

/* Returns whether this is a local lock, and its key. */
extern bool zklock_local_key(const LOCKTAG *tag, uint64 *key);


/*
 * The locks of the current transaction (transaction_locks.c)
 */

/*
 * Returns a text about a heavyweight lock that the transaction holds until its end, other than
 * on its own virtual transaction id; NULL if there is none.  If there is one, the caller raises
 * an error.  Reads the whole lock table.
 */
extern const char *zklock_transaction_lock(void);


/*
 * The sessions that wait for this backend in PostgreSQL's lock manager (lock_waiters.c)
 */

/*
 * Returns a number that identifies the set of all waits in the lock manager that have
 * lasted for deadlock_timeout; 0 if there are none.  Cheap, takes no locks.
 */
extern uint64 zklock_long_waits(void);

/*
 * Returns the sessions that wait for this backend there, directly or through others, all
 * for longer than deadlock_timeout, and hold something.  Palloc'd.
 */
extern int	zklock_waiting_for_me(ZklLocalWaiter **local_waiters);

#endif							/* ZKLOCK_LOCAL_H */
