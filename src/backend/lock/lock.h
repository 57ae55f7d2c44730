/*-------------------------------------------------------------------------
 *
 * lock.h
 *		Acquires and releases locks, reports lost ones, reads the queues of the ensemble.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_H
#define ZKLOCK_LOCK_H

#include "backend/session/session.h"
#include "recipe/batch.h"


/*
 * Acquires locks, locally and in the ensemble (locks.c)
 */

/*
 * Acquires all the locks or none.  Returns false on timeout (timeout_ms is in milliseconds, or
 * ZKLOCK_NO_TIMEOUT).  Waits interruptibly; throws the errors listed in doc/reference.md, after
 * releasing what it acquired.  Raises 53400 at the first name that exceeds what this session
 * can hold in this mode, without reading further.
 */
extern bool zklock_acquire(ZklockNames *names, ZklMode mode, ZklockScope scope, int64 timeout_ms);

/*
 * Acquires one more permit of a semaphore with "capacity" permits.  Returns false on
 * timeout.  Waits interruptibly; throws the errors listed in doc/reference.md, after
 * releasing what it acquired.
 */
extern bool zklock_acquire_permit(const ZklockName *name, int capacity,
								  ZklockScope scope, int64 timeout_ms);

/* Returns the token of a lock that is held, or 0.  Neither throws nor waits. */
extern int64 zklock_token(const ZklockName *name);


/*
 * Requests permits of semaphores (semaphores.c)
 */

#define ZKLOCK_MAX_PERMITS 10000

/*
 * Throws if this session holds permits of a semaphore of another capacity, or all permits
 * and would wait for one.
 */
extern void zklock_check_own_permits(const ZklockName *name, int capacity, int64 timeout_ms);

/* Requests the permit of the call, and waits.  Returns and throws like zklock_await_request(). */
extern ZklStatus zklock_request_permit(ZklockCall *call, ZklSession *session);


/*
 * Waits in a queue of the ensemble (remote_wait.c)
 */

/* The error context of a request. */
extern ZklockAction zklock_action_of(const ZklockHold *hold);

/*
 * Waits for the request for these holds, interruptibly, as long as zklock_call_end() allows; keeps
 * both in the call.  Returns OK; PENDING or BUSY on timeout, or PENDING if the caller must
 * requeue; SESSION_LOST, LOCK_LOST or OTHER_CAPACITY.  Then the caller takes what is granted and
 * ends the request.  In all other cases ends the request and throws.  A NULL request means
 * that memory was exhausted.
 */
extern ZklStatus zklock_await_request(ZklockCall *call, ZklSession *session, ZklRequest *request,
									  ZklockHold **holds);


/*
 * Detects deadlocks across servers (deadlock.c)
 */

/*
 * Publishes a wait that has lasted for deadlock_timeout, and searches for a cycle.
 * Called whenever the wait is checked; lowers *check_again to the time of the next call.
 * Waits for answers, interruptibly, until the request is decided or its timeout has passed.
 * "display" is the name of what it waits for.  Throws 40P01.  Sets the call's "must_requeue", if its
 * "may_requeue" is set, when the caller is to queue again instead: it only keeps a place in the queue
 * for local waiters, and its failure would not break the cycle.
 */
extern void zklock_search_deadlock(ZklockCall *call, bool is_permit, const char *display,
								   int64 *check_again);

/* Ends the search, if it has begun, also after an error.  Neither throws nor waits. */
extern void zklock_end_search(ZklockQueueWait *wait);


/*
 * Makes the ensemble and the local lock hold what is counted, and no more (settle.c).  No
 * function here throws, waits or allocates.
 */

/*
 * Reduces the local lock and the ensemble lock to what is counted; frees the entry if
 * nothing is counted.  Skips a pinned entry: the call that pinned it settles it.
 */
extern void zklock_settle(ZklockHold *hold);

/* Same, for all entries; releases in the ensemble are sent together. */
extern void zklock_settle_every(void);

/* Releases only the local lock, of a lost lock whose counts stay until that is reported. */
extern void zklock_release_locally(ZklockHold *hold);

/* Passes the counts of a committed subtransaction of this nest level to its parent. */
extern void zklock_inherit_level(int level);

/* Is the hold lost, and not reported yet? */
extern bool zklock_is_lost(const ZklockHold *hold);

/* Removes a lost lock from the hold table, at every level. */
extern void zklock_lose(ZklockHold *hold);


/*
 * Releases locks and permits of the session, and of transactions that end (release.c)
 */

/*
 * Releases the transaction-level counts of this nest level and deeper; see zklock_note_release()
 * for those of a subtransaction: what it has read under a lock is not undone.  Neither throws
 * nor waits.
 */
extern void zklock_release_levels(int level);

/*
 * Releases one session-level count of each of these names that has one in this mode,
 * however often the name is repeated.  Stores for each name, in their order, whether it has;
 * a WARNING for each that has not.  Does not wait.
 */
extern void zklock_release(ZklockNames *names, ZklMode mode, bool *released);

/* Releases all session-level counts.  Neither throws nor waits nor allocates. */
extern void zklock_release_session(void);

/*
 * Releases one session-level permit.  Returns false, with a WARNING, if there is none.
 * Does not wait.
 */
extern bool zklock_release_permit(const ZklockName *name);


/*
 * Reports lost locks, and refuses commits that relied on them (loss.c)
 */

/*
 * If locks were lost since the last call, removes them and raises 40001 with their names;
 * the transaction can no longer commit.  In a security-restricted operation, does not
 * remove them.  Closes a lost session.  Otherwise does nothing.  No network.
 */
extern void zklock_check_loss(void);

/*
 * For PG_CATCH.  If the error is, or results from, the cancel of a loss, raises that of
 * zklock_check_loss() instead, in this memory context.  Outside of a security-restricted
 * operation, so does one of a loss that restricted code got, and could not make forgotten.  Whether
 * the statement began in such an operation is passed, because only a rollback ends it.
 */
extern void zklock_translate_cancel(MemoryContext context, bool is_restricted);

/*
 * Makes sure that this transaction cannot commit, even if the error that the caller raises is
 * caught.  The list has the locks for the message.
 */
extern void zklock_fail_transaction(const ZklockNameList *list);

/* Same, if the caller raises none: COMMIT will, or the server's log will name the locks. */
extern void zklock_fail_later(const ZklockNameList *list);

/*
 * At the end of a transaction: releases the local locks of lost locks, so that an idle
 * session does not block others until it reports the loss.  Does not throw.
 */
extern void zklock_release_lost_locally(void);

/* After a release: withdraws cancels for locks no longer held.  Does not throw. */
extern void zklock_withdraw_requests(void);

/*
 * At PRE_COMMIT and PRE_PREPARE: raises 40001 unless all locks are held as surely as
 * zklock.commit_check requires.  May wait, interruptibly, for one round trip and at most the
 * session timeout.
 */
extern void zklock_check_commit(void);

/* Same, before a command whose commit may not be refused. */
extern void zklock_check_irreversible(void);

/*
 * After the commit or prepare: logs the locks that were lost since the check, too late to
 * refuse the commit.  Neither throws nor waits.
 */
extern void zklock_note_late_loss(void);

/*
 * Called before a lock is released inside a transaction, also by the rollback of a
 * subtransaction.  If it is lost, the transaction cannot commit.  If it is uncertain whether it
 * is still held, the transaction must ask the ensemble at commit; an error then names it.
 * Neither throws nor waits.
 */
extern void zklock_note_release(const ZklockHold *released);

/*
 * Asks the ensemble whether this session still holds this lock, and everything else, with a
 * request that is sent now.  Waits, interruptibly, like zklock_check_commit(), whatever
 * zklock.commit_check is.  Raises 40001 if not, or if there is no answer; then the
 * transaction cannot commit.
 */
extern void zklock_confirm_hold(const ZklockHold *hold);

/*
 * The transaction has ended; after a rollback, its locks are not released yet.  Logs the losses that no
 * error has named.  Neither throws nor waits.
 */
extern void zklock_end_transaction(bool aborted);


/*
 * Reads znodes of the ensemble in batches, and begins again after a lost connection
 * (cluster.c)
 */

/* The most operations of one zklock_read_batch(). */
#define ZKLOCK_READ_BATCH 500

typedef struct ZklockReader
{
	const ZklockAction *action;
	ZklSession *session;		/* in this attempt */
	ZklockCall	call;
	ZklBatch   *batch;			/* the last one, or NULL */
	uint64		progress;		/* of the batches before it, in this attempt */
	int			n_denied;		/* znodes that ACLs forbid to read, in this attempt */
} ZklockReader;

/*
 * Reads in nested loops, with zklock_read_batch().  Returns true when everything is read;
 * false, and drops what it has read, as soon as zklock_read_batch() returns NULL.
 */
typedef bool (*ZklockReadAttempt) (ZklockReader *reader, void *arg);

/*
 * Calls "attempt" until it returns true.  Opens a session if there is none.  Waits
 * interruptibly, up to zklock.ensemble_timeout, for the connection and for answers, at the
 * start and whenever the connection is lost.  If connecting or reading fails, raises "could
 * not <action>: reason".  Returns how many znodes ACLs forbid to read.
 */
extern int	zklock_read_ensemble(const ZklockAction *action,
								 ZklockReadAttempt attempt, void *arg);

/*
 * Executes the operations, many at a time, and waits for the answers.  Returns the results,
 * one for each operation and valid until the next call; NULL if the attempt has failed.
 * Sees all writes before the beginning of the attempt.
 */
extern const ZklResult *zklock_read_batch(ZklockReader *reader,
										  const ZklOp *ops, int n_ops);

/* Returns whether a znode exists and may be read; counts it if it may not. */
extern bool zklock_read_found(ZklockReader *reader, ZklResultCode code);


/*
 * Reads the queues of the ensemble, with the nodes of all programs (queues.c)
 */

/* One znode of a holder or waiter.  Pointers are valid only during ZklockUseEntry. */
typedef struct ZklockEntry
{
	bool		is_semaphore;	/* else a lock */
	const char *name;			/* of the lock or semaphore, encoded */
	const char *path;			/* of the znode */
	ZklMode		mode;			/* NONE: a permit */
	ZklMaker	maker;			/* as far as the name shows */
	int			position;		/* 0: granted; else the place among the waiters, from 1 */
	bool		is_anchor;		/* the shared node of a session that was granted its upgrade */
	bool		is_readable;	/* if not, the members below are not known */
	int64		token;			/* czxid; of an upgrade, its shared node's */
	int64		session_id;		/* 0: not ephemeral */
	int64		ctime_ms;		/* creation, since 1970, on the leader's clock */
	const char *data;			/* any bytes; NULL: none, or more than recipes write */
	int			data_len;
} ZklockEntry;

typedef void (*ZklockUseEntry) (const ZklockEntry *entry, void *arg);

/*
 * In an attempt of zklock_read_ensemble(): passes all entries of the lock or semaphore with an
 * encoded name, or, without one, of all locks or semaphores below the root, to "use": by name,
 * in the order of the queues, the shared node of an upgrade before the exclusive one.  Returns
 * false if the attempt has failed.
 */
extern bool zklock_read_queues(ZklockReader *reader, bool is_semaphore, const char *name,
							   ZklockUseEntry use, void *arg);


/*
 * Requests the release of a lock from its holders (revoker.c)
 */

/*
 * Requests release from all holders of the lock; returns their number.  Waits and throws like
 * zklock_read_ensemble().  Throws 42501 if the ensemble or the role's rights do not allow some
 * of the requests.
 */
extern int	zklock_revoke(const ZklockName *name);


/*
 * Fencing: an earlier holder cannot commit after a conflicting later one has fenced (fence.c)
 */

/* Called once, from _PG_init(), in the postmaster. */
extern void zklock_install_fences(void);

/*
 * Called before the create of the lock's node is submitted: notes who has fenced.  If the node is
 * an older one, the caller clears "is_known" of the mark.  May run out of memory.
 */
extern void zklock_fence_note(ZklockHold *hold);

/*
 * Fences a lock that this session holds, in the mode in which it holds it: makes sure that no
 * conflicting later holder has fenced it in this database, and that none can before this
 * transaction ends.  Returns the token; raises 55000 if the lock is not held, 40001 if the
 * ensemble has to be asked and does not confirm the hold, 25006 during recovery.  Waits,
 * interruptibly, for transactions of conflicting holders that have fenced the lock.
 */
extern int64 zklock_fence(const ZklockName *name);

#endif							/* ZKLOCK_LOCK_H */
