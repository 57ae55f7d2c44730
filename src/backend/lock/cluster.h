/*-------------------------------------------------------------------------
 *
 * cluster.h
 *		Reads znodes of the ensemble in batches, and begins again after a lost connection.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLUSTER_H
#define ZKLOCK_CLUSTER_H

#include "backend/session/errors.h"
#include "backend/session/wait.h"
#include "recipe/batch.h"

/* The most operations of one zklock_read_batch(). */
#define ZKLOCK_READ_BATCH 500

typedef struct ZklockReader
{
	const ZklockAction *action;
	ZklSession *session;		/* in this attempt */
	ZklockTimeout timeout;
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
 * interruptibly, up to zklock.connect_timeout, for the connection and for answers, at the
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

#endif							/* ZKLOCK_CLUSTER_H */
