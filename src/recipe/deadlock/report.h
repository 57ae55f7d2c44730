/*-------------------------------------------------------------------------
 *
 * report.h
 *		A wait report: where a session waits in the ensemble, and which sessions of
 *		its server wait for it.
 *
 * The report is the data of <root>/waiting/<session>.  The queues show whom the session
 * waits for; the report only says where to look, and what the local waiters hold.
 *
 * Pure functions: no I/O, no state, any thread.  They allocate from a ZklScratch.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_REPORT_H
#define ZKL_REPORT_H

#include "recipe/recipe.h"
#include "scratch.h"

/* Longest data of a report; beyond it there is no report. */
#define ZKL_REPORT_MAX 65536

typedef struct ZklReport
{
	int			pid;
	int32_t		bell;			/* version of the own bell, read before looking at the server */
	uint64_t	identity;		/* of the wait */
	const char *server;			/* for messages */
	const ZklWaitNode *nodes;
	int			n_nodes;
	const ZklLocalWaiter *waiters;
	int			n_waiters;
} ZklReport;

/*
 * Returns the data of the report's node.  Beyond ZKL_REPORT_MAX this leaves with
 * ZKL_LEFT_TOO_MUCH.  Control characters of texts become "?".
 */
extern char *zkl_report_encode(ZklScratch *scratch, const ZklReport *report, int *length);

/*
 * Returns the report, or NULL if the data are none.  Any bytes are safe.  "name" and "child"
 * of the result are single components of a path.
 */
extern ZklReport *zkl_report_decode(ZklScratch *scratch, const char *data, int length);

/*
 * Does the session still wait as it reported before, by its later report?  With "waiter", a
 * local waiter of the report before: does that one?
 */
extern bool zkl_report_is_unchanged(const ZklReport *before, const ZklReport *later,
									const ZklLocalWaiter *waiter);

/* Returns the path of a queue, or of the parent of permits. */
extern char *zkl_place_path(ZklScratch *scratch, const char *root, ZklWaitPlace place,
							const char *name);

/* Writes and reads the names below <root>/waiting: "<session>" and "<local>@<session>". */
#define ZKL_WAITING_NAME_SIZE 34
extern void zkl_waiting_name(uint64_t session, uint64_t local, char out[ZKL_WAITING_NAME_SIZE]);
extern bool zkl_parse_waiting(const char *name, uint64_t *session, uint64_t *local);

#endif							/* ZKL_REPORT_H */
