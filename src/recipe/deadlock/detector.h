/*-------------------------------------------------------------------------
 *
 * detector.h
 *		Deadlocks across servers: one long wait, its report, searches and verdict.
 *
 * No server sees the waits of another one, so a session that waits for long publishes a
 * report: where it waits, and who waits for it on its server.  The queues show whom it
 * waits for.
 *
 *		detector.c			when to write the report, and to search
 *		verdict.c			rings the others, and has the ensemble check the cycle
 *		search.c			reads what a deadlock could consist of
 *		publish.c			the own report and bell
 *		step.c				batches of one step
 *		find_deadlock.h		is there a deadlock, and which session fails? (pure)
 *		report.h			the data of a report (pure)
 *		scratch.h			memory of one step
 *
 * A file calls only files below it.  This is straight-line code of the owner's thread: it
 * waits for answers in callbacks, which may also leave it for good with longjmp().  It
 * leaves itself in the same way, to the end of the step, if it has no answer
 * (zkl__step_run()) or no memory.  So a state that must not be lost is noted in the
 * ZklDetector before.  Of the layers below it uses only what recipe.h and batch.h declare, and
 * the names and order of nodes (queue/node_names.h, queue/queue_order.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DETECTOR_H
#define ZKL_DETECTOR_H

#include "find_deadlock.h"
#include "recipe/batch.h"

/* What is known of the own report in the ensemble. */
typedef enum ZklPublished
{
	ZKL_UNPUBLISHED,
	ZKL_PUBLISHED,
	ZKL_UNCERTAIN,				/* its znodes may exist, or not: to be deleted */
	ZKL_REFUSED					/* not published in this wait */
} ZklPublished;

struct ZklDetector
{
	ZklSession *session;
	ZklRequest *request;
	const ZklDetectorCallbacks *callbacks;
	void	   *arg;
	ZklDetectorConfig config;
	uint64_t	me;				/* the session's id */
	const char *root;			/* the session's */
	char	   *waiting_path;	/* of all wait reports; in the same chunk of memory, like the other path */
	char	   *bells_path;

	/* the current step; its memory is freed when the next one begins */
	ZklScratch	scratch;
	ZklBatch   *batch;
	ZklWait    *wait;			/* of the request, when last looked at */
	bool		has_waited;		/* a callback was called */
	bool		must_end;		/* the wait, by this deadlock */
	ZklDeadlock deadlock;
	bool		is_limited;		/* a bound was exceeded: a deadlock may stay hidden */

	/* the own report */
	ZklPublished published;
	uint64_t	written;		/* hash of its data */
	int32_t		bell_shown;		/* the version of the bell in it */
	uint64_t	locals[ZKL_BATCH_MAX_OPS];	/* the local waiters that may have a znode */
	int			n_locals;
	ZklBatch   *bell;			/* the read of the bell that has set the watch; or NULL */
	int32_t		bell_version;	/* ... and what it has returned */

	/* when to do what */
	int64_t		next_scan_ms;	/* at the own server */
	int64_t		next_search_ms;
	int64_t		earliest_search_ms; /* also after a ring */
	int			pause_ms;		/* the last one between two searches */
	int			failed_pause_ms;	/* the last one after a search that has failed, or 0 */
	uint64_t	victim;			/* of the deadlock that the last search has found, or 0 */
	unsigned	random;
};

/* verdict.c */
extern bool zkl__verdict_is_victim(ZklDetector *d, const ZklDeadlockFound *found);
extern void zkl__verdict_describe(ZklDetector *d, const ZklDeadlockFound *found);

/* search.c: searches for a deadlock of this session; the result is valid during the step */
extern ZklDeadlockFound zkl__search(ZklDetector *d);

/*
 * Rings the bells of these sessions: they look again whether they wait.  Notes the versions
 * of the bells.  Returns false if one of them does not exist.
 */
extern bool zkl__ring(ZklDetector *d, ZklVertex *const *reports, int n);

/* publish.c */
extern bool zkl__report_compose(ZklDetector *d, ZklReport *report, bool *is_needed);
extern bool zkl__report_write(ZklDetector *d);
extern void zkl__report_withdraw(ZklDetector *d);
extern bool zkl__report_is_rung(const ZklDetector *d);

/* step.c */
/* Returns the path of a name of a session, or of its local waiter, below a parent. */
extern const char *zkl__step_path(ZklDetector *d, const char *parent, uint64_t session,
								  uint64_t local);

/*
 * Executes operations and waits for their results, which are valid until the next call.
 * Leaves the step if there are none: the outcome of writes is then unknown.
 */
extern const ZklResult *zkl__step_run(ZklDetector *d, ZklBatchForm form, const ZklOp *ops,
									  int n);

/* Leaves the step if these operations are too many or too large for a multi. */
extern void zkl__step_check(ZklDetector *d, const ZklOp *ops, int n);

/*
 * The same as zkl__step_run() for a multi that writes the own report: returns the code of the
 * operation that has failed, or OK.
 */
extern ZklResultCode zkl__step_write(ZklDetector *d, const ZklOp *ops, int n);

/* Waits for so long, or until something changes. */
extern void zkl__step_pause(ZklDetector *d, int ms);
extern void zkl__step_end(ZklDetector *d);

#endif							/* ZKL_DETECTOR_H */
