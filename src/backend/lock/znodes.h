/*-------------------------------------------------------------------------
 *
 * znodes.h
 *		Reads znodes of the ensemble.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ZNODES_H
#define ZKLOCK_ZNODES_H

#include "backend/session/call.h"
#include "backend/session/errors.h"
#include "recipe/batch.h"
#include "recipe/recipe.h"


/*
 * Reads znodes of the ensemble in batches, and begins again after a lost connection
 * (znodes.c)
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

#endif							/* ZKLOCK_ZNODES_H */
