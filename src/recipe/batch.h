/*-------------------------------------------------------------------------
 *
 * batch.h
 *		Interface of the recipe layer, second part: operations on any znodes, and queues.
 *
 * For views, for revocation and for searches of the owner, which read znodes in nested
 * loops: each loop makes a batch, waits for it, and goes on with the results.  The first
 * batch begins with a sync, so that the list behind it, and all later reads of the session,
 * see all writes before.  If a batch fails because its connection was lost, the owner begins
 * again.
 *
 * Rules for threads and blocking are those of recipe.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_BATCH_H
#define ZKL_BATCH_H

#include "recipe.h"
#include "zookeeper/operation.h"

typedef enum ZklBatchForm
{
	ZKL_BATCH_PIPELINED,		/* one request each, sent and executed in this order */
	ZKL_BATCH_ATOMIC			/* one multi: creates, deletes, sets and checks, all or none */
} ZklBatchForm;

/* Limits of a batch: operations, and bytes of paths and data in an ATOMIC one. */
#define ZKL_BATCH_MAX_OPS 1000
#define ZKL_BATCH_MAX_ATOMIC_BYTES (512 * 1024)

/*
 * Starts a batch and returns at once; NULL when memory is exhausted.  The operations in
 * flight are bounded.  Other programs' data may have a megabyte, so a stat comes first where
 * others can write.  If the session is not connected, the batch begins after connecting.
 */
extern ZklBatch *zkl_batch(ZklSession *session, ZklBatchForm form,
						   const ZklOp *ops, int n_ops);

typedef struct ZklBatchInfo
{
	ZklStatus	status;
	int			raw_code;		/* the client library's code for SERVER_ERROR */
	uint64_t	progress;		/* also while pending: as in ZklRequestInfo */
	bool		is_outdated;	/* something that was read with a watch may have changed since */
} ZklBatchInfo;

/*
 * Returns the state of a batch.  The status is PENDING; OK once every operation is answered,
 * each with a code of its own; or why the batch failed: then what was sent may have happened.
 * CONNECTION_LOST: a new batch begins on the next connection.  TOO_MANY: more operations,
 * bytes or answers than a batch may have.  When the status or is_outdated changes, the
 * session's descriptor becomes readable.
 */
extern ZklBatchInfo zkl_batch_info(ZklBatch *batch);

/*
 * Returns the results, one for each operation, of a batch that is OK; freed with it.  Behind
 * data there is a NUL; there are no paths.  ATOMIC: if the multi failed, ROLLED_BACK for all
 * but the operation that failed; or the code of the multi for all.
 */
extern const ZklResult *zkl_batch_results(const ZklBatch *batch);

/* Ends and frees the batch, in any state.  Sends nothing more of it. */
extern void zkl_batch_end(ZklBatch *batch);

/* Returns the session's root, as long as the session exists.  Any thread. */
extern const char *zkl_session_root(const ZklSession *session);


/*
 * Queues, as batches have read them; pure functions, any thread
 */

/* Returns whether a child of a lock's znode is the node of a holder or waiter. */
extern bool zkl_is_contender(const char *child);

typedef struct ZklPlace
{
	int			index;			/* in the array of names */
	ZklMode		mode;
	int			position;		/* 0: granted; else the place among the waiters, from 1 */
	int			anchor;			/* upgrade: index of its session's shared node; else -1 */
} ZklPlace;

/*
 * Stores the places of the contenders among these children of a lock's znode, in the order
 * of the queue; "places" has room for all.  Returns their number, or -1 if memory is
 * exhausted.
 */
extern int	zkl_order_queue(const char *const *children, int n_children, ZklPlace *places);

/* Returns which program created a child; "session_id" is the owner of the node, or 0. */
extern ZklMaker zkl_maker(const char *child, int64_t session_id);

/*
 * Parses the data of a semaphore.  Returns false, and leaves *capacity as it is, if they
 * are not a number: they are empty, or another program's.
 */
extern bool zkl_parse_capacity(const char *data, int data_len, int *capacity);

#endif							/* ZKL_BATCH_H */
