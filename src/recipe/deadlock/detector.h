/*-------------------------------------------------------------------------
 *
 * detector.h
 *		Deadlocks across servers: one long wait, its report, searches and verdict.
 *
 * No server sees the waits of another one, so a session that waits for long publishes a
 * report: where it waits, and who waits for it on its server.  The queues show whom it
 * waits for.
 *
 *		detector.c			when to publish, to answer and to search
 *		verdict.c			rings the others, and has the ensemble check the cycle
 *		search.c			reads what a deadlock could consist of
 *		publish.c			the own report and bell
 *		scratch.c			memory and batches of one step
 *		own_nodes.c			which znodes of the report may exist; their deletes
 *		find_deadlock.h		is there a deadlock, and which session fails? (pure)
 *		report.h			the data of a report (pure)
 *
 * A file calls only files below it.  This is straight-line code of the owner's thread: it
 * waits for answers in callbacks, which may also leave it for good with longjmp().  So
 * whatever must be freed is noted in the ZklDetector before a callback is called, no
 * callback is called with the mutex held, and zkl_detector_end() cleans up.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DETECTOR_H
#define ZKL_DETECTOR_H

#include "find_deadlock.h"
#include "recipe/batch.h"
#include "recipe/semaphore/semaphore.h"

typedef struct ZklScratch ZklScratch;

struct ZklDetector
{
	ZklSession *session;
	ZklRequest *request;
	const ZklDetectorCallbacks *callbacks;
	void	   *arg;
	ZklDetectorConfig config;
	uint64_t	me;				/* the session's id */

	/* what the current step needs, freed when the next one begins */
	ZklScratch *scratch;
	ZklBatch   *batch;
	ZklSnapshot *snapshot;
	bool		is_over;		/* a callback has ended the step */
	bool		has_waited;		/* a callback was called */
	ZklDeadlock deadlock;		/* that the step has found; it uses the memory above */
	bool		is_limited;		/* a bound was exceeded: a deadlock may stay hidden */

	/* the own report */
	char		name[ZKL_WAITING_NAME_SIZE];
	bool		is_published;
	bool		is_removed;		/* the search has not found it */
	bool		is_refused;		/* the ensemble refuses it: not published in this wait */
	int			attempts;		/* in a row, of publishing */
	char	   *data;			/* as written last */
	int			data_len;
	int32_t		bell_shown;		/* the version of the bell in it */
	uint64_t   *locals;			/* the local waiters that have a znode */
	int			n_locals;
	ZklBatch   *bell;			/* the read of the bell that has set the watch; or NULL */
	int32_t		bell_version;	/* ... and what it has returned */

	/* when to do what */
	int64_t		next_look_ms;	/* at the own server */
	int64_t		next_search_ms;
	int64_t		searched_ms;
	int			n_searches;		/* at the slow pace */
	int64_t		soon_until_ms;	/* a deadlock was seen: search soon until then */
	uint64_t	seen;			/* identifies this deadlock, or 0 */
	int64_t		rang_ms;		/* the bell of its victim, last */
	int64_t		next_claim_ms;
	int			claim_pause_ms;
	unsigned	random;
};

/* verdict.c */
extern bool zkl__verdict_claim(ZklDetector *d, const ZklDeadlockFound *found);
extern bool zkl__verdict_describe(ZklDetector *d, const ZklDeadlockFound *found);

/* search.c */
extern ZklDeadlockFound zkl__search(ZklDetector *d);
extern bool zkl__ring(ZklDetector *d, const uint64_t *sessions, int n, int32_t *versions);

/* publish.c */
typedef enum ZklReportState
{
	ZKL_REPORT_UNSETTLED,		/* not now: the wait is changing, or a release is pending */
	ZKL_REPORT_NOT_NEEDED,		/* no other session can wait for this one */
	ZKL_REPORT_NEEDED
} ZklReportState;

extern ZklReportState zkl__report_compose(ZklDetector *d, ZklReport *report);
extern bool zkl__report_publish(ZklDetector *d);
extern bool zkl__report_update(ZklDetector *d);
extern void zkl__report_answer(ZklDetector *d);
extern void zkl__report_withdraw(ZklDetector *d);
extern bool zkl__report_is_rung(const ZklDetector *d);

/* scratch.c */
extern void *zkl__scratch(ZklDetector *d, size_t size);
extern char *zkl__scratch_copy(ZklDetector *d, const char *text);
extern char *zkl__scratch_path(ZklDetector *d, const char *parent, const char *child);
extern const ZklBatchResult *zkl__run(ZklDetector *d, ZklBatchForm form, const ZklOp *ops, int n);
extern void *zkl__scratch_keep(ZklDetector *d, void *memory);
extern void zkl__step_end(ZklDetector *d);

/* own_nodes.c */
extern void zkl__own_nodes_advance(ZklSession *session);
extern void zkl__own_nodes_free(ZklSession *session);
extern bool zkl__own_nodes_add(ZklSession *session, const char *path);
extern void zkl__own_nodes_forget(ZklSession *session);
extern void zkl__own_nodes_leave(ZklSession *session, const char *path);
extern bool zkl__own_nodes_are_leaving(ZklSession *session);

#endif							/* ZKL_DETECTOR_H */
